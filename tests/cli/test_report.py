"""`knoi report` and `knoi fit --report`: what the page is made from, and that it is written."""

from pathlib import Path

import numpy as np
import pytest

from knoi.data.open import open_view

FIT = "fit X.npy Y.npy -o m.knoi --method linear -k 2 --quiet --report page.html"
REPORT = "report linear.knoi X.npy Y.npy -o page.html --quiet"
TEST = "--test X_test.npy Y_test.npy"
IMAGES = "--images 2x3 --images 2x2"


@pytest.fixture
def reported(monkeypatch):
    """The arguments of the report, which is not made."""
    calls = []

    class Page:
        def write(self, path):
            path.write_text("page")

    def model_report(model, X, Y, **more):
        views = [open_view(view, "X").read(0, open_view(view, "X").n_rows) for view in (X, Y)]
        if more["test"] is not None:
            more["test"] = [view.read(0, view.n_rows) for view in more["test"]]
        calls.append({"model": model, "X": views[0], "Y": views[1], **more})
        return Page()

    monkeypatch.setattr("knoi.report.model_report", model_report)
    return calls


def test_a_real_page(run):
    done = run(f"{REPORT} {TEST} {IMAGES}")
    assert (done.code, done.out, done.err) == (0, "", "")
    html = Path("page.html").read_text(encoding="utf-8")
    assert html.lower().startswith("<!doctype html>")
    assert "knoi report linear.knoi X.npy Y.npy -o page.html" in html


def test_fit_passes_on_rows_test_pairs_and_facts(run, reported):
    np.save("labels.npy", np.arange(200))
    assert run(f"{FIT} {TEST} {IMAGES} --labels labels.npy --title Mine --seed 3").code == 0
    (call,) = reported
    np.testing.assert_array_equal(call["X"], np.load("X.npy"))
    np.testing.assert_array_equal(call["test"][1], np.load("Y_test.npy"))
    np.testing.assert_array_equal(call["labels"], np.arange(200))
    assert call["images"] == ((2, 3), (2, 2))
    assert (call["title"], call["random_state"]) == ("Mine", 3)
    assert call["command"].startswith("knoi fit X.npy Y.npy -o m.knoi")
    assert {"X", "Y", "model", "time to fit"} <= {name for name, _ in call["facts"]}


def test_labels_of_all_rows_are_reduced_to_the_rows_held_out(run, reported):
    np.save("labels.npy", np.arange(400))
    assert run(f"{FIT} --labels labels.npy --held-out 50").code == 0
    (call,) = reported
    rows = call["labels"]
    assert len(rows) == len(set(rows.tolist())) == 50
    np.testing.assert_array_equal(call["test"][0], np.load("X.npy")[rows])
    np.testing.assert_array_equal(call["X"], np.delete(np.load("X.npy"), rows, axis=0))


def test_labels_are_those_of_the_training_rows_without_test_pairs(run, error_line, reported):
    Path("labels.txt").write_text("cat\ndog\n" * 200)
    assert run(f"{REPORT} --labels labels.txt").code == 0
    (call,) = reported
    assert call["labels"].tolist() == ["cat", "dog"] * 200
    assert call["images"] == (None, None)
    np.save("few.npy", np.arange(3))
    for more, line in {
        "--labels none.npy": "--labels ('none.npy'): there is no file or folder 'none.npy'.",
        "--labels few.npy": "--labels ('few.npy') has 3 labels, but X has 400 rows",
        f"{TEST} --labels few.npy": "--labels ('few.npy') has 3 labels, but X of --test has 200",
        "--images 2x3": "--images [(2, 3), (2, 3)]: Y has 4 columns, not 2 x 3 pixels",
        f"{IMAGES} --images 2x2": "--images [(2, 3), (2, 2), (2, 2)]: wanted a pair",
    }.items():
        assert error_line(1, f"{REPORT} {more}").startswith(line)
    assert len(reported) == 1


def test_texts_and_names_are_those_of_the_rows_shown(run, error_line, reported):
    Path("texts.csv").write_text("t\n" + "".join(f"row {i}\n" for i in range(400)))
    Path("words.txt").write_text("".join(f"{i:03}\n" for i in range(6)))
    more = "--texts texts.csv:t --x-names words.txt"
    assert run(f"{FIT} {more} --held-out 50").code == 0
    (call,) = reported
    for view, texts in enumerate(call["texts"]):
        rows = [int(text.removeprefix("row ")) for text in texts]
        name = "XY"[view]
        np.testing.assert_array_equal(call["test"][view], np.load(f"{name}.npy")[rows])
    assert call["names"][0].tolist() == ["000", "001", "002", "003", "004", "005"]
    assert call["names"][1] is None
    for wrong, line in {
        f"{TEST} --texts texts.csv": "--texts ('texts.csv') has 401 texts, but X of --test has 200",
        "--y-names words.txt": "--y-names ('words.txt') has 6 names, but Y has 4 columns. Give one",
    }.items():
        assert error_line(1, f"{REPORT} {wrong}").startswith(line)
    line = error_line(2, f"{REPORT} --texts a --texts b --texts c")
    assert "give it once for both views" in line
    assert "'--x-names': it is for the report" in error_line(
        2, "fit X.npy Y.npy -o m.knoi --x-names words.txt"
    )


def test_a_failing_report_leaves_the_model(error_line, run, monkeypatch):
    def broken(*_, **__):
        raise OSError("No space left")

    monkeypatch.setattr("knoi.report.model_report", broken)
    assert error_line(1, FIT).startswith("No space left. The model file is complete")
    assert run("info m.knoi").code == 0
