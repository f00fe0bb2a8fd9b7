"""Parameter checks: what passes comes back as a plain value, what fails names what was wanted."""

import numpy as np
import pytest

from knoi import checks
from knoi.exceptions import InputError, InputTypeError


@pytest.mark.parametrize(
    ("check", "value", "wanted"),
    [
        (checks.count, np.int64(3), 3),
        (checks.whole, 0, 0),
        (checks.integer, -4, -4),
        (checks.positive, np.float32(0.5), 0.5),
        (checks.at_least_zero, 0, 0.0),
        (checks.fraction, 0.25, 0.25),
        (checks.flag, np.bool_(True), True),
    ],
)
def test_a_good_value_becomes_a_plain_one(check, value, wanted):
    result = check("name", value)
    assert result == wanted
    assert type(result) is type(wanted)


@pytest.mark.parametrize(
    ("check", "bad_type", "bad_value", "wanted"),
    [
        (checks.count, True, 0, "a whole number >= 1"),
        (checks.whole, 0.0, -1, "a whole number >= 0"),
        (checks.positive, "1", np.inf, "a finite number > 0"),
        (checks.at_least_zero, None, np.nan, "a finite number >= 0"),
        (checks.fraction, False, 1, "a number from 0 to below 1"),
    ],
)
def test_a_bad_value_is_named_with_what_was_wanted(check, bad_type, bad_value, wanted):
    for bad, error in ((bad_type, InputTypeError), (bad_value, InputError)):
        with pytest.raises(InputError, match=f"name={bad!r}: wanted {wanted}") as raised:
            check("name", bad)
        assert type(raised.value) is error


def test_a_width_is_a_number_a_rule_or_a_multiple_of_the_median():
    values = {2: 2.0, "auto": None, "median": checks.Factor(1.0), "0.5x": checks.Factor(0.5)}
    assert {value: checks.width("width", value) for value in values} == values
    for wrong in ("0x", "-1x", "nanx", "infx", "x", "0.5", "twice", None, True):
        with pytest.raises(InputTypeError, match=f"width={wrong!r}: wanted .*'median'.*'0.5x'"):
            checks.width("width", wrong)
    for wrong in (0, -1.0, np.inf, np.nan):
        with pytest.raises(InputError, match="wanted a positive, finite number"):
            checks.width("width", wrong)


def test_names_flags_and_none():
    assert checks.one_of("name", None, (None, "a")) is None
    with pytest.raises(InputError, match="name='c': wanted one of None, 'a'"):
        checks.one_of("name", "c", (None, "a"))
    with pytest.raises(InputTypeError, match="name=1: wanted True or False"):
        checks.flag("name", 1)
    assert checks.optional(checks.count, "name", None) is None
    assert checks.positive("name", np.inf, infinite=True) == np.inf


def test_a_similar_name_is_suggested():
    assert checks.suggestion("konl", ("knoi", "linear", None)) == " Did you mean 'knoi'?"
    for value in ("zzz", None, 3):
        assert checks.suggestion(value, ("knoi", "linear", None)) == ""


def test_one_value_serves_both_views_and_a_pair_one_each():
    assert checks.one_per_view("rank", 3, checks.count) == (3, 3)
    assert checks.one_per_view("rank", [3, 4], checks.count) == (3, 4)
    with pytest.raises(InputError, match="has 3 entries: wanted one value, or a pair"):
        checks.one_per_view("rank", (1, 2, 3), checks.count)
