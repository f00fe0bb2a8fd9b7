"""`knoi report` and `knoi fit --report`: what the page is made from, and that it is written."""

import gzip

import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.io
import zarr

from knoi.data.open import open_view

FIT = ("fit", "X.npy", "Y.npy", "-o", "m.knoi", "--method", "linear", "-k", "2", "--quiet")
REPORT = ("report", "linear.knoi", "X.npy", "Y.npy", "-o", "page.html", "--quiet")
TEST = ("--test", "X_test.npy", "Y_test.npy")
IMAGES = ("--images", "2x3", "--images", "2x2")


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
    done = run(*REPORT, *TEST, *IMAGES)
    assert (done.code, done.out, done.err) == (0, "", "")
    with open("page.html", encoding="utf-8") as file:
        html = file.read()
    assert html.lower().startswith("<!doctype html>")
    assert "knoi report linear.knoi X.npy Y.npy -o page.html" in html


def test_fit_passes_on_rows_test_pairs_and_facts(run, reported):
    np.save("labels.npy", np.arange(200))
    more = ("--labels", "labels.npy", "--title", "Mine", "--report", "page.html", "--seed", "3")
    assert run(*FIT, *TEST, *IMAGES, *more).code == 0
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
    more = ("--labels", "labels.npy", "--report", "page.html", "--held-out", "50")
    assert run(*FIT, *more).code == 0
    (call,) = reported
    rows = call["labels"]
    assert len(rows) == len(set(rows.tolist())) == 50
    np.testing.assert_array_equal(call["test"][0], np.load("X.npy")[rows])
    np.testing.assert_array_equal(call["X"], np.delete(np.load("X.npy"), rows, axis=0))


def test_one_image_size_is_for_both_views(run, reported):
    assert run(*REPORT, "--labels", _labels("npy")).code == 0
    assert reported[0]["images"] is None
    done = run(*REPORT, "--images", "2x3")
    assert done.code == 1
    assert "--images 2x3 is 6 pixels, but Y has 4 columns. Give height x width" in done.err


def test_a_failing_report_leaves_the_model(run, monkeypatch):
    def broken(*_, **__):
        raise OSError("No space left")

    monkeypatch.setattr("knoi.report.model_report", broken)
    done = run(*FIT, "--report", "page.html")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert done.err.startswith("knoi: No space left. The model file is complete")
    assert run("info", "m.knoi").code == 0


WORDS = ["cat", "dog"] * 200


def _labels(kind):
    """The labels in a file, and its locator."""
    name = f"labels.{kind}"
    if kind == "npy":
        np.save(name, np.array(WORDS))
    elif kind == "npz":
        np.savez(name, a=np.array(WORDS), b=np.arange(3))
        name += ":a"
    elif kind in ("txt", "csv"):
        lines = WORDS if kind == "txt" else ["label", *WORDS]
        with open(name, "w") as file:
            file.write("\n".join(lines) + "\n")
    elif kind == "csv.gz":
        with gzip.open(name, "wt") as file:
            file.write("n,what\n" + "".join(f"{i},{word}\n" for i, word in enumerate(WORDS)))
        name += ":what"
    elif kind == "h5":
        with h5py.File(name, "w") as file:
            file["in/labels"] = WORDS
        name += ":/in/labels"
    elif kind == "parquet":
        pd.DataFrame({"what": WORDS, "n": range(400)}).to_parquet(name)
        name += ":what"
    return name


def test_labels_of_text(run, reported):
    for kind in ("npy", "npz", "txt", "csv", "csv.gz", "h5", "parquet"):
        assert run(*REPORT, "--labels", _labels(kind)).code == 0
        assert reported.pop()["labels"].tolist() == WORDS, kind


def test_labels_of_numbers(run, reported):
    numbers = np.arange(400) % 10
    scipy.io.savemat("n.mat", {"n": numbers.astype(float)[:, None]})
    zarr.save("n.zarr", numbers)
    for kind in ("csv", "tsv"):
        pd.DataFrame({"n": numbers}).to_csv(f"n.{kind}", index=False)
    for kind in ("mat", "zarr", "csv", "tsv"):
        assert run(*REPORT, "--labels", f"n.{kind}").code == 0
        assert reported.pop()["labels"].tolist() == numbers.tolist(), kind


def test_labels_that_cannot_be_used(error_line, reported):
    np.save("few.npy", np.arange(3))
    np.save("square.npy", np.zeros((400, 2)))
    np.save("objects.npy", np.array([{}] * 400), allow_pickle=True)
    for name, text in (("two.csv", "a,b\n1,2\n"), ("X.knoi", "")):
        with open(name, "w") as file:
            file.write(text)
    for labels, line in {
        "none.npy": "--labels ('none.npy'): there is no file or folder 'none.npy'.",
        "few.npy": "--labels ('few.npy') has 3 labels, but X has 400 rows. Give one label per row.",
        "square.npy": "--labels ('square.npy') is an array of 400 x 2. Pass one label per row.",
        "X.knoi": "--labels ('X.knoi'): files ending in '.knoi' are not supported. Supported:",
        "two.csv": "--labels ('two.csv') has several columns",
        "two.csv:c": "--labels ('two.csv:c') has no column 'c'.",
        "objects.npy": "--labels ('objects.npy') cannot be read as labels: ",
    }.items():
        assert error_line(1, *REPORT, "--labels", labels).startswith(line)
    assert reported == []
