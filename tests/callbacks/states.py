"""Training states and step results made by hand, for callbacks to be called with."""

import numpy as np

from knoi.data.stream import Position
from knoi.solvers.loop import OptimizerState, StepResult, TrainingState, ViewState

ROWS = 100  # per minibatch


def state_at(step, *, value=0.0, steps_per_epoch=10, **fields):
    """A training state after `step` steps; all weights are `value`."""
    x, y = (ViewState(np.full((rank, 2), value), np.zeros((rank, 2))) for rank in (4, 3))
    return TrainingState(
        optimizer=OptimizerState(x=x, y=y, steps=step, samples=step * ROWS),
        position=Position(step // steps_per_epoch, step % steps_per_epoch),
        seconds=step / 10,
        **fields,
    )


def step_result(*, rolled_back=False):
    scores = np.zeros((ROWS, 2)), np.zeros((ROWS, 2))
    return StepResult(0.5, 1.234, learning_rate=0.25, rolled_back=rolled_back, scores=scores)


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
