"""A training step of deep CCA against the bare matrix products of its networks.

    python -m benchmarks.speed.deep_step [--batch 2000] [--hidden 800 800] [--again]

Bare: the products of both networks, forward and backward, into existing arrays, by torch; the
faster of both cores on one product and one core per view. Ours: whole steps of one epoch from
memory-mapped float32 files, including reading, shuffling, standardisation, coupling and Adam.
Efficiency = bare / ours, the best of interleaved rounds, in each precision that the machine
multiplies fast.
"""

import argparse
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import torch

from benchmarks.harness import Results, best_times
from benchmarks.speed.linear_memmap import make_file
from benchmarks.speed.step_efficiency import set_up
from knoi import DeepCCA
from knoi.engine import worker_count
from knoi.solvers.deep import multiplies_bfloat16
from knoi.solvers.loop import train

NAME = "speed_deep_step"


def products(widths, b, dtype):
    """The products of one network in one step, as a function of the number of threads."""
    A, G = ([torch.randn(b, width).to(dtype) for width in widths] for _ in range(2))
    W = [torch.randn(n, m).to(dtype) for m, n in pairwise(widths)]
    grads = [torch.empty_like(one) for one in W]

    def run(threads):
        torch.set_num_threads(threads)
        for k, w in enumerate(W):
            torch.mm(A[k], w.T, out=A[k + 1])
        for k in reversed(range(len(W))):
            torch.mm(G[k + 1].T, A[k], out=grads[k])
            if k:
                torch.mm(G[k + 1], W[k], out=G[k])

    return run


def measure(options):
    d, b, L = options.columns, options.batch, options.components
    widths, workers = (d, *options.hidden, L), worker_count(None)
    precisions = {"float32": torch.float32}
    if multiplies_bfloat16("cpu"):
        precisions["bfloat16"] = torch.bfloat16
    work = {}
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(dir=options.folder)))
        pool = opened.enter_context(ThreadPoolExecutor(2))
        files = [folder / f"{view}.npy" for view in "XY"]
        for seed, file in enumerate(files):
            make_file(file, options.steps * b, d, seed)
        for name, dtype in precisions.items():
            views = [products(widths, b, dtype) for _ in range(2)]

            def one_by_one(views=views):
                for _ in range(options.steps):
                    for view in views:
                        view(workers)

            def side_by_side(views=views):
                for _ in range(options.steps):
                    list(pool.map(lambda view: view(max(1, workers // 2)), views))

            model = DeepCCA(
                L,
                hidden=tuple(options.hidden),
                batch_size=b,
                precision=name,
                held_out=0,
                random_state=0,
            )
            fit = opened.enter_context(set_up(model, *files))

            def steps(fit=fit):
                with iter(fit.stream()) as batches:
                    train(fit.run, batches, fit.training.update, [])

            work |= {f"{name} one": one_by_one, f"{name} two": side_by_side, name: steps}
        best = best_times(work, options.repeats)
    cell = {"workers": workers, "torch": torch.__version__}
    for name in precisions:
        bare = min(best[f"{name} one"], best[f"{name} two"])
        cell[name] = {
            "bare_seconds": bare / options.steps,
            "step_seconds": best[name] / options.steps,
            "efficiency": bare / best[name],
        }
    return cell


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--batch", type=int, default=2000)
    arguments.add_argument("--hidden", type=int, nargs="+", default=[800, 800])
    arguments.add_argument("--columns", type=int, default=392)
    arguments.add_argument("--components", type=int, default=50)
    arguments.add_argument("--steps", type=int, default=10, help="minibatches in the files")
    arguments.add_argument("--repeats", type=int, default=6)
    arguments.add_argument("--folder", default=tempfile.gettempdir())
    arguments.add_argument("--again", action="store_true", help="measure what is stored already")
    options = arguments.parse_args()
    hidden = "-".join(map(str, options.hidden))
    cell = Results(NAME).cell(
        f"hidden={hidden} batch={options.batch} columns={options.columns} "
        f"components={options.components}",
        lambda: measure(options),
        again=options.again,
    )
    for name in ("float32", "bfloat16"):
        if name in cell:
            one = cell[name]
            print(
                f"{name}: bare products {1e3 * one['bare_seconds']:.1f} ms, step "
                f"{1e3 * one['step_seconds']:.1f} ms, efficiency {one['efficiency']:.2f}"
            )


if __name__ == "__main__":
    main()
