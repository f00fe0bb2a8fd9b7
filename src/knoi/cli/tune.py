"""`knoi tune`: the width, regularisation and rank that do best on pairs left out of a subset."""

from pathlib import Path
from typing import Annotated, Any

import typer

from knoi.cli.methods import chosen_method, make_model, method_named
from knoi.cli.options import (
    Approximation,
    AsJson,
    Components,
    Debug,
    Device,
    Epochs,
    Jobs,
    Kernel,
    Landmarks,
    Memory,
    Quiet,
    Seconds,
    Seed,
    Settings,
    ViewX,
    ViewY,
)
from knoi.cli.parsing import held_out_part, list_of, number_or, pair_of, whole, width_or_factor
from knoi.cli.screen import examples

EXAMPLES = examples(
    "knoi tune X.npy Y.npy --components 50",
    "knoi tune X.npy Y.npy --components 50 --method nystrom --ranks 1000,2000 --plot tune.svg",
    "knoi tune X.npy Y.npy --method fourier --widths 0.5x,0.7x,1x,1.4x --regs 1e-7,1e-6,1e-5",
    "knoi tune X.npy Y.npy --json | jq -r .command   (the fit with the best of them)",
)


def tune(
    x: ViewX,
    y: ViewY,
    components: Components = 10,
    method: Annotated[
        str,
        typer.Option(parser=method_named, metavar="NAME", help="As in knoi fit."),
    ] = "auto",
    ranks: Annotated[
        Any,
        typer.Option(
            parser=list_of(whole),
            metavar="LIST",
            help="Features a view, e.g. 1000,2000,4000; by default the method's own.",
        ),
    ] = None,
    widths: Annotated[
        Any,
        typer.Option(
            parser=list_of(pair_of(width_or_factor)),
            metavar="LIST",
            help="Numbers, or multiples of the median distance; by default 0.5x,1x,2x.",
        ),
    ] = None,
    regs: Annotated[
        Any,
        typer.Option(
            parser=list_of(pair_of(number_or("auto"))),
            metavar="LIST",
            help="E.g. 1e-7,1e-6,1e-5; by default what suits the method.",
        ),
    ] = None,
    subset: Annotated[
        int, typer.Option(metavar="N", min=10, help="Pairs to work with, taken at random.")
    ] = 100_000,
    held_out: Annotated[
        Any,
        typer.Option(
            parser=held_out_part,
            metavar="PART",
            help="Pairs of the subset to measure on: a part or a number; by default a fifth, at "
            "most 10,000.",
        ),
    ] = None,
    seed: Seed = 0,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the results: a .png or .svg (needs matplotlib)."),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    kernel: Kernel = None,
    approximation: Approximation = None,
    landmarks: Landmarks = None,
    epochs: Epochs = None,
    time: Seconds = None,
    settings: Settings = None,
    memory: Memory = None,
    jobs: Jobs = None,
    device: Device = None,
    debug: Debug = False,
) -> None:
    """Try a grid of widths, regularisations and ranks on a subset, and say which does best.

    As the KNOI paper does it: every combination is fitted to a random subset, and judged by the
    total correlation of pairs left out of it. What comes last is the command that fits the best of
    them to all pairs. Larger ranks are all but always better; how much, is what to look for.
    """
    options = {
        "components": components,
        "kernel": kernel,
        "approximation": approximation,
        "landmarks": landmarks,
        "epochs": epochs,
        "time": time,
        "seed": seed,
        "memory": memory,
        "jobs": jobs,
        "device": device,
        "verbose": False,
    }
    grid = {"rank": ranks, "width": widths, "reg": regs}
    firsts = {name: values[0] for name, values in grid.items() if values}
    name = chosen_method(method, {**options, **firsts})
    make_model(name, {**options, **firsts}, dict(settings or ()))  # refuses what it does not take
    from knoi.cli.tuning import Tuning, run

    run(
        Tuning(
            x=x,
            y=y,
            method=name,
            options=options,
            settings=dict(settings or ()),
            ranks=ranks,
            widths=widths,
            regs=regs,
            subset=subset,
            held_out=held_out,
            seed=seed,
            plot=plot,
            as_json=as_json,
            quiet=quiet,
        )
    )
