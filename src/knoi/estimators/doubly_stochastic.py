"""DSGD: kernel CCA by steps that see a minibatch of rows and change a block of features."""

from dataclasses import replace
from typing import Any, Self

from knoi.arrays.backend import Backend, pick_backend
from knoi.arrays.random import View, seed_from
from knoi.checks import at_least_zero, count, flag, fraction, one_per_view, positive
from knoi.data.pairs import PairSource
from knoi.engine import Engine
from knoi.estimators.dsgd_steps import BlockSteps
from knoi.estimators.knoi_maps import sampled_kernels
from knoi.estimators.knoi_parameters import Limits
from knoi.estimators.minibatch import MinibatchCCA
from knoi.estimators.parameters import rank_for
from knoi.estimators.plan import Plan, Request, held_out_rows, make_plan
from knoi.estimators.streaming import Stream
from knoi.estimators.training import Maps, Training
from knoi.exceptions import InputTypeError
from knoi.features import RandomFourier
from knoi.kernels import resolve
from knoi.projection import Projection
from knoi.solvers.loop import Run


class DoublyStochasticCCA(MinibatchCCA):
    r"""Kernel CCA by doubly stochastic gradients (DSGD), to compare `KNOI` with.

    Maximises :math:`\mathrm{tr}(U^\top S_{xy} V)` subject to
    :math:`U^\top S_{xx} U + V^\top S_{yy} V = I` by steps along the gradient of the Lagrangian:
    with scores u, v of a minibatch and :math:`C = \mathrm{mean}(u v^\top + v u^\top)`,

    .. math:: U_k \leftarrow U_k + \eta_t\, \mathrm{mean}(\phi_k(x) (v - C u)^\top)

    and likewise for V. Each step changes one block k of the random Fourier features; blocks take
    turns. Nothing is whitened or preconditioned, so that leading directions come first and the last
    take very many samples: `KNOI` needs far fewer. A step after which the views fall apart, or
    weights grow without bound, is taken back and later ones are half as long; `history_` says so.

    Memory is O(b B) for blocks of B features, time O(N M (dx + dy + 2 L)).

    Parameters
    ----------
    n_components : int, default=2
        Dimensions to project to, L.
    rank : int, default=20480
        Random Fourier features a view, M. The authors count frequencies: their 20480 of them, as
        cosine and sine, are rank=40960 in blocks of 4096.
    feature_block : int, default=2048
        Features that a step changes; `rank` or more changes all of them.
    kernel : str, Kernel or a pair of these, default="rbf"
        A stationary kernel: "rbf", "laplacian", "cauchy" or "matern".
    width : float, "median" or a pair of these, default="median"
        As in `FourierCCA`.
    paired : bool, default=True
        Use each frequency as a cosine and a sine, instead of a cosine with random phase.
    batch_size : int, default=1024
        Rows a minibatch, b; no more than there are.
    learning_rate : float, default=1.0
        A pure number: 1 is the inverse of the largest curvature of a block of features, and the
        longest step that is stable near the solution. Lower it if `history_` shows undone steps.
    decay : float, default=1000.0
        Steps after which a step is half as long: step t has length learning_rate / (1 + t / decay).
        `numpy.inf` keeps the rate constant.
    reg : float or pair of floats, default=0.0
        Regularisation, as in `FourierCCA`. Training that ends early regularises, too.
    epochs : int or None, default=None
        Passes over the data. None: as many as make a million samples, at most 100.
    max_time : float or None, default=None
        Seconds after which `fit` stops training.
    held_out : float, default=0.1
        As in `KNOI`: the weights that do best on rows held out are kept.
    verbose : bool or None, default=None
        Whether to show progress, on standard error; None: in `fit` on terminals only.
    random_state : int, RandomState, Generator or None, default=None
        Fixes features, minibatches and start.
    memory_budget, n_jobs, device
        As in `LinearCCA`.

    Attributes
    ----------
    history_ : dict of lists
        The learning curve, as in `KNOI`; "loss" is the mean squared distance of the views' scores.
    stopped_, n_samples_seen_
        As in `KNOI`.
    correlations_, x_weights_, y_weights_, x_mean_, y_mean_, n_features_in_, n_features_y_
        As in `FourierCCA`.

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
        width: Any = "median",
        paired: bool = True,
        batch_size: int = 1024,
        learning_rate: float = 1.0,
        decay: float = 1000.0,
        reg: Any = 0.0,
        epochs: int | None = None,
        max_time: float | None = None,
        held_out: float = 0.1,
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
        self.paired = paired
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.decay = decay
        self.reg = reg
        self.epochs = epochs
        self.max_time = max_time
        self.held_out = held_out
        self.verbose = verbose
        self.random_state = random_state
        self.memory_budget = memory_budget
        self.n_jobs = n_jobs
        self.device = device

    def fit(self, X: Any, Y: Any) -> Self:
        """Learn the projections from paired rows; forgets what `partial_fit` has seen."""
        super().fit(X, Y)
        self.__dict__.pop("_streaming", None)
        return self

    def _solve(self, pairs: PairSource, backend: Backend, engine: Engine) -> Projection:
        limits = Limits(
            n_components=count("n_components", self.n_components),
            epochs=None if self.epochs is None else count("epochs", self.epochs),
            max_time=None if self.max_time is None else positive("max_time", self.max_time),
        )
        training, train_pairs = self._training(pairs, backend, engine)
        run = self._train(Run(training.start), training, limits, train_pairs)
        return self._end(run, training)

    def _begin(self, pairs: PairSource, engine: Engine) -> Stream:
        self._check_size(pairs)
        backend = pick_backend(self.device, pairs.dtype)
        training, _ = self._training(pairs, backend, engine, streaming=True)
        return Stream(training, Run(training.start))

    def _training(
        self, pairs: PairSource, backend: Backend, engine: Engine, *, streaming: bool = False
    ) -> tuple[Training, PairSource]:
        """The parts of a fit, and the rows to train on."""
        steps = BlockSteps(
            feature_block=count("feature_block", self.feature_block),
            learning_rate=positive("learning_rate", self.learning_rate),
            decay=positive("decay", self.decay, infinite=True),
            reg=one_per_view("reg", self.reg, at_least_zero),
        )
        request = self._request(pairs, streaming=streaming)
        sizes = self._sizes(pairs, backend, engine)
        plan = make_plan(request, sizes, seed_from(self.random_state))
        if steps.feature_block < request.rank[0]:
            # A step needs but a block of features twice: to keep them all would buy little.
            plan = replace(plan, keep_features=False)
        train_pairs, held_out = pairs, None
        if plan.n_held_out:
            train_pairs, held_out = pairs.split(plan.n_held_out, plan.seed)
        maps = self._maps(plan, train_pairs)
        L = request.n_components
        training = Training(plan, maps, steps, L, train_pairs, held_out, backend, engine)
        return training, train_pairs

    def _request(self, pairs: PairSource, *, streaming: bool) -> Request:
        L = count("n_components", self.n_components)
        rank = rank_for(self.rank, L)
        held_out = 0.0 if streaming else fraction("held_out", self.held_out)
        n_train = pairs.n_rows - held_out_rows(held_out, pairs.n_rows)
        return Request(
            n_components=L,
            rank=(rank, rank),
            approximation=("fourier", "fourier"),
            kernels=one_per_view("kernel", self.kernel, lambda _name, one: resolve(one)),
            precondition=None,
            batch_size=min(count("batch_size", self.batch_size), n_train),
            extra_directions=0,
            held_out=held_out,
            epochs=1,
            method=type(self).__name__,
            instead="Use KNOI(approximation='nystrom')",
        )

    def _maps(self, plan: Plan, pairs: PairSource) -> Maps:
        paired = flag("paired", self.paired)
        kernels, samples = sampled_kernels(self, plan, pairs)
        maps = []
        for view, kernel, sample in zip(View, kernels, samples, strict=True):
            try:
                rank, seed = plan.rank[view], plan.seed
                maps.append(RandomFourier.fit(sample, kernel, rank, seed, view, paired=paired))
            except InputTypeError as error:
                raise InputTypeError(f"view {view.name}: {error}") from None
        return maps[0], maps[1]
