"""Watches a program while it runs: its waits for the device, the products that it calls, and its loading of data."""

from __future__ import annotations

import collections
import os
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perfsuite.analyze.diagnosis import Place, Product

_SYNCHRONISING = "called a synchronizing CUDA operation"
_OWN = str(Path(__file__).resolve().parents[1])


@dataclass
class Loading:
    """Time that a program waited for its DataLoaders."""

    seconds: float = 0.0
    batches: int = 0
    workers: int | None = None
    pinned: bool = True


@contextmanager
def waits() -> Iterator[collections.Counter[Place]]:
    """Count, by line, the operations that make the host wait for the device, as torch's sync debug mode sees them.

    An explicit torch.cuda.synchronize() does not count, since it is not hidden.
    """
    import torch

    found: collections.Counter[Place] = collections.Counter()
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode("warn")
        warnings.simplefilter("always")
        shown = warnings.showwarning

        def note(message: Any, category: Any, filename: str, line: int, *rest: Any, **more: Any) -> None:
            if _SYNCHRONISING in str(message):
                found[_place() or Place(filename, line)] += 1
            else:
                shown(message, category, filename, line, *rest, **more)

        warnings.showwarning = note  # type: ignore[assignment]
        try:
            yield found
        finally:
            torch.cuda.set_sync_debug_mode(before)


def _place() -> Place | None:
    """The innermost line on the stack that is neither torch's nor this suite's; None if every line is."""
    import torch

    hidden = (str(Path(torch.__file__).resolve().parent), _OWN, "<frozen")
    for frame in reversed(traceback.extract_stack()):
        name = frame.filename
        file = name if name.startswith("<") else str(Path(name).resolve())
        if not file.startswith(hidden) and Path(name).name not in ("warnings.py", "runpy.py", "contextlib.py"):
            return Place(file.removeprefix(f"{Path.cwd()}{os.sep}"), frame.lineno or 0)
    return None


@contextmanager
def products() -> Iterator[list[Product]]:
    """Collect the matrix products and attentions that are called, with the lines that called them."""
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    found: list[Product] = []

    def note(made: Product | None) -> None:
        if made is not None:
            found.append(replace(made, place=_place()))

    class Products(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            note(product_of(str(func), args))
            return func(*args, **(kwargs or {}))

    class Attentions(TorchFunctionMode):
        # This mode works above the dispatcher: below it, SDPA has padded head_dim already.
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if getattr(func, "__name__", "") == "scaled_dot_product_attention":
                given = [*args, *((kwargs or {}).get(name) for name in ("query", "key")[len(args) :])]
                note(attention_of("scaled_dot_product_attention", given))
            return func(*args, **(kwargs or {}))

    with Products(), Attentions():
        yield found


def product_of(operator: str, args: Any) -> Product | None:
    """The product that an operator such as "aten.mm.default" computes from its operands; None for other operators."""
    name = operator.split(".")[1] if operator.count(".") else operator
    tensors = [one for one in args if _is_tensor(one)]
    if name in ("addmm", "baddbmm"):
        tensors = tensors[1:]
    if name in ("mm", "addmm", "bmm", "baddbmm", "gemm", "tensor_core_gemm", "_scaled_mm") and len(tensors) >= 2:
        a, b = tensors[:2]
        if a.dim() not in (2, 3) or b.dim() != a.dim():
            return None
        batch = a.shape[0] if a.dim() == 3 else 1
        return Product(name, int(a.shape[-2]), int(b.shape[-1]), int(a.shape[-1]), int(batch), _dtype(a), None)
    if name.endswith("_attention") and not operator.startswith("aten."):
        return attention_of(name, tensors)
    return None


def attention_of(name: str, args: Any) -> Product | None:
    """An attention from its q and k; None unless they are 4-D tensors."""
    tensors = [one for one in args if _is_tensor(one)]
    if len(tensors) < 2 or tensors[0].dim() != 4 or tensors[1].dim() != 4:
        return None
    q, k = tensors[:2]
    pairs = int(q.shape[0] * q.shape[1])
    return Product(name, int(q.shape[2]), int(k.shape[2]), int(q.shape[3]), pairs, _dtype(q), None)


@contextmanager
def loading() -> Iterator[Loading]:
    """Time for how long DataLoaders make their readers wait."""
    from torch.utils.data import dataloader

    kind = dataloader._BaseDataLoaderIter
    plain, found = kind.__next__, Loading()

    def timed(self: Any) -> Any:
        begun = time.perf_counter()
        try:
            batch = plain(self)
        finally:
            found.seconds += time.perf_counter() - begun
        found.batches += 1
        workers = int(getattr(self, "_num_workers", 0))
        found.workers = workers if found.workers is None else min(found.workers, workers)
        found.pinned &= bool(getattr(self, "_pin_memory", False))
        return batch

    kind.__next__ = timed  # type: ignore[method-assign]
    try:
        yield found
    finally:
        kind.__next__ = plain  # type: ignore[method-assign]


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _dtype(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")
