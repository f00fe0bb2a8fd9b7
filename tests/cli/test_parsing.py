"""What is typed as text."""

import pytest
import typer

from knoi.cli import options
from knoi.cli.options import Factor, Invocation


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("1.5h", 5400), ("2min", 120)],
)
def test_durations(text, seconds):
    assert options.seconds(text) == seconds


def test_sizes_pairs_lists_and_rows():
    assert options.image_size("28x14") == (28, 14)
    assert options.memory_size("4GiB") == "4GiB"
    assert options.row_numbers("0,5,10-12,5") == [0, 5, 10, 11, 12]
    assert options.held_out_size("0.1") == 0.1
    assert options.held_out_size("1000") == 1000
    width = options.pair_of(options.number_or("median"))
    assert width("median") == "median"
    assert width("2:median") == (2.0, "median")
    widths = options.list_of(options.pair_of(options.width_or_factor))
    assert widths("0.5x,3,median,1x:2") == [Factor(0.5), 3.0, Factor(1.0), (Factor(1.0), 2.0)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a=1", 1),
        ("a=none", None),
        ("a=None", None),
        ("a=[1, 2]", (1, 2)),
        ("a=uniform", "uniform"),
    ],
)
def test_settings(text, value):
    assert options.setting(text) == ("a", value)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (options.seconds, "soon"),
        (options.seconds, "0s"),
        (options.seconds, ""),
        (options.memory_size, "much"),
        (options.image_size, "28"),
        (options.image_size, "0x3"),
        (options.row_numbers, "5-3"),
        (options.row_numbers, "-1"),
        (options.held_out_size, "1.5"),
        (options.held_out_size, "-1"),
        (options.pair_of(options.word), "a:b:c"),
        (options.pair_of(options.word), "a:"),
        (options.number_or("auto"), "nan"),
        (options.count, "2.5"),
        (options.width_or_factor, "0x"),
        (options.setting, "momentum"),
    ],
)
def test_what_is_refused(parse, text):
    with pytest.raises(typer.BadParameter, match=r"[Ww]anted|Give"):
        parse(text)


def test_values_are_written_as_they_are_typed():
    assert options.as_typed((2.5, "median")) == "2.5:median"
    assert options.as_typed(1e-6) == "1e-06"
    assert Invocation(("fit", "my file.npy")).command("--resume") == (
        "knoi fit 'my file.npy' --resume"
    )
    assert Invocation(("fit", "--resume")).command("--resume") == "knoi fit --resume"
