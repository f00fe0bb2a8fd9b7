"""KNOI: kernel CCA for any number of rows, learned from minibatches."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

from knoi import checks
from knoi.arrays.backend import Array, Backend, operations_per_second
from knoi.arrays.random import Purpose, View, generator, seed_from
from knoi.arrays.sparse import nested_bytes
from knoi.callbacks import Callback
from knoi.data.pairs import PairSource, RowPair
from knoi.estimators.closed_form import (
    ClosedFormCCA,
    FourierCCA,
    NystromCCA,
    choosing_bytes,
)
from knoi.estimators.linear import LinearCCA
from knoi.estimators.metric import fit_columns
from knoi.estimators.setup import (
    Maps,
    Plan,
    Request,
    Setup,
    Sizes,
    check_approximation,
    check_given,
    check_n_cols,
    check_varying,
    fit_random,
    make_plan,
    rank_for,
)
from knoi.estimators.training import StochasticCCA, Training
from knoi.exceptions import InputError
from knoi.features import FeatureMap, Identity
from knoi.features.landmarks import Selection
from knoi.kernels import Linear, resolve
from knoi.solvers.acceleration import (
    Columns,
    LowRank,
    Preconditioner,
    WarmStart,
    plain,
    warm_start,
    warm_start_rows,
)
from knoi.solvers.loop import OptimizerState, at_rest
from knoi.solvers.noi import KNOIUpdate, StepSize, largest_curvature

logger = logging.getLogger("knoi")

NOT_RANDOM = ("auto", "nystrom")  # approximations besides random features
PRECONDITIONERS = ("auto", "columns", "low_rank", None)
SOLVERS = ("auto", "exact", "stochastic")
# Parameters of training, with the defaults that leave the solver open.
TRAINED: dict[str, Any] = {
    "precondition": "auto",
    "learning_rate": None,
    "lr_decay": None,
    "momentum": None,
    "batch_size": None,
    "time_constant": 0.0,
    "weight_decay": None,
    "average": None,
    "extra_directions": None,
    "epochs": None,
    "checkpoint": None,
    "callbacks": (),
}
# Decompositions of M x M matrices for one fit, in products of such matrices, and the part of the
# planned samples that training takes before it has converged; measured on
# benchmarks/paper/data_sets.py.
DECOMPOSITIONS = 400
SHARE_OF_SAMPLES = 0.5
# Floating-point operations of a closed form that is taken even if training were faster, because it
# is the optimum: some seconds on two cores.
FEW_OPERATIONS = 2e12
# With a time limit, what the closed form may take of it, by a rough estimate.
SHARE_OF_TIME = 0.5
# Regularisation where the warm start could not choose one, and the smallest shift of `Columns`.
DEFAULT_REG = 1e-3
MIN_SHIFT = {"float32": 5e-7, "float64": 1e-9}
# Averaging starts once the fast directions have settled.
AVERAGE_FROM = 10
# Standard deviation of the published start: the paper's 0.1 is for features multiplied by ten.
PUBLISHED_DEVIATION = 1.0


@dataclass(frozen=True)
class StepDefaults:
    """Defaults of one preconditioner; benchmarks/paper/variants.py compares them with others."""

    learning_rate: float = 1.0
    lr_decay: float | None = None
    momentum: float = 0.0
    weight_decay: float = 0.0
    average: bool = True


DEFAULTS = {
    "columns": StepDefaults(lr_decay=6.0),
    "low_rank": StepDefaults(),
    # The paper's values, for unscaled features: its eta = 0.01 and weight decay 1e-5 are for
    # features multiplied by ten.
    None: StepDefaults(momentum=0.995, weight_decay=1e-7, average=False),
}


class KNOI(StochasticCCA):
    r"""Approximate kernel CCA learned from minibatches, for millions of rows on a plain machine.

    Minimises, in turn for each view, the distance between its projection and the whitened
    projection of the other,
    :math:`\min_U \frac{1}{b} \sum_i \| U^\top \phi_x(x_i) - S_{yy}^{-1/2} V^\top \phi_y(y_i) \|^2`,
    by stochastic steps. The published algorithm (`precondition=None`) takes gradient steps; the
    default multiplies each gradient by an approximate inverse of the covariance, starts from the
    exact solution of a small problem, learns a few more directions than requested and averages: it
    needs a small fraction of the samples and no tuning.

    Memory is O(b M) in blocks, time O(N M (dx + dy + 4 L)). Any data that `fit` accepts is streamed
    in random order; nothing of size N is held.

    Parameters
    ----------
    n_components : int, default=2
        Dimensions to project to, L.
    rank : int, default=4000
        Number of features per view, M. Accuracy and time grow with it. With kernel columns at most
        the number of rows.
    kernel : str, Kernel, callable or a pair of these, default="rbf"
        Any kernel, also a function as in `NystromCCA`; "linear" with the default `approximation`
        is linear CCA by stochastic steps (with `precondition=None`: NOI, and AppGrad at
        `time_constant=0`).
    width, metric, scale
        As in `FourierCCA`.
    approximation : str, FeatureMap, or a pair of these, default="auto"
        "nystrom": kernel values at `rank` rows (landmarks), the most accurate at equal rank and
        time. "fourier": random Fourier features, as published. Any other name of `FourierCCA`;
        "random" chooses features by the kernel. "auto" takes "nystrom" where its rank x rank
        matrices fit in memory, else "random", and logs the reason to the logger "knoi". A fitted
        feature map is used as it is.
    landmarks : str, default="uniform"
        How "nystrom" chooses landmarks: "uniform", at random; "kmeans", cluster centres, slower and
        more accurate at a given rank; "kmeans++" or "randomly_pivoted_cholesky", where some groups
        of rows are rare; "leverage", milder; "pivoted_cholesky", for kernels of low rank. Where no
        group is rare, "uniform" is about as good as any but "kmeans". See `NystromCCA`.
    precondition : {"auto", "columns", "low_rank"} or None, default="auto"
        "columns" inverts the kernel at the landmarks; "low_rank" slows down the top eigenvectors of
        any features; "auto" takes the first where it can. None is the published algorithm.
    learning_rate : float or None, default=None
        Relative to the inverse of the largest curvature of a minibatch. None takes a value that
        worked on all data sets measured. With `precondition=None`: the paper's eta for unscaled
        features, where 1.0 is the authors' 0.01. Lower it only if `history_` shows steps that were
        rolled back.
    lr_decay : float or None, default=None
        Step t has length lr_decay / t once that is shorter, so that noise averages out; None
        chooses. Larger values weight recent minibatches more; `numpy.inf` keeps the rate constant.
    momentum : float or None, default=None
        In [0, 1). Published: 0.995.
    batch_size : int or None, default=None
        Rows per minibatch, b. None: 2500, or the number of landmarks up to 10,000. Larger
        minibatches give less noisy steps, smaller ones more steps.
    time_constant : float, default=0.0
        Weight of the OLD estimate of the L x L covariances, rho, in [0, 1). With 0 each minibatch
        stands alone; raise it towards 1 if minibatches must be small (b < 10 L).
    weight_decay : float or None, default=None
        Weight decay of the gradient steps. Published: 1e-7 (the authors' 1e-5).
    average : bool or None, default=None
        Whether the result averages the weights of the later steps.
    reg : float, "auto", or a pair of these, default="auto"
        Regularisation, as in `FourierCCA`. "auto" takes the value that does best on rows held out
        of the small problem that training starts from, scaled to the number of rows; a single pass
        over the data needs none and has none. The published algorithm has `weight_decay` instead.
    extra_directions : int or None, default=None
        Directions learned beyond `n_components`, of which the best are kept. Published: 0.
    solver : {"auto", "exact", "stochastic"}, default="auto"
        "stochastic" trains on minibatches. "exact" solves for the same features in closed form, as
        `NystromCCA` or `FourierCCA` do: better and faster where there are few rows or features,
        without held-out rows. "auto" takes the closed form where it fits in `memory_budget` and
        takes some seconds or no longer than training, unless a parameter that only training has is
        given (`precondition`, a learning rate, `batch_size`, `epochs`, `checkpoint`, `callbacks`
        and the like).
    epochs : int or None, default=None
        Passes over the data. None: as many as give a million samples, at most 100.
    max_time : float or None, default=None
        Seconds for the whole call of `fit`, about; a resumed call counts from 0.
    tol : float or None, default=1e-3
        Training stops early when the held-out total correlation has risen by less than this
        fraction while the number of samples doubled; None never stops early.
    held_out : float, default=0.1
        Fraction of the rows (at most 5000 rows) held out to monitor the fit; the weights that do
        best on them are kept. 0 trains on all rows, and so do fewer than 1000 rows.
    checkpoint : path or None, default=None
        Directory to save the run to: every `checkpoint_seconds`, at the end, on Ctrl-C or SIGTERM
        and when an error ends training. `fit(X, Y, resume=True)` continues from there, to a
        bit-identical result with the same `n_jobs`. `fit(X, Y)` starts a new run; an earlier
        checkpoint stays until the first checkpoint of the new run replaces it.
    checkpoint_seconds : float, default=60
        Seconds between checkpoints.
    callbacks : list of callables, default=()
        Called after each step of `fit`: (state, result) -> state. See `knoi.callbacks.Callback`.
        They are not saved with the model.
    verbose : bool or None, default=None
        Whether to show progress, on standard error; None: in `fit` on terminals only.
    random_state : int, RandomState, Generator or None, default=None
        Fixes features, minibatches and start.
    memory_budget, n_jobs, device
        As in `LinearCCA`.

    Attributes
    ----------
    history_ : dict of lists
        The learning curve, ready for a data frame: "step", "epoch", "samples", "seconds", "loss",
        "correlation" (of the minibatch), "held_out" (fitted total correlation of the held-out rows;
        NaN if there are none), "learning_rate", "rolled_back" (True where the views fell apart:
        the weights were rolled back, and the learning rate halved).
    stopped_ : str or None
        Why training ended: "epochs", "converged", "out of time", or the reason of a callback;
        "closed form" if there was none to do; None after `partial_fit`, which may continue.
    n_samples_seen_ : int
        Samples seen in training.
    reg_ : pair of floats
        Regularisation of X and of Y that was used; 0 with `precondition=None`.
    correlations_ : ndarray (L,)
        In-sample correlations, as in `LinearCCA`, of at most 65,536 of the rows trained on.
    x_weights_, y_weights_, x_mean_, y_mean_, n_features_in_, n_features_y_
        As in `FourierCCA`.

    References
    ----------
    W. Wang and K. Livescu, Large-scale approximate kernel CCA, ICLR 2016.
    S. Ma and M. Belkin, Diving into the shallows (EigenPro), NeurIPS 2017.
    A. Rudi, L. Carratino and L. Rosasco, FALKON, NeurIPS 2017.

    Examples
    --------
    >>> from knoi import KNOI
    >>> from knoi.datasets import make_two_views
    >>> views = make_two_views(3000, correlations=(0.9,), nonlinear=True, random_state=0)
    >>> model = KNOI(n_components=1, rank=200, random_state=0).fit(views.X, views.Y)
    >>> model.transform(views.X).shape
    (3000, 1)
    """

    _facts = (*StochasticCCA._facts, "reg_")

    def __init__(
        self,
        n_components: int = 2,
        *,
        rank: int = 4000,
        kernel: Any = "rbf",
        width: Any = "auto",
        metric: Any = "auto",
        scale: Any = "auto",
        approximation: Any = "auto",
        landmarks: Selection = "uniform",
        precondition: str | None = "auto",
        learning_rate: float | None = None,
        lr_decay: float | None = None,
        momentum: float | None = None,
        batch_size: int | None = None,
        time_constant: float = 0.0,
        weight_decay: float | None = None,
        average: bool | None = None,
        reg: Any = "auto",
        extra_directions: int | None = None,
        solver: str = "auto",
        epochs: int | None = None,
        max_time: float | None = None,
        tol: float | None = 1e-3,
        held_out: float = 0.1,
        checkpoint: str | Path | None = None,
        checkpoint_seconds: float = 60.0,
        callbacks: Sequence[Callback] = (),
        verbose: bool | None = None,
        random_state: Any = None,
        memory_budget: Any = None,
        n_jobs: int | None = None,
        device: str | None = None,
    ) -> None:
        self.n_components = n_components
        self.rank = rank
        self.kernel = kernel
        self.width = width
        self.metric = metric
        self.scale = scale
        self.approximation = approximation
        self.landmarks = landmarks
        self.precondition = precondition
        self.learning_rate = learning_rate
        self.lr_decay = lr_decay
        self.momentum = momentum
        self.batch_size = batch_size
        self.time_constant = time_constant
        self.weight_decay = weight_decay
        self.average = average
        self.reg = reg
        self.extra_directions = extra_directions
        self.solver = solver
        self.epochs = epochs
        self.max_time = max_time
        self.tol = tol
        self.held_out = held_out
        self.checkpoint = checkpoint
        self.checkpoint_seconds = checkpoint_seconds
        self.callbacks = callbacks
        self.verbose = verbose
        self.random_state = random_state
        self.memory_budget = memory_budget
        self.n_jobs = n_jobs
        self.device = device

    def _settings(self) -> dict[str, Any]:
        checks.one_of("landmarks", self.landmarks, get_args(Selection))
        optional: dict[str, Callable[[str, Any], Any]] = {
            "learning_rate": checks.positive,
            "lr_decay": partial(checks.positive, infinite=True),
            "momentum": checks.fraction,
            "weight_decay": checks.at_least_zero,
            "average": checks.flag,
        }
        given = {
            name: checks.optional(c, name, getattr(self, name)) for name, c in optional.items()
        }
        return {
            # None leaves the choice to `StepDefaults`.
            "steps": {name: value for name, value in given.items() if value is not None},
            "time_constant": checks.fraction("time_constant", self.time_constant),
            "reg": checks.one_per_view("reg", self.reg, checks.at_least_zero_or_auto),
        }

    def _make_plan(self, pairs: PairSource, sizes: Sizes, *, streaming: bool) -> Plan:
        L = checks.count("n_components", self.n_components)
        kernels = checks.one_per_view("kernel", self.kernel, lambda _name, one: resolve(one))
        requested = self._approximations()
        names, ranks, map_bytes = [], [], []
        for view, kernel, one in zip(View, kernels, requested, strict=True):
            name, rank, size = one, rank_for(self.rank, L), 0
            if isinstance(one, FeatureMap):
                check_given(one, view, pairs.n_cols[view], L)
                name, rank, size = "given", one.rank, nested_bytes(one.state_dict())
            elif one == "auto" and isinstance(kernel, Linear):
                name = "identity"
                check_n_cols(view, pairs.n_cols[view], L)
            names.append(name)
            ranks.append(rank)
            map_bytes.append(size)
        request = Request(
            n_components=L,
            rank=(ranks[0], ranks[1]),
            approximation=(names[0], names[1]),
            kernels=kernels,
            precondition=checks.one_of("precondition", self.precondition, PRECONDITIONERS),
            batch_size=checks.optional(checks.count, "batch_size", self.batch_size),
            extra_directions=checks.optional(
                checks.whole, "extra_directions", self.extra_directions
            ),
            held_out=0.0 if streaming else checks.fraction("held_out", self.held_out),
            epochs=1 if streaming else checks.optional(checks.count, "epochs", self.epochs),
            max_time=None if streaming else self.max_time,
            map_bytes=(map_bytes[0], map_bytes[1]),
        )
        return make_plan(request, sizes, seed_from(self.random_state))

    def _closed_form(self, plan: Plan, pairs: PairSource, backend: Backend) -> ClosedFormCCA | None:
        solver = checks.one_of("solver", self.solver, SOLVERS)
        trained = [name for name, default in TRAINED.items() if getattr(self, name) != default]
        if solver == "stochastic" or (solver == "auto" and trained):
            return None
        if solver == "exact" and trained:
            raise InputError(
                f"solver='exact' with {trained[0]}={getattr(self, trained[0])!r}, which only "
                "training has. Leave it out, or set solver='auto'."
            )
        estimator: type[ClosedFormCCA] = FourierCCA
        if plan.approximation == ("nystrom", "nystrom"):
            estimator = NystromCCA
        elif plan.approximation == ("identity", "identity"):
            estimator = LinearCCA
        elif {"nystrom", "identity"} & set(plan.approximation):
            if solver == "auto":
                return None
            raise InputError(
                f"solver='exact' with approximations {plan.approximation}: both views need the "
                "same kind. Set approximation to 'nystrom' or to random features."
            )
        if solver == "auto" and not self._closed_form_pays(plan, pairs, backend):
            return None
        own = {name for name in estimator._get_param_names() if hasattr(self, name)} - {"tol"}
        parameters = {name: getattr(self, name) for name in own}
        if estimator is FourierCCA:
            parameters["approximation"] = tuple(
                name if one == "auto" else one
                for name, one in zip(plan.approximation, self._approximations(), strict=True)
            )
        logger.info("solver: closed form of the features (%s).", estimator.__name__)
        return estimator(**parameters)

    def _closed_form_pays(self, plan: Plan, pairs: PairSource, backend: Backend) -> bool:
        """Whether the closed form fits in memory and time: some seconds, or that of training."""
        M, d, N = max(plan.rank), max(pairs.n_cols), pairs.n_rows
        if choosing_bytes(N, M, backend) > self._budget(backend) // 2:
            return False
        # Floating-point operations: features of both views, whitened, and their moments; then
        # decompositions, which are several times slower than products.
        exact = N * (4 * M * d + 8 * M**2) + DECOMPOSITIONS * M**3
        samples = SHARE_OF_SAMPLES * plan.epochs * N
        per_sample = 4 * M * (d + 2 * plan.directions)
        if "columns" in plan.precondition:
            per_sample += 8 * M**2 * plan.directions // plan.batch_size
        if self.max_time is not None and exact > SHARE_OF_TIME * self.max_time * (
            operations_per_second()
        ):
            return False
        return exact <= max(FEW_OPERATIONS, samples * per_sample)

    def _approximations(self) -> tuple[Any, Any]:
        check = partial(check_approximation, others=NOT_RANDOM)
        return checks.one_per_view("approximation", self.approximation, check)

    def _fit_maps(self, plan: Plan, pairs: PairSource) -> Maps:
        given = [
            Identity(pairs.n_cols[view]) if plan.approximation[view] == "identity" else one
            for view, one in zip(View, self._approximations(), strict=True)
        ]
        space = self._kernel_space(pairs, plan.seed, given, plan.metric_rows)
        check_varying(pairs, space.samples)
        maps: list[FeatureMap] = []
        for view, name in zip(View, plan.approximation, strict=True):
            rank = plan.rank[view]
            if name in ("given", "identity"):
                maps.append(given[view])
            elif name == "nystrom":
                features = fit_columns(space, rank, view, plan.seed, self.landmarks)
                maps.append(space.features(view, features))
            else:
                sample, kernel, L = space.samples[view], space.kernels[view], self.n_components
                random = fit_random(name, sample, kernel, rank, plan.seed, view, L)
                maps.append(space.features(view, random))
        return maps[0], maps[1]

    def _start(
        self,
        settings: dict[str, Any],
        setup: Setup,
        pairs: PairSource,
        held_out: RowPair | None,
    ) -> tuple[OptimizerState, Training]:
        plan, backend = setup.plan, setup.backend
        start = None
        if plan.precondition != (None, None):
            start = warm_start(
                setup.maps,
                setup.fresh_sample(pairs, warm_start_rows(max(one.rank for one in setup.maps))),
                setup.directions,
                backend,
                setup.engine,
                wanted=setup.n_components,
            )
        preconditioners, self.reg_ = fit_preconditioners(settings["reg"], setup, pairs, start)
        minibatch = setup.fresh_sample(pairs, plan.batch_size)
        units = unit_steps(setup, minibatch, preconditioners)
        views = [replace(DEFAULTS[choice], **settings["steps"]) for choice in plan.precondition]
        x_steps, y_steps = (
            StepSize(view.learning_rate * unit, view.lr_decay)
            for view, unit in zip(views, units, strict=True)
        )
        update = KNOIUpdate(
            features=setup.features,
            precondition=preconditioners,
            step_sizes=(x_steps, y_steps),
            n_components=setup.n_components,
            rho=settings["time_constant"],
            momentum=views[0].momentum,
            weight_decay=views[0].weight_decay,
            average_from=AVERAGE_FROM if views[0].average else None,
            backend=backend,
            engine=setup.engine,
        )
        random = partial(random_weights, setup, minibatch, preconditioners)
        x, y = (at_rest(U, backend) for U in (random() if start is None else start.weights))
        return OptimizerState(x, y), Training(setup, update, held_out)


def fit_preconditioners(
    regs: Sequence[float | None], setup: Setup, pairs: PairSource, start: WarmStart | None
) -> tuple[tuple[Preconditioner, Preconditioner], tuple[float, float]]:
    """The preconditioner and the ridge of each view; `regs` has None for "auto".

    The regularisation that suits n rows of the small problem suits N rows n / N times weaker. A
    single pass cannot overfit and needs no ridge; more passes need more of it.
    """
    plan, backend, engine = setup.plan, setup.backend, setup.engine
    parts: list[Preconditioner] = []
    ridges: list[float] = []
    for view, features, choice in zip(View, setup.maps, plan.precondition, strict=True):
        reg = ridge = regs[view]
        if reg is None or ridge is None:
            reg = DEFAULT_REG if start is None else start.reg * start.n_rows / pairs.n_rows
            ridge = reg * (1 - 1 / plan.epochs)
        if choice == "columns":
            shift = max(reg, MIN_SHIFT[backend.dtype])
            parts.append(Columns.fit(features, shift, ridge, backend, engine))
        elif choice == "low_rank":
            rows = setup.sample(pairs, LowRank.rows_wanted(features.rank))[view]
            X = backend.asarray(rows)
            parts.append(LowRank.fit(features, X, plan.batch_size, ridge, backend, engine))
        else:
            parts.append(plain)
            ridge = 0.0
        ridges.append(ridge)
    return (parts[0], parts[1]), (ridges[0], ridges[1])


def unit_steps(
    setup: Setup, minibatch: RowPair, preconditioners: tuple[Preconditioner, Preconditioner]
) -> list[float]:
    """The step that a learning rate of 1 means: the inverse of the largest curvature."""
    units = []
    for v, apply in enumerate(preconditioners):
        if setup.plan.precondition[v] is None:
            units.append(1.0)
            continue
        features = setup.features[v]
        features.load(minibatch[v])
        curvature = largest_curvature(
            features, setup.maps[v].rank, apply, setup.backend, setup.engine
        )
        units.append(1 / curvature if 0 < curvature < float("inf") else 1.0)
    return units


def random_weights(
    setup: Setup, minibatch: RowPair, preconditioners: tuple[Preconditioner, Preconditioner]
) -> tuple[Array, Array]:
    """The paper's normal weights; preconditioned, one step towards random targets."""
    weights, backend = [], setup.backend
    for view, choice in zip(View, setup.plan.precondition, strict=True):
        draw = generator(setup.plan.seed, Purpose.INITIAL_WEIGHTS, view)
        shape = setup.maps[view].rank, setup.directions
        if choice is None:
            weights.append(backend.asarray(PUBLISHED_DEVIATION * draw.standard_normal(shape)))
            continue
        rows, features = minibatch[view], setup.features[view]
        features.load(rows)
        targets = draw.standard_normal((rows.shape[0], setup.directions))
        targets -= targets.mean(axis=0)
        zero = backend.zeros(shape)
        features.project(zero, setup.engine)  # computes the features
        G = features.gradient(backend.asarray(targets / rows.shape[0]), setup.engine)
        weights.append(preconditioners[view](G, zero))
    return weights[0], weights[1]
