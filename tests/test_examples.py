"""Every script in `examples/` runs, on less data, and prints a plausible result."""

import re
import runpy
from pathlib import Path

import numpy as np

EXAMPLES = Path(__file__).parents[1] / "examples"
SMALL = {
    "quickstart": ["--rows", "2000"],
    "out_of_core": ["--rows", "4000"],
    "image_text_retrieval": ["--rows", "600", "--words", "800"],
    "speech": ["--utterances", "16"],
    "genomics_counts": ["--cells", "500", "--genes", "300", "--peaks", "400"],
}


def test_every_example_is_tested():
    assert sorted(SMALL) == sorted(path.stem for path in EXAMPLES.glob("*.py"))


def printed(name, capsys, *more):
    script = runpy.run_path(str(EXAMPLES / f"{name}.py"))
    script["main"]([*SMALL[name], *more])
    return capsys.readouterr().out


def number_after(text, output):
    (found,) = re.findall(rf"{re.escape(text)}\s+(-?\d+\.\d+)", output)
    return float(found)


def test_quickstart(capsys):
    output = printed("quickstart", capsys)
    best = number_after("best possible total correlation:", output)
    assert number_after("linear CCA, held-out pairs:", output) < 0.2 * best
    assert number_after("kernel CCA, held-out pairs:", output) > 0.8 * best
    assert "p-values of the components: [0.001 0.001]" in output


def test_out_of_core(capsys, tmp_path):
    output = printed("out_of_core", capsys, "--folder", str(tmp_path))
    assert {"X.npy", "Y.npy", "run", "views.knoi"} <= {path.name for path in tmp_path.iterdir()}
    (first, after_one), (then, after_all) = re.findall(r"([\d,]+) samples: (\d\.\d+)", output)
    assert int(then.replace(",", "")) == 2 * int(first.replace(",", ""))
    assert float(after_all) > 1.0 > number_after("linear CCA, one pass:", output)
    assert float(after_one) > 0.0


def test_image_text_retrieval(capsys):
    output = printed("image_text_retrieval", capsys)
    there, back = re.findall(r"NystromCCA, all words +(\d\.\d+) +(\d\.\d+)", output)[0]
    assert min(float(there), float(back)) > 5 * 0.02
    assert output.count("its nearest texts about") == 2


def test_speech(capsys, tmp_path):
    picture = tmp_path / "articulation.svg"
    output = printed("speech", capsys, "--plot", str(picture))
    (linear, kernel) = re.findall(r"(?:linear CCA|KNOI) +(\d+\.\d+) +(\d\.\d+)", output)
    assert float(kernel[0]) > float(linear[0])
    assert float(kernel[1]) > float(linear[1])
    assert "to (94, 20)" in output
    assert picture.read_bytes().startswith(b"<?xml")


def test_speech_of_a_mocha_speaker(capsys, tmp_path):
    sound, positions, names = runpy.run_path(str(EXAMPLES / "speech.py"))["made_up_speaker"](16)
    np.savez(
        tmp_path / "speaker.npz",
        mfcc=np.concatenate(sound).astype(np.float16),
        ema=np.rint(100 * np.concatenate(positions)).astype(np.int16),
        ema_names=np.array(names),
        utt=np.repeat(np.arange(16), 100),
    )
    output = printed("speech", capsys, "--speaker", str(tmp_path / "speaker.npz"))
    assert "1,222 windows: 91 acoustic columns, 98 articulatory ones" in output


def test_genomics_counts(capsys):
    output = printed("genomics_counts", capsys)
    assert number_after("from genes to peaks:", output) > 0.8
    assert number_after("among the 10 nearest of 500:", output) > 2 * 0.02
