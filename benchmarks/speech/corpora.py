"""Corpora of speech with articulation, read and checked: XRMB, MOCHA-TIMIT and a synthetic one.

Every frame has two views: seven frames of 39 acoustic numbers (13 cepstral coefficients, their
slopes and the slopes of these), and seven frames of articulatory positions. It has a phone label,
its utterance a speaker and a sentence. `READERS` are the plug-ins.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d

from benchmarks.harness import DATA
from benchmarks.speech.acoustic import Frames
from benchmarks.speech.recogniser import Utterances, train_gmm
from benchmarks.speech.search import STATES, align, states_of
from knoi.data.open import opened_view
from knoi.exceptions import InputError, SourceFormatError, SourceNotFoundError

WINDOW = 7  # frames
CEPSTRA, ACOUSTIC = 13, 39  # static numbers per frame, and with slopes
FOLDS = 6
FEWEST_FRAMES = 500  # per speaker


@dataclass(frozen=True)
class Corpus:
    """Frames of utterances, one after the other.

    Attributes
    ----------
    name : str
    X, Y : ndarray (n, 273) and (n, d)
        Acoustic and articulatory windows of seven frames.
    labels : ndarray (n,)
        The phone of each frame, a place in `phone_names`.
    bounds : ndarray (utterances + 1,)
        Where each utterance begins, and the end.
    speakers, sentences : ndarrays (utterances,)
        Names of speakers; numbers of sentences.
    phone_names : tuple of str
    left_out : tuple of int
        Phones that do not count as errors: silence and breath.
    learners : tuple of str
        Speakers whose frames are only for learning features, as 35 of the paper's 47.
    """

    name: str
    X: Frames
    Y: Frames
    labels: NDArray[np.int64]
    bounds: NDArray[np.int64]
    speakers: NDArray[np.str_]
    sentences: NDArray[np.int64]
    phone_names: tuple[str, ...]
    left_out: tuple[int, ...]
    learners: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=(), compare=False)  # what the reader decided

    @property
    def mfcc(self) -> Frames:
        """The middle frame of the acoustic windows."""
        return self.X[:, middle(self.X)]

    def rows(self, utterances: NDArray[np.int64]) -> NDArray[np.int64]:
        """The frames of some utterances."""
        parts = [np.arange(self.bounds[u], self.bounds[u + 1]) for u in utterances]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def part(self, utterances: NDArray[np.int64]) -> Utterances:
        """Some utterances, with their MFCC as features."""
        rows = self.rows(utterances)
        bounds = np.r_[0, np.cumsum(np.diff(self.bounds)[utterances])]
        return Utterances(self.mfcc[rows], self.labels[rows], bounds)

    @property
    def utterance_of_frame(self) -> NDArray[np.int64]:
        """The utterance of each frame."""
        return np.repeat(np.arange(len(self.speakers)), np.diff(self.bounds))


def middle(view: Any) -> slice:
    """The columns of the middle frame of windows."""
    columns = view.shape[1] // WINDOW
    return slice(WINDOW // 2 * columns, (WINDOW // 2 + 1) * columns)


def check(corpus: Corpus) -> Corpus:
    """The corpus itself, or an error if an experiment with it would fail later."""
    n, name = len(corpus.labels), corpus.name
    for view, columns in (("X", WINDOW * ACOUSTIC), ("Y", None)):
        values = getattr(corpus, view)
        if len(values) != n:
            raise InputError(
                f"{name}: {view} has {len(values):,} frames but there are {n:,} labels. Every "
                "frame needs both views and a label."
            )
        if values.shape[1] % WINDOW or columns not in (None, values.shape[1]):
            raise InputError(
                f"{name}: {view} has {values.shape[1]} columns; expected {columns or 'a multiple'}"
                f" of {WINDOW} frames."
            )
        for start in range(0, n, 65_536):
            finite = np.isfinite(values[start : start + 65_536]).all(axis=1)
            if not finite.all():
                frame = start + int(np.argmin(finite))
                utterance = int(np.searchsorted(corpus.bounds, frame, side="right")) - 1
                raise InputError(
                    f"{name}: {view} is not finite at frame {frame:,}, in utterance {utterance} "
                    f"of {corpus.speakers[utterance]}. Repair or leave out the utterance."
                )
    lengths = np.diff(corpus.bounds)
    if corpus.bounds[-1] != n or (lengths <= 0).any():
        raise InputError(f"{name}: utterances end at frame {corpus.bounds[-1]:,}, not at {n:,}.")
    wrong = np.flatnonzero((corpus.labels < 0) | (corpus.labels >= len(corpus.phone_names)))
    if len(wrong):
        raise InputError(
            f"{name}: {len(wrong):,} frames have no label, the first is frame {wrong[0]:,}. Label "
            "them, or leave out their utterances."
        )
    for speaker in dict.fromkeys(corpus.speakers.tolist()):
        own = corpus.speakers == speaker
        if lengths[own].sum() < FEWEST_FRAMES or own.sum() < FOLDS:
            raise InputError(
                f"{name}: speaker {speaker} has {own.sum()} utterances of {lengths[own].sum():,} "
                f"frames together; expected at least {FOLDS} of {FEWEST_FRAMES:,}. Leave it out."
            )
    return corpus


def normalised(corpus: Corpus) -> Corpus:
    """Zero mean and unit variance of every column, speaker by speaker."""
    X, Y = corpus.X.astype(np.float32), corpus.Y.astype(np.float32)
    of_frame = corpus.utterance_of_frame
    for speaker in dict.fromkeys(corpus.speakers.tolist()):
        own = (corpus.speakers == speaker)[of_frame]
        for view in (X, Y):
            mean, deviation = view[own].mean(axis=0, dtype=np.float64), view[own].std(axis=0)
            view[own] = (view[own] - mean) / np.where(deviation > 0, deviation, 1)
    return replace(corpus, X=X, Y=Y)


def windows(frames: Any, utterance: NDArray[np.int64], reach: int = WINDOW // 2) -> Any:
    """Each frame with its neighbours; beyond the edges of an utterance the frame itself is used."""
    here = np.arange(len(frames))
    columns = []
    for offset in range(-reach, reach + 1):
        there = np.clip(here + offset, 0, len(frames) - 1)
        columns.append(frames[np.where(utterance[there] == utterance, there, here)])
    return np.hstack(columns)


def differences(frames: Any, utterance: NDArray[np.int64], reach: int = 2) -> Any:
    """The slope of a line through five frames, as speech recognisers take it."""
    around = windows(frames, utterance, reach).reshape(len(frames), 2 * reach + 1, -1)
    offsets = np.arange(-reach, reach + 1, dtype=np.float32)
    return np.einsum("t,ntd->nd", offsets / (offsets**2).sum(), around)


def acoustic_windows(cepstra: Frames, utterance: NDArray[np.int64]) -> Frames:
    """Seven frames of 39 numbers from the static coefficients of each frame."""
    slopes = differences(cepstra, utterance)
    frames = np.hstack([cepstra, slopes, differences(slopes, utterance)])
    return windows(frames, utterance).astype(np.float32)


# MOCHA-TIMIT.

MOCHA_SPEAKERS = ("msak0", "fsew0", "maps0")
LABELLED = ("msak0", "fsew0")
NOT_PHONES = ("sil", "breath")
EMA_CHANNELS = 12  # without the velum, which maps0 lacks
NO_LABEL = 255
ALIGNING_GAUSSIANS = 8  # per state, of the models that align the speaker without labels


def mocha(folder: Path | None = None, speakers: Sequence[str] = MOCHA_SPEAKERS) -> Corpus:
    """MOCHA-TIMIT from mocha_SPEAKER.npz with mfcc, ema, utt and, but for maps0, phone.

    maps0 gets the phones that another speaker reads in the same sentence, force-aligned by models
    of the two others: of the two sequences the one that is more likely.
    """
    folder = DATA / "mocha" if folder is None else folder
    needed = dict.fromkeys([*speakers, *(LABELLED if set(speakers) - set(LABELLED) else ())])
    read = {speaker: _mocha_speaker(folder, speaker) for speaker in needed}
    for speaker in set(read) - set(LABELLED):
        read[speaker] = _aligned(read[speaker], [read[one] for one in LABELLED])
    return joined("mocha", [read[speaker] for speaker in speakers])


def _mocha_speaker(folder: Path, speaker: str) -> Corpus:
    path = folder / f"mocha_{speaker}.npz"
    if not path.exists():
        raise SourceNotFoundError(f"{path} does not exist. Set KNOI_DATA or pass --data DIR.")
    with np.load(path) as data:
        wanted = ["mfcc", "ema", "utt", *(["phone", "phone_names"] if speaker in LABELLED else [])]
        missing = [name for name in wanted if name not in data]
        if missing:
            raise InputError(f"{path} has no {missing[0]!r}; it has {', '.join(data.files)}.")
        cepstra, ema = data["mfcc"].astype(np.float32), data["ema"].astype(np.float32)
        sentence = data["utt"].astype(np.int64)
        labels, names = np.zeros_like(sentence), ("?",)  # until they are aligned
        if speaker in LABELLED:
            labels, names = data["phone"].astype(np.int64), tuple(map(str, data["phone_names"]))
    counts = {"mfcc": len(cepstra), "ema": len(ema), "utt": len(sentence), "phone": len(labels)}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} {n:,}" for name, n in counts.items())
        raise InputError(f"{path}: both views need the same frames, but they have {listed}.")
    bounds = np.r_[0, 1 + np.flatnonzero(np.diff(sentence)), len(sentence)]
    utterance = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    corpus = Corpus(
        speaker,
        acoustic_windows(cepstra, utterance),
        windows(ema[:, :EMA_CHANNELS], utterance),
        np.where(labels == NO_LABEL, -1, labels),
        bounds,
        np.full(len(bounds) - 1, speaker),
        sentence[bounds[:-1]],
        names,
        tuple(place for place, name in enumerate(names) if name in NOT_PHONES),
    )
    return check(corpus)


def _aligned(corpus: Corpus, others: Sequence[Corpus]) -> Corpus:
    """Label a speaker by the phones of the others' sentences."""
    together = normalised(joined("others", others))
    everything = together.part(np.arange(len(together.speakers)))
    model, _ = train_gmm(everything, len(together.phone_names), ALIGNING_GAUSSIANS)
    read: dict[int, list[NDArray[np.int64]]] = {}
    for sentence, phones in zip(together.sentences, everything.phones(), strict=True):
        read.setdefault(int(sentence), []).append(phones)
    scores = model.scores(normalised(corpus).mfcc)
    labels = np.full(len(corpus.labels), -1)
    for u, sentence in enumerate(corpus.sentences):
        rows = slice(corpus.bounds[u], corpus.bounds[u + 1])
        paths = [states_of(phones) for phones in read.get(int(sentence), ())]
        found = [
            (score, path[places] // STATES)
            for path in paths
            if len(path) <= rows.stop - rows.start
            for places, score in [align(scores[rows], path)]
        ]
        if found:
            labels[rows] = max(found, key=lambda one: one[0])[1]
    names, left_out = together.phone_names, together.left_out
    return check(replace(corpus, labels=labels, phone_names=names, left_out=left_out))


def joined(name: str, parts: Sequence[Corpus]) -> Corpus:
    """Several speakers as one corpus; their labels must have the same names."""
    first = parts[0]
    for one in parts[1:]:
        if one.phone_names != first.phone_names or one.Y.shape[1] != first.Y.shape[1]:
            raise InputError(
                f"{first.name} and {one.name} differ in phone names or channels. Leave one out."
            )
    starts = np.cumsum([0, *(len(one.labels) for one in parts)])
    inner = [one.bounds[:-1] + start for one, start in zip(parts, starts, strict=False)]
    views = {
        name: np.concatenate([getattr(one, name) for one in parts])
        for name in ("X", "Y", "labels", "speakers", "sentences")
    }
    return replace(first, name=name, bounds=np.r_[*inner, starts[-1]], **views)


# The Wisconsin X-ray microbeam corpus.

XRMB_FILES = ("XRMBf2KALDI_window7_single1.mat", "XRMBf2KALDI_window7_single2.mat")
XRMB_PARTS = {  # acoustic, articulatory, labels, speakers
    "training": ("X1", "X2", "trainLabel", "trainID"),
    "tuning": ("XV1", "XV2", "tuneLabel", "tuneID"),
    "test": ("XTe1", "XTe2", "testLabel", "testID"),
}
RECOGNISER_SPEAKERS = 12
# Frames follow each other if their windows agree; otherwise an utterance begins. Files in another
# order than time have hardly any that do.
FOLLOWS, FEWEST_FOLLOWING = 1e-3, 0.5


def xrmb(folder: Path | None = None) -> Corpus:
    """XRMB from the public .mat files of windows, https://home.ttic.edu/~klivescu/XRMB_data/full.

    Acoustic windows are in the first file; articulatory windows, labels and speakers in either. The
    speakers of the tuning and test parts train, tune and test the recogniser, joined by the last
    of the training part until they are twelve; all others are for learning features. Windows that
    do not continue the one before begin an utterance. Silence is the label that most utterances
    begin with, if it is more than half of them.
    """
    folder = DATA / "xrmb" if folder is None else folder
    parts = [[_variable(folder, name) for name in names] for names in XRMB_PARTS.values()]
    for part, names, columns in zip(XRMB_PARTS, XRMB_PARTS.values(), parts, strict=True):
        counts = {name: len(values) for name, values in zip(names, columns, strict=True)}
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{name} {n:,}" for name, n in counts.items())
            raise InputError(f"XRMB, {part} part: expected as many frames of all, not {listed}.")
    X, Y, labels, ids = (np.concatenate(one) for one in zip(*parts, strict=True))
    labels, ids = labels.ravel().astype(np.int64), ids.ravel().astype(np.int64)
    n_first = len(parts[0][0])
    follows = _follows(X) & (np.diff(ids) == 0)
    follows[n_first - 1] = False
    if follows.mean() < FEWEST_FOLLOWING:
        raise InputError(
            f"XRMB: only {follows.mean():.0%} of the acoustic windows continue the one before. "
            "The recogniser needs frames in the order of time."
        )
    bounds = np.r_[0, 1 + np.flatnonzero(~follows), len(labels)]
    speakers = np.array([f"{one:02d}" for one in ids[bounds[:-1]]])
    first = list(dict.fromkeys(speakers[bounds[:-1] < n_first].tolist()))
    others = [one for one in dict.fromkeys(speakers.tolist()) if one not in first]
    moved = max(0, RECOGNISER_SPEAKERS - len(others))
    learners = tuple(first[: len(first) - moved])
    left_out, note = _silence(labels[bounds[:-1]])
    names = tuple(map(str, range(int(labels.max()) + 1)))
    notes = (
        f"{len(learners)} speakers for learning features, {len(others) + moved} for recognisers, "
        f"{moved} of them from the training part",
        f"{len(speakers):,} utterances, found by where windows do not continue",
        note,
    )
    sentences = np.arange(len(speakers))
    corpus = Corpus(
        "xrmb", X, Y, labels, bounds, speakers, sentences, names, left_out, learners, notes
    )
    return check(corpus)


def _variable(folder: Path, name: str) -> NDArray[Any]:
    """A variable of either file."""
    errors = []
    for file in XRMB_FILES:
        path = folder / file
        if not path.exists():
            raise SourceNotFoundError(
                f"{path} does not exist. Fetch {' and '.join(XRMB_FILES)}, or pass --data DIR."
            )
        try:
            with opened_view(f"{path}:{name}", name) as view:
                return np.asarray(view.read(0, view.n_rows))
        except (InputError, SourceFormatError) as error:
            errors.append(str(error))
    raise InputError(f"XRMB: no file has {name}. {' '.join(errors)}")


def _follows(X: Frames) -> NDArray[np.bool_]:
    """Whether each window is that of the next frame: (n - 1,).

    Then the frame before its middle is the middle of the window before, and the frame after that
    one is its own middle, whatever windows have beyond the ends of an utterance.
    """
    width = X.shape[1] // WINDOW
    before, here, after = (slice(k * width, (k + 1) * width) for k in (2, 3, 4))
    found = np.empty(len(X) - 1, np.bool_)
    scale = X[:: max(1, len(X) // 10_000)].std() or 1.0
    for start in range(0, len(found), 65_536):
        now, then = X[start : start + 65_536], X[start + 1 : start + 65_537]
        now = now[: len(then)]
        gaps = now[:, here] - then[:, before], now[:, after] - then[:, here]
        found[start : start + len(then)] = np.abs(gaps).max(axis=(0, 2)) < FOLLOWS * scale
    return found


def _silence(first_labels: NDArray[np.int64]) -> tuple[tuple[int, ...], str]:
    label, count = Counter(first_labels.tolist()).most_common(1)[0]
    share = count / len(first_labels)
    if share > 0.5:
        return (label,), f"label {label} begins {share:.0%} of them and is taken for silence"
    return (), "no label begins most of them: none is taken for silence"


# A small synthetic corpus.


def synthetic(
    folder: Path | None = None, n_speakers: int = 3, n_sentences: int = 36, n_phones: int = 9
) -> Corpus:
    """Speakers who read the same random sentences; articulators move smoothly between targets.

    Phone 0 is silence and surrounds every sentence. Cepstra are noisy functions of the
    articulators, nonlinear and a little different for every speaker. There is no folder.
    """
    rng = np.random.default_rng([0])
    n_articulators = 12
    targets = 1.5 * rng.standard_normal((STATES * n_phones, n_articulators))
    hidden = rng.standard_normal((n_articulators, 40)) / 2
    mixing, phases = rng.standard_normal((40, CEPSTRA)) / 4, rng.uniform(0, 2 * np.pi, 40)
    parts = []
    for speaker in range(n_speakers):
        own = np.random.default_rng([1, speaker])
        warped = hidden * (1 + 0.1 * own.standard_normal(40))
        cepstra, positions, labels, bounds = [], [], [], [0]
        for sentence in range(n_sentences):
            text = np.random.default_rng([2, sentence])
            phones = np.r_[0, text.integers(1, n_phones, 10), 0]
            phones = phones[np.r_[True, phones[1:] != phones[:-1]]]
            said = np.random.default_rng([3, speaker, sentence])
            lasts = said.integers(2, 5, STATES * len(phones))
            path = np.repeat(states_of(phones), lasts)
            moves = gaussian_filter1d(targets[path], sigma=1.0, axis=0)
            sound = np.cos(moves @ warped + phases) @ mixing
            cepstra.append(sound + 2 * said.standard_normal(sound.shape))
            positions.append(moves + 0.2 * said.standard_normal(moves.shape))
            labels.append(path // STATES)
            bounds.append(bounds[-1] + len(path))
        utterance = np.repeat(np.arange(n_sentences), np.diff(bounds))
        views = (np.concatenate(one).astype(np.float32) for one in (cepstra, positions))
        sound, articulation = views
        parts.append(
            Corpus(
                f"speaker{speaker}",
                acoustic_windows(sound, utterance),
                windows(articulation, utterance),
                np.concatenate(labels),
                np.array(bounds),
                np.full(n_sentences, f"speaker{speaker}"),
                np.arange(n_sentences),
                tuple("silence" if p == 0 else f"phone{p}" for p in range(n_phones)),
                (0,),
            )
        )
    return check(joined("synthetic", parts))


READERS: dict[str, Callable[..., Corpus]] = {"xrmb": xrmb, "mocha": mocha, "synthetic": synthetic}
