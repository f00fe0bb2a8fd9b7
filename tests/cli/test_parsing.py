"""What is typed as text."""

import pytest
import typer

from knoi.cli import parsing
from knoi.cli.options import Invocation
from knoi.cli.parsing import Factor


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("1.5h", 5400), ("2min", 120)],
)
def test_durations(text, seconds):
    assert parsing.seconds(text) == seconds


def test_sizes_pairs_lists_and_rows():
    assert parsing.image_size("28x14") == (28, 14)
    assert parsing.memory_size("4GiB") == "4GiB"
    assert parsing.row_numbers("0,5,10-12,5") == [0, 5, 10, 11, 12]
    assert parsing.held_out_part("0.1") == 0.1
    assert parsing.held_out_part("1000") == 1000
    width = parsing.pair_of(parsing.number_or("median"))
    assert width("median") == "median"
    assert width("2:median") == (2.0, "median")
    widths = parsing.list_of(parsing.pair_of(parsing.width_or_factor))
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
    assert parsing.setting(text) == ("a", value)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parsing.seconds, "soon"),
        (parsing.seconds, "0s"),
        (parsing.seconds, ""),
        (parsing.memory_size, "much"),
        (parsing.image_size, "28"),
        (parsing.image_size, "0x3"),
        (parsing.row_numbers, "5-3"),
        (parsing.row_numbers, "-1"),
        (parsing.held_out_part, "1.5"),
        (parsing.held_out_part, "-1"),
        (parsing.pair_of(parsing.word), "a:b:c"),
        (parsing.pair_of(parsing.word), "a:"),
        (parsing.number_or("auto"), "nan"),
        (parsing.whole, "2.5"),
        (parsing.width_or_factor, "0x"),
        (parsing.setting, "momentum"),
    ],
)
def test_what_is_refused(parse, text):
    with pytest.raises(typer.BadParameter, match=r"[Ww]anted|Give"):
        parse(text)


def test_values_are_written_as_they_are_typed():
    assert parsing.per_view((2.5, "median")) == "2.5:median"
    assert parsing.per_view(1e-6) == "1e-06"
    assert Invocation(("fit", "my file.npy")).command("--resume") == (
        "knoi fit 'my file.npy' --resume"
    )
    assert Invocation(("fit", "--resume")).command("--resume") == "knoi fit --resume"
