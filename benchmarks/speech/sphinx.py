"""The recogniser against CMU Sphinx on the same MFCC: phone error rates of one fold.

    apt-get install sphinxtrain pocketsphinx
    python -m benchmarks.speech.sphinx [--speaker msak0] [--fold 0] [--work DIR]

Sphinx trains from the phones of each utterance alone, by Baum-Welch from a flat start: monophones
of 32 Gaussians and, with --triphones, triphones of 8 Gaussians and 200 tied states. It decodes with
our bigram in ARPA format; its language weight and phone insertion penalty are tuned on the tuning
sentences. Both error rates, by our edit distance, are stored in results/speech_sphinx.json.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Clock, Results
from benchmarks.speech.corpora import Corpus, mocha, normalised
from benchmarks.speech.protocols import same_speaker
from benchmarks.speech.recogniser import Errors, Utterances, train
from benchmarks.speech.search import bigram, edit_distance

TASK = "phones"
WEIGHTS, PENALTIES = (2, 3, 4, 6, 8, 11), (0.1, 1.0, 10.0)
CONFIGURATION = {
    "CFG_VECTOR_LENGTH": "39",
    "CFG_FEATURE": '"1s_c"',  # the columns as they are
    "CFG_CMN": "'none'",
    "CFG_CI_MGAU": "'yes'",
    "CFG_INITIAL_NUM_DENSITIES": "1",
}
MOST_SECONDS = 3600  # of a stage: where a part of it fails, it waits for ever
STAGES = ("20.ci_hmm/slave_convg.pl",)
TRIPHONE_STAGES = (
    *STAGES,
    "30.cd_hmm_untied/slave_convg.pl",
    "40.buildtrees/slave.treebuilder.pl",
    "45.prunetree/slave.state-tying.pl",
    "50.cd_hmm_tied/slave_convg.pl",
)
FEATURES = "-feat 1s_c\n-ceplen 39\n-agc none\n-cmn none\n-varnorm no\n"


def write_features(path: Path, frames: Any) -> None:
    """A count and the numbers, in the byte order of the machine."""
    path.write_bytes(np.int32(frames.size).tobytes() + frames.astype(np.float32).tobytes())


def name_of(phone: int, corpus: Corpus) -> str:
    """A name that is the same in upper and in lower case: Sphinx does not tell them apart."""
    return "SIL" if corpus.phone_names[phone] == "sil" else f"P{phone:02d}"


def write_task(folder: Path, corpus: Corpus, parts: dict[str, Utterances]) -> None:
    """Features, lists, transcripts, dictionary and language model."""
    etc, features = folder / "etc", folder / "feat"
    features.mkdir()
    phones = range(len(corpus.phone_names))
    names = [name_of(phone, corpus) for phone in phones]
    spoken = [name for name in names if name != "SIL"]
    (etc / f"{TASK}.dic").write_text("".join(f"{name} {name}\n" for name in spoken))
    (etc / f"{TASK}.phone").write_text("".join(f"{name}\n" for name in names))
    (etc / f"{TASK}.filler").write_text("<s> SIL\n</s> SIL\n<sil> SIL\n")
    (etc / "feat.params").write_text(FEATURES)
    for part, utterances in parts.items():
        ids = [f"{part}{k:03d}" for k in range(len(utterances))]
        (etc / f"{TASK}_{part}.fileids").write_text("".join(f"{one}\n" for one in ids))
        lines = []
        for one, rows, sequence in zip(ids, utterances.slices(), utterances.phones(), strict=True):
            write_features(features / f"{one}.mfc", utterances.frames[rows])
            words = [names[phone].replace("SIL", "<sil>") for phone in sequence]
            inner = words[words[0] == "<sil>" : len(words) - (words[-1] == "<sil>")]
            lines.append(f"<s> {' '.join(inner)} </s> ({one})\n")
        (etc / f"{TASK}_{part}.transcription").write_text("".join(lines))
    write_arpa(etc / f"{TASK}.arpa", bigram(parts["train"].phones(), len(names)), names)


def write_arpa(path: Path, language: Any, names: list[str]) -> None:
    """Every pair of phones is listed, so nothing is backed off."""
    n = len(names)
    words = [*names, "<s>", "</s>"]
    pairs = [
        (language[p, q] / np.log(10), f"{words[p]} {'</s>' if q == n else words[q]}")
        for p in range(n + 1)
        for q in range(n + 1)
    ]
    lines = ["\\data\\", f"ngram 1={n + 2}", f"ngram 2={len(pairs)}", "", "\\1-grams:"]
    lines += [f"{-np.log10(n + 2):.5f} {word} 0.0" for word in words]
    lines += [
        "",
        "\\2-grams:",
        *(f"{value:.5f} {pair}" for value, pair in pairs),
        "",
        "\\end\\",
        "",
    ]
    path.write_text("\n".join(lines))


def configure(folder: Path, installed: Path, *, triphones: bool) -> None:
    """Sphinx's own configuration with our values; Debian's command does not find its files."""
    places = {
        "___DB_NAME___": TASK,
        "___BASE_DIR___": str(folder),
        "___SPHINXTRAIN_DIR___": str(installed),
        "___SPHINXTRAIN_BIN_DIR___": "/usr/lib/sphinxtrain",
    }
    settings = CONFIGURATION | {
        "CFG_CD_TRAIN": "'yes'" if triphones else "'no'",
        "CFG_FINAL_NUM_DENSITIES": "8" if triphones else "32",
    }
    text = (installed / "etc" / "sphinx_train.cfg").read_text()
    for place, value in places.items():
        text = text.replace(place, value)
    for name, value in settings.items():
        text = re.sub(rf"^(\s*)\${name} = .*;", rf"\g<1>${name} = {value};", text, flags=re.M)
    for name in ("etc", "logdir"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "etc" / "sphinx_train.cfg").write_text(text)


def trained(folder: Path, installed: Path, *, triphones: bool) -> Path:
    """The folder of the trained model."""
    environment = {**os.environ, "PERL_USE_UNSAFE_INC": "1"}  # its scripts read files from here
    with open(folder / "training.log", "w") as log:
        for stage in TRIPHONE_STAGES if triphones else STAGES:
            command = ["perl", str(installed / "scripts" / stage)]
            subprocess.run(command, cwd=folder, stdout=log, stderr=log, env=environment, check=True)
    kind = "cd_cont_200" if triphones else "ci_cont"
    model = folder / "model_parameters" / f"{TASK}.{kind}"
    if not (model / "means").exists():
        sys.exit(f"sphinxtrain made no {model}: see {folder / 'training.log'}")
    (model / "feat.params").write_text(FEATURES)
    return model


def decoded(
    folder: Path, model: Path, part: str, weight: float, penalty: float, *, triphones: bool
) -> list[list[str]]:
    """The phones that pocketsphinx finds in each utterance of a part."""
    etc, found = folder / "etc", folder / "found.hyp"
    options = {
        "adcin": "no",
        "cepdir": folder / "feat",
        "ctl": etc / f"{TASK}_{part}.fileids",
        "hmm": model,
        "allphone": etc / f"{TASK}.arpa",
        "allphone_ci": "no" if triphones else "yes",
        "lw": weight,
        "pip": penalty,
        "beam": "1e-100",
        "pbeam": "1e-100",
        "topn": 32,
        "hyp": found,
        "logfn": folder / "decoding.log",
        # It checks the size of features that it does not compute itself.
        "ncep": 39,
        "nfilt": 40,
        **dict(line[1:].split() for line in FEATURES.splitlines()),
    }
    command = ["pocketsphinx_batch"]
    for name, value in options.items():
        command += [f"-{name}", str(value)]
    subprocess.run(command, check=True, capture_output=True)
    return [line.rpartition("(")[0].split() for line in found.read_text().splitlines()]


def errors_of(corpus: Corpus, utterances: Utterances, found: list[list[str]]) -> Errors:
    """Errors of names that pocketsphinx wrote, silence and breath left out."""
    places = {name_of(p, corpus): p for p in range(len(corpus.phone_names))}
    errors, phones = [], []
    for reference, names in zip(utterances.phones(), found, strict=True):
        hypothesis = np.array([places[name] for name in names if name in places], np.int64)
        pair = [one[~np.isin(one, corpus.left_out)] for one in (reference, hypothesis)]
        errors.append(edit_distance(*pair))
        phones.append(len(pair[0]))
    return Errors.of(errors, phones)


def compare(
    speaker: str, fold: int, folder: Path, installed: Path, *, triphones: bool
) -> dict[str, Any]:
    """Both error rates on the test sentences of a fold."""
    corpus = normalised(mocha(speakers=[speaker]))
    one = list(same_speaker(corpus))[fold]
    parts = {name: corpus.part(getattr(one, name)) for name in ("train", "tune", "test")}
    own, _ = train(parts["train"], len(corpus.phone_names), corpus.left_out).tuned(parts["tune"])
    ours = own.errors(parts["test"])
    print(f"ours {ours.rate:.1%} ± {ours.standard_error():.1%}", flush=True)
    configure(folder, installed, triphones=triphones)
    write_task(folder, corpus, parts)
    clock = Clock()
    model = trained(folder, installed, triphones=triphones)
    print(f"sphinxtrain {clock.wall:.0f} s", flush=True)
    tried = {}
    for weight in WEIGHTS:
        for penalty in PENALTIES:
            found = decoded(folder, model, "tune", weight, penalty, triphones=triphones)
            tried[weight, penalty] = errors_of(corpus, parts["tune"], found).rate
            print(f"weight {weight}, penalty {penalty}: {tried[weight, penalty]:.1%}", flush=True)
    weight, penalty = min(tried, key=tried.__getitem__)
    found = decoded(folder, model, "test", weight, penalty, triphones=triphones)
    theirs = errors_of(corpus, parts["test"], found)
    difference = theirs.standard_error_of_difference(ours)
    print(f"sphinx {theirs.rate:.1%}, {theirs.rate - ours.rate:+.1%} ± {difference:.1%}")
    return {
        "ours": ours.rate,
        "sphinx": theirs.rate,
        "standard_error_of_difference": difference,
        "phones": int(ours.phones.sum()),
        "tuning": tried[weight, penalty],
        "weight": weight,
        "penalty": penalty,
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--speaker", default="msak0")
    arguments.add_argument("--fold", type=int, default=0)
    arguments.add_argument("--triphones", action="store_true")
    arguments.add_argument("--work", type=Path, help="keep the files of Sphinx here")
    options = arguments.parse_args()
    installed = sorted(Path("/usr/lib").glob("**/sphinxtrain/etc/sphinx_train.cfg"))
    if not installed or shutil.which("pocketsphinx_batch") is None:
        sys.exit("CMU Sphinx is missing: apt-get install sphinxtrain pocketsphinx")
    folder = (options.work or Path(tempfile.mkdtemp())).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    kind = "triphones" if options.triphones else "monophones"
    Results("speech_sphinx").cell(
        f"{options.speaker} fold={options.fold} {kind}",
        lambda: compare(
            options.speaker,
            options.fold,
            folder,
            installed[0].parents[1],
            triphones=options.triphones,
        ),
    )


if __name__ == "__main__":
    main()
