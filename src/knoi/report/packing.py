"""Arrays on their way into a page: 16 bits a number, which is more than a screen can show."""

import base64
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LARGEST = 2**15 - 1


def packed(values: NDArray[Any], *, whole: bool = False) -> dict[str, Any]:
    """A table of finite numbers, each column in steps of 1/32767 of its largest absolute value.

    Parameters
    ----------
    values : array of shape (n, m)
    whole : bool
        The values are whole numbers up to 32767, to be kept as they are.

    Returns
    -------
    dict
        "shape"; "units", of each column; "data", little-endian int16 in base64. `unpack` in
        `page.js` is the inverse.
    """
    values = np.asarray(values, dtype=np.float64)
    largest = np.abs(values).max(axis=0) if len(values) else np.zeros(values.shape[1])
    units = np.ones_like(largest) if whole else np.where(largest > 0.0, largest, 1.0) / _LARGEST
    steps = np.rint(values / units).astype("<i2")
    return {
        "shape": list(values.shape),
        "units": [float(f"{unit:.7g}") for unit in units],
        "data": base64.b64encode(steps.tobytes()).decode("ascii"),
    }


def rounded(values: Iterable[Any], digits: int = 4) -> list[float | None]:
    """Numbers to so many significant digits; what is not finite is None."""
    numbers = (float(value) for value in values)
    return [float(f"{x:.{digits}g}") if math.isfinite(x) else None for x in numbers]
