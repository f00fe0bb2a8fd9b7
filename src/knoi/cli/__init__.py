"""WHAT A PERSON TYPES: the command `knoi`. Reads options, calls the library, shows results."""

from knoi.cli.program import app, main

__all__ = ["app", "main"]
