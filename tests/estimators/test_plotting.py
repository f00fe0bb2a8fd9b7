"""Plots, facts and HTML of fitted models."""

import re
import sys

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import sklearn

import knoi
from knoi import KNOI, KernelCCA, LinearCCA, NystromCCA
from knoi.data.pairs import PairSource
from knoi.datasets import make_two_views
from knoi.estimators.plotting import MAX_POINTS, rows_to_show
from knoi.exceptions import InputError, MissingExtraError, NotKeptError
from knoi.kernels import RBF
from knoi.metrics import component_correlations
from tests.estimators.models import reloaded

mpl.use("Agg")
from matplotlib import pyplot as plt


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def views():
    made = make_two_views(1600, (5, 4), correlations=(0.9, 0.6), random_state=1)
    return made.X[:1000], made.Y[:1000], made.X[1000:], made.Y[1000:]


@pytest.fixture(scope="module")
def linear(views):
    return LinearCCA(3).fit(*views[:2])


@pytest.fixture(scope="module")
def stochastic(views):
    X, Y, *_ = views
    return KNOI(2, rank=50, epochs=4, random_state=0, verbose=False).fit(X, Y)


def lines(axes):
    return {line.get_label(): line for line in axes.get_lines()}


def test_correlations_stand_beside_held_out_ones_and_chance(linear, views):
    X, Y = views[2:]
    axes = linear.plot_correlations()
    drawn = lines(axes)["in-sample"]
    np.testing.assert_array_equal(drawn.get_xdata(), [1, 2, 3])
    np.testing.assert_array_equal(drawn.get_ydata(), linear.correlations_)
    assert axes.get_title() == "LinearCCA"
    axes = linear.plot_correlations(X, Y)
    expected = component_correlations(*linear.transform(X, Y))
    np.testing.assert_array_equal(lines(axes)["pairs given"].get_ydata(), expected)
    (band,) = axes.patches
    top = band.get_extents().transformed(axes.transData.inverted()).y1
    # Two components are real, the third is not.
    assert 0 < top < expected[1]
    assert abs(expected[2]) < top
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["in-sample", "pairs given", "chance, 95%"]


def test_axes_that_are_given_are_used(linear, stochastic, views):
    _, (a, b, c) = plt.subplots(1, 3)
    assert linear.plot_correlations(ax=a) is a
    assert linear.plot_variates(*views[2:], ax=b) is b
    assert stochastic.plot_learning_curve(ax=c) is c
    assert len(plt.get_fignums()) == 1


def test_variates_are_what_transform_gives_one_panel_per_component(linear, views):
    X, Y = views[2:]
    panels = linear.plot_variates(X, Y, components=(0, 2))
    assert [axes.get_title()[:11] for axes in panels] == ["component 1", "component 3"]
    assert len(linear.plot_variates(X, Y, components=[1])) == 1
    axes = linear.plot_variates(X, Y, components=1)
    (points,) = axes.collections
    Zx, Zy = linear.transform(X, Y)
    np.testing.assert_allclose(points.get_offsets(), np.column_stack([Zx[:, 1], Zy[:, 1]]))
    correlation = component_correlations(Zx, Zy)[1]
    assert axes.get_title() == f"component 2: correlation {correlation:.2f}"


def test_few_labels_have_colours_and_many_numbers_a_scale(linear, views):
    X, Y = views[2:]
    frame = pd.DataFrame(X, columns=list("abcde"))  # drawn without a warning about names
    names = np.array(["a", "b", "c"])[np.arange(600) % 3]
    axes = LinearCCA(3).fit(frame, Y).plot_variates(frame, Y, labels=names)
    assert len(axes.collections) == 3
    axes = linear.plot_variates(X, Y, labels=names)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b", "c"]
    Zx, _ = linear.transform(X, Y)
    np.testing.assert_allclose(axes.collections[1].get_offsets()[:, 0], Zx[names == "b", 0])

    scaled = linear.plot_variates(X, Y, labels=np.arange(600.0))
    assert scaled.get_legend() is None
    np.testing.assert_array_equal(scaled.collections[0].get_array(), np.arange(600.0))


def test_rows_shown_are_as_many_as_promised_and_any_row_can_be_among_them(tmp_path):
    n = MAX_POINTS + 5
    X = np.arange(2.0 * n).reshape(n, 2)
    np.save(tmp_path / "x.npy", X)
    for source in (X, tmp_path / "x.npy"):
        with PairSource.open(source, X) as pairs:
            shown = rows_to_show(pairs)
            rows, (x, y) = shown.row_numbers(), shown.read(0, MAX_POINTS)
        assert len(set(rows)) == len(rows) == shown.n_rows == MAX_POINTS
        np.testing.assert_array_equal(x, X[rows])
        np.testing.assert_array_equal(y, X[rows])
        # 5 of 5005 rows are left out: the last n mod 16 must not be always among them.
        assert set(rows) & set(range(n - n % 16, n))


