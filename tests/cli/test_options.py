"""Parsers of option values, and the estimator that options create."""

from types import SimpleNamespace

import pytest
import typer

from knoi import LinearCCA
from knoi.checks import Factor
from knoi.cli import options

WIDTHS = options.list_of(options.pair_of(options.width_or_factor))


@pytest.mark.parametrize(
    ("parse", "values"),
    [
        (options.seconds, {"90": 90, "90s": 90, "10m": 600, "1h30m": 5400, "1.5h": 5400}),
        (options.image_size, {"28x14": (28, 14), " 3 X 2": (3, 2)}),
        (options.memory_size, {"4GiB": "4GiB"}),
        (options.row_numbers, {"0,5,10-12,5": [0, 5, 10, 11, 12]}),
        (options.held_out_size, {"0.1": 0.1, "1000": 1000, "0": 0}),
        (options.pair_of(options.number_or("auto")), {"auto": "auto", "2:auto": (2.0, "auto")}),
        (WIDTHS, {"0.5x,3,median,1x:2": [Factor(0.5), 3.0, Factor(1.0), (Factor(1.0), 2.0)]}),
        (options.kernel_width, {"2": 2.0, "median": "median", "0.5x": "0.5x", "auto": "auto"}),
        (options.setting, {"a=1": ("a", 1), "a=None": ("a", None), "a=[1, 2]": ("a", (1, 2))}),
        (options.setting, {"a=b": ("a", "b")}),
    ],
)
def test_values(parse, values):
    assert {text: parse(text) for text in values} == values


@pytest.mark.parametrize(
    ("parse", "texts"),
    [
        (options.seconds, ["soon", "0s", ""]),
        (options.memory_size, ["much"]),
        (options.image_size, ["28", "0x3"]),
        (options.row_numbers, ["5-3", "-1"]),
        (options.held_out_size, ["1.5", "-1"]),
        (options.pair_of(str), ["a:b:c", "a:", " "]),
        (options.number_or("auto"), ["nan", "inf"]),
        (options.count, ["2.5", "0"]),
        (options.width_or_factor, ["0x", "x", "auto"]),
        (options.kernel_width, ["0", "-1x", "nan", "infx", "wide"]),
        (options.setting, ["momentum", "=1"]),
    ],
)
def test_errors_say_what_is_wanted(parse, texts):
    for text in texts:
        with pytest.raises(typer.BadParameter, match="wanted"):
            parse(text)


def test_resume_is_added_once_to_a_command():
    for typed in (["fit", "my file.npy"], ["fit", "my file.npy", "--resume"]):
        command = options.command_line(SimpleNamespace(obj=typed), "--resume")
        assert command == "knoi fit 'my file.npy' --resume"


def test_auto_is_linear_for_the_linear_kernel_unless_other_options_need_knoi():
    assert options.resolve_method("auto", {"kernel": None}) == "knoi"
    assert options.resolve_method("auto", {"kernel": "linear", "seed": 0}) == "linear"
    assert options.resolve_method("auto", {"kernel": "linear", "epochs": 1}) == "knoi"
    assert options.resolve_method("fourier", {"kernel": "linear"}) == "fourier"
    made = options.make_model("linear", {"kernel": ("linear", "linear")}, {})
    assert isinstance(made, LinearCCA)
