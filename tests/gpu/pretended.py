"""A pretended machine with two GPUs: all numbers are computed on the CPU, and every tensor knows where it would be.

Memory belongs to a device, so the device is a note on the storage of a tensor, and views share it.  What Python asks
for (`to`, `device=`, `numpy`) is seen by one mode of torch; every operation, in backward passes and optimisers too, is
seen by another, which refuses operands of two devices as CUDA does and notes where results are.  `waits` counts, by
line of our code, what makes a CPU wait for a GPU.
"""

from __future__ import annotations

import traceback
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

import pcfg_artifact
from pcfg_artifact.mlm import forward

GridExecutor: Any = type("GridExecutor", (), {"__call__": None})  # Triton's interpreter, where it is installed
with suppress(ImportError):
    from triton.runtime.interpreter import GridExecutor

CPU = torch.device("cpu")
N_GPUS = 2
FREE_MEMORY = 1 << 30
NAME = "A pretended GPU"
PACKAGE = str(Path(pcfg_artifact.__file__).parent)
# Operations whose result, or the shape of it, the CPU must have before it can go on.
READS = {"_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive", "equal"}
COPIES = {"_to_copy", "copy_", "_copy_from", "_has_compatible_shallow_copy_type"}  # operands may be on two devices
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}


class PretendedGpus:
    """Where every tensor would be, and how often the CPU would have waited."""

    def __init__(self) -> None:
        self.waits: Counter[str] = Counter()
        self.n_operations = 0
        self._of_storage: dict[int, torch.device] = {}
        self._of_sparse = WeakIdKeyDictionary()  # these have no storage of their own
        self.asked_by: torch.device | None = None  # the GPU of the operands of the call in progress

    def device_of(self, tensor: torch.Tensor) -> torch.device:
        if tensor.layout is not torch.strided:
            return self._of_sparse.get(tensor, CPU)
        with torch._C.DisableTorchFunction():
            return self._of_storage.get(tensor.untyped_storage()._cdata, CPU)

    def put(self, tensor: torch.Tensor, device: torch.device) -> None:
        if tensor.layout is not torch.strided:
            self._of_sparse[tensor] = device
            return
        with torch._C.DisableTorchFunction():
            storage = tensor.untyped_storage()
        if device == CPU:
            self._of_storage.pop(storage._cdata, None)
            return
        if storage._cdata not in self._of_storage:  # the address may be another storage's later
            weakref.finalize(storage, self._of_storage.pop, storage._cdata, None)
        self._of_storage[storage._cdata] = device

    def wait(self, what: str) -> None:
        ours = [frame for frame in traceback.extract_stack() if frame.filename.startswith(PACKAGE)]
        where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "a test"
        self.waits[f"{what} in {where}"] += 1

    def common_device(self, name: str, tensors: Sequence[torch.Tensor]) -> torch.device | None:
        """Where an operation runs; single numbers may come from the CPU, and nothing else may come from elsewhere."""
        places = {self.device_of(t) for t in tensors if t.dim() or self.device_of(t) != CPU}
        if len(places) > 1:
            what = ", ".join(f"{tuple(t.shape)} on {self.device_of(t)}" for t in tensors)
            raise RuntimeError(f"Expected all tensors to be on the same device: {name} of {what}")
        return next(iter(places), CPU if tensors else None)

    def indexed_device(self, name: str, args: Sequence[Any]) -> torch.device:
        place = self.device_of(args[0])
        for index in args[1]:
            if index is None:
                continue
            if self.device_of(index) not in (place, CPU):
                raise RuntimeError(f"{name}: indices should be on cpu or {place}, found {self.device_of(index)}")
            if place != CPU and (self.device_of(index) == CPU or index.dtype is torch.bool):
                self.wait(name)
        self.common_device(name, [args[0], *(t for t in tree_leaves(args[2:]) if isinstance(t, torch.Tensor))])
        return place


def whole(device: Any) -> torch.device:
    """A device with its number."""
    device = torch.device(device)
    return torch.device("cuda", device.index or 0) if device.type == "cuda" else device