def test_each_file_is_opened_once(linear, views, tmp_path, monkeypatch):
    opened = []

    def find_and_note(path, name):
        opened.append(name)
        return find(path, name)

    find = knoi.data.open._find  # called once per file that is opened
    monkeypatch.setattr(knoi.data.open, "_find", find_and_note)
    for name, view in zip("XY", views[2:], strict=True):
        np.savetxt(tmp_path / f"{name}.csv", view, delimiter=",")
    X, Y = tmp_path / "X.csv", tmp_path / "Y.csv"
    for method in (
        linear.score,
        linear.redundancy,
        linear.permutation_test,
        linear.plot_correlations,
        linear.plot_variates,
    ):
        opened.clear()
        method(X, Y)
        assert opened == ["X", "Y"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"components": 3}, r"^components=3: wanted a whole number from 0 to 2, or several\.$"),
        ({"components": 1.5}, "wanted a whole number from 0 to 2"),
        ({"components": ()}, "wanted a whole number from 0 to 2"),
        ({"labels": [1, 2]}, r"^labels has shape \(2,\) for 600 rows: wanted one label for each"),
        ({"labels": [str(i) for i in range(600)]}, "600 different values that are not numbers"),
        ({"components": (0, 1), "ax": ["one"]}, "^ax has 1 Axes for 2 components"),
    ],
)
def test_wrong_arguments_of_plot_variates(wrong, message, linear, views):
    with pytest.raises(InputError, match=message):
        linear.plot_variates(*views[2:], **wrong)


def test_other_plots_that_cannot_be_drawn(linear, stochastic, views, monkeypatch):
    X, Y = views[2:]
    for one_view in ({"X": X}, {"Y": Y}):
        with pytest.raises(InputError, match=r"^plot_correlations got one view: .* Pass X and Y"):
            linear.plot_correlations(**one_view)
    with pytest.raises(InputError, match="the views are paired row by row"):
        linear.plot_correlations(X, Y[:-1])
    with pytest.raises(InputError, match=r"^by='epochs': wanted one of 'samples', 'seconds'"):
        stochastic.plot_learning_curve(by="epochs")
    with pytest.raises(NotKeptError, match=r"^LinearCCA has no learning curve"):
        linear.plot_learning_curve()
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    missing = r"^plot_variates needs matplotlib.* pip install 'knoi\[plot\]'$"
    with pytest.raises(MissingExtraError, match=missing):
        linear.plot_variates(X, Y)


def test_the_learning_curve_shows_the_history(stochastic, tmp_path):
    history = stochastic.history_
    for by in ("samples", "seconds"):
        axes = stochastic.plot_learning_curve(by=by)
        for name, label in (("held_out", "held-out rows"), ("correlation", "minibatch")):
            line = lines(axes)[label]
            np.testing.assert_array_equal(line.get_xdata(), history[by])
            np.testing.assert_array_equal(line.get_ydata(), history[name])
        assert axes.get_xlabel() == f"training {by}"
    # Steps that were rolled back are marked.
    model = reloaded(stochastic, tmp_path)
    model.history_["rolled_back"][0] = True
    axes = model.plot_learning_curve()
    assert lines(axes)["rolled back"].get_xdata()[0] == model.history_["samples"][0]
    assert len(lines(axes)["minibatch"].get_xdata()) == len(model.history_["samples"]) - 1


def facts_of(model):
    html = model._repr_html_()
    (table,) = re.findall(r'<table class="knoi-facts".*?</table>', html)
    cells = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", table)
    return dict(zip(cells[::2], cells[1::2], strict=True))


def test_a_fitted_model_shows_its_facts(linear, stochastic):
    facts = facts_of(linear)
    assert facts["training rows"] == "1,000"
    assert facts["view Y"] == "4 columns → 4 features → 3 components"
    total = sum(linear.correlations_)
    assert facts["total correlation"] == f"{total:.2f} of 3 (in-sample)"
    assert facts["in-sample correlations"].split(", ")[0] == f"{linear.correlations_[0]:.3f}"

    facts = facts_of(stochastic)
    assert facts["training rows"] == "1,000"
    assert facts["view X"] == "5 columns → 50 features → 2 components"
    best = np.nanmax(stochastic.history_["held_out"])
    assert facts["total correlation"].endswith(f", {best:.2f} (held-out rows)")
    assert f"stopped by: {stochastic.stopped_}" in facts["training"]


def test_both_ways_to_ask_for_html_agree(linear):
    assert "knoi-facts" not in LinearCCA()._repr_html_()
    assert "LinearCCA" in LinearCCA()._repr_html_()
    bundle = linear._repr_mimebundle_()
    assert "knoi-facts" in bundle["text/html"]
    assert bundle["text/plain"] == repr(linear)
    with sklearn.config_context(display="text"):
        assert "text/html" not in linear._repr_mimebundle_()
        assert not hasattr(linear, "_repr_html_")


def test_text_in_the_facts_is_escaped(views, monkeypatch):
    model = KernelCCA(1).fit(views[0][:50], views[1][:50])
    monkeypatch.setattr(RBF, "__repr__", lambda _kernel: "<script>alert(1)</script>")
    assert facts_of(model)["kernel X"] == "&lt;script&gt;alert(1)&lt;/script&gt;"
    assert "<script>alert" not in model._repr_html_()


@pytest.mark.parametrize(
    "model", [LinearCCA(1), NystromCCA(1, rank=10), KNOI(1, rank=20, batch_size=64)]
)
def test_rows_are_counted_over_pieces_and_kept_in_files(model, views, tmp_path):
    X, Y, *_ = views
    assert model.partial_fit(X[:300], Y[:300]).n_samples_ == 300
    assert model.partial_fit(X[300:], Y[300:]).n_samples_ == 1000
    assert reloaded(model, tmp_path).n_samples_ == 1000
    assert model.fit(X[:500], Y[:500]).n_samples_ == 500
    del model.n_samples_  # as read from a file of an earlier version
    assert "training rows" not in facts_of(model)
    assert not hasattr(reloaded(model, tmp_path), "n_samples_")
