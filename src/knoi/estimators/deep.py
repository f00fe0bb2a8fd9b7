"""Deep CCA: a neural network per view, trained on minibatches, with a closed form on top."""

import logging
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from knoi import checks
from knoi.arrays.backend import (
    Array,
    Backend,
    DType,
    operations_per_second,
    torch_backend,
)
from knoi.arrays.random import View, seed_from
from knoi.arrays.sparse import column_means, is_sparse
from knoi.callbacks import Callback
from knoi.data.pairs import PairSource, RowPair
from knoi.estimators.closed_form import FourierCCA
from knoi.estimators.heads import (
    HEADS,
    SHARE_OF_TIME,
    HeadPlan,
    HeadSearch,
    plan_head,
)
from knoi.estimators.setup import (
    BATCHES_ALIVE,
    DEFAULT_SAMPLES,
    WIDTH_SAMPLE,
    Maps,
    Plan,
    Setup,
    Sizes,
    check_n_cols,
    column_spreads,
)
from knoi.estimators.training import FINAL_RUN_ROWS, StochasticCCA, Training
from knoi.exceptions import (
    InputError,
    InputTypeError,
    ModelFileError,
    require,
)
from knoi.features import FeatureMap
from knoi.features.composite import Chain
from knoi.features.network import TorchNetwork
from knoi.persistence import ModelFile, read_model
from knoi.projection import Projection, ViewProjection
from knoi.solvers.deep import (
    DeepUpdate,
    Network,
    NetworkBatch,
    Schedule,
    multiplies_bfloat16,
    perceptron,
)
from knoi.solvers.loop import OptimizerState, ViewState

logger = logging.getLogger("knoi")

LOSSES = ("noi", "trace")
PRECISIONS = ("auto", "float32", "bfloat16")
# Rows per minibatch: at least this many, and this many per component.
MIN_BATCH = 500
BATCH_PER_COMPONENT = 10
# Steps where the number of epochs is not given, if they are not more than a million samples.
DEFAULT_STEPS = 2000
LEARNING_RATE = 3e-3
# Weight decay: the first times the weights of both networks per row, at most the second.
WEIGHT_DECAY, MAX_WEIGHT_DECAY = 0.1, 1.0
# Where a time limit ends the run.
UNLIMITED_EPOCHS = 1_000_000
# Held-out rows: a tenth by default, but enough to choose on, and at most a fifth of few rows.
MAX_HELD_OUT, MIN_HELD_OUT, MIN_ROWS_TO_HOLD_OUT = 5000, 500, 100
# Vectors of weights per network: weights, moments, gradient, their successors, last good and best.
WEIGHT_VECTORS = 12


