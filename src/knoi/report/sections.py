"""The sections of a report of a model: what is said, and where plots and pickers stand."""

from knoi.report.content import Content
from knoi.report.controls import Choice, Controls, Matches, Plot, RowPicker, SideBySide, Switch
from knoi.report.facts import all_parameters, method_facts
from knoi.report.measures import LEVEL, MOST_COMPONENTS
from knoi.report.page import Block, Cards, Facts, Folded, Notice, Section, Table
from knoi.report.rows import Variates

_VIEWS = ("X", "Y")


def summary(content: Content) -> Section:
    """What was fitted on what, and the numbers to read first."""
    training, held_out = content.totals
    L = content.n_components
    total = training if held_out is None else held_out
    recall, n = content.retrieval.recall[0][0], len(content.shown)
    measured_on = "training rows" if held_out is None else "rows held out"
    cards = [
        ("total correlation", f"{total:.2f}", f"of at most {L}, on {measured_on}"),
        ("first component", f"{content.correlations.judged[0]:.3f}", f"on {measured_on}"),
    ]
    if held_out is not None:
        beyond = int(content.correlations.beyond_chance.sum())
        tested = len(content.correlations.judged)
        cards.append(("beyond chance", f"{beyond} of {tested}", f"components, p < {LEVEL}"))
    cards.append(
        ("partner found first", f"{recall:.1%}", f"among {n:,} rows of Y; guessing: {1 / n:.2%}")
    )
    notices: list[Block] = []
    if content.in_sample_warning is not None:
        notices.append(Notice(f"{type(content.model).__name__}: {content.in_sample_warning}"))
    if held_out is None:
        notices.append(
            Notice(
                "No rows were held out. Everything here is of rows the model was fitted to, and "
                "flatters it: by how much, only other rows can tell."
            )
        )
    lead = (
        f"{type(content.model).__name__} looked for {L} pairs of directions, one in each view, in "
        "which the views agree. The total correlation adds up how well they do."
    )
    facts = Facts(method_facts(content))
    parameters = Folded("All parameters", Facts(all_parameters(content.model)))
    return Section("What was fitted", lead, (*notices, Cards(tuple(cards)), facts, parameters))


def correlation_section(content: Content) -> Section:
    """Correlations of the components beside what chance gives."""
    found = content.correlations
    has_test = found.held_out is not None
    lead = (
        "How strongly each component of X goes with its partner of Y. "
        f"{_measured_on(content)} The band is chance: with the same rows paired at random "
        f"({found.chance.n_permutations} times), 95% of correlations lie in it. "
    )
    lead += (
        f"Filled points are beyond it (p < {LEVEL}, corrected for looking at "
        f"{len(found.training)} components); hollow ones could be noise."
        if has_test
        else "It is that of rows the model has not seen: on those it was fitted to, even noise "
        "would rise above it."
    )
    if content.n_components > MOST_COMPONENTS:
        lead += f" The first {MOST_COMPONENTS} of {content.n_components} components are shown."
    plot = Plot("correlations", "Correlation of each component, training and held out, with chance")
    chance = found.chance.null_quantiles[-1]
    columns = ["component", "training", "95% of chance"]
    if has_test:
        columns[2:2] = ["held out"]
        columns.append("p, corrected")
    rows = []
    for k, training in enumerate(found.training):
        row = [str(k + 1), f"{training:.3f}", f"{chance[k]:.3f}"]
        if found.held_out is not None:
            row[2:2] = [f"{found.held_out[k]:.3f}"]
            row.append(f"{found.chance.corrected_p_values[k]:.3g}")
        rows.append(tuple(row))
    table = Folded("The numbers", Table(tuple(columns), tuple(rows)))
    return Section("Correlation by component", lead, (plot, table))


def curve_section(content: Content) -> Section:
    """The learning curve, by samples or by seconds."""
    curve = content.curve
    assert curve is not None
    lead = "Total correlation while the model was learning"
    lead += (
        ", on the minibatch at hand and on rows held out of training to watch it."
        if curve["held_out"] is not None
        else ", on the minibatch at hand; no rows were held out to watch it."
    )
    if any(curve["undone"]):
        lead += " Crosses are steps that were taken back: the views fell apart after them."
    switch = Switch("curve-by", "Against", (("samples", "samples"), ("seconds", "seconds")))
    plot = Plot("curve", "Total correlation against samples or seconds of training")
    return Section("Learning curve", lead, (Controls((switch,)), plot))


