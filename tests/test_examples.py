"""Every script in `examples/` runs, on less data, and prints a plausible result."""

import re
import runpy
from pathlib import Path

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


def test_speech(capsys):
    output = printed("speech", capsys)
    assert number_after("KNOI", output) > number_after("linear CCA", output)
    assert "to (94, 10)" in output


def test_genomics_counts(capsys):
    output = printed("genomics_counts", capsys)
    assert number_after("from genes to peaks:", output) > 0.8
    assert number_after("among the 10 nearest of 500:", output) > 2 * 0.02
