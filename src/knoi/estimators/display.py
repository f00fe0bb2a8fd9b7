"""What a notebook shows of an estimator: scikit-learn's diagram, and facts once it is fitted."""

from collections.abc import Iterator
from html import escape
from typing import Any

import numpy as np

# The notebook's own colours, so that it reads in light and dark.
_TABLE = "border-collapse: collapse; margin: 0.4em 0; font-size: 0.9em"
_CELL = "padding: 0.15em 0.8em 0.15em 0; text-align: left; border-bottom: 1px solid #8884"


class HTMLFactsMixin:
    """Adds a table of facts to scikit-learn's HTML of a fitted estimator."""

    def _repr_html_inner(self) -> str:
        return str(super()._repr_html_inner()) + facts_table(self)  # type: ignore[misc]

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = super()._repr_mimebundle_(**kwargs)  # type: ignore[misc]
        if "text/html" in bundle:
            bundle["text/html"] += facts_table(self)
        return bundle


def facts_table(model: Any) -> str:
    """An HTML table of what was fitted and how well; nothing if nothing was."""
    if not hasattr(model, "projection_"):
        return ""
    rows = "".join(
        f'<tr><th scope="row" style="{_CELL}">{escape(name)}</th>'
        f'<td style="{_CELL}">{escape(text)}</td></tr>'
        for name, text in facts(model)
    )
    return f'<table class="knoi-facts" style="{_TABLE}"><tbody>{rows}</tbody></table>'


def facts(model: Any) -> Iterator[tuple[str, str]]:
    """Names and texts of what a fitted model is: rows, columns, rank, correlations."""
    if hasattr(model, "n_samples_"):
        yield "rows", f"{model.n_samples_:,}"
    yield "columns", f"{model.n_features_in_:,} of X, {model.n_features_y_:,} of Y"
    sides = model.projection_.x, model.projection_.y
    ranks = [side.features.rank for side in sides]
    if ranks != [model.n_features_in_, model.n_features_y_]:
        yield "features", f"{ranks[0]:,} of X, {ranks[1]:,} of Y"
    kernels = [str(side.features.kernel) for side in sides if side.features.kernel is not None]
    if len(kernels) == 2:
        yield "kernel", kernels[0] if kernels[0] == kernels[1] else "; ".join(kernels)
    correlations = np.asarray(model.correlations_, dtype=float)
    first = ", ".join(f"{value:.2f}" for value in correlations[:5])
    more = ", …" if len(correlations) > 5 else ""
    yield (
        "total correlation, training rows",
        f"{correlations.sum():.2f} of {len(correlations)} ({first}{more})",
    )
    held_out = np.asarray(getattr(model, "history_", {}).get("held_out", []), dtype=float)
    if np.isfinite(held_out).any():
        yield "total correlation, rows held out", f"{np.nanmax(held_out):.2f}"
    if getattr(model, "stopped_", None):
        yield "training", f"{model.n_samples_seen_:,} samples; ended by: {model.stopped_}"
