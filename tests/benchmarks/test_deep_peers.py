"""Outputs of other libraries are measured as those of knoi; failures are results."""

import json
import sys

import numpy as np
import pytest

from benchmarks.paper import deep_peers
from benchmarks.paper import tables as paper
from benchmarks.paper.two_views import TwoViewData
from knoi import LinearCCA, total_correlation
from knoi.datasets import make_two_views


@pytest.fixture
def parts():
    views = make_two_views(600, (4, 3), (0.9, 0.7, 0.5), random_state=0)
    return (views.X[:400], views.Y[:400]), (views.X[400:], views.Y[400:])


def test_outputs_are_aligned_on_the_training_rows(parts):
    train, test = parts
    model = LinearCCA(3, reg=0).fit(*train)
    found = deep_peers.scores(train, test)
    assert found["fitted"] == pytest.approx(model.score(*test))
    assert found["refit"] == pytest.approx(total_correlation(*test))


def test_outputs_that_are_not_finite_are_a_failure(parts):
    train, test = parts
    test[1][5, 1] = np.nan
    assert deep_peers.scores(train, test) == {"failed": "the outputs are NaN or infinite"}


PEER = """
import json, sys, numpy
job = json.loads(sys.argv[1])
for part in ("train", "test"):
    for view in ("x", "y"):
        numpy.save(f"out_{part}_{view}.npy", 2 * numpy.load(f"{part}_{view}.npy"))
json.dump({"seconds": job["seconds"], **job["more"]}, open("report.json", "w"))
"""


def test_a_peer_gets_the_rows_and_its_outputs_are_measured(parts, tmp_path, monkeypatch):
    train, test = parts
    script = tmp_path / "peer.py"
    script.write_text(PEER)
    monkeypatch.setattr(deep_peers, "FIT", script)
    data = TwoViewData(3, train, train, test)

    def cell(**more):
        job = {"seconds": 5, "more": more}
        return deep_peers.run_peer(tmp_path, sys.executable, job, data)

    assert cell()["fitted"] == pytest.approx(deep_peers.scores(train, test)["fitted"])
    assert cell(failed="NaN") == {"seconds": 5, "failed": "NaN"}
    script.write_text("import no_such_package")
    with pytest.raises(RuntimeError, match="no_such_package"):
        cell()


def test_the_table_has_means_and_failures(tmp_path):
    origin = {"date": "2026-01-01", "processor": "P", "cores": 2, "commit": "c"}
    good = {"fitted": 1.0, "refit": 2.0, "seconds": 60.4, "versions": {"v": "7"}, "origin": origin}
    bad = {"failed": "NaN", "seconds": 3.0, "origin": origin}
    first, second = deep_peers.METHODS[:2]
    cells = {
        deep_peers.key_of("mnist", 60, first, 0): good,
        deep_peers.key_of("mnist", 60, first, 1): {**good, "refit": 3.0},
        deep_peers.key_of("mnist", 60, second, 0): good,
        deep_peers.key_of("mnist", 60, second, 1): bad,
        deep_peers.key_of("mocha", 90, second, 0): bad,
        deep_peers.key_of("mocha", 5, second, 0): good,  # a trial
    }
    (tmp_path / "deep_peers.json").write_text(json.dumps({"cells": cells}))
    text = paper.deep_peers(tmp_path)
    assert f"| {first} | 1.00 / 2.50 (60 s) | – | – |" in text
    assert f"| {second} | 1.00 / 2.00 (60 s); 1 of 2 failed | 1 of 1 failed | – |" in text
    assert "others: v 7." in text
