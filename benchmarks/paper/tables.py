"""Tables of results on the data of papers: Table 1 rerun, learning curves, MNIST halves, others."""

from collections.abc import Collection, Sequence
from pathlib import Path
from statistics import mean

from benchmarks.paper import deep, defaults, dsgd_tuning, lopez_paz, metric, scale, variants
from benchmarks.paper import deep_peers as peers
from benchmarks.paper import learning_curves as curves
from benchmarks.paper.mnist8m import METHODS, PAPER, by_minutes, measured, subsets
from benchmarks.paper.mnist8m import L as COMPONENTS
from benchmarks.paper.two_views import DATA_SETS
from benchmarks.tables import (
    NO_VALUE,
    Cell,
    cells_of,
    closing_line,
    mebibytes,
    settings,
    table,
)

# Table 1 of the KNOI paper, rerun.

COMMAND = "benchmarks.paper.mnist8m"
BUDGETS = (2, 5, 10, 20, 40, 60)  # minutes after which the methods are compared
ACCELERATED = ("knoi-fourier", "knoi-nystrom", "knoi-metric")  # ours; the others are the comparison
_OTHERS = [name for name in METHODS if name not in (*ACCELERATED, "deep")]
_PAPERS_BEST = max(PAPER.values())

Points = list[tuple[float, float]]  # (minutes, refit)


def mnist8m(results: Path) -> str:
    """Means of the seeds beside the paper's number for the same method and rank."""
    cells = measured(results)
    order, runs = list(METHODS), {}
    for cell in cells:
        place = order.index(cell["method"]), cell["rank"] or 0, cell["samples_given"]
        runs.setdefault((*place, cell["budget_minutes"] or 0.0), []).append(cell)
    rows = []
    for _, seeds in sorted(runs.items()):
        average = {key: mean(one[key] for one in seeds) for key in ("refit", "seconds", "samples")}
        average["samples"] = round(average["samples"])
        label, rank, samples, *others = _row({**seeds[0], **average})
        rows.append([label, rank, samples, str(len(seeds)), *others])
    columns = ("method", "M", "samples", "seeds", "refit", "minutes")
    columns = (*columns, "paper, 8M samples", "paper, minutes")
    return table(columns, rows) + _closing(cells)


def mnist8m_subsets(results: Path) -> str:
    """What exact methods reach on fewer rows."""
    cells = measured(results)
    points = [point for cell in cells for point in subsets(cell)]
    return table(("method", "M", "samples", "refit", "minutes"), [_row(p)[:5] for p in points])


def _row(cell: Cell) -> list[str]:
    name, rank = cell["method"], cell["rank"]
    return [
        METHODS[name].label,
        NO_VALUE if rank is None else f"{rank:,}",
        f"{cell['samples']:,}",
        f"{cell['refit']:.2f}",
        f"{cell['seconds'] / 60:.1f}",
        *(f"{value}" for value in PAPER.get((name, rank), (NO_VALUE, NO_VALUE))),
    ]


def _closing(cells: list[Cell]) -> str:
    return closing_line({str(place): cell for place, cell in enumerate(cells)}, COMMAND)


def mnist8m_minutes(results: Path) -> str:
    """The best each method has reached within so many minutes, whatever its rank and samples."""
    cells = measured(results)
    rows = []
    for name, method in METHODS.items():
        points = _points(cells, [name])
        reached = [_best(points, budget) for budget in BUDGETS]
        texts = [NO_VALUE if value is None else f"{value:.2f}" for value in reached]
        rows.append([method.label, *texts])
    columns = ("method", *(f"{budget} min" for budget in BUDGETS))
    return table(columns, rows) + _summary(cells) + _closing(cells)


def mnist8m_headline(results: Path) -> str:
    """When the paper's best is passed, and the best that other methods reach."""
    cells = measured(results)
    passed = _passed(_points(cells, ACCELERATED))
    refit, when, name = max(
        (refit, when, name) for name in _OTHERS for when, refit in _points(cells, [name])
    )
    goal, minutes = _PAPERS_BEST
    return (
        f"The best total correlation in the paper is {goal} of {COMPONENTS}, after {minutes:.0f} "
        f"minutes on six cores. On a stand-in for its data, `KNOI` with its defaults gets there in "
        f"{passed:.1f} minutes on {cells[0]['origin']['cores']} cores. The best other method, "
        f"{METHODS[name].label}, reaches {refit:.2f} after {when:.0f} minutes.{_deep(cells)}\n"
    )


