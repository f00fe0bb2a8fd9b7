"""What tests of update rules share: KNOI's rule, states to start from, a number of steps."""

import numpy as np

from knoi.arrays.backend import numpy_backend
from knoi.engine import Serial
from knoi.solvers.acceleration import plain
from knoi.solvers.loop import OptimizerState, at_rest
from knoi.solvers.noi import KNOIUpdate, MinibatchFeatures, StepSize

BATCH = 40


def minibatch_features(maps, backend, keep):
    x, y = (MinibatchFeatures(one.to(backend), 200, backend, keep=keep) for one in maps)
    return x, y


def knoi_rule(maps, backend=None, engine=None, *, keep=True, rate=0.2, **changes):
    """The update rule of the published algorithm, with steps that learn on these views."""
    backend = backend or numpy_backend()
    given = {
        "step_sizes": (StepSize(rate, None),) * 2,
        "n_components": 3,
        "rho": 0.0,
        "momentum": 0.5,
        "weight_decay": 0.0,
        "average_from": None,
    } | changes
    features = minibatch_features(maps, backend, keep)
    return KNOIUpdate(features, (plain, plain), backend=backend, engine=engine or Serial(), **given)


def random_weights(maps, columns=3):
    return [
        np.random.default_rng(view).standard_normal((features.rank, columns))
        for view, features in enumerate(maps)
    ]


def initial_state(U, V, backend=None):
    """The optimizer state before the first step."""
    backend = backend or numpy_backend()
    x, y = (at_rest(backend.asarray(W), backend) for W in (U, V))
    return OptimizerState(x, y)


def take_steps(rule, state, minibatches):
    """The states after a step on each minibatch, and the results of the steps."""
    states, results = [], []
    for x, y in minibatches:
        state, result = rule.step(state, x, y)
        states.append(state)
        results.append(result)
    return states, results
