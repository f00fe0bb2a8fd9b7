"""What the report of a model says, without a browser: measured right, escaped, whole, honest."""

import base64
import re
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from knoi import KNOI, KernelCCA, LinearCCA, load
from knoi.estimators import ESTIMATORS
from knoi.exceptions import InputError, InputTypeError, InSampleWarning, MissingExtraError
from knoi.metrics import component_correlations, permutation_test
from knoi.report import model_report
from tests.html_page import Page
from tests.reporting.unpacking import data_of, unpacked

HOSTILE = "</script><img src=x onerror=alert(1)>\"'&<b>"
SECTIONS = [
    "What was fitted",
    "Correlation by component",
    "Canonical variates",
    "Find the partner",
    "What components are made of",
    "This run",
]


def small(estimator):
    """Any estimator, quick to fit."""
    params = {"n_components": 2, "random_state": 0, "rank": 40, "epochs": 2, "verbose": False}
    known = estimator().get_params(deep=False)
    return estimator(**{name: value for name, value in params.items() if name in known})


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_estimator_has_a_report_with_nothing_else_given(estimator, related):
    (X, Y), _ = related
    page = Page(model_report(small(estimator).fit(X, Y), X, Y).html())
    titles = [title for title in SECTIONS if title in page.texts]
    assert titles == SECTIONS
    assert f"{estimator.__name__} of 300 paired rows" in page.texts


def test_everything_that_can_be_given_is_shown(digits_report):
    page = Page(digits_report.html())
    assert [s for s in page.texts if s in {*SECTIONS, "Learning curve"}] == [
        *SECTIONS[:2],
        "Learning curve",
        *SECTIONS[2:],
    ]
    for text in ("knoi fit left.npy right.npy", "3 s", "600", "300", "training time"):
        assert text in page.texts
    for name in ("n_components=4", "rank=80", "128 columns → 80 features", "plotly "):
        assert name in page.text
    plots = {"correlations", "curve", "scatter", "recall", "importance-x", "importance-y"}
    assert plots <= page.ids


def test_numbers_are_those_of_the_metrics(related):
    (X, Y), test = related
    model = LinearCCA(4).fit(X, Y)
    report = model_report(model, X, Y, test=test, random_state=3)
    data = data_of(report.html())
    Zx, Zy = model.transform(*test)
    found = data["correlations"]
    np.testing.assert_allclose(found["held_out"], component_correlations(Zx, Zy), rtol=1e-3)
    training = component_correlations(*model.transform(X, Y))
    np.testing.assert_allclose(found["training"], training, rtol=1e-3)
    chance = permutation_test(Zx, Zy, 999, 3)
    np.testing.assert_allclose(found["chance"], chance.null_quantiles[-1], rtol=1e-3)
    assert found["beyond"] == [True, True, False, False]
    assert "2 of 4" in Page(report.html()).texts
    for Z, packed in zip((Zx, Zy), data["variates"], strict=True):
        np.testing.assert_allclose(unpacked(packed), Z, atol=np.abs(Z).max() / 30_000)


def test_nearest_rows_are_the_nearest(related):
    (X, Y), test = related
    model = LinearCCA(3).fit(X, Y)
    data = data_of(model_report(model, X, Y, test=test).html())["retrieval"]
    Zx, Zy = (Z / np.linalg.norm(Z, axis=1, keepdims=True) for Z in model.transform(*test))
    for direction, S in enumerate((Zx @ Zy.T, Zy @ Zx.T)):
        best = np.argsort(-S, axis=1)[:, :10]
        np.testing.assert_array_equal(unpacked(data["matches"][direction]), best)
        near = np.take_along_axis(S, best, axis=1)
        np.testing.assert_allclose(unpacked(data["similarities"][direction]), near, atol=1e-4)
        own = np.diag(S)[:, None]
        ranks = 1 + (own < S).sum(axis=1)
        np.testing.assert_array_equal(unpacked(data["ranks"][direction])[:, 0] / 2, ranks)
        recall = [(ranks <= k).mean() for k in data["depths"]]
        np.testing.assert_allclose(data["recall"][direction], recall, rtol=1e-3)


def test_one_component_is_compared_by_distance(related):
    (X, Y), test = related
    model = LinearCCA(1).fit(X, Y)
    data = data_of(model_report(model, X, Y, test=test).html())["retrieval"]
    Zx, Zy = model.transform(*test)
    nearest = np.abs(Zx - Zy.T).argmin(axis=1)
    assert data["similarity"] == "euclidean"
    np.testing.assert_array_equal(unpacked(data["matches"][0])[:, 0], nearest)


