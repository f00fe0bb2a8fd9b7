"""The report of a model without a browser: correct numbers, escaped texts, clear errors."""

import re
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from knoi import KNOI, KernelCCA, LinearCCA, load
from knoi.estimators import ESTIMATORS
from knoi.exceptions import InputError, InputTypeError, InSampleWarning, MissingExtraError
from knoi.metrics import component_correlations, permutation_test
from knoi.report import model_report
from tests.report.reading import ParsedPage, decode_png, page_data, unpack

HOSTILE = "</script><img src=x onerror=alert(1)>\"'&<b>"
SECTIONS = ["Summary", "Correlation per component", "Learning curve", "Canonical variates"]
SECTIONS += ["Cross-view retrieval", "Loadings", "About this run"]


@pytest.fixture(scope="module")
def linear(related):
    """A model, and the function that makes its report with these arguments."""
    (X, Y), _ = related
    model = LinearCCA(2).fit(X, Y)
    return model, lambda **more: model_report(model, X, Y, **more)


def test_every_estimator_has_a_report(related):
    (X, Y), _ = related
    for estimator in ESTIMATORS:
        params = {"n_components": 2, "random_state": 0, "rank": 40, "epochs": 2, "verbose": False}
        known = estimator().get_params(deep=False)
        model = estimator(**{name: value for name, value in params.items() if name in known})
        page = ParsedPage(model_report(model.fit(X, Y), X, Y).html())
        expected = [s for s in SECTIONS if s != "Learning curve" or hasattr(model, "history_")]
        assert [text for text in page.texts if text in SECTIONS] == expected
        assert f"{estimator.__name__} on 300 paired rows" in page.texts


def test_everything_that_was_passed_is_shown(digits_report):
    page = ParsedPage(digits_report.html())
    assert [text for text in page.texts if text in SECTIONS] == SECTIONS
    assert {"knoi fit left.npy right.npy", "3 s", "600", "300"} <= set(page.texts)
    for text in ("n_components=4", "rank=80", "128 columns → 80 features", "plotly "):
        assert text in page.text
    assert re.search(r"training 1,\d+ samples in [\d.]+ s, stopped by: epochs", page.text)


def test_numbers_are_those_of_the_metrics(related):
    (X, Y), test = related
    model = LinearCCA(4).fit(X, Y)
    report = model_report(model, X, Y, test=test, random_state=3)
    page, data = ParsedPage(report.html()), report.data
    Zx, Zy = model.transform(*test)
    chart = data["correlations"]
    for series, Z in zip(chart["series"], (model.transform(X, Y), (Zx, Zy)), strict=True):
        np.testing.assert_allclose(series["values"], component_correlations(*Z), rtol=1e-3)
    chance = permutation_test(Zx, Zy, 999, 3)
    np.testing.assert_allclose(chart["chance"], chance.null_quantiles[-1], rtol=1e-3)
    assert chart["series"][1]["significant"] == [True, True, False, False]
    assert {"significant", "2 of 4"} <= set(page.texts)
    for Z, packed in zip((Zx, Zy), data["variates"], strict=True):
        np.testing.assert_allclose(unpack(packed), Z, atol=np.abs(Z).max() / 30_000)
    Zx, Zy = (Z / np.linalg.norm(Z, axis=1, keepdims=True) for Z in (Zx, Zy))
    for direction, S in enumerate((Zx @ Zy.T, Zy @ Zx.T)):
        matches, near, ranks = (
            unpack(data["retrieval"][name][direction])
            for name in ("matches", "similarities", "ranks")
        )
        best = np.argsort(-S, axis=1)[:, :10]
        np.testing.assert_array_equal(matches, best)
        np.testing.assert_allclose(near, np.take_along_axis(S, best, axis=1), atol=1e-4)
        expected = 1 + (np.diag(S)[:, None] < S).sum(axis=1)
        np.testing.assert_array_equal(ranks[:, 0] / 2, expected)
        recall = [(expected <= k).mean() for k in data["recall"]["depths"]]
        np.testing.assert_allclose(data["recall"]["series"][direction]["values"], recall, rtol=1e-3)
    model = LinearCCA(1).fit(X, Y)  # one component is compared by distance
    data = model_report(model, X, Y, test=test).data["retrieval"]
    Zx, Zy = model.transform(*test)
    assert data["similarity"] == "euclidean"
    nearest = np.abs(Zx - Zy.T).argmin(axis=1)
    np.testing.assert_array_equal(unpack(data["matches"][0])[:, 0], nearest)


