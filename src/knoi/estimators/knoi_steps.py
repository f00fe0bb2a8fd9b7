"""How `KNOI` starts and steps: its parameters, made into a start and a rule."""

from dataclasses import dataclass

from knoi.arrays.backend import Array
from knoi.arrays.random import Purpose, View, generator
from knoi.data.pairs import RowPair
from knoi.estimators.training import FRESH, Training
from knoi.solvers.noi import ViewState
from knoi.solvers.precondition import Columns, LowRank, Preconditioner, largest_curvature, plain
from knoi.solvers.rule import Rule, StepSize, Weights
from knoi.solvers.warm_start import Start, rows_wanted, warm_start

# The regularisation where nothing could be learned about it, and the least shift of `Columns`.
UNKNOWN_REG = 1e-3
LEAST_SHIFT = {"float32": 5e-7, "float64": 1e-9}


@dataclass(frozen=True)
class _StepDefaults:
    """What suits one way to precondition; benchmarks/paper/variants.py holds it against others."""

    learning_rate: float
    fall: float | None
    momentum: float
    weight_decay: float
    average: bool


# The paper's, in the convention of unscaled features: its eta = 0.01, weight decay 1e-5 and initial
# deviation 0.1 are for features multiplied by ten.
PUBLISHED = _StepDefaults(1.0, None, 0.995, 1e-7, average=False)
PUBLISHED_DEVIATION = 1.0
COLUMNS = _StepDefaults(1.0, 6.0, 0.0, 0.0, average=True)
LOW_RANK = _StepDefaults(1.0, None, 0.0, 0.0, average=True)
# Averaging starts once the fast directions have settled.
AVERAGE_FROM = 10


@dataclass(frozen=True)
class StepParameters:
    """What the user may set of the steps; None where the default depends on the preconditioner."""

    learning_rate: float | None
    fall: float | None
    momentum: float | None
    weight_decay: float | None
    time_constant: float
    average: bool | None
    reg: tuple[float | None, float | None]  # None: found by the warm start

    def __call__(self, training: Training) -> tuple[Weights, Rule]:
        """Build the parts in order: start, preconditioners, step sizes, the rule."""
        defaults = {"columns": COLUMNS, "low_rank": LOW_RANK, None: PUBLISHED}
        ours = [defaults[choice] for choice in training.plan.precondition]
        start = self._warm_start(training)
        precondition = self._preconditioners(training, start, self.reg)
        minibatch = training.sample(training.plan.batch_size, FRESH)
        rates = self._unit_steps(training, minibatch, precondition)
        sizes = [
            StepSize(
                (own.learning_rate if self.learning_rate is None else self.learning_rate) * unit,
                own.fall if self.fall is None else self.fall,
            )
            for own, unit in zip(ours, rates, strict=True)
        ]
        average = ours[0].average if self.average is None else self.average
        rule = Rule(
            training.work,
            precondition,
            (sizes[0], sizes[1]),
            training.n_components,
            self.time_constant,
            ours[0].momentum if self.momentum is None else self.momentum,
            ours[0].weight_decay if self.weight_decay is None else self.weight_decay,
            AVERAGE_FROM if average else None,
            training.backend,
            training.engine,
        )
        weights = (
            self._random_start(training, minibatch, precondition)
            if start is None
            else start.weights
        )
        x, y = (ViewState(U, training.backend.zeros(tuple(U.shape))) for U in weights)
        return Weights(x, y), rule

    def _warm_start(self, training: Training) -> Start | None:
        if training.plan.precondition == (None, None):
            return None
        sample = training.sample(rows_wanted(max(training.plan.rank)), FRESH)
        return warm_start(
            training.maps,
            sample,
            training.plan.directions,
            training.backend,
            training.engine,
            wanted=training.n_components,
        )

    def _preconditioners(
        self, training: Training, start: Start | None, given: tuple[float | None, float | None]
    ) -> tuple[Preconditioner, Preconditioner]:
        parts: list[Preconditioner] = []
        for view, features, choice in zip(
            View, training.maps, training.plan.precondition, strict=True
        ):
            reg, ridge = self._regularisation(training, start, given[view])
            if choice == "columns":
                shift = max(reg, LEAST_SHIFT[training.backend.dtype])
                parts.append(Columns.fit(features, shift, ridge, training.backend, training.engine))
            elif choice == "low_rank":
                rows = training.sample(LowRank.rows_wanted(features.rank))[view]
                part, b = training.backend.asarray(rows), training.plan.batch_size
                parts.append(
                    LowRank.fit(features, part, b, ridge, training.backend, training.engine)
                )
            else:
                parts.append(plain)
        return parts[0], parts[1]

    def _regularisation(
        self, training: Training, start: Start | None, given: float | None
    ) -> tuple[float, float]:
        """What suits the data, and the ridge to train with, both relative to total variance.

        What suited the rows of the small problem suits N of them N / n times weaker. A single pass
        cannot overfit and needs no ridge; the more passes, the more of it.
        """
        if given is not None:
            return given, given
        reg = UNKNOWN_REG if start is None else start.reg * start.n_rows / training.n_rows
        return reg, reg * (1 - 1 / training.plan.passes)

    def _unit_steps(
        self,
        training: Training,
        minibatch: RowPair,
        precondition: tuple[Preconditioner, Preconditioner],
    ) -> list[float]:
        """The step a learning rate of 1 stands for: the inverse of the largest curvature."""
        units = []
        for work, features, rows, apply, choice in zip(
            training.work,
            training.maps,
            minibatch,
            precondition,
            training.plan.precondition,
            strict=True,
        ):
            if choice is None:
                units.append(1.0)
                continue
            work.load(training.backend.asarray(rows))
            curvature = largest_curvature(
                work, features.rank, apply, training.backend, training.engine
            )
            units.append(1 / curvature if 0 < curvature < float("inf") else 1.0)
        return units

    def _random_start(
        self,
        training: Training,
        minibatch: RowPair,
        precondition: tuple[Preconditioner, Preconditioner],
    ) -> tuple[Array, Array]:
        """The paper's normal weights; preconditioned, what one step makes of random targets."""
        weights, k = [], training.plan.directions
        for view, choice in zip(View, training.plan.precondition, strict=True):
            draw = generator(training.plan.seed, Purpose.START, view)
            if choice is None:
                normal = draw.standard_normal((training.plan.rank[view], k))
                weights.append(training.backend.asarray(PUBLISHED_DEVIATION * normal))
                continue
            rows = minibatch[view]
            training.work[view].load(training.backend.asarray(rows))
            targets = draw.standard_normal((rows.shape[0], k))
            targets -= targets.mean(axis=0)
            R = training.backend.asarray(targets / rows.shape[0])
            zero = training.backend.zeros((training.plan.rank[view], k))
            training.work[view].project(zero, training.engine)  # makes the features
            G = training.work[view].gradient(R, training.engine)
            weights.append(precondition[view](G, zero))
        return weights[0], weights[1]
