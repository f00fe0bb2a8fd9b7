"""Where and with what a result was made."""

import datetime
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKAGES = ("numpy", "scipy", "scikit-learn")


def origin() -> dict[str, Any]:
    """Date, commit, versions and machine; a commit ends in "+" if its code was changed since."""
    from knoi import __version__

    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "python": platform.python_version(),
        "versions": {"knoi": __version__} | {name: version(name) for name in PACKAGES},
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0,
    }


def _commit() -> str:
    """Of the repository this file lies in; "unknown" for an installed package."""
    if Path(_git("rev-parse", "--show-toplevel")) not in Path(__file__).resolve().parents:
        return "unknown"
    code = (":(top)src", ":(top)benchmarks", ":(top,exclude)benchmarks/results")
    changed = "+" if _git("diff", "--stat", "HEAD", "--", *code) else ""
    return _git("rev-parse", "--short", "HEAD") + changed


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
    except OSError:
        return "unknown"
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(": ")[1] for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or sys.platform