def _deep(cells: list[Cell]) -> str:
    """What deep CCA reaches in the shortest and in the longest time it was planned for."""
    points = sorted(_points(cells, ["deep"]))
    if not points:
        return ""
    (first, low), (last, high) = points[0], points[-1]
    return (
        f" `DeepCCA` reaches {low:.2f} after {first:.1f} minutes and {high:.2f} after {last:.0f}."
    )


def _points(cells: list[Cell], names: Collection[str]) -> Points:
    return [point for cell in cells if cell["method"] in names for point in by_minutes(cell)]


def _best(points: Points, minutes: float) -> float | None:
    return max((refit for when, refit in points if when <= minutes), default=None)


def _passed(points: Points) -> float | None:
    """The minutes after which the paper's best is passed."""
    return min((when for when, refit in points if refit >= _PAPERS_BEST[0]), default=None)


def smallest_lead(cells: list[Cell]) -> tuple[float, float] | None:
    """How little accelerated KNOI leads all others from the first budget on, and when.

    Between two points of the others their best is constant while ours can only rise, so the first
    budget and their later points are all the times to look at.
    """
    ours = _points(cells, ACCELERATED)
    others = _points(cells, _OTHERS)
    times = [float(BUDGETS[0]), *(when for when, _ in others if when > BUDGETS[0])]
    leads = [
        (own - other, when)
        for when in times
        if (own := _best(ours, when)) is not None and (other := _best(others, when)) is not None
    ]
    return min(leads, default=None)


def _summary(cells: list[Cell]) -> str:
    """When the paper's best is passed, what is reached in the end, and how far the others are."""
    sentences = []
    ours = _points(cells, ACCELERATED)
    goal, minutes = _PAPERS_BEST
    passed = _passed(ours)
    if passed is not None:
        refit, when = max((refit, when) for when, refit in ours)
        sentences.append(
            f"The paper's best, {goal} after {minutes:.0f} minutes on six cores, is passed after "
            f"{passed:.1f} minutes; {refit:.2f} is reached after {when:.0f}."
        )
    lead = smallest_lead(cells)
    if lead is not None:
        sentences.append(
            f"From {BUDGETS[0]} minutes on, the smallest lead of accelerated KNOI over the best of "
            f"the other methods is {lead[0]:.2f}, after {lead[1]:.1f} minutes."
        )
    return f"\n{' '.join(sentences)}\n" if sentences else ""


def mnist8m_tuning(results: Path) -> str:
    """Learning rates on a subset: the tuning of DSGD, and the paper's rate for KNOI."""
    cells = cells_of(results, dsgd_tuning.NAME)
    rows = []
    for key, cell in cells.items():
        setting = settings(key)
        decay = setting.get("decay", NO_VALUE).replace("inf", "none")
        label = {"DSGD": "DSGD", "KNOI": "KNOI, published"}[key.partition(" ")[0]]
        rows.append((label, int(setting["samples"]), float(setting["rate"]), decay, cell["refit"]))
    columns = ("method", "samples", "learning rate", "decay, steps", "refit")
    texts = [
        [label, f"{samples:,}", f"{rate:g}", decay, f"{refit:.2f}"]
        for label, samples, rate, decay, refit in sorted(rows)
    ]
    return table(columns, texts) + closing_line(cells, "benchmarks.paper.dsgd_tuning")


# KNOI as samples come in.

CURVE_NAMES = {
    "published": "published algorithm, Fourier",
    "fourier": "`KNOI`, Fourier",
    "nystrom8192": "`KNOI`, Nystrom",
    "nystrom16384": "`KNOI`, Nystrom",
}


