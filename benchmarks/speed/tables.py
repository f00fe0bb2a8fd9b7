"""Tables of speed, memory and feature maps."""

from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.features import accuracy, peers
from benchmarks.speed import feature_maps
from benchmarks.speed import linear_cost as cost
from benchmarks.tables import (
    NO_VALUE,
    Cell,
    by_numbers,
    cells_of,
    closing_line,
    mebibytes,
    milliseconds,
    settings,
    table,
)

# Fits.


def speed(results: Path) -> str:
    """Time of a pass over the data against the least that the same work can take."""
    moments = cells_of(results, "speed_moments")
    memmap = cells_of(results, "speed_linear_memmap")
    rows = []
    for key in sorted(moments, key=by_numbers):
        run = settings(key)
        what = f"moments of `FourierCCA`, rank {run['rank']}, {run['columns']} columns per view"
        rows.append([what, "bare BLAS calls", *_seconds(moments[key], "bare_seconds")])
    for key in sorted(memmap, key=by_numbers):
        run = settings(key)
        what = f"`LinearCCA`, 2 × {int(run['rows']):,} × {run['columns']} memory-mapped float32"
        rows.append([what, "a plain pass", *_seconds(memmap[key], "plain_seconds")])
    columns = ("what", "baseline", "baseline, s", "ours, s", "ratio")
    commands = ("benchmarks.speed.moments", "benchmarks.speed.linear_memmap")
    return table(columns, rows) + closing_line({**moments, **memmap}, *commands)


def _seconds(cell: Cell, baseline: str) -> list[str]:
    return [f"{cell[name]:.2f}" for name in (baseline, "ours_seconds", "ratio")]


METHODS = ("LinearCCA", "KernelCCA", "FourierCCA", "NystromCCA")


def memory(results: Path) -> str:
    """Peak memory of a fit beyond its data, against its `memory_budget`."""
    cells = cells_of(results, "memory")

    def order(key: str) -> tuple[int, int, float]:
        rank = int(settings(key).get("rank", 0))
        return METHODS.index(key.partition(" ")[0]), rank, cells[key]["budget_bytes"]

    rows = []
    for key in sorted(cells, key=order):
        run, cell = settings(key), cells[key]
        rank = f", rank {run['rank']}" if "rank" in run else ""
        rows.append(
            [
                f"`{key.partition(' ')[0]}`{rank}, 2 × {int(run['rows']):,} × {run['columns']}",
                mebibytes(cell["budget_bytes"]),
                mebibytes(cell["peak_bytes"]),
                f"{cell['peak_bytes'] / cell['budget_bytes']:.2f}",
            ]
        )
    columns = ("fit", "memory_budget", "peak memory", "peak / budget")
    return table(columns, rows) + closing_line(cells, "benchmarks.speed.memory")


def against_exact(results: Path) -> str:
    """KNOI beside the closed form on the same landmarks."""
    cells = cells_of(results, "speed_against_exact")
    rows = []
    for key in sorted(cells, key=by_numbers):
        run, cell = settings(key), cells[key]
        for name, one in (("closed form", cell["exact"]), ("`KNOI`", cell["knoi"])):
            what = f"{name}, rank {run['rank']}, {int(run['samples']):,} pairs"
            rows.append(
                [what, f"{one['seconds']:.0f}", f"{one['refit']:.2f}", f"{one['fitted']:.2f}"]
            )
    columns = ("method", "seconds", "refit", "fitted")
    return table(columns, rows) + closing_line(cells, "benchmarks.speed.against_exact")


PARTS = ("project", "couple", "gradient", "precondition", "descend")


def step_efficiency(results: Path) -> str:
    """A training step beside the bare products in it, and its parts."""
    cells = cells_of(results, "speed_step_efficiency")
    rows = []
    for key in sorted(cells, key=by_numbers):
        run, cell = settings(key), cells[key]
        for name in ("published", "accelerated"):
            rule = cell["rules"][name]
            rows.append(
                [
                    f"{name}, rank {int(run['rank']):,}, batch {run['batch']}",
                    milliseconds(cell["bare_seconds"]),
                    milliseconds(rule["step_seconds"]),
                    f"{rule['efficiency']:.2f}",
                    *(milliseconds(rule["parts"][part]) for part in PARTS),
                ]
            )
    columns = ("algorithm", "bare products", "step", "bare / step", *PARTS)
    return table(columns, rows) + closing_line(cells, "benchmarks.speed.step_efficiency")