def test_many_rows_are_sampled(related, linear, monkeypatch, tmp_path):
    monkeypatch.setattr("knoi.report.measure.MEASURED_ROWS", 120)
    monkeypatch.setattr("knoi.report.measure.POINTS", 50)
    (model, report), (_, test) = linear, related
    paths = tmp_path / "x.npy", tmp_path / "y.npy"
    for path, view in zip(paths, test, strict=True):
        np.save(path, view)
    labels = np.array([f"row {i}" for i in range(200)])
    for source in (test, paths):
        page = report(test=source, labels=labels, images=((2, 3), None))
        rows = np.array(page.data["rows"])
        assert len(rows) == 50
        assert (np.diff(rows) > 0).all()
        assert rows[-1] > 150  # of all rows, not the first
        expected = model.transform(test[0])[rows]
        np.testing.assert_allclose(unpack(page.data["variates"][0]), expected, atol=1e-3)
        codes = unpack(page.data["labels"]["codes"])[:, 0].astype(int)
        assert [page.data["labels"]["names"][k] for k in codes] == [f"row {i}" for i in rows]
        assert "120 of 200 held-out rows" in ParsedPage(page.html()).text


def test_further_components_only_count_in_the_total(related, monkeypatch):
    for module in ("measure", "content"):
        monkeypatch.setattr(f"knoi.report.{module}.MAX_COMPONENTS", 2)
    (X, Y), test = related
    model = LinearCCA(4).fit(X, Y)
    report = model_report(model, X, Y, test=test)
    page, data = ParsedPage(report.html()), report.data
    assert len(data["correlations"]["series"][1]["values"]) == 2
    assert data["variates"][0]["shape"] == [200, 2]
    assert "The first 2 of 4 components are shown." in page.text
    assert f"held out {model.score(*test):.4f}" in page.text


def sprite(html, view):
    """The pixels of all images of a view."""
    (uri,) = re.findall(rf"\.image-{view} .*?url\(([^)]*)\)", html)
    return decode_png(uri)


def test_images_are_those_of_the_rows(digits, digits_report):
    html, data = digits_report.html(), digits_report.data
    for view, pixels in enumerate((digits.X_test, digits.Y_test)):
        image, layout = sprite(html, view), data["images"][view]
        h, w, columns = (layout[name] for name in ("height", "width", "columns"))
        assert image.shape == (h * layout["lines"], w * columns)
        for index in (0, 7, 299):
            i, j = divmod(index, columns)
            tile = image[i * h : (i + 1) * h, j * w : (j + 1) * w]
            row = pixels[data["rows"][index]].reshape(h, w)
            np.testing.assert_array_equal(tile, np.rint(row * 255).astype(np.uint8))


def test_large_images_are_shrunk(monkeypatch):
    monkeypatch.setattr("knoi.report.images._MAX_PIXELS", 300)
    monkeypatch.setattr("knoi.report.measure._MAX_IMAGE_NUMBERS", 20)
    rng = np.random.default_rng(0)
    X, Y = rng.uniform(-3, 8, (2, 60, 20))  # 1200 pixels of 4 x 5
    report = model_report(LinearCCA(1, reg=0.1).fit(X, Y), X, Y, images=((4, 5), None))
    image = report.data["images"][0]
    assert (image["height"], image["width"]) == (2, 2)
    means = X.reshape(60, 4, 5)[:, :, :4].reshape(60, 2, 2, 2, 2).mean(axis=(2, 4))
    expected = np.rint(255 * (means[0] - means.min()) / (means.max() - means.min()))
    np.testing.assert_allclose(sprite(report.html(), 0)[:2, :2], expected, atol=1)
    assert report.data["loadings"][0]["kind"] == "image"


