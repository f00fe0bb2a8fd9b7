"""Which map suits the data: by kernel, columns, rank and memory, and why."""

from dataclasses import dataclass

from knoi.arrays.blocks import format_bytes
from knoi.exceptions import InputError
from knoi.features.approximations import suited_to
from knoi.kernels import Kernel

_WHY = {
    "qmc": "with {d} columns, a low-discrepancy sequence of frequencies is the most accurate",
    "orthogonal": "orthogonal frequencies have less error than independent ones at no more cost",
    "hadamard": "with {d} columns, frequencies from Hadamard transforms cost a fraction of dense "
    "ones and have less error",
    "fourier": "the kernel has no better frequencies than independent ones at {d} columns",
}


@dataclass(frozen=True)
class Choice:
    """The name of an approximation, and the reason to log."""

    name: str
    reason: str


def choose(
    kernel: Kernel, n_cols: int, rank: int, *, sparse: bool, columns_bytes: int, room: int
) -> Choice:
    """Kernel columns where their rank x rank matrix has room, else random features.

    At equal rank and time columns were the most accurate on all data measured; what limits them is
    the matrix that their solver inverts.
    """
    if columns_bytes <= room:
        return Choice(
            "nystrom",
            f"kernel columns are the most accurate at equal time, and their {rank} x {rank} matrix "
            f"({format_bytes(columns_bytes)}) fits the {format_bytes(room)} it may take",
        )
    too_large = f"the {rank} x {rank} matrix of kernel columns would not fit {format_bytes(room)}"
    if sparse:
        return Choice("nystrom", f"rows are sparse, and so are their landmarks; {too_large}")
    try:
        name = suited_to(kernel, n_cols)
    except InputError:
        return Choice("nystrom", f"the {kernel.name} kernel has no random features; {too_large}")
    why = _WHY.get(name, f"these are the random features of the {kernel.name} kernel")
    return Choice(name, f"{too_large}; {why.format(d=n_cols)}")