def deep_step(results: Path) -> str:
    """A training step of deep CCA beside the bare products of its networks."""
    cells = cells_of(results, "speed_deep_step")
    rows = [
        [
            f"{run['hidden']}, batch {run['batch']}, {precision}",
            milliseconds(cell[precision]["bare_seconds"]),
            milliseconds(cell[precision]["step_seconds"]),
            f"{cell[precision]['efficiency']:.2f}",
        ]
        for key, cell in cells.items()
        for run in [settings(key)]
        for precision in ("float32", "bfloat16")
        if precision in cell
    ]
    columns = ("hidden layers", "bare products, ms", "step, ms", "bare / step")
    return table(columns, rows) + closing_line(cells, "benchmarks.speed.deep_step")


SOLVER_NAMES = {
    "published": "published, Fourier",
    "fourier": "accelerated, Fourier",
    "nystrom": "accelerated, Nystrom",
}


def linear_cost(results: Path) -> str:
    """How the time of a fit grows with rows and with rank; 1 is linear."""
    cells = cells_of(results, cost.NAME)
    used: dict[str, Cell] = {}
    rows = []
    for solver, name in SOLVER_NAMES.items():
        for axis in ("rows", "rank"):
            sizes = cost.sizes(axis)
            keys = [cost.key_of(solver, *size) for size in sizes]
            if not all(key in cells for key in keys):
                continue
            used |= {key: cells[key] for key in keys}
            seconds = [cells[key]["seconds"] for key in keys]
            fixed = f"rank {sizes[0][1]:,}" if axis == "rows" else f"{sizes[0][0]:,} rows"
            at = 0 if axis == "rows" else 1
            rows.append(
                [
                    f"{name}, {axis} {sizes[0][at]:,} to {sizes[-1][at]:,} at {fixed}",
                    *(f"{one:.1f}" for one in (seconds[0], seconds[-1])),
                    *(
                        f"{one / seconds[0] / factor:.2f}"
                        for one, factor in zip(seconds[1:], cost.FACTORS[1:], strict=True)
                    ),
                ]
            )
    columns = ("fits", "smallest, s", "largest, s", *(f"× {f}" for f in cost.FACTORS[1:]))
    return table(columns, rows) + closing_line(used, "benchmarks.speed.linear_cost")


# Feature maps.

MARKS = (256, 2048, 32_768)  # the ranks shown
DATA_NAMES = {
    "mnist": "MNIST halves, 392 columns",
    "mocha-windows": "MOCHA windows, 98 columns",
    "mocha": "MOCHA frames, 14 columns",
    "wikipedia": "Wikipedia histograms, 128 columns",
}
MAP_NAMES = {
    "fourier-paired": '`"fourier"`\'s frequencies, cosine and sine',
    "nystrom-uniform": "Nystrom, random rows",
    "nystrom-kmeans": "Nystrom, k-means",
}


def feature_accuracy(results: Path) -> str:
    """Kernel error of maps on data of any sign."""
    return _accuracy(results, accuracy.DENSE)


def histogram_accuracy(results: Path) -> str:
    """Kernel error of the maps for histograms."""
    return _accuracy(results, ("wikipedia",))


def _accuracy(results: Path, data: Sequence[str]) -> str:
    cells = cells_of(results, accuracy.NAME)
    used: dict[str, Cell] = {}
    by_map: dict[tuple[str, str], dict[str, Cell]] = {}
    for series in accuracy.SERIES:
        if series.data in data and series.key() in cells:
            used[series.key()] = cells[series.key()]
            by_map.setdefault((series.kernel, series.map), {})[series.data] = used[series.key()]
    rows = [
        [f"`{kernel}`", _map_name(name), *(_series(by_data.get(one)) for one in data)]
        for (kernel, name), by_data in by_map.items()
    ]
    columns = ("kernel", "map", *(DATA_NAMES[one] for one in data))
    return table(columns, rows) + closing_line(used, "benchmarks.features.accuracy")


def _map_name(name: str) -> str:
    return MAP_NAMES.get(name, f'`"{name}"`')


def _series(cell: Cell | None) -> str:
    """Errors in per cent at the marks, and the slope: `7.9 / 2.9 / 0.63, -0.52`."""
    if cell is None:
        return NO_VALUE
    errors = (cell["by_rank"].get(str(mark), {}).get("error") for mark in MARKS)
    shown = " / ".join(NO_VALUE if error is None else _per_cent(error) for error in errors)
    slope = cell["slope"]  # a single point has none
    return shown if slope is None else f"{shown}, {slope:.2f}"


def _per_cent(error: float) -> str:
    return f"{100 * error:#.2g}".rstrip(".")


