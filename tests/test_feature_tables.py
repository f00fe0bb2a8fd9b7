"""The tables about feature maps show what was measured, and say what was not."""

import json

import pytest

from benchmarks.feature_tables import TABLES
from benchmarks.features import accuracy, peers
from benchmarks.table_parts import MISSING

ORIGIN = {"date": "2024-05-06T07:08:09+00:00", "commit": "abc1234", "processor": "Chip", "cores": 2}


def store(results, name, cells):
    cells = {key: {"origin": ORIGIN, **cell} for key, cell in cells.items()}
    (results / f"{name}.json").write_text(json.dumps({"cells": cells}))


def rows_of(name, results):
    """Rows of cells below the heading, and the last line."""
    lines = TABLES[name](results).splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("|")]
    assert len({len(row) for row in rows}) == 1
    return rows[2:], lines[-1]


@pytest.mark.parametrize("name", TABLES)
def test_without_results_they_say_so(name, tmp_path):
    rows, last = rows_of(name, tmp_path)
    assert rows
    assert all(MISSING in row for row in rows)
    assert last.startswith("Not measured yet: `python -m benchmarks.")


def test_kernel_error(tmp_path):
    measured = {
        "by_rank": {"256": {"error": 0.2691}, "512": {"error": 0.05}, "32768": {"error": 0.00063}},
        "slope": -0.524,
    }
    store(
        tmp_path,
        accuracy.NAME,
        {
            accuracy.Series("mnist", "rbf", "fourier").key(): measured,
            accuracy.Series("mnist", "rbf", "qmc").key(): {**measured, "slope": None},
            accuracy.Series("mocha", "rbf", "fourier").key(seeds=1): measured,  # a trial
            accuracy.Series("wikipedia", "chi2", "additive").key(): measured,
        },
    )
    rows, last = rows_of("feature_accuracy", tmp_path)
    by_map = {(row[0], row[1]): row[2:] for row in rows}
    shown = "27 / – / 0.063, -0.52"
    assert by_map["`rbf`", '`"fourier"`'] == [shown, MISSING, MISSING]
    assert by_map["`rbf`", '`"qmc"`'][0] == "27 / – / 0.063"
    assert by_map["`rbf`", '`"taylor"`'] == ["–", "–", MISSING]
    assert last.endswith("on Chip, 2 cores; 2024-05-06; commit `abc1234`.")
    rows, _ = rows_of("histogram_accuracy", tmp_path)
    assert [row[0] for row in rows] == ["`additive_chi2`", "`intersection`", "`chi2`"]
    assert [row[2] for row in rows] == [MISSING, MISSING, shown]


def test_beside_scikit_learn(tmp_path):
    def cell(theirs, ours):
        return {
            "seconds": {"theirs": theirs, "fourier": ours, "hadamard": ours / 4},
            "error": {"theirs": 0.04, "fourier": 0.04, "hadamard": 0.01},
            "faster": {"fourier": theirs / ours, "hadamard": 4 * theirs / ours},
            "nearer": {"fourier": 1.0, "hadamard": 4.0},
        }

    keys = [peers.key_of("RBFSampler", 1024, dtype) for dtype in ("float32", "float64")]
    store(tmp_path, peers.NAME, dict(zip(keys, (cell(0.2, 0.1), cell(0.6, 0.2)), strict=True)))
    rows, _ = rows_of("feature_peers", tmp_path)
    assert rows[0] == [
        *["`RBFSampler`", '`rbf`, `"fourier"`', "1,024", "200 / 600", "100 / 200"],
        *["2.0 / 3.0", "4.0", "4.0", "1.00"],
    ]
    assert rows[1][4:] == ["25 / 50", "8.0 / 12.0", "4.0", "1.0", "4.00"]
    assert rows[2][2:] == ["4,096", *[MISSING] * 6]


def test_the_hot_path(tmp_path):
    names = ("fourier", "hadamard", "nystrom columns")
    step = {"fourier": 2.0, "hadamard": 0.8}
    store(
        tmp_path,
        "speed_feature_maps",
        {
            "rank=20480 batch=2500 columns=392 components=50": {
                "map": {
                    "seconds": {"bare": 0.5, **dict.fromkeys(names, 0.25)},
                    "over_bare": dict.fromkeys(names, 0.5),
                    "faster_than_dense": dict.fromkeys(names, 1.0),
                },
                "step": {"seconds": step, "faster_than_dense": {"fourier": 1.0, "hadamard": 2.5}},
            }
        },
    )
    rows, _ = rows_of("feature_speed", tmp_path)
    assert rows[1] == [
        "hadamard, M = 20,480, 2,500 rows, 392 columns",
        *["250", "0.50", "1.0", "800", "2.5"],
    ]
    assert rows[2][4:] == ["–", "–"]
