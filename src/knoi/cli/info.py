"""`knoi info`: what a model file holds."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from knoi.cli.options import AsJson, Debug, Model
from knoi.cli.output import examples, facts_table, print_json, results

if TYPE_CHECKING:
    from knoi.estimators.base import BaseCCA

EXAMPLES = examples("knoi info model.knoi", "knoi info model.knoi --json | jq .correlations")


def info(model: Model, as_json: AsJson = False, debug: Debug = False) -> None:
    """Show what a model file holds: method, parameters, shapes, correlations."""
    from knoi.estimators import load
    from knoi.persistence import read_model

    fitted, header = load(model), read_model(model).header
    if as_json:
        print_json(_document(model, fitted, header))
        return
    facts = [("file", f"{model} ({model.stat().st_size:,} bytes)")]
    facts.append(("written by", f"knoi {header['knoi_version']}, format {header['format']}"))
    facts.append(("method", type(fitted).__name__))
    params = fitted.get_params(deep=False).items()
    facts += [("parameters" if i == 0 else "", f"{k}={v!r}") for i, (k, v) in enumerate(params)]
    for name, view in (("X", fitted.projection_.x), ("Y", fitted.projection_.y)):
        rank, L = view.weights.shape
        columns, kernel = view.features.n_cols, view.features.kernel
        facts.append((f"view {name}", f"{columns} columns -> {rank} features -> {L} components"))
        facts.append(("", f"{kernel!r}, weights {view.weights.dtype}"))
    correlations = " ".join(f"{rho:.3f}" for rho in fitted.correlations_)
    facts.append(("correlations", f"{correlations} (training)"))
    facts.append(("", f"their sum: {fitted.correlations_.sum():.3f}"))
    if hasattr(fitted, "n_samples_seen_"):
        facts.append(("training", _training(fitted)))
    results().print(facts_table(facts))


def _training(fitted: Any) -> str:
    seconds = fitted.history_["seconds"]
    spent = f" in {seconds[-1]:.1f} s" if seconds else ""
    ended = "" if fitted.stopped_ is None else f", ended by: {fitted.stopped_}"
    return f"{fitted.n_samples_seen_:,} samples{spent}{ended}"


def _document(path: Path, fitted: "BaseCCA", header: dict[str, Any]) -> dict[str, Any]:
    projection = fitted.projection_
    views = {
        name: {
            "columns": view.features.n_cols,
            "features": view.weights.shape[0],
            "kernel": repr(view.features.kernel),
        }
        for name, view in (("x", projection.x), ("y", projection.y))
    }
    return {
        "file": str(path),
        "bytes": path.stat().st_size,
        "knoi_version": header["knoi_version"],
        "format": header["format"],
        "method": type(fitted).__name__,
        "parameters": header["params"],
        "views": views,
        "components": projection.x.weights.shape[1],
        "correlations": fitted.correlations_,
        "total_correlation": float(fitted.correlations_.sum()),
        **header["facts"],
    }