def feature_peers(results: Path) -> str:
    """Time of `transform` and kernel error beside the maps of scikit-learn."""
    cells = cells_of(results, peers.NAME)
    used: dict[str, Cell] = {}
    rows = []
    for peer, (_, kernel, maps) in peers.PEERS.items():
        for rank in peers.ranks_of(peer, peers.RANKS):
            keys = [peers.key_of(peer, rank, dtype) for dtype in peers.DTYPES]
            if not all(key in cells for key in keys):
                continue
            used |= {key: cells[key] for key in keys}
            pair = [cells[key] for key in keys]
            rows.extend(
                [
                    f"`{peer}`",
                    f"`{kernel}`, {_map_name(name)}",
                    f"{rank:,}",
                    *(_both(pair, "seconds", who, milliseconds) for who in ("theirs", name)),
                    _both(pair, "faster", name, "{:.1f}".format),
                    *(_both(pair, "error", who, _per_cent) for who in ("theirs", name)),
                ]
                for name in maps
            )
    columns = (
        "scikit-learn",
        "ours",
        "M",
        "theirs, ms",
        "ours, ms",
        "speed-up",
        "their error, %",
        "our error, %",
    )
    return table(columns, rows) + closing_line(used, "benchmarks.features.peers")


def _both(pair: Sequence[Cell], what: str, who: str, form: Callable[[float], str]) -> str:
    """The number in float32 and in float64, once where they look the same."""
    return " / ".join(dict.fromkeys(form(cell[what][who]) for cell in pair))


def feature_speed(results: Path) -> str:
    """Features of a minibatch beside a bare matrix product, and whole KNOI steps."""
    cells = cells_of(results, feature_maps.NAME)
    rows = []
    for key in sorted(cells, key=by_numbers):
        run, made, steps = settings(key), cells[key]["map"], cells[key]["step"]
        for name, over_bare in made["over_bare"].items():
            step = steps["seconds"].get(name)
            rows.append(
                [
                    f"{name}, M = {int(run['rank']):,}, {int(run['batch']):,} rows, "
                    f"{run['columns']} columns",
                    milliseconds(made["seconds"][name]),
                    f"{over_bare:.2f}",
                    f"{made['faster_than_dense'][name]:.1f}",
                    NO_VALUE if step is None else milliseconds(step),
                    NO_VALUE if step is None else f"{steps['faster_than_dense'][name]:.1f}",
                ]
            )
    columns = (
        "map",
        "features, ms",
        "over bare product",
        "speed-up over fourier",
        "KNOI step, ms",
        "speed-up of the step",
    )
    return table(columns, rows) + closing_line(cells, "benchmarks.speed.feature_maps")


# Devices.

COUNTED = {
    "operations": "launches",
    "uploads": "uploads",
    "downloads": "downloads",
    "waits": "other waits",
}
DEVICE = "speed_device"  # the benchmark itself needs torch


def device_counts(results: Path) -> str:
    """What the fake device counts in one training step."""
    return _device_counts(results, "counts per step", "step")


def device_kernels(results: Path) -> str:
    """What the fake device counts in one block of kernel columns."""
    return _device_counts(results, "counts per kernel block", "kernel")


def _device_counts(results: Path, key: str, what: str) -> str:
    cell = cells_of(results, DEVICE)[key]
    ceilings, counts = cell["ceilings"], cell["counts"]
    rows = [
        [f"`{name}`", *(str(found.get(one, 0)) for one in COUNTED)]
        for name, found in sorted(counts.items())
    ]
    rows.append(["ceiling", *(str(ceilings[one]) for one in COUNTED)])
    columns = (what, *COUNTED.values())
    return table(columns, rows) + closing_line({key: cell}, "benchmarks.speed.device")


def device_steps(results: Path) -> str:
    """Training steps on the devices that were there, beside NumPy."""
    cells = cells_of(results, DEVICE)
    used = {key: cell for key, cell in cells.items() if key.startswith("steps ")}
    rows = []
    for key, cell in sorted(used.items()):
        run = settings(key)
        for name, seconds in cell["seconds"].items():
            counts = cell.get("counts", {}).get(name, {})
            rows.append(
                [
                    f"`{name}`, rank {int(run['rank']):,}, batch {int(run['batch']):,}",
                    cell.get("device", run["device"]),
                    milliseconds(seconds["numpy"]),
                    milliseconds(seconds["device"]),
                    f"{seconds['device'] / seconds['numpy']:.2f}",
                    " / ".join(str(counts[one]) for one in COUNTED) if counts else NO_VALUE,
                ]
            )
    columns = (
        "step",
        "device",
        "NumPy, ms",
        "device, ms",
        "ratio",
        "launches / uploads / downloads / waits",
    )
    return table(columns, rows) + closing_line(used, "benchmarks.speed.device")


TABLES = {
    "speed": speed,
    "memory": memory,
    "against_exact": against_exact,
    "step_efficiency": step_efficiency,
    "deep_step": deep_step,
    "linear_cost": linear_cost,
    "feature_accuracy": feature_accuracy,
    "histogram_accuracy": histogram_accuracy,
    "feature_peers": feature_peers,
    "feature_speed": feature_speed,
    "device_counts": device_counts,
    "device_kernels": device_kernels,
    "device_steps": device_steps,
}
