"""Random draws by address: the same numbers on any worker, in any order, after any resume."""

from enum import IntEnum
from typing import Any

import numpy as np

from knoi.checks import is_integer
from knoi.exceptions import InputTypeError


class View(IntEnum):
    """Which of the two views a draw belongs to."""

    X = 0
    Y = 1


class Purpose(IntEnum):
    """What a draw is for: the first part of its address, so that no two uses share a stream.

    Changing a value changes every draw made for that purpose. Add new members at the end.
    """

    SAMPLE = 0  # rows that maps and widths are fitted on
    FREQUENCIES = 1
    PHASES = 2
    LANDMARKS = 3
    SHUFFLE = 4  # order of the rows in an epoch
    INITIAL_WEIGHTS = 5
    POWER_ITERATION = 6
    SIGNS = 7
    RADII = 8
    HASHES = 9
    DEGREES = 10
    PARTS = 11  # seeds of the parts of a composite
    ALIGNMENT = 12
    PERMUTATION = 13
    FRESH_SAMPLE = 14  # rows for the set-up of training, independent of SAMPLE
    DROPOUT = 15  # what networks of a user's draw in a step
    METRIC = 16  # rows and signs that a metric is learned from
    REG = 17  # rows held out to choose a regulariser
    KRYLOV = 18  # first block of an iteration for singular vectors
    WIDE = 19  # first directions of the iteration for wide views
    SYNTHETIC_MIXING = 1000
    SYNTHETIC_ROWS = 1001
    DIGITS_SPLIT = 1002
    DEMO_EXAMPLES = 2000
    PLOT_ROWS = 2001
    REPORT_ROWS = 7001
    REPORT_POINTS = 7002


# Second parts of addresses, where one purpose has several draws.
HOLD_OUT = 1  # (SAMPLE, HOLD_OUT): which rows `PairSource.split` holds out
LANDMARK_ORDER = 1  # (LANDMARKS, view, LANDMARK_ORDER): in which order they are taken
FIT_SPLIT, TUNING_SUBSET, TUNING_SPLIT = 1, 2, 3  # (PARTS, ...): seeds for the command line


def generator(seed: int, *address: int) -> np.random.Generator:
    """A generator for one address, e.g. `generator(seed, Purpose.FREQUENCIES, View.X, block)`."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=tuple(address)))


def derived_seed(seed: int, *address: int) -> int:
    """A seed for one address, to pass to code that takes a seed."""
    sequence = np.random.SeedSequence(seed, spawn_key=tuple(address))
    return int(sequence.generate_state(1, np.uint64)[0])


def seed_from(random_state: Any) -> int:
    """A seed from scikit-learn's `random_state`: None, an int, a RandomState or a Generator."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63 - 1))
    if is_integer(random_state) and random_state >= 0:
        return int(random_state)
    raise InputTypeError(
        f"random_state={random_state!r}: wanted None, an integer >= 0, a numpy RandomState or a "
        "numpy Generator. Pass an integer for reproducible results."
    )
