"""How `DoublyStochasticCCA` starts and steps: its parameters, made into a start and a rule."""

from dataclasses import dataclass

from knoi.arrays.backend import Array
from knoi.arrays.random import Purpose, View, generator
from knoi.data.pairs import RowPair
from knoi.estimators.training import FRESH, Training
from knoi.features import FeatureMap
from knoi.solvers.dsgd import BlockRule, Decay, aligned
from knoi.solvers.noi import BLOCK_COLUMNS, ViewState
from knoi.solvers.precondition import largest_curvature, plain
from knoi.solvers.rule import Weights, project


@dataclass(frozen=True)
class BlockSteps:
    """What the user may set of the steps."""

    feature_block: int
    learning_rate: float
    decay: float
    reg: tuple[float, float]

    def __call__(self, training: Training) -> tuple[Weights, BlockRule]:
        """The rule, and weights that are random but meet its constraint on a minibatch."""
        minibatch = training.sample(training.plan.batch_size, FRESH)
        x, y = (features.slices(self.feature_block) for features in training.maps)
        rates = self._rates(training, minibatch, (len(x), len(y)))
        ridge = [
            reg * _total_variance(features, rows, training) if reg else 0.0
            for reg, features, rows in zip(self.reg, training.maps, minibatch, strict=True)
        ]
        rule = BlockRule(
            training.work,
            (x, y),
            (Decay(rates[0], self.decay), Decay(rates[1], self.decay)),
            (ridge[0], ridge[1]),
            training.n_components,
            training.backend,
            training.engine,
        )
        return self._start(training, minibatch), rule

    def _rates(
        self, training: Training, minibatch: RowPair, n_blocks: tuple[int, int]
    ) -> list[float]:
        """The first step of each view: learning rate 1 is the inverse of a block's curvature."""
        rates = []
        for one, features, rows, blocks in zip(
            training.work, training.maps, minibatch, n_blocks, strict=True
        ):
            one.load(training.backend.asarray(rows))
            whole = largest_curvature(one, features.rank, plain, training.backend, training.engine)
            # Blocks are draws of the same features: each has its share of every curvature.
            unit = blocks / whole if 0 < whole < float("inf") else 1.0
            rates.append(self.learning_rate * unit)
        return rates

    def _start(self, training: Training, minibatch: RowPair) -> Weights:
        backend, L = training.backend, training.plan.directions
        draws = [
            generator(training.plan.seed, Purpose.START, view).standard_normal((features.rank, L))
            for view, features in zip(View, training.maps, strict=True)
        ]
        U, V = (backend.asarray(draw) for draw in draws)
        weights = _resting(U, V, training)
        scores = project(training.work, weights, minibatch, backend, training.engine)
        return _resting(*aligned((U, V), scores, backend), training)


def _resting(U: Array, V: Array, training: Training) -> Weights:
    x, y = (ViewState(W, training.backend.zeros(tuple(W.shape))) for W in (U, V))
    return Weights(x, y)


def _total_variance(features: FeatureMap, rows: Array, training: Training) -> float:
    """The trace of the covariance of the features, on these rows."""
    xp = training.backend.xp
    prepared = features.prepare(training.backend.asarray(rows))

    def some(columns: slice) -> float:
        return float(xp.sum(xp.var(features.block(prepared, columns), axis=0)))

    return sum(training.engine.map(some, features.slices(BLOCK_COLUMNS)))