def learning_curves(results: Path) -> str:
    """Refit total correlation of KNOI on the MNIST8M stand-in as samples come in."""
    cells = curves.full_curves(cells_of(results, curves.NAME))
    rows = []
    for name, cell in cells.items():
        points = cell["curve"]
        last = max(points.values(), key=lambda point: point["samples"])
        rows.append(
            [
                CURVE_NAMES[name],
                f"{curves.CASES[name].rank:,}",
                *(_reached(points, mark) for mark in curves.MARKS),
                f"{cell['setup_seconds']:.0f} + {last['train_seconds']:.0f}",
                mebibytes(cell["peak_bytes"]),
            ]
        )
    marks = (f"{mark // 1000:,}k" for mark in curves.MARKS)
    columns = ("method", "rank", *marks, "set-up + training, s", "peak memory")
    return table(columns, rows) + closing_line(cells, "benchmarks.paper.learning_curves")


def _reached(points: dict[str, Cell], mark: int) -> str:
    return f"{points[str(mark)]['refit']:.2f}" if str(mark) in points else NO_VALUE


def ablation(results: Path) -> str:
    """Total correlation when one part of the accelerated solver is changed."""
    cells = cells_of(results, variants.NAME)
    keys = {name: variants.key_of(name, variants.RANK, variants.TO) for name in variants.VARIANTS}
    used = {key: cells[key] for key in keys.values() if key in cells}
    rows = [
        [name, *(_reached(used[key]["curve"], int(mark)) for mark in variants.MARKS)]
        for name, key in keys.items()
        if key in used
    ]
    columns = ("variant", *(f"{int(mark) // 1000}k samples" for mark in variants.MARKS))
    return table(columns, rows) + closing_line(used, "benchmarks.paper.variants")


# Other data.


def mnist_halves(results: Path) -> str:
    """Total correlation on MNIST halves, method by rank, beside the published numbers."""
    cells = cells_of(results, "lopez_paz")
    by_run: dict[tuple[str, int, str], list[Cell]] = {}
    for key, cell in cells.items():
        method, run = key.partition(" ")[0], settings(key)
        by_run.setdefault((method, int(run["rank"]), run["width"]), []).append(cell)
    width, reg = lopez_paz.COMMON
    rows = []
    for method, rank, own_width in sorted(by_run):
        if own_width != "median":
            continue
        tuned = by_run[method, rank, own_width]
        # Linear CCA has no kernel and needs no reg, so its one run is in both columns.
        common = tuned
        if method != "linear":
            common = [run["by_reg"][f"{reg:g}"] for run in by_run[method, rank, width]]
        rows.append(
            [
                method.capitalize() + "CCA",
                str(rank or NO_VALUE),
                str(lopez_paz.PUBLISHED[method].get(rank, NO_VALUE)),
                f"{mean(run['fitted'] for run in common):.2f}",
                f"{mean(run['fitted'] for run in tuned):.2f}",
                ", ".join(f"{one:g}" for one in sorted({run["reg"] for run in tuned})),
            ]
        )
    rows.sort(key=lambda row: row[0] != "LinearCCA")
    columns = (
        "method",
        "rank",
        "published",
        f"width {width.replace('sqrt', '√')}, reg {reg:g}",
        "width median, reg chosen",
        "reg chosen",
    )
    return table(columns, rows) + closing_line(cells, "benchmarks.paper.lopez_paz")


EXACT_METHODS = ("LinearCCA", "NystromCCA", "KernelCCA")


def data_sets(results: Path) -> str:
    """KNOI with its defaults beside tuned exact methods: fitted / refit total correlation."""
    # Other ranks than the default are trials.
    cells = {
        key: cell
        for key, cell in cells_of(results, "data_sets").items()
        if settings(key)["rank"] == "4000"
    }
    rows = []
    for key, cell in cells.items():
        population, methods = cell.get("population"), cell["methods"]
        rows.append(
            [
                key.partition(" ")[0],
                f"{cell['rows']:,}",
                str(cell["n_components"]),
                NO_VALUE if population is None else f"{population:.2f}",
                *(_both_measures(methods.get(name)) for name in ("KNOI", *EXACT_METHODS)),
            ]
        )
    columns = ("data", "pairs", "L", "optimum", "`KNOI`", *(f"`{n}`" for n in EXACT_METHODS))
    return table(columns, rows) + closing_line(cells, "benchmarks.paper.data_sets")


