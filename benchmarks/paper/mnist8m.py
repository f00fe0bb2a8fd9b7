"""Table 1 and Figure 1 of the KNOI paper: the same as `knoi bench mnist8m`.

    python -m benchmarks.paper.mnist8m [--methods knoi-nystrom] [--samples 20000] [--list]

MNIST comes from KNOI_DATA unless --mnist says otherwise; results go to benchmarks/results/mnist8m.
`--help` lists all options.
"""

import sys

from benchmarks.harness import DATA, RESULTS
from knoi.cli import main

NAME = "mnist8m"


def given(arguments):
    """The arguments, with what this repository has for those that are not given."""
    defaults = {"--mnist": DATA / "mnist", "--output": RESULTS / NAME}
    missing = {k: v for k, v in defaults.items() if k not in arguments}
    return [*arguments, *(str(part) for pair in missing.items() for part in pair)]


if __name__ == "__main__":
    sys.exit(main(["bench", NAME, *given(sys.argv[1:])]))
