"""The tables about feature maps: kernel error, scikit-learn's maps beside ours, the hot path."""

from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.features import accuracy, peers
from benchmarks.speed import feature_maps
from benchmarks.table_parts import (
    MISSING,
    NO_VALUE,
    Cell,
    cells_of,
    closing_line,
    in_order,
    number,
    settings,
    table,
)

MARKS = (256, 2048, 32_768)  # the ranks shown
DATA_NAMES = {
    "mnist": "MNIST halves, 392 columns",
    "mocha-windows": "MOCHA windows, 98 columns",
    "mocha": "MOCHA frames, 14 columns",
    "wikipedia": "Wikipedia histograms, 128 columns",
}
MAP_NAMES = {
    "fourier": '`"fourier"`',
    "fourier-paired": "the same frequencies, cosine and sine",
    "nystrom-uniform": "Nystrom, random rows",
    "nystrom-kmeans": "Nystrom, k-means",
}


def dense_accuracy(results: Path) -> str:
    """Kernel error of maps on data of any sign."""
    return _accuracy(results, accuracy.DENSE)


def histogram_accuracy(results: Path) -> str:
    """Kernel error of the maps for histograms."""
    return _accuracy(results, ("wikipedia",))


def _accuracy(results: Path, data: Sequence[str]) -> str:
    cells = cells_of(results, accuracy.NAME)
    asked = {(s.kernel, s.map): {} for s in accuracy.SERIES if s.data in data}
    used = {}
    for series in accuracy.SERIES:
        if series.data in data:
            asked[series.kernel, series.map][series.data] = cells.get(series.key(), {})
            used |= {series.key(): cells[series.key()]} if series.key() in cells else {}
    rows = [
        [f"`{kernel}`", _map_name(name), *(_series(by_data.get(one)) for one in data)]
        for (kernel, name), by_data in asked.items()
    ]
    columns = ("kernel", "map", *(DATA_NAMES[one] for one in data))
    return table(columns, rows) + closing_line(used, "benchmarks.features.accuracy")


def _map_name(name: str) -> str:
    return MAP_NAMES.get(name, f'`"{name}"`')


def _series(cell: Cell | None) -> str:
    """Errors in per cent at the marks, and the slope: `7.9 / 2.9 / 0.63, -0.52`."""
    if cell is None:
        return NO_VALUE
    if not cell:
        return MISSING
    errors = (cell["by_rank"].get(str(mark), {}).get("error") for mark in MARKS)
    shown = " / ".join(NO_VALUE if error is None else _per_cent(error) for error in errors)
    slope = cell["slope"]  # none of a single point
    return shown if slope is None else f"{shown}, {slope:.2f}"


def _per_cent(error: float) -> str:
    return f"{100 * error:#.2g}".rstrip(".")


def scikit_learn(results: Path) -> str:
    """Time of `transform` and kernel error beside the maps of scikit-learn."""
    cells = cells_of(results, peers.NAME)
    used, rows = {}, []
    for peer, (_, kernel, maps) in peers.PEERS.items():
        for rank in peers.ranks_of(peer, peers.RANKS):
            keys = [peers.key_of(peer, rank, dtype) for dtype in peers.DTYPES]
            pair = [cells.get(key, {}) for key in keys]
            used |= {key: cells[key] for key in keys if key in cells}
            rows.extend(
                [
                    f"`{peer}`",
                    f"`{kernel}`, {_map_name(name)}",
                    f"{rank:,}",
                    *(_both(pair, "seconds", who, _milliseconds) for who in ("theirs", name)),
                    _both(pair, "faster", name, "{:.1f}".format),
                    *(_both(pair, "error", who, _per_cent) for who in ("theirs", name)),
                    _both(pair, "nearer", name, "{:.2f}".format),
                ]
                for name in maps
            )
    columns = (
        "scikit-learn",
        "ours",
        "M",
        "theirs, ms",
        "ours, ms",
        "times as fast",
        "their error, %",
        "our error, %",
        "theirs / ours",
    )
    return table(columns, rows) + closing_line(used, "benchmarks.features.peers")


def _both(pair: Sequence[Cell], what: str, who: str, form: Callable[[float], str]) -> str:
    """The number in float32 and in float64, once where they look the same."""
    shown = [number(cell.get(what, {}), who, form) for cell in pair]
    return " / ".join(dict.fromkeys(shown))


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.0f}"


def hot_path(results: Path) -> str:
    """Features of a minibatch beside a bare matrix product, and whole KNOI steps."""
    cells = cells_of(results, feature_maps.NAME)
    rows = []
    for key in in_order(cells) or ["rank=20480 batch=2500 columns=392 components=50"]:
        run, cell = settings(key), cells.get(key, {})
        made, steps = cell.get("map", {}), cell.get("step", {})
        for name in made.get("over_bare", dict.fromkeys(feature_maps.STEPS)):
            stepped = name in feature_maps.STEPS
            rows.append(
                [
                    f"{name}, M = {int(run['rank']):,}, {int(run['batch']):,} rows, "
                    f"{run['columns']} columns",
                    number(made.get("seconds", {}), name, _milliseconds),
                    number(made.get("over_bare", {}), name, "{:.2f}".format),
                    number(made.get("faster_than_dense", {}), name, "{:.1f}".format),
                    *(
                        number(steps.get(what, {}), name, form) if stepped else NO_VALUE
                        for what, form in (
                            ("seconds", _milliseconds),
                            ("faster_than_dense", "{:.1f}".format),
                        )
                    ),
                ]
            )
    columns = (
        "map",
        "features, ms",
        "over bare product",
        "times as fast as fourier",
        "KNOI step, ms",
        "times as fast as with fourier",
    )
    return table(columns, rows) + closing_line(cells, "benchmarks.speed.feature_maps")


TABLES: dict[str, Callable[[Path], str]] = {
    "feature_accuracy": dense_accuracy,
    "histogram_accuracy": histogram_accuracy,
    "feature_peers": scikit_learn,
    "feature_speed": hot_path,
}