def _both_measures(method: Cell | None) -> str:
    return NO_VALUE if method is None else f"{method['fitted']:.2f} / {method['refit']:.2f}"


# Deep CCA.


def deep_times(results: Path) -> str:
    """DeepCCA planned for a time: means of the seeds, and the lowest of them."""
    cells = cells_of(results, deep.NAME)
    rows, used = [], {}
    for name, planned in deep.SETTINGS.items():
        for setting in planned:
            runs = _deep_runs(cells, name, setting)
            if not runs:
                continue
            used |= runs
            values = list(runs.values())
            refits = [cell["refit"] for cell in values]
            rows.append(
                [
                    name,
                    setting,
                    f"{mean(refits):.2f}",
                    f"{min(refits):.2f}",
                    f"{mean(cell['fitted'] for cell in values):.2f}",
                    f"{max(cell['seconds'] for cell in values):.0f}",
                    str(len(values)),
                ]
            )
    columns = ("data", "setting", "refit", "lowest", "fitted", "seconds, longest", "seeds")
    return _measured(columns, rows, used, "benchmarks.paper.deep")


def deep_data_sets(results: Path) -> str:
    """DeepCCA with its defaults beside KNOI and tuned exact methods: fitted / refit."""
    cells, others = cells_of(results, deep.NAME), cells_of(results, "data_sets")
    rows, used = [], {}
    for name in DATA_SETS:
        runs, other = _deep_runs(cells, name, "defaults"), others.get(f"{name} rank=4000")
        if not runs or other is None:
            continue
        used |= runs
        values = list(runs.values())
        average = {key: mean(cell[key] for cell in values) for key in ("fitted", "refit")}
        methods = other["methods"]
        rows.append(
            [
                name,
                f"{other['rows']:,}",
                _both_measures(average),
                f"{mean(cell['seconds'] for cell in values):.0f}",
                *(_both_measures(methods.get(one)) for one in ("KNOI", *EXACT_METHODS)),
            ]
        )
    columns = (
        "data",
        "pairs",
        "`DeepCCA`",
        "seconds",
        "`KNOI`",
        *(f"`{n}`" for n in EXACT_METHODS),
    )
    return _measured(columns, rows, used, "benchmarks.paper.deep")


def deep_sizes(results: Path) -> str:
    """Fitted total correlation by number of training rows: networks beside tuned exact methods."""
    cells = {key: c for key, c in cells_of(results, deep.NAME).items() if " rows=" in key}
    rows = [
        [
            key.partition(" ")[0],
            f"{int(settings(key)['rows']):,}",
            *(f"{cell[name]:.2f}" for name in ("DeepCCA", "NystromCCA", "LinearCCA")),
            f"{cell['seconds']['DeepCCA']:.0f}",
            f"{cell['seconds']['NystromCCA']:.0f}",
        ]
        for key, cell in cells.items()
    ]
    rows.sort(key=lambda row: (row[0], int(row[1].replace(",", ""))))
    columns = (
        "data",
        "pairs",
        "`DeepCCA`",
        "`NystromCCA`, tuned",
        "`LinearCCA`",
        "s, `DeepCCA`",
        "s, `NystromCCA`",
    )
    return _measured(columns, rows, cells, "benchmarks.paper.deep --sizes")


def _measured(
    columns: Sequence[str], rows: list[list[str]], used: dict[str, Cell], command: str
) -> str:
    return table(columns, rows) + closing_line(used, command) if used else "Not measured yet.\n"


def _deep_runs(cells: dict[str, Cell], name: str, setting: str) -> dict[str, Cell]:
    return {key: c for key, c in cells.items() if key.startswith(f"{name}, {setting}, seed ")}


