"""Plots, facts and HTML of a fitted model, for notebooks, `knoi info` and reports."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from knoi.arrays.random import Purpose, derived_seed
from knoi.checks import is_integer, one_of
from knoi.data.pairs import PairSource
from knoi.exceptions import InputError, NotKeptError, require
from knoi.features import FeatureMap
from knoi.features.metric import metric_of
from knoi.metrics import component_correlations, permutation_test
from knoi.projection import Projection

# A scatter plot shows at most this many rows; no others are projected.
MAX_POINTS = 5000
# Permutations behind the band of chance; its edge is a 95% quantile.
N_PERMUTATIONS = 99
# Labels with more different values than this get a colour scale instead of a colour each.
MAX_COLOURS = 10

# The colours are the notebook's, so that the table reads in light and dark mode.
_TABLE_STYLE = "border-collapse: collapse; margin: 0.4em 0; font-size: 0.9em"
_CELL_STYLE = "padding: 0.15em 0.8em 0.15em 0; text-align: left; border-bottom: 1px solid #8884"


def model_facts(model: "PlotMixin") -> dict[str, Any]:
    """Facts about a fitted model, as plain values ready for JSON; None where there is none."""
    projection = model.projection_
    correlations = [float(rho) for rho in model.correlations_]
    widths = model.width_  # type: ignore[attr-defined]
    history = getattr(model, "history_", {})
    held_out = [rho for rho in history.get("held_out", []) if np.isfinite(rho)]
    seconds = history.get("seconds", [])
    regs = getattr(model, "reg_", (None, None))
    scales = getattr(model, "scale_", (None, None))
    sides = zip("xy", (projection.x, projection.y), widths, scales, regs, strict=True)
    return {
        "method": type(model).__name__,
        "rows": getattr(model, "n_samples_", None),
        "views": {
            name: {
                "columns": view.features.n_cols,
                "features": view.features.rank,
                "kernel": repr(view.features.kernel),
                "width": width,
                "scale": scale,
                "metric": _metric_text(view.features),
                "reg": reg,
            }
            for name, view, width, scale, reg in sides
        },
        "components": len(correlations),
        "in_sample": {"total_correlation": sum(correlations), "correlations": correlations},
        "held_out_correlation": max(held_out, default=None),  # the best while training
        "samples_seen": getattr(model, "n_samples_seen_", None),
        "seconds": seconds[-1] if len(seconds) else None,
        "stopped": getattr(model, "stopped_", None),
    }


def _metric_text(features: FeatureMap) -> str | None:
    metric = metric_of(features)
    if metric is None:
        return None
    d = features.n_cols
    if metric.ndim == 1:
        return f"a weight for each of {d:,} columns"
    return f"{features.first.rank:,} directions of {d:,} columns"  # type: ignore[attr-defined]


def describe_views(views: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    """What kernel, width, scale, metric and `reg` the views of `model_facts` have, as text."""
    lines = []
    for name, view in views.items():
        metric, reg = view["metric"], view["reg"]
        parts = [round_numbers(view["kernel"])]
        parts += [] if view["scale"] is None else [f"{view['scale']} columns"]
        parts += [] if metric is None else [f"metric of {metric}"]
        parts += [] if reg is None else [f"reg {reg:g}"]
        lines.append((name.upper(), ", ".join(parts)))
    return lines


def round_numbers(text: str) -> str:
    """Shorten the numbers in a text to four digits."""
    return re.sub(r"\d+\.\d{4,}(e-?\d+)?", lambda number: f"{float(number[0]):.4g}", text)


def describe_model(model: "PlotMixin") -> list[tuple[str, str]]:
    """The facts about a fitted model as (label, text), to print as a table."""
    facts = model_facts(model)
    L = facts["components"]
    lines = []
    if facts["rows"] is not None:
        lines.append(("training rows", f"{facts['rows']:,}"))
    for name, view in facts["views"].items():
        text = f"{view['columns']:,} columns → {view['features']:,} features → {L} components"
        lines.append((f"view {name.upper()}", text))
        lines.append((f"kernel {name.upper()}", view["kernel"]))
        if view["scale"] is not None:
            lines.append((f"scale {name.upper()}", view["scale"]))
        if view["metric"] is not None:
            lines.append((f"metric {name.upper()}", view["metric"]))
        if view["reg"] is not None:
            lines.append((f"reg {name.upper()}", f"{view['reg']:g}"))
    first = ", ".join(f"{rho:.3f}" for rho in facts["in_sample"]["correlations"][:10])
    lines.append(("in-sample correlations", first + (", …" if L > 10 else "")))
    total = f"{facts['in_sample']['total_correlation']:.2f} of {L} (in-sample)"
    if facts["held_out_correlation"] is not None:
        total += f", {facts['held_out_correlation']:.2f} (held-out rows)"
    lines.append(("total correlation", total))
    if facts["samples_seen"] is not None:
        seconds = "" if facts["seconds"] is None else f" in {facts['seconds']:.1f} s"
        stopped = "" if facts["stopped"] is None else f", stopped by: {facts['stopped']}"
        lines.append(("training", f"{facts['samples_seen']:,} samples{seconds}{stopped}"))
    return lines


class PlotMixin:
    """Plots of a fitted estimator, drawn by matplotlib, and a table of facts in its HTML."""

    # Provided by the estimator.
    projection_: Projection
    correlations_: NDArray[np.float64]
    _remember_columns: Callable[..., None]
    _project_pairs: Callable[[PairSource], tuple[NDArray[Any], NDArray[Any]]]
    _transform_pairs: Callable[[Any, Any], tuple[NDArray[Any], NDArray[Any]]]

    def plot_correlations(self, X: Any = None, Y: Any = None, *, ax: Any = None) -> Any:
        """Draw the in-sample correlation of each component, and its correlation on other pairs.

        Parameters
        ----------
        X, Y : anything `fit` accepts, optional
            Pairs that were not used to fit. If given, their correlations are drawn too, and the
            band that contains all components of 95% of random pairings of the same rows.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        Axes
        """
        plt = self._pyplot("plot_correlations")
        if (X is None) != (Y is None):
            raise InputError(
                "plot_correlations got one view: correlations need pairs. Pass X and Y, or neither "
                "to draw the in-sample ones."
            )
        held_out = None if X is None else self._transform_pairs(X, Y)
        axes = _axes(plt, ax)
        numbers = np.arange(1, len(self.correlations_) + 1)
        axes.plot(numbers, self.correlations_, marker="o", markersize=4, label="in-sample")
        if held_out is not None:
            Zx, Zy = held_out
            chance = permutation_test(Zx, Zy, N_PERMUTATIONS, 0).null_largest_quantiles[-1]
            correlations = component_correlations(Zx, Zy)
            axes.plot(numbers, correlations, marker="s", markersize=4, label="pairs given")
            axes.axhspan(-chance, chance, alpha=0.2, color="grey", label="chance, 95%")
        axes.axhline(0.0, color="grey", linewidth=0.8)
        axes.set(xlabel="component", ylabel="correlation", title=type(self).__name__)
        axes.set_ylim(top=1.02)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.legend()
        return axes

    def plot_variates(
        self,
        X: Any,
        Y: Any,
        *,
        components: int | Sequence[int] = 0,
        labels: Any = None,
        ax: Any = None,
    ) -> Any:
        """Draw the variates of both views against each other: pairs that agree lie on a line.

        Parameters
        ----------
        X, Y : anything `fit` accepts
            Pairs to show. Of more than 5000 rows, a random 5000 are read and drawn.
        components : int or sequence of int, default=0
            Which components, from 0; each gets a panel.
        labels : array of shape (n_samples,), optional
            Values that colour the points. Up to ten different values get a colour each; more
            numbers get a colour scale.
        ax : matplotlib Axes, or one for each component, optional
            Where to draw; a new figure by default.

        Returns
        -------
        Axes, or an array of Axes if `components` is a sequence
        """
        plt = self._pyplot("plot_variates")
        L = len(self.correlations_)
        chosen: list[Any] = list(components) if isinstance(components, Iterable) else [components]
        if not chosen or not all(is_integer(c) and 0 <= c < L for c in chosen):
            raise InputError(
                f"components={components!r}: wanted a whole number from 0 to {L - 1}, or several."
            )
        with PairSource.open(X, Y) as pairs:
            self._remember_columns(pairs, reset=False)
            colours = None if labels is None else np.asarray(labels)
            if colours is not None and colours.shape != (pairs.n_rows,):
                raise InputError(
                    f"labels has shape {colours.shape} for {pairs.n_rows} rows: wanted one label "
                    "for each row. Pass a 1-D array of that length."
                )
            shown = rows_to_show(pairs)
            rows = shown.row_numbers()
            Zx, Zy = self._project_pairs(shown)
        panels = _panels(plt, ax, len(chosen))
        for axes, c in zip(panels, chosen, strict=True):
            _scatter(plt, axes, Zx[:, c], Zy[:, c], None if colours is None else colours[rows])
            correlation = component_correlations(Zx[:, [c]], Zy[:, [c]])[0]
            axes.set(
                xlabel="variate of X",
                ylabel="variate of Y",
                title=f"component {c + 1}: correlation {correlation:.2f}",
            )
        return panels[0] if is_integer(components) else panels

    def plot_column_importance(
        self,
        *,
        images: tuple[Any, Any] | None = None,
        n_columns: int = 15,
        ax: Any = None,
    ) -> Any:
        """Draw which columns matter, by the learned metric (`column_importance`).

        Parameters
        ----------
        images : ((height, width), (height, width)), optional
            Image shapes of the rows of X and of Y, to draw an image instead of bars; None for a
            view whose rows are not images.
        n_columns : int, default=15
            Bars per view.
        ax : Axes, or one for each view with a metric, optional
            Where to draw; a new figure by default.

        Returns
        -------
        array of Axes
        """
        plt = self._pyplot("plot_column_importance")
        x, y = self.column_importance()  # type: ignore[attr-defined]
        shapes = (None, None) if images is None else images
        shown = [one for one in zip("XY", (x, y), shapes, strict=True) if one[1] is not None]
        if not shown:
            raise NotKeptError(
                f"{type(self).__name__} has no learned metric: metric=None was set, or held-out "
                "rows did not gain by one. Fit a kernel method with metric='learned'."
            )
        panels = _panels(plt, ax, len(shown))
        for axes, (view, values, shape) in zip(panels, shown, strict=True):
            axes.set(title=f"importance of the columns of {view}")
            if shape is not None:
                drawn = axes.imshow(values.reshape(shape))
                axes.set_axis_off()
                axes.figure.colorbar(drawn, ax=axes)
                continue
            names = getattr(self, f"feature_names_{'' if view == 'X' else 'y_'}in_", None)
            top = np.argsort(-values, kind="stable")[:n_columns][::-1]
            axes.barh([f"column {j}" if names is None else str(names[j]) for j in top], values[top])
        return panels

    def plot_learning_curve(self, *, ax: Any = None, by: str = "samples") -> Any:
        """Draw the total correlation during training, of held-out rows and of minibatches.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        by : {"samples", "seconds"}, default="samples"
            The horizontal axis.

        Returns
        -------
        Axes
        """
        plt = self._pyplot("plot_learning_curve")
        one_of("by", by, ("samples", "seconds"))
        history = getattr(self, "history_", None)
        if history is None:
            raise NotKeptError(
                f"{type(self).__name__} has no learning curve: it is solved in closed form. KNOI "
                "and DoublyStochasticCCA have one; plot_correlations works for every model."
            )
        kept = ~np.asarray(history["rolled_back"], dtype=bool)
        along = np.asarray(history[by], dtype=float)[kept]
        axes = _axes(plt, ax)
        for name, label in (("held_out", "held-out rows"), ("correlation", "minibatch")):
            values = np.asarray(history[name], dtype=float)[kept]
            if np.isfinite(values).any():
                axes.plot(along, values, marker="o", markersize=3, label=label)
        for k, where in enumerate(np.asarray(history[by], dtype=float)[~kept]):
            entry = "rolled back" if k == 0 else None  # one entry in the legend
            axes.axvline(where, color="grey", linestyle=":", label=entry)
        ylabel = f"total correlation, of {len(self.correlations_)}"
        axes.set(xlabel=f"training {by}", ylabel=ylabel, title=type(self).__name__)
        axes.legend()
        return axes

    def _pyplot(self, purpose: str) -> Any:
        check_is_fitted(self)
        return require("matplotlib.pyplot", "plot", purpose)

    def _repr_html_inner(self) -> str:
        return str(super()._repr_html_inner()) + self._facts_html()  # type: ignore[misc]

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = super()._repr_mimebundle_(**kwargs)  # type: ignore[misc]
        if "text/html" in bundle:
            bundle["text/html"] += self._facts_html()
        return bundle

    def _facts_html(self) -> str:
        if not hasattr(self, "projection_"):
            return ""
        rows = "".join(
            f'<tr><th scope="row" style="{_CELL_STYLE}">{escape(label)}</th>'
            f'<td style="{_CELL_STYLE}">{escape(text)}</td></tr>'
            for label, text in describe_model(self)
        )
        return f'<table class="knoi-facts" style="{_TABLE_STYLE}"><tbody>{rows}</tbody></table>'


def rows_to_show(pairs: PairSource) -> PairSource:
    """All pairs if they are few, else a random `MAX_POINTS` of them, always the same."""
    if pairs.n_rows <= MAX_POINTS:
        return pairs
    return pairs.split(MAX_POINTS, derived_seed(0, Purpose.PLOT_ROWS))[1]


def _axes(plt: Any, ax: Any) -> Any:
    return plt.subplots(layout="constrained")[1] if ax is None else ax


def _panels(plt: Any, ax: Any, n: int) -> NDArray[Any]:
    if ax is None:
        _, made = plt.subplots(1, n, squeeze=False, figsize=(4.8 * n, 4.4), layout="constrained")
        return np.asarray(made[0])
    panels = np.array(ax, dtype=object).ravel()
    if len(panels) != n:
        raise InputError(
            f"ax has {len(panels)} Axes for {n} components: wanted one for each. Pass as many, or "
            "leave ax out."
        )
    return panels


def _scatter(plt: Any, axes: Any, x: Any, y: Any, labels: NDArray[Any] | None) -> None:
    style = {"s": 8, "alpha": 0.6, "linewidths": 0}
    if labels is None:
        axes.scatter(x, y, **style)
        return
    values = np.unique(labels)
    numeric = np.issubdtype(labels.dtype, np.number)
    if len(values) > MAX_COLOURS and not numeric:
        raise InputError(
            f"labels has {len(values)} different values that are not numbers: at most "
            f"{MAX_COLOURS} colours are available. Pass fewer, or numbers."
        )
    if len(values) > MAX_COLOURS:
        drawn = axes.scatter(x, y, c=labels, **style)
        axes.figure.colorbar(drawn, ax=axes, label="label")
        return
    colours = plt.get_cmap("tab10").colors
    for colour, value in zip(colours, values, strict=False):
        own = labels == value
        axes.scatter(x[own], y[own], color=colour, label=str(value), **style)
    axes.legend(title="label", markerscale=2, fontsize="small")
