"""Runs and outcomes made up for callbacks to look at."""

import numpy as np

from knoi.data.stream import Position
from knoi.solvers.loop import OptimizerState, StepResult, TrainingState, ViewState

ROWS = 100  # a minibatch


def weights(step, value=0.0):
    """OptimizerState after so many steps, all of them `value`."""
    x, y = (ViewState(np.full((rank, 2), value), np.zeros((rank, 2))) for rank in (4, 3))
    return OptimizerState(x=x, y=y, steps=step, samples=step * ROWS)


def run_at(step, *, value=0.0, steps_per_epoch=10, **fields):
    """A run after so many steps."""
    position = Position(step // steps_per_epoch, step % steps_per_epoch)
    return TrainingState(
        optimizer=weights(step, value), position=position, seconds=step / 10, **fields
    )


def outcome(*, rolled_back=False, correlation=1.234):
    """What a minibatch showed."""
    scores = np.zeros((ROWS, 2)), np.zeros((ROWS, 2))
    return StepResult(
        loss=0.5,
        correlation=correlation,
        learning_rate=0.25,
        rolled_back=rolled_back,
        scores=scores,
    )


def record(step, held_out, *, rolled_back=False):
    """A record of a history."""
    return {
        "step": step,
        "epoch": 0,
        "samples": step * ROWS,
        "seconds": step / 10,
        "loss": 0.5,
        "correlation": 1.0,
        "held_out": held_out,
        "learning_rate": 0.25,
        "rolled_back": rolled_back,
    }
