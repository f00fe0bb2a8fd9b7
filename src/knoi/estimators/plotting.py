"""Pictures of a fitted model for notebooks: correlations, variates, learning curve."""

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from knoi.arrays.random import Purpose, generator
from knoi.arrays.sparse import stack
from knoi.data.optional import require
from knoi.data.pairs import PairSource
from knoi.data.views import open_view
from knoi.exceptions import InputError, InputTypeError, NotKeptError
from knoi.metrics import component_correlations, permutation_test

# More points than this hide each other; more rows need not even be projected.
MOST_POINTS = 5000
# Shuffles behind the band of chance: its edge is a 95% quantile.
SHUFFLES = 99
# More labels than this are not told apart by colour.
MOST_COLOURS = 10
# Rows of a file are read by runs of this many, to spare a disk the seeks.
_RUN_ROWS = 16


class PlotMixin:
    """`plot_correlations`, `plot_variates`, `plot_learning_curve`, drawn by matplotlib."""

    def plot_correlations(self, X: Any = None, Y: Any = None, *, ax: Any = None) -> Any:
        """Draw the correlation of each component on the training rows, and on other pairs.

        Parameters
        ----------
        X, Y : anything `fit` accepts, optional
            Pairs that were not used to fit. With them their correlations are drawn too, and the
            band below which 95% of random pairings of the same rows keep all components.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        Axes
        """
        model: Any = self
        plt = _pyplot(model, "plot_correlations")
        if (X is None) != (Y is None):
            given, missing = ("X", "Y") if Y is None else ("Y", "X")
            raise InputError(
                f"{given} was given without {missing}: correlations need pairs. Pass both views, "
                "or neither to draw those of the training rows."
            )
        held_out = None
        if X is not None:
            with PairSource.open(X, Y):
                pass  # refuses rows without a partner, by the names the caller knows
            held_out = model.transform(X, Y)
        axes = _axes(plt, ax)
        numbers = np.arange(1, len(model.correlations_) + 1)
        axes.plot(numbers, model.correlations_, marker="o", markersize=4, label="training rows")
        if held_out is not None:
            Zx, Zy = held_out
            chance = permutation_test(Zx, Zy, SHUFFLES, 0).null_largest_quantiles[-1]
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
            Pairs to show; of more than 5000 a random 5000, and only those are read.
        components : int or sequence of int, default=0
            Which components, from 0; each gets a panel.
        labels : array of shape (n_samples,), optional
            What colours the points: up to ten different values get a colour each, more numbers a
            scale.
        ax : matplotlib Axes, or one for each component, optional
            Where to draw; a new figure by default.

        Returns
        -------
        Axes, or an array of Axes if `components` is a sequence
        """
        model: Any = self
        plt = _pyplot(model, "plot_variates")
        chosen = _components(components, len(model.correlations_))
        with PairSource.open(X, Y) as pairs:
            model._remember_columns(X, pairs, reset=False)
            colours = None if labels is None else _labels(labels, pairs.n_rows)
            rows, shown = rows_to_show(pairs)
        sides = (model.projection_.x, model.projection_.y)
        Zx, Zy = (
            model._project(open_view(view, name), name, side)
            for view, name, side in zip(shown, "XY", sides, strict=True)
        )
        panels = _panels(plt, ax, len(chosen))
        for axes, c in zip(panels, chosen, strict=True):
            _scatter(plt, axes, Zx[:, c], Zy[:, c], None if colours is None else colours[rows])
            correlation = component_correlations(Zx[:, [c]], Zy[:, [c]])[0]
            axes.set(
                xlabel="variate of X",
                ylabel="variate of Y",
                title=f"component {c + 1}: correlation {correlation:.2f}",
            )
        return panels[0] if isinstance(components, Integral) else panels

    def plot_learning_curve(self, *, ax: Any = None, by: str = "samples") -> Any:
        """Draw the total correlation while `fit` was learning, held out and of minibatches.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        by : {"samples", "seconds"}, default="samples"
            What the curve runs along.

        Returns
        -------
        Axes
        """
        model: Any = self
        plt = _pyplot(model, "plot_learning_curve")
        if by not in ("samples", "seconds"):
            raise InputError(f"by={by!r}: wanted 'samples' or 'seconds'.")
        history = getattr(model, "history_", None)
        if history is None:
            raise NotKeptError(
                f"{type(self).__name__} has no learning curve: it is solved in one go. KNOI and "
                "DoublyStochasticCCA have one; plot_correlations works for every model."
            )
        kept = ~np.asarray(history["undone"], dtype=bool)
        along = np.asarray(history[by], dtype=float)[kept]
        axes = _axes(plt, ax)
        for name, label in (("held_out", "rows held out"), ("correlation", "minibatch")):
            values = np.asarray(history[name], dtype=float)[kept]
            if np.isfinite(values).any():
                axes.plot(along, values, marker="o", markersize=3, label=label)
        for k, where in enumerate(np.asarray(history[by], dtype=float)[~kept]):
            axes.axvline(
                where, color="grey", linestyle=":", label="step undone" if k == 0 else None
            )
        L = len(model.correlations_)
        axes.set(
            xlabel=f"training {by}",
            ylabel=f"total correlation, of {L}",
            title=type(self).__name__,
        )
        axes.legend()
        return axes


def rows_to_show(pairs: PairSource, most: int = MOST_POINTS) -> tuple[NDArray[np.intp], Any]:
    """All pairs if they are few, else `most` of them, always the same: their numbers, and they."""
    n = pairs.n_rows
    if n <= most:
        return np.arange(n), pairs.read(0, n)
    rng = generator(0, Purpose.PLOT_ROWS)
    if pairs.random_access:
        rows = np.sort(rng.choice(n, most, replace=False))
        return rows, pairs.take(rows)
    runs = np.sort(rng.choice(n // _RUN_ROWS, most // _RUN_ROWS, replace=False)) * _RUN_ROWS
    pieces = [pairs.read(int(start), int(start) + _RUN_ROWS) for start in runs]
    x, y = zip(*pieces, strict=True)
    return (runs[:, None] + np.arange(_RUN_ROWS)).ravel(), (stack(x), stack(y))


def _pyplot(model: Any, purpose: str) -> Any:
    check_is_fitted(model)
    return require("matplotlib.pyplot", "plot", purpose)


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


def _components(components: Any, L: int) -> list[int]:
    asked: list[Any] = [components] if isinstance(components, Integral) else list(components)
    if not asked or any(isinstance(c, bool) or not isinstance(c, Integral) for c in asked):
        raise InputTypeError(
            f"components={components!r}: wanted a component number or several, counted from 0."
        )
    for c in asked:
        if not 0 <= c < L:
            raise InputError(f"components={components!r}: the model has 0 to {L - 1}.")
    return [int(c) for c in asked]


def _labels(labels: Any, n_rows: int) -> NDArray[Any]:
    found = np.asarray(labels)
    if found.shape != (n_rows,):
        raise InputError(
            f"labels has shape {found.shape} for {n_rows} rows: wanted one label for each row. "
            "Pass a 1-D array of that length."
        )
    return found


def _scatter(plt: Any, axes: Any, x: Any, y: Any, labels: NDArray[Any] | None) -> None:
    style = {"s": 8, "alpha": 0.6, "linewidths": 0}
    if labels is None:
        axes.scatter(x, y, **style)
        return
    values = np.unique(labels)
    numeric = np.issubdtype(labels.dtype, np.number)
    if len(values) > MOST_COLOURS and not numeric:
        raise InputError(
            f"labels has {len(values)} different values that are no numbers: at most "
            f"{MOST_COLOURS} can be told apart by colour. Pass fewer, or numbers."
        )
    if len(values) > MOST_COLOURS:
        drawn = axes.scatter(x, y, c=labels, **style)
        axes.figure.colorbar(drawn, ax=axes, label="label")
        return
    colours = plt.get_cmap("tab10").colors
    for colour, value in zip(colours, values, strict=False):
        own = labels == value
        axes.scatter(x[own], y[own], color=colour, label=str(value), **style)
    axes.legend(title="label", markerscale=2, fontsize="small")