def test_only_a_sample_of_many_rows_is_shown(related, monkeypatch, tmp_path):
    monkeypatch.setattr("knoi.report.rows.MEASURED_ROWS", 120)
    monkeypatch.setattr("knoi.report.rows.SHOWN_ROWS", 50)
    (X, Y), test = related
    model = LinearCCA(2).fit(X, Y)
    paths = []
    for name, view in zip("xy", test, strict=True):
        paths.append(tmp_path / f"{name}.npy")
        np.save(paths[-1], view)
    labels = np.array([f"row {i}" for i in range(200)])
    for source in (test, tuple(paths)):
        report = model_report(model, X, Y, test=source, labels=labels)
        data = data_of(report.html())
        rows = np.array(data["rows"])
        assert len(rows) == 50
        assert (np.diff(rows) > 0).all()
        assert rows[-1] > 150  # of all, not the first
        Zx = model.transform(test[0])[rows]
        np.testing.assert_allclose(unpacked(data["variates"][0]), Zx, atol=1e-3)
        codes = unpacked(data["labels"]["codes"])[:, 0].astype(int)
        assert [data["labels"]["names"][k] for k in codes] == [f"row {i}" for i in rows]
        assert "120 of 200 rows held out" in Page(report.html()).text


def test_components_beyond_the_first_are_only_added_up(related, monkeypatch):
    for module in ("measures", "content", "sections", "importance"):
        monkeypatch.setattr(f"knoi.report.{module}.MOST_COMPONENTS", 2)
    (X, Y), test = related
    model = LinearCCA(4).fit(X, Y)
    report = model_report(model, X, Y, test=test)
    page, data = Page(report.html()), data_of(report.html())
    assert len(data["correlations"]["held_out"]) == 2
    assert data["variates"][0]["shape"] == [200, 2]
    assert "The first 2 of 4 components are shown." in page.text
    assert f"held out {model.score(*test):.4f}" in page.text


def test_pictures_are_those_of_the_rows(digits, digits_report):
    from tests.test_report import decoded

    html = digits_report.html()
    data = data_of(html)
    for view, pixels in enumerate((digits.X_test, digits.Y_test)):
        (png,) = re.findall(rf"\.picture-{view} .*?base64,([^)]*)\)", html)
        image, place = decoded(base64.b64decode(png)), data["pictures"][view]
        h, w, columns = (place[name] for name in ("height", "width", "columns"))
        assert image.shape == (h * place["lines"], w * columns)
        for index in (0, 7, 299):
            i, j = divmod(index, columns)
            tile = image[i * h : (i + 1) * h, j * w : (j + 1) * w]
            row = pixels[data["rows"][index]].reshape(h, w)
            np.testing.assert_array_equal(tile, np.rint(row * 255).astype(np.uint8))


def test_importance_is_the_loadings(digits_report, related):
    (X, Y), _ = related
    model = LinearCCA(2).fit(pd.DataFrame(X, columns=list("abcdef")), Y)
    x, y = data_of(model_report(model, X, Y).html())["importance"]
    order = np.argsort(-np.abs(model.x_loadings_[:, 1]))
    assert x["names"][1] == ["abcdef"[j] for j in order]
    np.testing.assert_allclose(x["values"][1], model.x_loadings_[order, 1], rtol=1e-2)
    assert y["names"][0][0] == f"column {np.abs(model.y_loadings_[:, 0]).argmax()}"
    image = data_of(digits_report.html())["importance"][0]
    assert (image["kind"], image["height"], image["width"]) == ("image", 16, 8)
    assert image["values"]["shape"] == [128, 4]


def test_text_cannot_break_out(related):
    (X, Y), _ = related
    names = [HOSTILE + str(j) for j in range(6)]
    X = pd.DataFrame(X, columns=names)
    model = LinearCCA(2).fit(X, Y)
    texts = {"title": HOSTILE, "command": HOSTILE, "facts": [(HOSTILE, HOSTILE)]}
    html = model_report(model, X, Y, labels=[HOSTILE] * 300, **texts).html()
    page, usual = Page(html), Page(model_report(model, X, Y, labels=["a"] * 300).html())
    assert [tag for tag, _ in page.tags if tag != "dt" and tag != "dd"] == [
        tag for tag, _ in usual.tags if tag != "dt" and tag != "dd"
    ]
    assert page.texts.count(HOSTILE) == 5  # the title twice
    data = data_of(html)
    assert data["labels"]["names"] == [HOSTILE]
    shortened = data["importance"][0]["names"][0][0]
    assert shortened == HOSTILE[:39] + "…"


def test_page_runs_its_own_scripts_only(digits_report):
    html = digits_report.html()
    (policy,) = re.findall(r'Content-Security-Policy"\s+content="([^"]*)"', html)
    assert policy.startswith("default-src 'none'; img-src data: blob:")
    assert len(re.findall(r"'sha256-[^']*'", policy)) == 2
    assert "unsafe-inline'; script-src" in policy
    assert "unsafe-eval" not in policy
    assert not Page(html).all("link")


def test_without_rows_held_out_it_says_so(related):
    (X, Y), test = related
    model = LinearCCA(2).fit(X, Y)
    alone, tested = (Page(model_report(model, X, Y, test=t).html()) for t in (None, test))
    assert "No rows were held out." in alone.text
    assert "beyond chance" not in alone.texts
    assert "No rows were held out." not in tested.text
    assert "beyond chance" in tested.texts


