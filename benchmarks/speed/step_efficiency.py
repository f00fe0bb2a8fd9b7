"""A training step of KNOI against its bare matrix products.

    python -m benchmarks.speed.step_efficiency [--rank 20480] [--batch 2500] [--columns 392]

Bare: sgemm of X W, Phi U and Phi' R for both views, into existing arrays, with as many BLAS threads
as KNOI has workers. Ours: whole steps of one epoch from memory-mapped float32 files, including
reading, shuffling, features, coupling and update, of the published and of the accelerated algorithm
(without extra directions, so that the products are the same). The files were just written, so the
system still has them in memory. Efficiency = bare / ours, the best of interleaved rounds. The parts
are measured one by one on a minibatch in memory.
"""

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import AS_PUBLISHED, Results, best_times
from benchmarks.speed.linear_memmap import make_file
from knoi import KNOI
from knoi.data.pairs import PairSource
from knoi.data.stream import PairStream
from knoi.engine import Threads, worker_count
from knoi.estimators.knoi import AVERAGE_FROM
from knoi.estimators.training import StochasticCCA, Training
from knoi.solvers.loop import TrainingState, train
from knoi.solvers.noi import couple, descend, project_batch

NAME = "speed_step_efficiency"
RULES = {"published": None, "accelerated": "low_rank"}


@dataclass(frozen=True)
class Fit:
    """A stochastic fit before its first step: its parts, so that each can be timed."""

    pairs: PairSource
    training: Training
    run: TrainingState

    def stream(self, epochs: int = 1, start: Any = None) -> PairStream:
        """The minibatches of the fit, from a position on."""
        plan = self.training.setup.plan
        return PairStream(
            self.pairs,
            plan.batch_size,
            plan.seed,
            window_bytes=plan.window_bytes,
            epochs=epochs,
            start=start,
        )


@contextmanager
def set_up(model: StochasticCCA, X: Any, Y: Any) -> Iterator[Fit]:
    """Set up a fit of `model` to X and Y, as `partial_fit` does on its first piece."""
    with PairSource.open(X, Y) as pairs, Threads(worker_count(model.n_jobs)) as engine:
        begun = model._open_stream(pairs, engine)
        yield Fit(pairs, begun.training, begun.state)


def bare_products(d, M, b, L):
    """One step's worth of products on arrays made beforehand, as a function to time."""
    rng = np.random.default_rng(0)

    def draw(*shape):
        return rng.standard_normal(shape, dtype=np.float32)

    views = [{"X": draw(b, d), "W": draw(d, M), "U": draw(M, L), "R": draw(b, L)} for _ in range(2)]
    Phi = [np.empty((b, M), np.float32) for _ in range(2)]
    P, G = np.empty((b, L), np.float32), np.empty((M, L), np.float32)

    def products():
        for view, phi in zip(views, Phi, strict=True):
            np.matmul(view["X"], view["W"], out=phi)
            np.matmul(phi, view["U"], out=P)
            np.matmul(phi.T, view["R"], out=G)

    return products


def epoch(fit):
    """All steps of one epoch from the files, as a function to time.

    It starts from weights after some steps, because the first few are not averaged.
    """

    def steps(run):
        with iter(fit.stream()) as batches:
            run = train(run, batches, fit.training.update, [])
        if run.optimizer.lr_scale != 1:
            raise RuntimeError("a step was rolled back: it took no gradient and must not be timed")
        return run

    run = fit.run
    while run.optimizer.steps <= AVERAGE_FROM:
        run = steps(run)
    return lambda: steps(run)


def reading(fit):
    def read():
        with iter(fit.stream()) as batches:
            for _ in batches:
                pass

    return read