def test_loadings_are_those_of_the_model(digits_report, related):
    (X, Y), _ = related
    model = LinearCCA(2).fit(pd.DataFrame(X, columns=list("abcdef")), Y)
    x, y = model_report(model, X, Y).data["loadings"]
    order = np.argsort(-np.abs(model.x_loadings_[:, 1]))
    assert x["names"][1] == ["abcdef"[j] for j in order]
    np.testing.assert_allclose(x["values"][1], model.x_loadings_[order, 1], rtol=1e-2)
    assert y["names"][0][0] == f"column {np.abs(model.y_loadings_[:, 0]).argmax()}"
    image = digits_report.data["loadings"][0]
    assert (image["kind"], image["height"], image["width"]) == ("image", 16, 8)
    assert image["values"]["shape"] == [128, 4]


def test_missing_loadings_are_explained(related):
    (X, Y), _ = related
    model = KernelCCA(2, reg=0.1).fit(X, Y)
    del model.structure_
    page = ParsedPage(model_report(model, X, Y).html())
    for view in "XY":
        assert f"{view} is not shown. This KernelCCA was saved" in page.text
    assert not {"loadings-X", "loadings-Y", "component"} & page.ids


def test_hostile_text_stays_text(related):
    (X, Y), _ = related
    X = pd.DataFrame(X, columns=[HOSTILE + str(j) for j in range(6)])
    model = LinearCCA(2).fit(X, Y)
    texts = {"title": HOSTILE, "command": HOSTILE, "facts": [(HOSTILE, HOSTILE)]}
    html = model_report(model, X, Y, labels=[HOSTILE] * 300, **texts).html()
    page, data = ParsedPage(html), page_data(html)
    usual = ParsedPage(model_report(model, X, Y, labels=["a"] * 300).html())
    tags, expected = ([t for t, _ in one.tags if t not in ("dt", "dd")] for one in (page, usual))
    assert tags == expected
    assert page.texts.count(HOSTILE) == 5  # the title twice
    assert data["labels"]["names"] == [HOSTILE]
    assert data["loadings"][0]["names"][0][0] == HOSTILE[:39] + "…"


def test_texts_and_names_are_shown(linear):
    texts = [f"{HOSTILE} {i}" for i in range(300)], None
    page = linear[1](texts=texts, names=(None, [f"word {j}" for j in range(5)]))
    html, data = page.html(), page.data
    assert [t for t, _ in ParsedPage(html).tags] == [
        t for t, _ in ParsedPage(linear[1]().html()).tags
    ]
    assert page_data(html)["texts"] == [texts[0], None]
    assert set(data["loadings"][1]["names"][0]) == {f"word {j}" for j in range(5)}
    assert data["loadings"][0]["names"][0][0].startswith("column ")
    long = linear[1](texts=(None, ["x" * 999] * 300)).data["texts"]
    assert (long[0], len(long[1][0])) == (None, 200)


def test_in_sample_results_are_called_so(linear, related):
    _, report = linear
    notice = "There are no held-out rows."
    alone = ParsedPage(report().html())
    assert notice in alone.text
    assert "significant" not in alone.texts
    assert notice not in ParsedPage(report(test=related[1]).html()).text
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((2, 40, 30))
    with pytest.warns(InSampleWarning) as caught:
        model = LinearCCA(2).fit(X, Y)
    report = model_report(model, X, Y, test=tuple(rng.standard_normal((2, 90, 30))))
    page, chart = ParsedPage(report.html()), report.data["correlations"]
    assert str(caught[0].message).rpartition(": ")[2] in page.text
    assert "0 of 2" in page.texts
    assert chart["series"][1]["significant"] == [False] * 2
    assert min(chart["series"][0]["values"]) > max(chart["chance"])


