"""Random draws with an address: the same numbers on any worker, in any order, after any resume."""

from enum import IntEnum
from typing import Any

import numpy as np

from knoi.exceptions import InputTypeError


class View(IntEnum):
    """Which of the two views a draw belongs to."""

    X = 0
    Y = 1


class Purpose(IntEnum):
    """What a draw is for; part of its address, so that no two uses share a stream."""

    SAMPLE = 0
    FREQUENCIES = 1
    PHASES = 2
    LANDMARKS = 3
    STREAM = 4
    START = 5
    POWER = 6
    SIGNS = 7
    RADII = 8
    HASHES = 9
    DEGREES = 10
    PARTS = 11
    ALIGNMENT = 12
    PERMUTATION = 13


def generator(seed: int, *address: int) -> np.random.Generator:
    """A generator for one address, e.g. `generator(seed, Purpose.FREQUENCIES, View.X, block)`."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=tuple(address)))


def seed_of_part(seed: int, part: int) -> int:
    """A seed of its own for one part of something that is made of several."""
    sequence = np.random.SeedSequence(seed, spawn_key=(Purpose.PARTS, part))
    return int(sequence.generate_state(1, np.uint64)[0])


def seed_from(random_state: Any) -> int:
    """The seed behind scikit-learn's `random_state`: None, an int, a RandomState or a Generator."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63 - 1))
    whole = isinstance(random_state, int | np.integer) and not isinstance(random_state, bool)
    if whole and random_state >= 0:
        return int(random_state)
    raise InputTypeError(
        f"random_state={random_state!r}: wanted None, an integer >= 0, a numpy RandomState or a "
        "numpy Generator. Pass an integer for a repeatable fit."
    )