class DeepCCA(StochasticCCA):
    r"""Deep CCA by nonlinear orthogonal iterations: a neural network per view.

    Each step regresses the outputs of each network on the whitened outputs of the other, with
    means and covariances of the minibatch, and descends along the gradient with Adam:

    .. math:: \min_f \| f(X) - G(Y) \Sigma_{gg}^{-1/2} \|^2, \quad
              \min_g \| g(Y) - F(X) \Sigma_{ff}^{-1/2} \|^2

    The targets are constants, so no eigenvector is differentiated. After training, the last layers
    are solved again in closed form, with the ridge that does best on held-out pairs. Needs the
    extra `torch` to fit; networks made by `hidden` are applied by NumPy, also from a model file.

    Parameters
    ----------
    n_components : int, default=2
        Dimensions to project to, L.
    hidden : tuple of int, or a pair of tuples, default=(800, 800)
        Widths of the hidden layers (ReLU) of both networks, or of each; () is a linear view.
        Columns are standardised before the first layer.
    networks : pair of callables or of torch.nn.Module, or None, default=None
        Networks of your own, instead of `hidden`: callables (n_columns, n_components) -> module, or
        modules, which are copied. A module takes rows (b, n_columns) as they are, in float32, and
        returns (b, n_components). A model file holds the weights of such networks only: load it
        with `DeepCCA.load(path, networks=...)`.
    head : {"auto", "linear", "nystrom"}, default="auto"
        What replaces the last layers. "linear": linear CCA of the features before them. "nystrom":
        kernel CCA of these features, with a Gaussian kernel and 2000 landmarks (half of the rows
        if that is less; fewer where `max_time` is short), which is slower to apply. "auto" takes
        what does best on held-out pairs: the trained outputs, one of these, or linear CCA of the
        columns themselves where networks do not help. Of heads within a standard error of the
        best, it takes the simplest.
    loss : {"noi", "trace"}, default="noi"
        "noi" as above. "trace": minus the total correlation of the minibatch (Andrew et al.), to
        compare with.
    time_constant : float, default=0.0
        Weight of the OLD estimate of the L x L covariances, in [0, 1). With 0 each minibatch stands
        alone; minibatches of at most L rows need one, such as 0.9.
    batch_size : int or None, default=None
        Rows per minibatch, b; None: 500, or 10 L if that is more.
    learning_rate : float or None, default=None
        Of Adam, None: 3e-3. It falls linearly to nearly 0 over the planned run: `epochs`, or
        `max_time` if that is shorter. Lower it if `history_` shows steps that were rolled back.
    weight_decay : float or None, default=None
        Of AdamW: weights shrink by learning_rate * weight_decay per step. None: a tenth of the
        number of weights per training row, at most 1, so that large networks on few rows stay
        simple.
    precision : {"auto", "float32", "bfloat16"}, default="auto"
        Precision of the matrix products of a step; weights, scores and everything after training
        are in float32 or better. "auto" is bfloat16 for networks made by `hidden` where the
        processor or the GPU multiplies it faster, else float32.
    epochs : int or None, default=None
        Passes over the data. None: as many as `max_time` allows; without it, as many as give 2000
        steps, or a million samples if that is less.
    max_time : float or None, default=None
        Seconds for the whole call of `fit`, the head included.
    tol, checkpoint, checkpoint_seconds, callbacks, verbose
        As in `KNOI`.
    held_out : float, default=0.1
        Fraction of the rows (500 to 5000 rows, at most a fifth) held out to monitor the fit and to
        choose weights and head. 0 trains on all rows: the last weights are kept.
    random_state : int, RandomState, Generator or None, default=None
        Fixes initial weights and minibatches.
    memory_budget, n_jobs
        As in `LinearCCA`.
    device : str or None, default=None
        torch device to train on; None is the CPU.

    Attributes
    ----------
    history_, stopped_, n_samples_seen_
        As in `KNOI`.
    correlations_, x_weights_, y_weights_, x_mean_, y_mean_, n_features_in_, n_features_y_
        As in `KNOI`, the features being those that the networks have learned.

    References
    ----------
    G. Andrew, R. Arora, J. Bilmes and K. Livescu, Deep canonical correlation analysis, ICML 2013.
    W. Wang, R. Arora, K. Livescu and N. Srebro, Stochastic optimization for deep CCA via nonlinear
    orthogonal iterations, Allerton 2015.

    Examples
    --------
    >>> from knoi import DeepCCA
    >>> from knoi.datasets import make_two_views
    >>> views = make_two_views(3000, correlations=(0.9,), nonlinear=True, random_state=0)
    >>> model = DeepCCA(n_components=1, hidden=(50,), epochs=5, random_state=0)
    >>> model.fit(views.X, views.Y).transform(views.X).shape
    (3000, 1)
    """

    _minibatch: ClassVar[Callable[..., Any]] = NetworkBatch

    def __init__(
        self,
        n_components: int = 2,
        *,
        hidden: Any = (800, 800),
        networks: Any = None,
        head: str = "auto",
        loss: str = "noi",
        time_constant: float = 0.0,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        weight_decay: float | None = None,
        precision: str = "auto",
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
        self.hidden = hidden
        self.networks = networks
        self.head = head
        self.loss = loss
        self.time_constant = time_constant
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.precision = precision
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

    @classmethod
    def load(cls, path: str | Path, *, networks: Any = None) -> Self:
        """Read a model written by `save`.

        A model with networks of your own needs them again, as they were passed to the constructor:
        a model file holds no code.
        """
        return cls._from_file(read_model(path), networks)

    @classmethod
    def _from_file(cls, model: ModelFile, networks: Any = None) -> Self:
        stored = model.header.get("params", {}).get("networks")
        if stored is not None:
            if networks is None:
                raise ModelFileError(
                    f"{model.path} holds a DeepCCA with networks of your own ({stored}). A model "
                    "file holds no code: load it with DeepCCA.load(path, networks=...)."
                )
            model.header["params"]["networks"] = None
        estimator = super()._from_file(model)
        if stored is not None:
            estimator.networks = networks
            estimator._attach_networks()
        return estimator

    def _attach_networks(self) -> None:
        """Give the networks of the user to the maps of a loaded model."""
        x, y = self.projection_.x, self.projection_.y
        views = []
        for view, side in zip(View, (x, y), strict=True):
            n_cols = side.features.n_cols
            module = user_module(self.networks, view, n_cols, self.n_components)
            views.append(ViewProjection(_attached(side.features, module), side.mean, side.weights))
        self._keep(replace(self.projection_, x=views[0], y=views[1]))

    def _backend(self, dtype: DType) -> Backend:
        """Networks are trained by torch in float32, whatever the precision of the data."""
        require("torch", "torch", "DeepCCA")
        device = "cpu" if self.device is None else str(self.device)
        return torch_backend(device, "float32", float64=False)

    def _settings(self) -> dict[str, Any]:
        checks.one_of("head", self.head, HEADS)
        checks.one_of("precision", self.precision, PRECISIONS)
        return {
            "loss": checks.one_of("loss", self.loss, LOSSES),
            "time_constant": checks.fraction("time_constant", self.time_constant),
            "learning_rate": checks.optional(checks.positive, "learning_rate", self.learning_rate),
            "weight_decay": checks.optional(
                checks.at_least_zero, "weight_decay", self.weight_decay
            ),
        }

    def _make_plan(self, pairs: PairSource, sizes: Sizes, *, streaming: bool) -> Plan:
        L = checks.count("n_components", self.n_components)
        hidden = hidden_layers(self.hidden)
        for view in View:
            if self.networks is None and not hidden[view]:
                check_n_cols(view, sizes.n_cols[view], L)
        n_held_out = 0
        if not streaming:
            n_held_out = held_out_rows(checks.fraction("held_out", self.held_out), sizes.n_rows)
        n_train = sizes.n_rows - n_held_out
        if n_train <= L:
            raise InputError(
                f"held_out={self.held_out!r} leaves {n_train} of {sizes.n_rows} rows to train on: "
                f"CCA needs more rows than n_components={L}. Lower held_out."
            )
        b = self._batch_rows(L, n_train)
        batches = BATCHES_ALIVE * b * (sizes.row_bytes + sum(sizes.working_bytes))
        _, left = sizes.left(
            self._network_bytes(hidden, sizes, b) + sizes.rows_uploaded(b, n_held_out),
            batches,
            f"DeepCCA with hidden={self.hidden!r} and minibatches of {b} rows",
            "Use narrower layers, lower batch_size, or raise memory_budget.",
        )
        epochs = checks.optional(checks.count, "epochs", self.epochs)
        if epochs is None and self.max_time is not None:
            epochs = UNLIMITED_EPOCHS
        elif epochs is None:
            epochs = -(-min(DEFAULT_SAMPLES, DEFAULT_STEPS * b) // n_train)
        return Plan(
            seed=seed_from(self.random_state),
            epochs=0 if streaming else epochs,
            approximation=("network", "network"),
            rank=(L, L),
            precondition=(None, None),
            n_held_out=n_held_out,
            batch_size=b,
            directions=L,
            keep_features=True,
            window_bytes=batches + left // 2,
        )

    def _batch_rows(self, L: int, n_train: int) -> int:
        if self.batch_size is None:
            return min(n_train, max(MIN_BATCH, BATCH_PER_COMPONENT * L))
        b = checks.count("batch_size", self.batch_size)
        if b > n_train:
            raise InputError(
                f"batch_size={b} but there are {n_train} rows to train on. Set batch_size to at "
                f"most {n_train}, or leave it None."
            )
        if b <= L and not self.time_constant:
            raise InputError(
                f"batch_size={b} with n_components={L}: a minibatch of so few rows cannot estimate "
                f"the covariance of the components. Set batch_size to at least {10 * L}, or "
                "time_constant to e.g. 0.9, which remembers earlier minibatches."
            )
        return b

    def _network_bytes(self, hidden: Any, sizes: Sizes, b: int) -> int:
        """Bytes of weights and activations."""
        L = self.n_components
        numbers = 0
        for n_cols, layers in zip(sizes.n_cols, hidden, strict=True):
            widths = (n_cols, *layers, L)
            weights = sum((m + 1) * n for m, n in pairwise(widths))
            numbers += WEIGHT_VECTORS * weights + 4 * b * sum(widths)
        return numbers * sizes.itemsize

    def _closed_form(self, plan: Plan, pairs: PairSource, backend: Backend) -> None:
        """None: networks have none."""

    def _fit_maps(self, plan: Plan, pairs: PairSource) -> Maps:
        """The networks, before training."""
        hidden = hidden_layers(self.hidden)
        samples = pairs.sample(WIDTH_SAMPLE, plan.seed)
        dtype = np.dtype(pairs.dtype)
        bfloat16 = self.precision == "bfloat16"
        if self.precision == "auto" and self.networks is None:
            bfloat16 = multiplies_bfloat16("cpu" if self.device is None else str(self.device))
        made = []
        for view, sample in zip(View, samples, strict=True):
            d, L = pairs.n_cols[view], self.n_components
            shift, scale = standardisation(view.name, sample, dtype)
            if self.networks is None:
                module = perceptron(d, hidden[view], L, plan.seed, view)
                made.append(Network(module, d, L, hidden[view], shift, scale, bfloat16))
                continue
            if pairs.stored_dtypes[view].kind != "f":
                raise InputTypeError(
                    f"{view.name} holds {pairs.stored_dtypes[view]}, but networks of your own take "
                    f"floating-point rows. Convert and scale {view.name} first, e.g. {view.name}"
                    ".astype('float32') / 255."
                )
            module = user_module(self.networks, view, d, L)
            made.append(Network(module, d, L, None, shift, scale, bfloat16))
        return made[0], made[1]  # type: ignore[return-value]

    def _start(
        self,
        settings: dict[str, Any],
        setup: Setup,
        pairs: PairSource,
        held_out: RowPair | None,
    ) -> tuple[OptimizerState, Training]:
        plan, backend = setup.plan, setup.backend
        aligned_on = None if held_out is None else pairs.sample(plan.n_held_out, plan.seed)
        networks: Any = setup.maps
        views = []
        for view, network in zip(View, networks, strict=True):
            U = backend.asarray(network.initial_weights())
            if self.networks is not None:
                rows = setup.fresh_sample(pairs, plan.batch_size)[view]
                check_outputs(setup.other_features()[view], rows, U, view, self.n_components)
            views.append(ViewState(U, backend.zeros((2, network.n_parameters))))
        head = self._plan_head(setup, pairs.n_rows)
        left = setup.seconds_left()
        limit = None if left is None else max(left - head.seconds, 0.0)
        epochs = plan.epochs if self.epochs is None or not plan.epochs else self.epochs
        steps = epochs * -(-pairs.n_rows // plan.batch_size)
        rate, decay = settings["learning_rate"], settings["weight_decay"]
        update = DeepUpdate(
            features=setup.features,
            schedule=Schedule(steps or None, limit if steps else None),
            learning_rate=LEARNING_RATE if rate is None else rate,
            weight_decay=default_decay(networks, pairs.n_rows) if decay is None else decay,
            n_components=setup.n_components,
            rho=settings["time_constant"],
            loss=settings["loss"],
            seed=plan.seed,
            draws=self.networks is not None,
            backend=backend,
            engine=setup.engine,
        )
        finish = partial(self._final_cca, head)
        training = Training(setup, update, held_out, aligned_on, finish, head.seconds)
        return OptimizerState(views[0], views[1]), training

    def _final_cca(
        self, plan: HeadPlan, training: Training, weights: tuple[Array, Array], pairs: PairSource
    ) -> Projection | None:
        """The best head for networks with these weights; None if the weights are not finite."""
        setup = training.setup
        vectors = [setup.backend.to_numpy(U) for U in weights]
        if not all(np.isfinite(U).all() for U in vectors):
            return None
        x, y = (
            network.feature_map(U)  # type: ignore[attr-defined]
            for network, U in zip(setup.maps, vectors, strict=True)
        )
        rows = pairs.sample(plan.rows, setup.plan.seed, run_rows=FINAL_RUN_ROWS)
        solver = FourierCCA(
            self.n_components, reg=0.0, memory_budget=self.memory_budget, n_jobs=self.n_jobs
        )
        networks, last = (x[0], y[0]), (x[1], y[1])
        search = HeadSearch(self.head, plan, networks, last, rows, training.held_out, solver)
        return search.best()

    def _plan_head(self, setup: Setup, n_rows: int) -> HeadPlan:
        """The size of the head: with a time limit, what a part of the time allows."""
        networks: Any = setup.maps
        widths = [(network.hidden or (network.rank,))[-1] for network in networks]
        return plan_head(
            self.head,
            n_rows,
            sum(network.n_weights for network in networks),
            (widths[0], widths[1]),
            float("inf") if self.max_time is None else SHARE_OF_TIME * self.max_time,
            1.0 if self.max_time is None else operations_per_second(),
        )


def hidden_layers(hidden: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The widths of the hidden layers of both views."""

    def is_layers(value: Any) -> bool:
        return isinstance(value, tuple | list) and all(checks.is_integer(one) for one in value)

    if is_layers(hidden):
        hidden = (hidden, hidden)
    if not (isinstance(hidden, tuple | list) and len(hidden) == 2 and all(map(is_layers, hidden))):
        raise InputTypeError(
            f"hidden={hidden!r}: wanted a tuple of widths such as (800, 800), () for a linear view,"
            " or a pair of these (one for X, one for Y)."
        )
    x, y = (tuple(checks.count("hidden", one) for one in layers) for layers in hidden)
    return x, y


def default_decay(networks: tuple[Network, Network], n_rows: int) -> float:
    """Weight decay of networks for so many training rows."""
    n_weights = sum(network.n_parameters for network in networks)
    return min(MAX_WEIGHT_DECAY, WEIGHT_DECAY * n_weights / n_rows)


def held_out_rows(held_out: float, n_rows: int) -> int:
    """Number of rows to hold out: enough to choose on, at most a fifth."""
    if held_out == 0 or n_rows < MIN_ROWS_TO_HOLD_OUT:
        return 0
    return min(MAX_HELD_OUT, max(int(held_out * n_rows), min(MIN_HELD_OUT, n_rows // 5)))


def standardisation(
    view: str, sample: Array, dtype: np.dtype[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """What to subtract from each column and multiply it by, so that columns have similar sizes.

    Columns are divided by their spread, then all of them by one number that makes the mean variance
    1. Columns that do not vary get 0.
    """
    spread, deviation = column_spreads(sample, dtype)
    varies = spread > 0
    if not varies.any():
        raise InputError(
            f"view {view} does not vary: all {sample.shape[0]} sampled rows are the same. Check "
            f"the data of {view}."
        )
    mean = column_means(sample) if is_sparse(sample) else sample.mean(axis=0, dtype=np.float64)
    scale = np.divide(1.0, spread, out=np.zeros_like(spread), where=varies)
    scale /= np.sqrt(np.mean(np.square(deviation * scale)[varies]))
    return mean.astype(dtype), scale.astype(dtype)


def user_module(networks: Any, view: View, n_cols: int, n_components: int) -> Any:
    """A copy of the module that the user passed for a view, or what the callable returns."""
    import torch

    if not isinstance(networks, tuple | list) or len(networks) != 2:
        raise InputTypeError(
            f"networks={networks!r}: wanted a pair (x_network, y_network) of torch modules or of "
            "callables (n_columns, n_components) -> module."
        )
    given = networks[view]
    if isinstance(given, torch.nn.Module):
        return deepcopy(given)
    if not callable(given):
        raise InputTypeError(
            f"the network of {view.name} is {given!r}: wanted a torch module, or a callable "
            "(n_columns, n_components) -> module."
        )
    made = given(n_cols, n_components)
    if not isinstance(made, torch.nn.Module):
        raise InputTypeError(
            f"the callable for the network of {view.name} returned {made!r}: wanted a "
            "torch.nn.Module."
        )
    return made


def check_outputs(
    minibatch: NetworkBatch, rows: Array, weights: Array, view: View, n_components: int
) -> None:
    """Check before training that a module of the user's returns (b, L) finite numbers."""
    import torch

    minibatch.load(rows)
    try:
        outputs = minibatch.project(weights, None)  # type: ignore[arg-type]
    except (RuntimeError, TypeError, ValueError) as error:
        raise InputError(
            f"the network of {view.name} fails on rows of shape {tuple(rows.shape)}: {error}. It "
            f"must take (b, {rows.shape[1]}) and return (b, {n_components})."
        ) from error
    wanted = (int(rows.shape[0]), n_components)
    if not isinstance(outputs, torch.Tensor) or tuple(outputs.shape) != wanted:
        shape = getattr(outputs, "shape", None)
        raise InputError(
            f"the network of {view.name} returns {'no tensor' if shape is None else tuple(shape)} "
            f"for rows of shape {tuple(rows.shape)}: wanted {wanted}, a column per component."
        )
    if not bool(torch.isfinite(outputs).all()):
        raise InputError(
            f"the network of {view.name} returns NaN or infinite values for the first minibatch. "
            "Check its initial weights and the scale of the data."
        )


def _attached(features: FeatureMap, module: Any) -> FeatureMap:
    """The map with the module in the place where it needs one."""
    if isinstance(features, TorchNetwork):
        return features.with_module(module)
    if isinstance(features, Chain):
        return Chain(_attached(features.first, module), features.second, features.kernel)
    return features
