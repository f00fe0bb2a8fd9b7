"""KNOI: kernel CCA for any number of rows, learned from minibatches."""

from pathlib import Path
from typing import Any, Self

from knoi.arrays.backend import Backend, pick_backend
from knoi.arrays.random import seed_from
from knoi.callbacks.checkpoint import load_run, open_directory, refuse_another, stored_identity
from knoi.checks import count, flag
from knoi.data.pairs import PairSource
from knoi.engine import Engine
from knoi.estimators.knoi_maps import fit_maps
from knoi.estimators.knoi_parameters import limits_of, request_of, steps_of
from knoi.estimators.minibatch import MinibatchCCA
from knoi.estimators.plan import Plan, make_plan
from knoi.estimators.run_identity import asked_of, identity_of
from knoi.estimators.streaming import Stream
from knoi.estimators.training import Training
from knoi.exceptions import InputError
from knoi.features.landmarks import Selection
from knoi.projection import Projection
from knoi.solvers.loop import Run


class KNOI(MinibatchCCA):
    r"""Approximate kernel CCA learned from minibatches, for millions of rows on a plain machine.

    Minimises, in turn for each view, the distance between its projection and the whitened
    projection of the other,
    :math:`\min_U \frac{1}{b} \sum_i \| U^\top \phi_x(x_i) - S_{yy}^{-1/2} V^\top \phi_y(y_i) \|^2`,
    by stochastic steps. The published algorithm (`precondition=None`) takes gradient steps; the
    default multiplies each gradient by an approximate inverse of the covariance, starts from the
    exact solution of a small problem, learns a few directions more than asked for and averages: it
    needs a small fraction of the samples and no tuning.

    Memory is O(b M) in blocks, time O(N M (dx + dy + 4 L)). Any data that `fit` accepts is streamed
    in random order; nothing of size N is held.

    Parameters
    ----------
    n_components : int, default=2
        Dimensions to project to, L.
    rank : int, default=4000
        Features a view, M. More is more accurate; time grows with it. With kernel columns no more
        than there are rows.
    kernel : str, Kernel or a pair of these, default="rbf"
        Any kernel; "linear" with the default `approximation` is linear CCA by stochastic steps
        (with `precondition=None`: NOI, and AppGrad at `time_constant=0`).
    width : float, "median" or a pair of these, default="median"
        As in `FourierCCA`.
    approximation : str, FeatureMap, or a pair of these, default="auto"
        "nystrom": kernel values at `rank` rows (landmarks), the most accurate at equal rank and
        time. "fourier": random Fourier features, as published. Any other name of `FourierCCA`;
        "random" takes the features that suit the kernel. "auto" takes "nystrom" where its
        rank x rank matrices fit the memory, else "random", and says why to the logger "knoi". A
        fitted feature map is used as it is.
    landmarks : str, default="uniform"
        How "nystrom" chooses them: "uniform", at random; "kmeans", centres of clusters, slower and
        more accurate at a given rank; "kmeans++" or "randomly_pivoted_cholesky", where some groups
        of rows are rare; "leverage", milder; "pivoted_cholesky", for kernels of low rank. Where no
        group is rare "uniform" is about as good as any but "kmeans". `NystromCCA` says more.
    precondition : {"auto", "columns", "low_rank"} or None, default="auto"
        "columns" inverts the kernel at the landmarks; "low_rank" slows down the top eigenvectors of
        any features; "auto" takes the first where it can. None is the published algorithm: touch it
        to compare.
    learning_rate : float or None, default=None
        A pure number: 1 is the inverse of the largest curvature a minibatch shows. None takes what
        was measured to work everywhere. Published: the paper's eta in the convention of unscaled
        features, where 1.0 is the authors' 0.01. Touch it only if `history_` shows undone steps.
    fall : float or None, default=None
        After a while step t has length fall / t, so that noise averages out; None chooses. Larger
        trusts recent minibatches more; `numpy.inf` keeps the rate constant.
    momentum : float or None, default=None
        In [0, 1). Published: 0.995.
    batch_size : int or None, default=None
        Rows a minibatch, b. None: 2500, or as many as landmarks up to 10,000. Larger ones give less
        noisy steps, smaller ones more of them.
    time_constant : float, default=0.0
        Weight of the OLD estimate of the L x L covariances, rho, in [0, 1). 0 takes each minibatch
        alone; raise it towards 1 if minibatches must be so small (b < 10 L) that this is noisy.
    weight_decay : float or None, default=None
        Pull of the weights towards 0. Published: 1e-7 (the authors' 1e-5).
    average : bool or None, default=None
        Whether the result averages the weights of the later steps.
    reg : float, "auto", or a pair of these, default="auto"
        Regularisation, as in `FourierCCA`. "auto" takes what did best on rows left out of the small
        problem that training starts from, scaled to the number of rows; a single pass over the data
        needs none and has none. The published algorithm has `weight_decay` instead.
    extra_directions : int or None, default=None
        Directions learned beyond `n_components`, of which the best are kept. Published: 0.
    epochs : int or None, default=None
        Passes over the data. None: as many as make a million samples, at most 100.
    max_time : float or None, default=None
        Seconds after which a call of `fit` stops training, a resumed one too.
    tol : float or None, default=1e-3
        Training stops early when the held-out total correlation has risen by less than this part of
        itself while the number of samples doubled; None never stops early.
    held_out : float, default=0.1
        Part of the rows (at most 5000) held out to watch the fit; the weights that do best on them
        are kept. 0 trains on all rows, as do data of fewer than 1000 rows.
    checkpoint : path or None, default=None
        Directory to save the run to: every `checkpoint_seconds`, at the end, on Ctrl-C or SIGTERM
        and when an error ends training. `fit(X, Y, resume=True)` goes on from there as if nothing
        had happened, bit for bit with the same `n_jobs`. `fit(X, Y)` starts anew whatever is there;
        an earlier checkpoint stays until the first of the new run takes its place.
    checkpoint_seconds : float, default=60
        Seconds between checkpoints.
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
        "correlation" (of the minibatch), "held_out" (fitted total correlation of the rows held out;
        NaN if there are none), "learning_rate", "undone" (a step after which the views fell apart:
        it was taken back, and the learning rate halved).
    stopped_ : str or None
        Why training ended: "epochs", "converged" or "out of time"; None after `partial_fit`, which
        may go on.
    n_samples_seen_ : int
        Samples stepped through.
    correlations_, x_weights_, y_weights_, x_mean_, y_mean_, n_features_in_, n_features_y_
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

    def __init__(
        self,
        n_components: int = 2,
        *,
        rank: int = 4000,
        kernel: Any = "rbf",
        width: Any = "median",
        approximation: Any = "auto",
        landmarks: Selection = "uniform",
        precondition: str | None = "auto",
        learning_rate: float | None = None,
        fall: float | None = None,
        momentum: float | None = None,
        batch_size: int | None = None,
        time_constant: float = 0.0,
        weight_decay: float | None = None,
        average: bool | None = None,
        reg: Any = "auto",
        extra_directions: int | None = None,
        epochs: int | None = None,
        max_time: float | None = None,
        tol: float | None = 1e-3,
        held_out: float = 0.1,
        checkpoint: str | Path | None = None,
        checkpoint_seconds: float = 60.0,
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
        self.approximation = approximation
        self.landmarks = landmarks
        self.precondition = precondition
        self.learning_rate = learning_rate
        self.fall = fall
        self.momentum = momentum
        self.batch_size = batch_size
        self.time_constant = time_constant
        self.weight_decay = weight_decay
        self.average = average
        self.reg = reg
        self.extra_directions = extra_directions
        self.epochs = epochs
        self.max_time = max_time
        self.tol = tol
        self.held_out = held_out
        self.checkpoint = checkpoint
        self.checkpoint_seconds = checkpoint_seconds
        self.verbose = verbose
        self.random_state = random_state
        self.memory_budget = memory_budget
        self.n_jobs = n_jobs
        self.device = device

    def fit(self, X: Any, Y: Any, *, resume: bool = False) -> Self:
        """Learn the projections from paired rows.

        Parameters
        ----------
        X, Y : array-like, sparse, data frame, tensor, h5py/zarr array, or path, (n_samples, d)
            The two views; row i of X belongs to row i of Y.
        resume : bool, default=False
            Go on from the checkpoint in the directory `checkpoint`, if there is one. It must be of
            the same data and parameters, but for those that say how long to train: `epochs`,
            `max_time`, `tol`.

        Returns
        -------
        self
        """
        self._resume = flag("resume", resume)
        try:
            super().fit(X, Y)
        finally:
            del self._resume
        self.__dict__.pop("_streaming", None)
        return self

    def _solve(self, pairs: PairSource, backend: Backend, engine: Engine) -> Projection:
        # What needs no data is refused before anything is computed.
        limits, steps = limits_of(self), steps_of(self)
        if self._resume and self.checkpoint is None:
            raise InputError(
                "resume=True but checkpoint=None: there is nothing to resume from. Set checkpoint "
                "to the directory of the run."
            )
        directory = None if self.checkpoint is None else open_directory(self.checkpoint)
        earlier = None
        if directory is not None and self._resume:
            earlier = stored_identity(directory)
            if earlier is not None:
                refuse_another(directory, earlier, asked_of(self, pairs))
        plan = self._plan(pairs, backend, engine, earlier)
        train_pairs, held_out = pairs, None
        if plan.n_held_out:
            train_pairs, held_out = pairs.split(plan.n_held_out, plan.seed)
        maps = fit_maps(self, plan, train_pairs)
        identity = identity_of(self, plan, maps, pairs)
        earlier_run = None
        if earlier is not None and directory is not None:
            earlier_run = load_run(directory, identity, backend)
        L = limits.n_components
        training = Training(plan, maps, steps, L, train_pairs, held_out, backend, engine)
        run = Run(training.start) if earlier_run is None else limits.judged_anew(earlier_run)
        saved = None if directory is None else (directory, identity)
        run = self._train(run, training, limits, train_pairs, saved)
        return self._end(run, training)

    def _begin(self, pairs: PairSource, engine: Engine) -> Stream:
        self._check_size(pairs)
        steps = steps_of(self)
        backend = pick_backend(self.device, pairs.dtype)
        plan = self._plan(pairs, backend, engine, None, streaming=True)
        maps = fit_maps(self, plan, pairs)
        L = count("n_components", self.n_components)
        training = Training(plan, maps, steps, L, pairs, None, backend, engine)
        return Stream(training, Run(training.start))

    def _plan(
        self,
        pairs: PairSource,
        backend: Backend,
        engine: Engine,
        earlier: dict[str, Any] | None,
        *,
        streaming: bool = False,
    ) -> Plan:
        request = request_of(self, pairs, streaming=streaming)
        if earlier is not None:
            return Plan.from_state_dict(earlier["plan"])
        sizes = self._sizes(pairs, backend, engine)
        return make_plan(request, sizes, seed_from(self.random_state))