def test_correlations_that_mean_nothing_are_called_so():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((2, 40, 30))
    with pytest.warns(InSampleWarning):
        model = LinearCCA(2).fit(X, Y)
    page = Page(model_report(model, X, Y, test=tuple(rng.standard_normal((2, 90, 30)))).html())
    assert "correlations_ means nothing here" in page.text
    assert "0 of 2" in page.texts


def test_noise_is_seen_as_noise():
    rng = np.random.default_rng(1)
    X, Y = rng.standard_normal((2, 400, 8))
    model = LinearCCA(3).fit(X[:200], Y[:200])
    data = data_of(model_report(model, X[:200], Y[:200], test=(X[200:], Y[200:])).html())
    assert data["correlations"]["beyond"] == [False] * 3
    assert min(data["correlations"]["training"]) > max(data["correlations"]["chance"])


def test_a_loaded_model_has_the_same_page(digits, digits_report, tmp_path):
    model = KNOI(2, rank=40, epochs=2, random_state=0, verbose=False)
    model.fit(digits.X_train, digits.Y_train).save(tmp_path / "m.knoi")
    again = load(tmp_path / "m.knoi")
    first, second = (model_report(m, digits.X_train, digits.Y_train).data for m in (model, again))
    assert first == second


def test_sparse_rows(related):
    (X, Y), _ = related
    X, Y = scipy.sparse.csr_array(X), scipy.sparse.csr_array(Y)
    model = LinearCCA(2).fit(X, Y)
    report = model_report(model, X, Y, images=((2, 3), None))
    assert data_of(report.html())["pictures"][0]["width"] == 3


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        (np.arange(300) % 3, "category"),
        (np.arange(300) / 7, "number"),
        (np.arange(300), "number"),
        ([True, False] * 150, "category"),
        (["a", None, "b"] * 100, "category"),
        (np.where(np.arange(300) % 2, np.nan, np.arange(300)), "category"),
        (pd.Series(["x", "y"] * 150), "category"),
    ],
)
def test_labels_of_any_kind(related, labels, kind):
    (X, Y), _ = related
    found = data_of(model_report(LinearCCA(2).fit(X, Y), X, Y, labels=labels).html())["labels"]
    assert found["kind"] == kind


def test_many_labels_share_the_last_colour(related):
    (X, Y), _ = related
    labels = [f"{i % 40:02}" if i % 2 else "often" for i in range(300)]
    found = data_of(model_report(LinearCCA(2).fit(X, Y), X, Y, labels=labels).html())["labels"]
    assert len(found["groups"]) == 10
    assert found["groups"][-1] == "other"
    assert "often" in found["groups"]
    assert len(found["names"]) == 21


def test_numbers_sort_by_value(related):
    (X, Y), _ = related
    labels = [10 * (i % 5) for i in range(300)]
    found = data_of(model_report(LinearCCA(2).fit(X, Y), X, Y, labels=labels).html())["labels"]
    assert found["groups"] == ["0", "10", "20", "30", "40"]


def test_what_a_model_does_not_hold_is_not_missed(related):
    (X, Y), _ = related
    model = KernelCCA(2, reg=0.1).fit(X, Y)
    del model.structure_
    page = Page(model_report(model, X, Y).html())
    assert "X is not shown. This KernelCCA was saved" in page.text
    assert "importance-x" not in page.ids


def test_a_missing_plotly_is_said_before_anything_else(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "plotly.offline", None)
    with pytest.raises(MissingExtraError, match=r"Run: pip install 'knoi\[report\]'"):
        model_report(None, None, None)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"labels": [1, 2]}, InputError, r"shape \(2,\), but there are 300 training rows"),
        ({"images": (2, 3)}, InputTypeError, r"wanted a pair, \(\(height, width\) of X"),
        ({"images": ((2, 2), None)}, InputError, "X has 6 columns, which are no picture of 2 x 2"),
        ({"images": ((2, 3),)}, InputTypeError, "wanted a pair"),
        ({"test": np.zeros((4, 6))}, InputTypeError, r"wanted a pair, \(X_test, Y_test\)"),
        ({"test": (np.ones((1, 6)), np.ones((1, 5)))}, InputError, "test has 1 row"),
        ({"test": (np.ones((9, 5)), np.ones((9, 5)))}, InputError, "X has 5 features, but"),
    ],
)
def test_wrong_arguments_are_refused(related, given, error, message):
    (X, Y), _ = related
    with pytest.raises(error, match=message):
        model_report(LinearCCA(2).fit(X, Y), X, Y, **given)


def test_what_is_no_model_is_refused(related):
    (X, Y), _ = related
    with pytest.raises(InputTypeError, match="model is a str: wanted a fitted estimator"):
        model_report("model.knoi", X, Y)


def test_names_of_a_frame_raise_no_warning(related):
    (X, Y), test = related
    frame = pd.DataFrame(X, columns=list("abcdef"))
    model = LinearCCA(2).fit(frame, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model_report(model, frame, Y, test=test)
