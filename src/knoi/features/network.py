"""Trained networks as feature maps: layers that NumPy can apply, and torch modules of a user's.

A trained multilayer perceptron without its last layer is a `Chain` of `ReLULayer`, so a saved model
needs no torch. Any other module is a `TorchNetwork`: a model file holds its weights only, and
whoever loads it passes the module.
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from array_api_compat import array_namespace, is_numpy_array
from numpy.typing import NDArray

from knoi.arrays.backend import Array, Backend
from knoi.arrays.sparse import dense, product
from knoi.exceptions import ModelFileError
from knoi.features.base import ArraySpec, FeatureMap, Identity, Size, copy_columns
from knoi.features.composite import Chain
from knoi.kernels import Kernel, Linear


@dataclass(frozen=True)
class ReLULayer(FeatureMap):
    """phi(x) = max(0, W'x + b): one layer of a trained network."""

    kind: ClassVar[str] = "relu_layer"
    kernel: ClassVar[Kernel] = Linear()  # type: ignore[misc]
    W: Annotated[Array, ArraySpec(("d", "M"))]
    b: Annotated[Array, ArraySpec(("M",))]

    def prepare(self, X: Array) -> Array:
        """The rows themselves."""
        return X

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """The formula, in place, for these columns."""
        F = product(prepared, self.W[:, columns], out=out)  # (b, columns)
        F += self.b[columns]
        array_namespace(F).clip(F, min=0.0, out=F)
        return F

    def scratch_per_row(self) -> int:
        """None."""
        return 0


def relu_layers(n_cols: int, layers: Sequence[tuple[NDArray[Any], NDArray[Any]]]) -> FeatureMap:
    """The map of layers (W, b) one after the other; the identity if there are none."""
    if not layers:
        return Identity(n_cols)
    maps: list[FeatureMap] = [ReLULayer(W, b) for W, b in layers]
    return reduce(lambda first, second: Chain(first, second, Linear()), maps)


@dataclass(frozen=True)
class TorchNetwork(FeatureMap):
    """phi(x) = module(x) for a torch module, in evaluation mode.

    The module is not a field: it is code, and a model file holds none. `with_module` attaches it.
    """

    kind: ClassVar[str] = "torch_network"
    kernel: ClassVar[Kernel] = Linear()  # type: ignore[misc]
    columns: Annotated[int, Size("d")]
    outputs: Annotated[int, Size("M")]
    weights: Annotated[Array, ArraySpec(("n_weights",))]  # of all parameters and buffers

    def with_module(self, module: Any) -> Self:
        """The same map with the module that it applies."""
        n_weights = sum(one.numel() for _, one in module_tensors(module))
        if n_weights != len(self.weights):
            raise ModelFileError(
                f"the network has {n_weights} weights, but the stored model has "
                f"{len(self.weights)}. Pass the networks that the model was fitted with."
            )
        made = replace(self)
        vars(made)["module"] = module
        return made

    @cached_property
    def _applied(self) -> Any:
        """The module with its weights, on their device."""
        import torch

        if "module" not in vars(self):
            raise ModelFileError(
                "the model has networks of your own, which a model file does not hold. Load it "
                "with DeepCCA.load(path, networks=(x_network, y_network))."
            )
        weights = self.weights
        if is_numpy_array(weights):
            weights = torch.from_numpy(np.array(weights))
        module = deepcopy(vars(self)["module"]).to(device=weights.device, dtype=weights.dtype)
        write_weights(module, weights)
        return module.eval().requires_grad_(False)

    def to(self, backend: Backend) -> Self:
        """The same map with its weights on the backend."""
        moved = super().to(backend)
        if "module" in vars(self):
            vars(moved)["module"] = vars(self)["module"]
        return moved

    def prepare(self, X: Array) -> Array:
        """All outputs of the module, (b, M)."""
        import torch

        rows = dense(X)
        with torch.no_grad():
            if not is_numpy_array(rows):
                return self._applied(rows)
            return self._applied(torch.from_numpy(np.array(rows))).numpy()

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """These columns of the outputs."""
        return copy_columns(prepared, columns, out)

    def scratch_per_row(self) -> int:
        """The outputs; the layers in between are the module's own."""
        return self.columns + self.outputs

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: without the module that is built from the others."""
        return {name: value for name, value in vars(self).items() if name != "_applied"}


def module_tensors(module: Any) -> Iterator[tuple[str, Any]]:
    """Names and values of the parameters of a module, then of its buffers."""
    yield from module.named_parameters()
    yield from module.named_buffers()


def write_weights(module: Any, weights: Any) -> None:
    """Copy one vector of weights into the parameters and buffers of a module."""
    import torch

    start = 0
    with torch.no_grad():
        for _, one in module_tensors(module):
            one.copy_(weights[start : start + one.numel()].reshape(one.shape))
            start += one.numel()
