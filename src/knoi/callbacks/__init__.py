"""Callbacks of the training loop: learning curve, stopping, progress bar, checkpoints."""

from knoi.callbacks.history import EarlyStopping, FitContext, History, TimeLimit
from knoi.solvers.loop import Callback, StepResult, TrainingState

__all__ = [
    "Callback",
    "EarlyStopping",
    "FitContext",
    "History",
    "StepResult",
    "TimeLimit",
    "TrainingState",
]