def deep_peers(results: Path) -> str:
    """Deep CCA here and elsewhere: fitted / refit total correlation and seconds, means of seeds."""
    cells = cells_of(results, peers.NAME)
    rows, used = [], {}
    for method in peers.METHODS:
        row = [method]
        for name, (seconds, _) in peers.CASES.items():
            keys = [peers.key_of(name, seconds, method, seed) for seed in range(peers.SEEDS)]
            runs = {key: cells[key] for key in keys if key in cells}
            used |= runs
            row.append(_seeds(list(runs.values())))
        rows.append(row)
    if not used:
        return "Not measured yet.\n"
    columns = ("method", *(f"{name}, {seconds} s" for name, (seconds, _) in peers.CASES.items()))
    versions = {
        f"{name} {version}"
        for cell in used.values()
        for name, version in cell.get("versions", {}).items()
    }
    line = f"\nVersions of the others: {', '.join(sorted(versions))}.\n"
    return table(columns, rows) + line + closing_line(used, "benchmarks.paper.deep_peers")


def _seeds(runs: list[Cell]) -> str:
    """Means of the runs that ended, and how many did not."""
    ended = [run for run in runs if "failed" not in run]
    texts = []
    if ended:
        fitted, refit, seconds = (
            mean(run[name] for run in ended) for name in ("fitted", "refit", "seconds")
        )
        texts.append(f"{fitted:.2f} / {refit:.2f} ({seconds:.0f} s)")
    if len(ended) < len(runs):
        texts.append(f"{len(runs) - len(ended)} of {len(runs)} failed")
    return "; ".join(texts) or NO_VALUE


# A learned metric.


def metric_data_sets(results: Path) -> str:
    """Kernel CCA with and without a learned metric: means of the seeds, fitted / refit."""
    cells = {k: c for k, c in cells_of(results, metric.NAME).items() if "rows=" not in k}
    cases = [(f"{name}, {method}", name, method) for name in DATA_SETS for method in metric.METHODS]
    return _with_and_without(
        cells,
        [(case, [name, f"`{method}`"]) for case, name, method in cases],
        ("data", "estimator"),
    )


def metric_sizes(results: Path) -> str:
    """The same for NystromCCA on few rows."""
    cells = cells_of(results, metric.NAME)
    cases = [
        (f"{name} rows={rows}", [name, f"{rows:,}"]) for name in DATA_SETS for rows in metric.SIZES
    ]
    return _with_and_without(cells, cases, ("data", "pairs"))


def _with_and_without(
    cells: dict[str, Cell], cases: list[tuple[str, list[str]]], columns: tuple[str, ...]
) -> str:
    rows, used = [], {}
    for case, first in cases:
        runs = {
            kind: {k: c for k, c in cells.items() if k.startswith(f"{case}, {kind}, seed ")}
            for kind in metric.KINDS
        }
        if not all(runs.values()):
            continue
        texts, seconds = [], []
        for found in runs.values():
            used |= found
            values = list(found.values())
            average = {key: mean(cell[key] for cell in values) for key in ("fitted", "refit")}
            texts.append(_both_measures(average))
            seconds.append(f"{mean(cell['seconds'] for cell in values):.1f}")
        learned = list(runs["with"].values())
        kept = sorted({"/".join(map(str, cell["columns"])) for cell in learned})
        seeds = str(len(learned))
        rows.append([*first, *texts, *seconds, ", ".join(kept), seeds])
    heads = (*columns, "without", "with", "s, without", "s, with", "columns kept, X/Y", "seeds")
    return _measured(heads, rows, used, "benchmarks.paper.metric")


# Defaults.


def defaults_seeds(results: Path) -> str:
    """KNOI with its defaults: what the seed changes, and what fixed regularisers reach."""
    cells = cells_of(results, defaults.NAME)
    rows, used = [], {}
    for name in defaults.SETS:
        method = defaults.LIMITED if name == "bibles" else "KNOI"
        seeds, fixed = _defaults(cells, name, method)
        if not (seeds and fixed):
            continue
        exact, _ = _defaults(cells, name, defaults.SAME_RANK)
        used |= seeds | fixed | exact
        scores = [cell["fitted"] for cell in seeds.values()]
        best = max(cell["fitted"] for cell in fixed.values())
        low, high = min(scores), max(scores)
        rows.append(
            [
                name,
                f"{low:.2f} to {high:.2f}",
                str(len(seeds)),
                f"{100 * (1 - low / high):.1f}",
                f"{best:.2f}",
                f"{100 * max(0.0, 1 - low / best):.1f}",
                f"{mean(cell['seconds'] for cell in seeds.values()):.0f}",
                ", ".join(f"{cell['fitted']:.2f}" for cell in exact.values()) or NO_VALUE,
                ", ".join(f"{cell['seconds']:.0f}" for cell in exact.values()) or NO_VALUE,
            ]
        )
    columns = (
        "data",
        "`KNOI`",
        "seeds",
        "spread, %",
        "best fixed `reg`",
        "lowest seed below it, %",
        "s",
        "`NystromCCA`, same rank",
        "s",
    )
    return _measured(columns, rows, used, "benchmarks.paper.defaults")


