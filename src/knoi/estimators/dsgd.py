"""DSGD: kernel CCA by steps that see a minibatch of rows and change a block of features."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from knoi import checks
from knoi.arrays.backend import Array, Backend
from knoi.arrays.random import Purpose, View, generator, seed_from
from knoi.callbacks import Callback
from knoi.data.pairs import PairSource, RowPair
from knoi.estimators.setup import (
    Maps,
    Plan,
    Request,
    Setup,
    Sizes,
    check_varying,
    held_out_rows,
    make_plan,
    named,
    rank_for,
)
from knoi.estimators.training import StochasticCCA, Training
from knoi.features import FeatureMap, RandomFourier
from knoi.kernels import resolve
from knoi.solvers.acceleration import plain
from knoi.solvers.dsgd import DecayingStepSize, DSGDUpdate, aligned
from knoi.solvers.loop import OptimizerState, at_rest
from knoi.solvers.noi import TILE_COLUMNS, largest_curvature, project_batch


class DoublyStochasticCCA(StochasticCCA):
    r"""Kernel CCA by doubly stochastic gradients (DSGD), to compare `KNOI` with.

    Maximises :math:`\mathrm{tr}(U^\top S_{xy} V)` subject to
    :math:`U^\top S_{xx} U + V^\top S_{yy} V = I` by steps along the gradient of the Lagrangian:
    with scores u, v of a minibatch and :math:`C = \mathrm{mean}(u v^\top + v u^\top)`,

    .. math:: U_k \leftarrow U_k + \eta_t\, \mathrm{mean}(\phi_k(x) (v - C u)^\top)

    and likewise for V. Each step changes one block k of the random Fourier features; blocks take
    turns. Nothing is whitened or preconditioned, so leading directions come first and the last ones
    need very many samples: `KNOI` needs far fewer. If the views fall apart or weights grow without
    bound, the step is rolled back and later steps are half as long; `history_` records it.

    Memory is O(b B) for blocks of B features, time O(N M (dx + dy + 2 L)).

    Parameters
    ----------
    n_components : int, default=2
        Dimensions to project to, L.
    rank : int, default=20480
        Random Fourier features per view, M. The authors count frequencies: their 20480 frequencies,
        as cosine and sine, are rank=40960 in blocks of 4096.
    feature_block : int, default=2048
        Features that a step changes; `rank` or more changes all of them.
    kernel : str, Kernel or a pair of these, default="rbf"
        A stationary kernel: "rbf", "laplacian", "cauchy" or "matern".
    width, metric, scale
        As in `FourierCCA`.
    paired : bool, default=True
        Use each frequency as a cosine and a sine, instead of a cosine with random phase.
    batch_size : int, default=1024
        Rows per minibatch, b; at most the number of rows.
    learning_rate : float, default=1.0
        Relative to the inverse of the largest curvature of a block of features, which is the
        longest step that is stable near the solution. Lower it if `history_` shows steps that were
        rolled back.
    decay : float, default=1000.0
        Steps after which a step is half as long: step t has length learning_rate / (1 + t / decay).
        `numpy.inf` keeps the rate constant.
    reg : float or pair of floats, default=0.0
        Regularisation, as in `FourierCCA`. Training that ends early regularises, too.
    epochs, max_time, tol, held_out, checkpoint, checkpoint_seconds, callbacks, verbose
        As in `KNOI`, except that `tol` is None by default: training does not stop early.
    random_state, memory_budget, n_jobs, device
        As in `KNOI`.

    Attributes
    ----------
    history_ : dict of lists
        The learning curve, as in `KNOI`; "loss" is the mean squared distance between the scores.
    stopped_, n_samples_seen_
        As in `KNOI`.
    correlations_, x_weights_, y_weights_, x_mean_, y_mean_, n_features_in_, n_features_y_
        As in `KNOI`.

    References
    ----------
    B. Xie, Y. Liang and L. Song, Scale up nonlinear component analysis with doubly stochastic
    gradients, NeurIPS 2015.

    Examples
    --------
    >>> from knoi import DoublyStochasticCCA
    >>> from knoi.datasets import make_two_views
    >>> views = make_two_views(3000, correlations=(0.9,), nonlinear=True, random_state=0)
    >>> model = DoublyStochasticCCA(n_components=1, rank=200, feature_block=50, random_state=0)
    >>> model.fit(views.X, views.Y).transform(views.X).shape
    (3000, 1)
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        rank: int = 20480,
        feature_block: int = 2048,
        kernel: Any = "rbf",
        width: Any = "auto",
        metric: Any = "auto",
        scale: Any = "auto",
        paired: bool = True,
        batch_size: int = 1024,
        learning_rate: float = 1.0,
        decay: float = 1000.0,
        reg: Any = 0.0,
        epochs: int | None = None,
        max_time: float | None = None,
        tol: float | None = None,
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
        self.feature_block = feature_block
        self.kernel = kernel
        self.width = width
        self.metric = metric
        self.scale = scale
        self.paired = paired
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.decay = decay
        self.reg = reg
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
        return {
            "feature_block": checks.count("feature_block", self.feature_block),
            "learning_rate": checks.positive("learning_rate", self.learning_rate),
            "decay": checks.positive("decay", self.decay, infinite=True),
            "reg": checks.one_per_view("reg", self.reg, checks.at_least_zero),
        }

    def _make_plan(self, pairs: PairSource, sizes: Sizes, *, streaming: bool) -> Plan:
        L = checks.count("n_components", self.n_components)
        rank = rank_for(self.rank, L)
        held_out = 0.0 if streaming else checks.fraction("held_out", self.held_out)
        n_train = pairs.n_rows - held_out_rows(held_out, pairs.n_rows)
        request = Request(
            n_components=L,
            rank=(rank, rank),
            approximation=("fourier", "fourier"),
            kernels=checks.one_per_view("kernel", self.kernel, lambda _name, one: resolve(one)),
            precondition=None,
            batch_size=min(checks.count("batch_size", self.batch_size), n_train),
            extra_directions=0,
            held_out=held_out,
            epochs=1 if streaming else checks.optional(checks.count, "epochs", self.epochs),
            max_time=None if streaming else self.max_time,
            # A step uses one block of features twice: keeping all of them would save little.
            keep_features=self.feature_block >= rank,
            method=type(self).__name__,
        )
        return make_plan(request, sizes, seed_from(self.random_state))

    def _closed_form(self, plan: Plan, pairs: PairSource, backend: Backend) -> None:
        """None: this estimator is for comparisons with its steps."""

    def _fit_maps(self, plan: Plan, pairs: PairSource) -> Maps:
        paired = checks.flag("paired", self.paired)
        space = self._kernel_space(pairs, plan.seed, max_rows=plan.metric_rows)
        check_varying(pairs, space.samples)
        maps = []
        for view, kernel, sample in zip(View, space.kernels, space.samples, strict=True):
            rank, seed = plan.rank[view], plan.seed
            with named(view.name):
                features = RandomFourier.fit(sample, kernel, rank, seed, view, paired=paired)
            maps.append(space.features(view, features))
        return maps[0], maps[1]

    def _start(
        self,
        settings: dict[str, Any],
        setup: Setup,
        pairs: PairSource,
        held_out: RowPair | None,
    ) -> tuple[OptimizerState, Training]:
        minibatch = setup.fresh_sample(pairs, setup.plan.batch_size)
        blocks, step_sizes, ridge = [], [], []
        for v, features in enumerate(setup.maps):
            blocks.append(features.slices(settings["feature_block"]))
            setup.features[v].load(minibatch[v])
            curvature = largest_curvature(
                setup.features[v], features.rank, plain, setup.backend, setup.engine
            )
            # Blocks are draws of the same features: each has its share of every curvature.
            unit = len(blocks[v]) / curvature if 0 < curvature < float("inf") else 1.0
            step_sizes.append(DecayingStepSize(settings["learning_rate"] * unit, settings["decay"]))
            reg = settings["reg"][v]
            ridge.append(reg * total_variance(features, minibatch[v], setup) if reg else 0.0)
        update = DSGDUpdate(
            features=setup.features,
            blocks=(blocks[0], blocks[1]),
            step_sizes=(step_sizes[0], step_sizes[1]),
            ridge=(ridge[0], ridge[1]),
            n_components=setup.n_components,
            backend=setup.backend,
            engine=setup.engine,
        )
        # Random weights, aligned so that they meet the constraint on a minibatch.
        U, V = (
            setup.backend.asarray(
                generator(setup.plan.seed, Purpose.INITIAL_WEIGHTS, view).standard_normal(
                    (features.rank, setup.directions)
                )
            )
            for view, features in zip(View, setup.maps, strict=True)
        )
        start = OptimizerState(at_rest(U, setup.backend), at_rest(V, setup.backend))
        scores = project_batch(setup.features, start, minibatch, setup.backend, setup.engine)
        x, y = (at_rest(W, setup.backend) for W in aligned((U, V), scores, setup.backend))
        return OptimizerState(x, y), Training(setup, update, held_out)


def total_variance(features: FeatureMap, rows: Array, setup: Setup) -> float:
    """The trace of the covariance of the features, on these rows."""
    xp = setup.backend.xp
    prepared = features.prepare(setup.backend.asarray(rows))

    def of_block(columns: slice) -> float:
        return float(xp.sum(xp.var(features.block(prepared, columns), axis=0)))

    return sum(setup.engine.map(of_block, features.slices(TILE_COLUMNS)))
