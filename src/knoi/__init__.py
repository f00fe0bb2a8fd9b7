"""Nonlinear canonical correlation analysis at any size."""

__version__ = "0.1.0.dev0"
