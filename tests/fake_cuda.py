"""A CUDA device for machines without one, to test the device path and to count what it does.

Inside `with FakeCuda() as gpu:` tensors created on "cuda" live in main memory but behave as device
tensors do: they report `cuda:0`, cannot become NumPy arrays before `.cpu()`, and cannot meet host
tensors in one operation. `gpu.counts` has operations (about kernel launches), uploads, downloads
and waits of the host. Function modes are per thread: fit with `n_jobs=1`. It knows nothing of
streams, memory limits or the arithmetic of a GPU, and was never compared with one. With the name
"mps" it has no float64.
"""

from collections import Counter

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_iter, tree_map

TO_HOST = {Tensor.numpy, Tensor.__array__, Tensor.tolist, Tensor.__dlpack__}
WAITS = {Tensor.item, Tensor.__float__, Tensor.__int__, Tensor.__bool__, Tensor.__index__}
WAITS |= {Tensor.nonzero, torch.nonzero, torch.masked_select, Tensor.masked_select}
# Calls that read a property or make a view.
FREE = {"__get__", "__set__", "size", "dim", "numel", "stride", "is_contiguous", "__len__"}
FREE |= {"detach", "reshape", "view", "requires_grad_", "is_floating_point", "as_subclass"}
FREE |= {"permute", "transpose", "squeeze", "unsqueeze", "expand"}
FROM_HOST = {torch.asarray, torch.as_tensor, torch.tensor}
# Assignments copy host values to the device.
ASSIGNMENTS = {Tensor.copy_, Tensor.__setitem__, Tensor.__getitem__}


class DeviceTensor(Tensor):
    """A tensor that is said to be on the device."""

    __torch_function__ = torch._C._disabled_torch_function_impl


def is_device(value):
    return isinstance(value, DeviceTensor)


def on_device(values):
    def mark(value):
        plain = isinstance(value, Tensor) and not is_device(value)
        return value.as_subclass(DeviceTensor) if plain else value

    return tree_map(mark, values)


class FakeCuda(TorchFunctionMode):
    def __init__(self, name="cuda", free_bytes=8 << 30):
        super().__init__()
        self.name = name
        self.counts = Counter()
        self.free_bytes = free_bytes

    def __enter__(self):
        self._real = {
            name: getattr(torch.cuda, name)
            for name in ("mem_get_info", "current_device", "is_available")
        }
        torch.cuda.mem_get_info = lambda device=None: (self.free_bytes, self.free_bytes)
        torch.cuda.current_device = lambda: 0
        torch.cuda.is_available = lambda: False  # no streams, no pinned memory
        return super().__enter__()

    def __exit__(self, *exception):
        for name, function in self._real.items():
            setattr(torch.cuda, name, function)
        return super().__exit__(*exception)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        tensors = [one for one in tree_iter((args, kwargs)) if isinstance(one, Tensor)]
        there = any(map(is_device, tensors))
        if function == Tensor.device.__get__ and there:
            return torch.device(self.name, 0)
        if function == Tensor.is_cuda.__get__:
            return there and self.name == "cuda"
        target = kwargs.get("device")
        if function is Tensor.to and target is None:
            named = [one for one in args[1:] if isinstance(one, str | torch.device)]
            target = named[0] if named else None
            args = (args[0], *(one for one in args[1:] if one not in named))
        kwargs.pop("device", None)
        if target is not None and str(target).startswith(self.name):
            return self._create(function, args, kwargs, there)
        if there:
            if function is Tensor.cpu or target is not None:
                self.counts["downloads"] += 1
                return args[0].as_subclass(Tensor).clone()
            return self._compute(function, args, kwargs, tensors)
        if target is not None:  # the host, where the tensor is
            args = (args[0], target, *args[1:]) if function is Tensor.to else args
            kwargs |= {} if function is Tensor.to else {"device": target}
        return function(*args, **kwargs)

    def _create(self, function, args, kwargs, there):
        if there and (function is Tensor.to or function in FROM_HOST):
            return self._checked(function(*args, **kwargs))  # already there
        made = function(*args, **kwargs)
        from_host = function is Tensor.to or function in FROM_HOST
        self.counts["uploads" if from_host else "operations"] += 1
        return self._checked(made.clone() if from_host and isinstance(made, Tensor) else made)

    def _compute(self, function, args, kwargs, tensors):
        if function in TO_HOST:
            raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu()")
        host = [one for one in tensors if not is_device(one) and one.dim() > 0]
        if host:
            if function not in ASSIGNMENTS:
                name = getattr(function, "__name__", function)
                raise RuntimeError(f"{name}: all tensors must be on one device: cuda:0 and cpu")
            self.counts["uploads"] += len(host)
        masks = function is Tensor.__getitem__ and any(
            is_device(one) and one.dtype == torch.bool for one in tree_iter(args[1:])
        )
        made = function(*args, **kwargs)
        # A part, or the tensor itself in the dtype that it has already.
        view = made is args[0] if function is Tensor.to else function is Tensor.__getitem__
        view = view and not any(isinstance(one, Tensor) for one in tree_iter(args[1:]))
        if function in WAITS or masks:
            self.counts["waits"] += 1
        elif not view and getattr(function, "__name__", "") not in FREE:
            self.counts["operations"] += 1
        return self._checked(made)

    def _checked(self, made):
        for one in tree_iter(made):
            if self.name == "mps" and isinstance(one, Tensor) and one.dtype == torch.float64:
                raise TypeError("Cannot convert a MPS Tensor to float64 dtype")
        return on_device(made)
