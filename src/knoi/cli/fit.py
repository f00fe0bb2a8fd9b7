"""`knoi fit`: two files in, a model out."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from knoi.cli.fitting import Request, run
from knoi.cli.methods import chosen_method, make_model, method_named
from knoi.cli.options import (
    Approximation,
    AsJson,
    Debug,
    Device,
    Epochs,
    Images,
    Jobs,
    Kernel,
    Labels,
    Landmarks,
    Memory,
    Quiet,
    Rank,
    Reg,
    Seconds,
    Seed,
    Settings,
    Test,
    Title,
    ViewX,
    ViewY,
    Width,
    invocation,
)
from knoi.cli.parsing import held_out_part
from knoi.cli.screen import examples

EXAMPLES = examples(
    "knoi fit X.npy Y.npy -o model.knoi",
    "knoi fit X.npy Y.npy -o model.knoi --components 50 --rank 20000 --report report.html",
    "knoi fit data.h5:/left data.h5:/right -o model.knoi --images 28x14 --report report.html",
    "knoi fit X.npy Y.npy -o model.knoi --time 10m --checkpoint run   (Ctrl-C, then --resume)",
    "knoi fit X.csv Y.csv -o model.knoi --method nystrom --kernel laplacian --reg 1e-5",
)

_OUT, _RUN = "What is written", "Long runs"


def fit(
    context: typer.Context,
    x: ViewX,
    y: ViewY,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="MODEL",
            show_default=False,
            help="The model file to write; a model that is there is replaced.",
            rich_help_panel=_OUT,
        ),
    ],
    components: Annotated[
        int | None,
        typer.Option(
            "--components",
            "-k",
            metavar="N",
            min=1,
            help="Dimensions to project to; by default 10, or as many as columns.",
        ),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            parser=method_named,
            metavar="NAME",
            help="auto (knoi; linear for --kernel linear), linear, kernel, fourier, nystrom, knoi, "
            "dsgd.",
        ),
    ] = "auto",
    held_out: Annotated[
        Any,
        typer.Option(
            parser=held_out_part,
            metavar="PART",
            help="Pairs kept out of the fit, to measure it on: a part (0.1) or a number of them; 0 "
            "for none. By default a tenth, at most 10,000, of 1,000 or more, unless --test is "
            "given.",
        ),
    ] = None,
    seed: Seed = 0,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="HTML",
            help="A page to look at: correlations, variates, retrieval, what matters.",
            rich_help_panel=_OUT,
        ),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    rank: Rank = None,
    kernel: Kernel = None,
    width: Width = None,
    reg: Reg = None,
    approximation: Approximation = None,
    landmarks: Landmarks = None,
    epochs: Epochs = None,
    time: Seconds = None,
    settings: Settings = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Save the run here every minute, and when it is interrupted.",
            rich_help_panel=_RUN,
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on from the checkpoint.", rich_help_panel=_RUN),
    ] = False,
    test: Test = None,
    labels: Labels = None,
    images: Images = None,
    title: Title = None,
    memory: Memory = None,
    jobs: Jobs = None,
    device: Device = None,
    debug: Debug = False,
) -> None:
    """Fit a model to two files whose rows belong together, and say what it is worth.

    Files of any size are streamed. Without further options KNOI learns a kernel CCA until pairs
    held out no longer gain; what is printed is measured on other pairs again.
    """
    if resume and checkpoint is None:
        raise typer.BadParameter(
            "there is nothing to resume from. Add --checkpoint DIR, the directory of the run.",
            param_hint="'--resume'",
        )
    for given, option in ((labels, "--labels"), (images, "--images"), (title, "--title")):
        if given and report is None:
            raise typer.BadParameter(
                "it is for the report. Add --report report.html.", param_hint=f"'{option}'"
            )
    options = {
        "components": components,
        "rank": rank,
        "kernel": kernel,
        "width": width,
        "reg": reg,
        "approximation": approximation,
        "landmarks": landmarks,
        "epochs": epochs,
        "time": time,
        "checkpoint": None if checkpoint is None else os.fspath(checkpoint),
        "seed": seed,
        "memory": memory,
        "jobs": jobs,
        "device": device,
        "verbose": not quiet,
    }
    name = chosen_method(method, options)
    run(
        Request(
            x=x,
            y=y,
            output=output,
            model=make_model(name, options, dict(settings or ())),
            method=name,
            components=components or dict(settings or ()).get("n_components"),
            seed=seed,
            held_out=held_out,
            test=test,
            resume=resume,
            report=report,
            labels=labels,
            images=tuple(images or ()),
            title=title,
            as_json=as_json,
            quiet=quiet,
            typed=invocation(context),
        )
    )
