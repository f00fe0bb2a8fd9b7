"""The command line: `knoi fit`, `knoi score` and the other commands, from files to files."""

from knoi.cli.program import app, main

__all__ = ["app", "main"]