def test_a_loaded_model_has_the_same_report(digits, tmp_path):
    model = KNOI(2, rank=40, epochs=2, random_state=0, verbose=False)
    model.fit(digits.X_train, digits.Y_train).save(tmp_path / "m.knoi")
    again = load(tmp_path / "m.knoi")
    first, second = (model_report(m, digits.X_train, digits.Y_train).data for m in (model, again))
    assert first == second
    again.history_["rolled_back"][0] = True
    page = ParsedPage(model_report(again, digits.X_train, digits.Y_train).html())
    assert "were rolled back" in page.text


def test_sparse_rows_and_data_frames(related):
    (X, Y), test = related
    sparse = scipy.sparse.csr_array(X), scipy.sparse.csr_array(Y)
    report = model_report(LinearCCA(2).fit(*sparse), *sparse, images=((2, 3), None))
    assert report.data["images"][0]["width"] == 3
    frame = pd.DataFrame(X, columns=list("abcdef"))
    model_report(LinearCCA(2).fit(frame, Y), frame, Y, test=test)  # without a warning


def test_labels_of_any_kind_and_rare_ones_share_the_last_colour(linear):
    numbers = np.arange(300)
    for labels, kind, groups in (
        (10 * (numbers % 3), "category", ["0", "10", "20"]),
        (numbers / 7, "number", None),
        (np.where(numbers % 2, np.nan, numbers), "category", None),
        (pd.Series(["x", "y"] * 150), "category", ["x", "y"]),
    ):
        data = linear[1](labels=labels).data["labels"]
        assert data["kind"] == kind
        assert groups is None or data["groups"] == groups
    data = linear[1](labels=[f"{i % 40:02}" if i % 2 else "often" for i in numbers]).data["labels"]
    assert (len(data["groups"]), data["groups"][-1], len(data["names"])) == (10, "other", 21)
    assert "often" in data["groups"]


def test_a_missing_extra_is_reported_first(monkeypatch):
    for module in ("jinja2", "plotly"):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(MissingExtraError, match=rf"{module}.* pip install 'knoi\[report\]'"):
            model_report(None, None, None)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"labels": [1, 2]}, InputError, r"shape \(2,\), but there are 300 training rows"),
        ({"texts": ["a"] * 300}, InputTypeError, r"texts is a list: wanted a pair, \(texts of X"),
        (
            {"texts": (["a"], None)},
            InputError,
            r"texts of X has shape \(1,\), .* 300 training rows",
        ),
        ({"names": (None, ["a"])}, InputError, r"names of Y has shape \(1,\), .* 5 columns"),
        ({"images": (2, 3)}, InputTypeError, r"wanted a pair, \(\(height, width\) of X"),
        ({"images": (2, 3, 4)}, InputTypeError, r"wanted a pair, \(\(height, width\) of X"),
        ({"images": ((2, 2), None)}, InputError, "X has 6 columns, not 2 x 2 pixels. Pass"),
        ({"test": np.zeros((4, 6))}, InputTypeError, r"wanted a pair, \(X_test, Y_test\)"),
        ({"test": (np.ones((1, 6)), np.ones((1, 5)))}, InputError, "test has 1 row"),
        ({"test": (np.ones((9, 5)), np.ones((9, 5)))}, InputError, "X has 5 features, but"),
    ],
)
def test_invalid_arguments(linear, given, error, message):
    with pytest.raises(error, match=message):
        linear[1](**given)
    with pytest.raises(InputTypeError, match=r"model is a str\. Pass a fitted estimator"):
        model_report("model.knoi", None, None)