def variate_section(content: Content) -> Section:
    """The rows in the plane of any two components."""
    L = min(content.n_components, MOST_COMPONENTS)
    groups = tuple(
        (
            f"from {view}",
            tuple((f"{v}:{k}", f"{view}, component {k + 1}") for k in range(L)),
        )
        for v, view in enumerate(_VIEWS)
    )
    # Labels show in the plane of one view; without, the two views are held against each other.
    vertical = "0:1" if content.labels is not None and L > 1 else "1:0"
    controls = Controls(
        (
            Choice("scatter-x", "Horizontal", groups, "0:0"),
            Choice("scatter-y", "Vertical", groups, vertical),
        )
    )
    lead = f"Each point is a row: {_shown(content.shown)}. " + (
        "Point at one to see it; click it to look for its partner below."
    )
    if _has_categories(content):
        lead += " A click on a label hides it, a double click leaves it alone."
    plot = Plot("scatter", "Scatter plot of canonical variates")
    return Section("Canonical variates", lead, (controls, plot))


def retrieval_section(content: Content) -> Section:
    """Pick a row, see its nearest rows in the other view."""
    cosine = content.retrieval.similarity == "cosine"
    measure = "by the cosine of their variates" if cosine else "by the distance of their variates"
    lead = (
        f"Pick a row of one view: its nearest rows in the other appear, {measure}, the best first, "
        f"out of {_shown(content.shown)}. ✓ is its partner, ✗ is not"
    )
    lead += (
        ", ≈ is not but has the same label. " if _has_categories(content) else ". "
    ) + "Rows count from 0."
    direction = Switch("direction", "Look from", (("0", "X to Y"), ("1", "Y to X")))
    picker = RowPicker("row", "Row", int(content.shown.rows[-1]))
    recall = Plot(
        "recall",
        "Recall at k, in both directions, with chance",
        "Recall: how often the partner is among the k nearest. Dotted: guessing.",
    )
    return Section(
        "Find the partner",
        lead,
        (Controls((direction, picker)), Matches("retrieval"), recall),
    )


def importance_section(content: Content) -> Section:
    """Which columns a component goes with."""
    L = min(content.n_components, MOST_COMPONENTS)
    lead = (
        "Correlation of the inputs with the component, on training rows: which columns it goes "
        "with, and in which direction. Where many columns carry the same, all of them show."
    )
    blocks: list[Block] = []
    plots: list[Block] = []
    for view, part in zip(_VIEWS, content.importance, strict=True):
        name = f"importance-{view.lower()}"
        if part.data is None:
            blocks.append(Notice(f"{view} is not shown. {part.missing}"))
        elif part.data["kind"] == "image":
            plots.append(Plot(name, f"Correlation of each pixel of {view} with the component"))
        else:
            strongest, n = len(part.data["names"][0]), part.data["n_columns"]
            caption = f"The {strongest} strongest of {n:,} columns." if strongest < n else ""
            plots.append(Plot(name, f"Columns of {view} by correlation", caption))
    if plots:
        components = tuple((str(k), str(k + 1)) for k in range(L))
        picker = Choice("component", "Component", ((None, components),), "0")
        blocks += [Controls((picker,)), SideBySide(tuple(plots))]
    return Section("What components are made of", lead, tuple(blocks))


def _has_categories(content: Content) -> bool:
    return content.labels is not None and content.labels["kind"] == "category"


def _measured_on(content: Content) -> str:
    if content.held_out is None:
        return f"Measured on {_of(content.training, 'training rows')}."
    held_out = _of(content.held_out, "rows held out")
    return f"Measured on {_of(content.training, 'training rows')} and {held_out}."


def _of(variates: Variates, what: str) -> str:
    n, available = len(variates), variates.n_available
    return f"{n:,} {what}" if n == available else f"{n:,} of {available:,} {what}"


def _shown(variates: Variates) -> str:
    n, available = len(variates), variates.n_available
    return f"all {n:,} rows" if n == available else f"{n:,} of {available:,} rows, drawn at random"