def tensors_of(*values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


class Operations(TorchDispatchMode):
    """Every operation that torch runs."""

    def __init__(self, gpus: PretendedGpus) -> None:
        super().__init__()
        self.gpus = gpus

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        gpus, kwargs = self.gpus, dict(kwargs or {})
        name = func._schema.name.partition("::")[2]
        operands = tensors_of(args, kwargs)
        gpus.n_operations += 1
        place: torch.device | None
        if name in INDEXING:
            place = gpus.indexed_device(name, args)
        elif name in COPIES:
            place = gpus.device_of(args[0])
            if name == "copy_" and place == CPU and gpus.device_of(args[1]) != CPU:
                gpus.wait(name)
        else:
            place = gpus.common_device(name, operands)
        if not operands:  # made in the middle of a call, like its operands
            place = gpus.asked_by
        if name in READS and place is not None and place != CPU:
            gpus.wait(name)
        result = func(*args, **kwargs)
        if name != "copy_":
            for tensor in tensors_of(result):
                gpus.put(tensor, place or CPU)
        return result


class Requests(TorchFunctionMode):
    """What Python asks of torch."""

    def __init__(self, gpus: PretendedGpus) -> None:
        super().__init__()
        self.gpus = gpus

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        gpus, kwargs = self.gpus, dict(kwargs or {})
        name = getattr(func, "__name__", "")
        subject = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if subject is not None:
            place = gpus.device_of(subject)
            if name == "__get__":
                asked = getattr(getattr(func, "__self__", None), "__name__", "")
                known = {"device": place, "is_cuda": place != CPU, "is_cpu": place == CPU}
                return known[asked] if asked in known else func(*args, **kwargs)
            if name in ("to", "cpu", "cuda"):
                return self.moved(subject, name, args[1:], kwargs)
            if name == "pin_memory":
                return subject
            if place != CPU and name in ("numpy", "__array__"):
                raise TypeError(f"can't convert {place} device type tensor to numpy. Use Tensor.cpu() first")
            if place != CPU and name == "tolist":
                gpus.wait(name)
        wanted = kwargs.get("device")
        if wanted is not None:
            kwargs["device"] = CPU
        before, on_gpu = gpus.asked_by, [d for t in tensors_of(args, kwargs) if (d := gpus.device_of(t)) != CPU]
        gpus.asked_by = whole(wanted) if wanted is not None else on_gpu[0] if on_gpu else None
        try:
            result = func(*args, **kwargs)
        finally:
            gpus.asked_by = before
        if wanted is not None:
            for tensor in tensors_of(result):
                gpus.put(tensor, whole(wanted))
        return result

    def moved(self, tensor: torch.Tensor, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor:
        place = target = self.gpus.device_of(tensor)
        dtype, is_quick, must_copy = tensor.dtype, kwargs.pop("non_blocking", False), kwargs.pop("copy", False)
        for value in (*args, *kwargs.values()):
            if isinstance(value, torch.dtype):
                dtype = value
            elif isinstance(value, torch.Tensor):
                target, dtype = self.gpus.device_of(value), value.dtype
            elif isinstance(value, torch.device | str):
                target = whole(value)
        target = {"cpu": CPU, "cuda": whole("cuda")}.get(name, target)
        if target == CPU != place and not is_quick:
            self.gpus.wait(f"copy to the CPU ({name})")
        # Another dtype, or a copy, and never the same memory on two devices.
        result = tensor.to(dtype, copy=must_copy or target != place)
        self.gpus.put(result, target)
        return result


@contextmanager
def pretended_gpus() -> Iterator[PretendedGpus]:
    """The machine, while this lasts."""
    gpus = PretendedGpus()
    changes = {"default_generators": (torch.default_generator,) * N_GPUS, "device_count": lambda: N_GPUS,
               "mem_get_info": lambda device=None: (FREE_MEMORY, FREE_MEMORY),
               "is_available": lambda: True, "is_bf16_supported": lambda including_emulation=True: False,
               "get_device_name": lambda device=None: NAME, "get_device_capability": lambda device=None: (8, 0),
               "get_arch_list": lambda: ["sm_80"], "set_device": lambda device: None,
               "get_device_properties": lambda device=None: SimpleNamespace(total_memory=FREE_MEMORY),
               "synchronize": lambda device=None: gpus.wait("synchronize"), "empty_cache": lambda: None,
               "reset_peak_memory_stats": lambda device=None: None, "max_memory_allocated": lambda device=None: 0}
    before = {name: getattr(torch.cuda, name) for name in changes}
    grouped = torch._C._group_tensors_by_device_and_dtype  # reads the device where nobody can pretend

    def group(tensors: Any, with_indices: bool = False) -> Any:
        return {(gpus.device_of(lists[0][0]), dtype): (lists, indices)
                for (_, dtype), (lists, indices) in grouped(tensors, with_indices).items()}

    launch = GridExecutor.__call__

    def launched(kernel: Any, *args: Any, **options: Any) -> None:
        """A kernel in Triton's interpreter: all its tensors are on one GPU, and what it does is nobody else's."""
        place = gpus.common_device(kernel.fn.__name__, tensors_of(args))
        if place is None or place == CPU:
            raise RuntimeError(f"Pointer argument cannot be accessed from Triton (cpu tensor?): {kernel.fn.__name__}")
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            launch(kernel, *args, **options)

    _set(changes.items())
    torch._C._group_tensors_by_device_and_dtype = group
    GridExecutor.__call__ = launched
    try:
        # A compiler sees through a pretended device.
        with mock.patch.object(forward, "can_compile", return_value=False), Requests(gpus), Operations(gpus):
            yield gpus
    finally:
        _set(before.items())
        torch._C._group_tensors_by_device_and_dtype = grouped
        GridExecutor.__call__ = launch


def _set(values: Iterable[tuple[str, Any]]) -> None:
    for name, value in values:
        setattr(torch.cuda, name, value)
