"""Data with one bad value, and the whole message it is refused by."""

import re

import pytest


def with_value(view, row, column, value):
    changed = view.copy()
    changed[row, column] = value
    return changed


def refused(error, text):
    """`pytest.raises` with the whole message."""
    return pytest.raises(error, match=f"^{re.escape(text)}$")