def defaults_closed_forms(results: Path) -> str:
    """reg="auto" of closed forms beside fixed regularisers, the best of them and none."""
    cells = cells_of(results, defaults.NAME)
    rows, used = [], {}
    for name in defaults.SETS:
        for method in ("LinearCCA", "NystromCCA"):
            seeds, fixed = _defaults(cells, name, method)
            if not (seeds and fixed):
                continue
            used |= seeds | fixed
            best = max(fixed, key=lambda key: fixed[key]["fitted"])
            rows.append(
                [
                    name,
                    f"`{method}`",
                    f"{mean(cell['fitted'] for cell in seeds.values()):.2f}",
                    f"{fixed[best]['fitted']:.2f}",
                    best.rpartition(" ")[2],
                    f"{fixed[f'{name}, {method}, reg 0']['fitted']:.2f}",
                ]
            )
    columns = ("data", "estimator", '`reg="auto"`', "best fixed `reg`", "which", "`reg=0`")
    return _measured(columns, rows, used, "benchmarks.paper.defaults")


def _defaults(
    cells: dict[str, Cell], name: str, method: str
) -> tuple[dict[str, Cell], dict[str, Cell]]:
    """The cells of a method with its defaults, by seed, and with fixed regularisers."""
    seeds, fixed = (
        {key: c for key, c in cells.items() if key.startswith(f"{name}, {method}, {kind} ")}
        for kind in ("seed", "reg")
    )
    return seeds, fixed


def scale_of_columns(results: Path) -> str:
    """Fitted total correlation by `scale`: means of the seeds, and the worst of "auto"."""
    if not (results / f"{scale.NAME}.json").exists():
        return "Not measured yet.\n"
    cells = cells_of(results, scale.NAME)
    rows, used = [], {}
    for name in scale.SETS:
        for method in scale.METHODS:
            runs = {
                kind: {
                    k: c
                    for k, c in cells.items()
                    if k.startswith(f"{name}, {method}, scale={kind},")
                }
                for kind in scale.SCALES
            }
            if not all(runs.values()):
                continue
            values = []
            for found in runs.values():
                used |= found
                values.append([cell["fitted"] for cell in found.values()])
            first = next(iter(runs[None].values()))
            losses = [max(a, b) - auto for a, b, auto in zip(*values, strict=True)]
            rows.append(
                [
                    name,
                    f"`{method}`",
                    f"{first['rows']:,}",
                    str(first["n_components"]),
                    *(f"{mean(own):.2f}" for own in values),
                    f"{max(0.0, *losses):.2f}",
                ]
            )
    columns = ("data", "estimator", "pairs", "L", "`None`", '`"standard"`', '`"auto"`', "worst")
    return _measured(columns, rows, used, "benchmarks.paper.scale")


TABLES = {
    "scale": scale_of_columns,
    "defaults_seeds": defaults_seeds,
    "defaults_closed_forms": defaults_closed_forms,
    "metric_data_sets": metric_data_sets,
    "metric_sizes": metric_sizes,
    "mnist8m_headline": mnist8m_headline,
    "mnist8m": mnist8m,
    "mnist8m_subsets": mnist8m_subsets,
    "mnist8m_minutes": mnist8m_minutes,
    "mnist8m_tuning": mnist8m_tuning,
    "learning_curves": learning_curves,
    "variants": ablation,
    "lopez_paz": mnist_halves,
    "data_sets": data_sets,
    "deep_times": deep_times,
    "deep_data_sets": deep_data_sets,
    "deep_sizes": deep_sizes,
    "deep_peers": deep_peers,
}
