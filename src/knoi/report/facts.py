"""Facts about a fitted model and about the run, as names and texts."""

import math
import os
import platform
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from knoi import __version__
from knoi.arrays.backend import peak_memory
from knoi.estimators.base import BaseCCA
from knoi.report.content import Content

Fact = tuple[str, str]


def method_facts(content: Content) -> tuple[Fact, ...]:
    """What was fitted on what."""
    model = content.model
    facts = [("method", f"{type(model).__name__}. {_first_line(model)}")]
    facts.append(("training rows", f"{content.training.n_available:,}"))
    if content.held_out is not None:
        facts.append(("rows held out", f"{content.held_out.n_available:,}"))
    views = model.projection_.x, model.projection_.y
    for name, view, columns in zip("XY", views, content.n_cols, strict=True):
        rank, L = view.weights.shape
        facts.append(
            (
                f"view {name}",
                f"{columns:,} columns → {rank:,} features ({_short(repr(view.features.kernel))}) → "
                f"{L} components",
            )
        )
    facts.append(("parameters", _set_parameters(model)))
    stopped = getattr(model, "stopped_", None)
    if stopped is not None:
        seen = f"{model.n_samples_seen_:,} samples" if hasattr(model, "n_samples_seen_") else ""
        facts.append(("training ended", f"{stopped}, after {seen}" if seen else str(stopped)))
    training, held_out = content.totals
    text = f"training {training:.4f}"
    if held_out is not None:
        text += f", held out {held_out:.4f}"
    return (*facts, ("total correlation", f"{text}; of at most {content.n_components}"))


def run_facts(content: Content, given: Iterable[Fact]) -> tuple[Fact, ...]:
    """What is needed to judge and repeat the run; what is given goes first and is not overruled."""
    facts = [(str(name), str(text)) for name, text in given]
    own = [("seed", _seed(content.model))]
    if content.curve is not None:
        own.append(("training time", f"{content.curve['seconds'][-1]:,.1f} s"))
    memory = peak_memory()
    if memory is not None:
        own.append(("memory", f"{memory / 2**20:,.0f} MiB at most, in the process of this page"))
    libraries = ", ".join(
        f"{name} {version(name)}" for name in ("numpy", "scipy", "scikit-learn", "plotly")
    )
    own += [
        ("versions", f"knoi {__version__}, Python {platform.python_version()}, {libraries}"),
        ("machine", f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}"),
        ("written", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")),
    ]
    taken = {name for name, _ in facts}
    return (*facts, *(fact for fact in own if fact[0] not in taken))


def code_to_repeat(content: Content) -> str:
    """Python that fits such a model."""
    whole: Any = content.model  # scikit-learn shortens what is longer than it is told
    model = whole.__repr__(N_CHAR_MAX=math.inf)
    return f"from knoi import {type(content.model).__name__}\nmodel = {model}.fit(X, Y)"


def _first_line(model: BaseCCA) -> str:
    return (type(model).__doc__ or "").strip().split("\n")[0]


def all_parameters(model: BaseCCA) -> tuple[Fact, ...]:
    """Every constructor parameter and its value."""
    params: dict[str, Any] = model.get_params(deep=False)
    return tuple((name, _short(repr(value))) for name, value in params.items())


def _set_parameters(model: BaseCCA) -> str:
    """The parameters that are not at their defaults."""
    defaults = dict(all_parameters(type(model)()))
    changed = (f"{k}={v}" for k, v in all_parameters(model) if v != defaults[k])
    return ", ".join(changed) or "all at their defaults"


def _short(text: str) -> str:
    """Numbers in a text to four digits."""
    return re.sub(r"\d+\.\d{4,}(e-?\d+)?", lambda number: f"{float(number[0]):.4g}", text)


def _seed(model: BaseCCA) -> str:
    params = model.get_params(deep=False)
    if "random_state" not in params:
        return "none needed: nothing is random"
    seed = params["random_state"]
    return "not fixed: another fit will differ a little" if seed is None else str(seed)
