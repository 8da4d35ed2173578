"""A card with little memory that is none: counts the live bytes of all tensors, and runs out of them."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Budget(TorchDispatchMode):
    """Counts the bytes of storages that operators make while this mode is on; raises OutOfMemoryError above `most`."""

    def __init__(self, most: float) -> None:
        super().__init__()
        self.most = most
        self.live = 0
        self.peak = 0
        self._known: dict[int, weakref.ref[Any]] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def free(self) -> int:
        return int(self.most - self.live)

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = operator(*args, **kwargs)
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self._note(tensor.untyped_storage())
        self._require(self._within(operator, args, kwargs))
        return result

    def _note(self, storage: Any) -> None:
        key = storage._cdata
        if key in self._known:
            return
        size = storage.nbytes()

        def gone(_: Any) -> None:
            del self._known[key]
            self.live -= size

        self._known[key] = weakref.ref(storage, gone)
        self.live += size

    def _require(self, within: int) -> None:
        self.peak = max(self.peak, self.live + within)
        if self.live + within > self.most:
            raise torch.OutOfMemoryError(f"{self.live + within} bytes of {self.most}")

    @staticmethod
    def _within(operator: Any, args: Any, kwargs: Any) -> int:
        """Bytes that the operator takes on a card while it runs: a sum into another type copies what it adds."""
        name = operator.name()
        if name.startswith("aten::sum") and kwargs.get("dtype") not in (None, args[0].dtype):
            return int(args[0].numel() * kwargs["dtype"].itemsize)
        return int(args[0].numel()) if name == "aten::equal" else 0
