"""DeepCCA against the deep CCA of other libraries, on the same rows within the same time.

    python -m benchmarks.paper.deep_peers --python PYTHON --michaelvll CHECKOUT
        [--only mnist mocha mfeat-fou-kar] [--methods ...] [--seeds 3] [--seconds 5] [--again]

PYTHON is that of an environment with `cca-zoo[deep]`, numpy and scikit-learn; CHECKOUT is a clone
of github.com/Michaelvll/DeepCCA, which is run in place. Peers that are not given are skipped. Each
peer runs in a process of its own (`deep_peers_fit`) with the same training rows and writes its
outputs. All are measured here, on the test rows, by both measures; for "fitted" the outputs of a
peer are aligned by a linear CCA of its outputs for the training rows.

The peers train for the whole time; what they do afterwards comes on top. DeepCCA ends training so
early that the fit, head included, is over in time. Each method decides itself what to do with the
training rows: DeepCCA holds out some of them, and so does Michaelvll's recipe; cca_zoo does not.
cca_zoo's guide asks for minibatches of at least 4 L rows: that and DeepCCA's default are run.
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.harness import Results
from benchmarks.paper import deep
from benchmarks.paper.deep_peers_fit import PARTS, VIEWS
from benchmarks.paper.two_views import DATA_SETS
from knoi import total_correlation

NAME = "deep_peers"
SEEDS = 3
FIT = Path(__file__).with_name("deep_peers_fit.py")
# By data set: seconds, and parameters of DeepCCA for this time.
CASES = {
    "mnist": (60, deep.SETTINGS["mnist"]["60 s"]),
    "mocha": (90, deep.SETTINGS["mocha"]["90 s"]),
    "mfeat-fou-kar": (20, {"max_time": 15}),
}


# Parameters of DeepCCA beside those. A linear head leaves the network to compare with.
OURS = {"`DeepCCA`": {}, "`DeepCCA`, linear head": {"head": "linear"}}
MICHAELVLL = "Michaelvll/DeepCCA"
# The class of cca_zoo and the rows per minibatch, None for 4 L.
CCA_ZOO = {
    "cca_zoo `DCCA`, b = 500": ("DCCA", 500),
    "cca_zoo `DCCA`, b = 4 L": ("DCCA", None),
    "cca_zoo `DCCANOI`, b = 500": ("DCCANOI", 500),
    "cca_zoo `DCCANOI`, b = 4 L": ("DCCANOI", None),
    "cca_zoo `DCCAEY`, b = 500": ("DCCAEY", 500),
    "cca_zoo `DCCAEY`, b = 4 L": ("DCCAEY", None),
}
METHODS = (*OURS, *CCA_ZOO, MICHAELVLL)


def key_of(name, seconds, method, seed):
    return f"{name}, {seconds:g} s, {method}, seed {seed}"


def scores(train, test):
    """Both measures of the outputs for the test rows, or why there are none."""
    if not all(np.isfinite(Z).all() for Z in (*train, *test)):
        return {"failed": "the outputs are NaN or infinite"}
    return {
        "refit": total_correlation(*test),
        "fitted": total_correlation(*test, measure="fitted", fit_on=train),
        "train": total_correlation(*train),
    }


def measure(method, name, data, seconds, seed, options):
    """The cell of one run."""
    if method in OURS:
        planned, settings = CASES[name]
        max_time = settings["max_time"] * seconds / planned
        return deep.measure(data, {**settings, **OURS[method], "max_time": max_time}, seed)
    job = {"n_components": data.n_components, "seconds": seconds, "seed": seed}
    if method == MICHAELVLL:
        job |= {"checkout": str(options.michaelvll.resolve())}
    else:
        peer, batch = CCA_ZOO[method]
        job |= {"class": peer, "batch": batch or 4 * data.n_components}
    with tempfile.TemporaryDirectory() as folder:
        cell = run_peer(Path(folder), options.python, job, data)
    if method == MICHAELVLL:
        command = ["git", "-C", job["checkout"], "rev-parse", "--short", "HEAD"]
        commit = subprocess.run(command, capture_output=True, text=True, check=True)
        cell["versions"][MICHAELVLL] = commit.stdout.strip()
    return cell


def run_peer(folder, python, job, data):
    """Run one job in its own process, and measure what it has written into the folder."""
    for part, views in zip(PARTS, (data.train, data.test), strict=True):
        for view, rows in zip(VIEWS, views, strict=True):
            np.save(folder / f"{part}_{view}.npy", rows)
    command = [str(python), str(FIT), json.dumps(job)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    report = json.loads((folder / "report.json").read_text())
    if "failed" in report:
        return report
    outputs = [[np.load(folder / f"out_{part}_{view}.npy") for view in VIEWS] for part in PARTS]
    return {**report, **scores(*outputs)}


def missing(method, options):
    """Whether an option that the method needs was not given."""
    if method in OURS:
        return False
    return options.python is None or (method == MICHAELVLL and options.michaelvll is None)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--python", type=Path, help="Python of the environment of the peers")
    arguments.add_argument("--michaelvll", type=Path, help="clone of Michaelvll/DeepCCA")
    arguments.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    arguments.add_argument("--methods", nargs="+", default=[""], help="parts of their names")
    arguments.add_argument("--seeds", type=int, default=SEEDS)
    arguments.add_argument("--seconds", type=float, help="other seconds, for a trial")
    arguments.add_argument("--again", action="store_true")
    options = arguments.parse_args()
    results = Results(NAME)
    for name in options.only:
        data, seconds = DATA_SETS[name](), options.seconds or CASES[name][0]
        for method in METHODS:
            if not any(part in method for part in options.methods):
                continue
            if missing(method, options):
                print(f"{method}: skipped, its environment or checkout was not given")
                continue
            for seed in range(options.seeds):
                key = key_of(name, seconds, method, seed)
                cell = results.cell(
                    key,
                    lambda: measure(method, name, data, seconds, seed, options),  # noqa: B023
                    again=options.again,
                )
                print(f"{key}: {_line(cell)}, {cell['seconds']:.1f} s", flush=True)


def _line(cell):
    if "failed" in cell:
        return f"failed, {cell['failed']}"
    return f"fitted {cell['fitted']:.2f}, refit {cell['refit']:.2f}"


if __name__ == "__main__":
    main()
