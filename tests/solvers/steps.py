"""What tests of update rules share: a state to start from, and a number of steps."""

from knoi.solvers.loop import OptimizerState, at_rest

BATCH = 40


def initial_state(U, V, backend):
    """The optimizer state before the first step."""
    x, y = (at_rest(backend.asarray(W), backend) for W in (U, V))
    return OptimizerState(x, y)


def take_steps(rule, state, minibatches):
    """The state after a step on each minibatch, and the results of the steps."""
    results = []
    for x, y in minibatches:
        state, result = rule.step(state, x, y)
        results.append(result)
    return state, results