def parts(fit):
    """The parts of a step, as functions to time, on one minibatch in memory."""
    rule, weights = fit.training.update, fit.run.optimizer
    with iter(fit.stream()) as batches:
        batch = next(batches)
    states = weights.x, weights.y

    def projected():
        return project_batch(rule.features, weights, (batch.x, batch.y), rule.backend, rule.engine)

    scores = projected()
    coupling = couple(weights.stats, scores, rule.rho)
    R = [rule.backend.asarray(own / len(own)) for own in coupling.residuals]
    G = [work.gradient(r, rule.engine) for work, r in zip(rule.features, R, strict=True)]
    sizes = [size(0) for size in rule.step_sizes]

    def gradient():
        for work, r in zip(rule.features, R, strict=True):
            work.gradient(r, rule.engine)

    def precondition():
        for apply, g, state in zip(rule.precondition, G, states, strict=True):
            apply(g, state.U)

    def update():
        for state, g, size in zip(states, G, sizes, strict=True):
            descend(state, g, size, rule.momentum, rule.weight_decay)

    return {
        "project": projected,
        "couple": lambda: couple(weights.stats, scores, rule.rho),
        "gradient": gradient,
        "precondition": precondition,
        "descend": update,
    }


def measure(options):
    d, M, b, L = options.columns, options.rank, options.batch, options.components
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(dir=options.folder)))
        files = [folder / f"{view}.npy" for view in "XY"]
        for seed, file in enumerate(files):
            make_file(file, options.steps * b, d, seed)
        fits = {}
        for name, precondition in RULES.items():
            model = KNOI(
                L,
                rank=M,
                approximation="fourier",
                **AS_PUBLISHED,
                precondition=precondition,
                batch_size=b,
                extra_directions=0,
                held_out=0,
                random_state=0,
                memory_budget=options.budget,
            )
            fits[name] = opened.enter_context(set_up(model, *files))
        products = bare_products(d, M, b, L)
        opened.enter_context(Threads(worker_count(None)))  # the same limit on BLAS as in a fit
        products()

        def bare():
            for _ in range(options.steps):
                products()

        epochs = {name: epoch(fit) for name, fit in fits.items()}
        best = best_times({"bare": bare, **epochs}, options.repeats)
        pieces = {name: best_times(parts(fit), 2 * options.repeats) for name, fit in fits.items()}
        read = best_times({"read": reading(fits["published"])}, options.repeats)["read"]
    seconds = {name: total / options.steps for name, total in best.items()}
    return {
        "bare_seconds": seconds["bare"],
        "read_seconds": read / options.steps,
        "keep_features": fits["published"].training.setup.plan.keep_features,
        "workers": worker_count(None),
        "rules": {
            name: {
                "step_seconds": seconds[name],
                "efficiency": seconds["bare"] / seconds[name],
                "parts": pieces[name],
            }
            for name in RULES
        },
    }


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rank", type=int, default=20_480)
    arguments.add_argument("--batch", type=int, default=2500)
    arguments.add_argument("--columns", type=int, default=392)
    arguments.add_argument("--components", type=int, default=50)
    arguments.add_argument("--steps", type=int, default=10, help="minibatches in the files")
    arguments.add_argument("--repeats", type=int, default=4)
    arguments.add_argument("--budget", default="8GiB", help="memory_budget")
    arguments.add_argument("--folder", default=tempfile.gettempdir())
    arguments.add_argument("--again", action="store_true", help="measure what is stored already")
    options = arguments.parse_args()
    cell = Results(NAME).cell(
        f"rank={options.rank} batch={options.batch} columns={options.columns} "
        f"components={options.components}",
        lambda: measure(options),
        again=options.again,
    )
    print(f"bare products {1e3 * cell['bare_seconds']:.0f} ms per step")
    for name, rule in cell["rules"].items():
        pieces = ", ".join(f"{part} {1e3 * s:.0f}" for part, s in rule["parts"].items())
        print(
            f"{name}: {1e3 * rule['step_seconds']:.0f} ms per step, efficiency "
            f"{rule['efficiency']:.2f}; parts in ms: {pieces}"
        )
    print(f"reading alone, which overlaps the steps: {1e3 * cell['read_seconds']:.1f} ms")


if __name__ == "__main__":
    main()
