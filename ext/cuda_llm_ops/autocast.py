"""The operators under torch.autocast: tensors are cast to its dtype first, as it does for torch's own products.

A kernel for the dispatcher's autocast keys, so that the rule holds for a caller of torch.ops as well and is seen by
torch.compile. As torch does, it casts floating-point tensors of autocast's device and leaves float64 alone. Of a call
with 8-bit caches it casts the queries alone: the numbers of a cache and their scales stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

OPERATORS = (
    "naive_attention",
    "tiled_attention",
    "flash_attention",
    "flash_attention_general",
    "flash_attention_varlen",
    "flash_decode",
    "gemm",
    "tensor_core_gemm",
)
QUERIES_ALONE = ("flash_decode_quantised",)
DEVICES = {"cpu": torch._C.DispatchKey.AutocastCPU, "cuda": torch._C.DispatchKey.AutocastCUDA}

_library = torch.library.Library("cuda_llm_ops", "IMPL")  # kept: its registrations end with it


def _cast(value: Any, device: str, dtype: torch.dtype) -> Any:
    # What needs no cast is told by its dtype first: in training that is nearly every tensor.
    if not isinstance(value, torch.Tensor) or value.dtype is dtype or value.dtype is torch.float64:
        return value
    return value.to(dtype) if value.is_floating_point() and value.device.type == device else value


def _rule(name: str, device: str) -> Callable[..., Any]:
    operator = getattr(torch.ops.cuda_llm_ops, name).default
    keys = torch._C.DispatchKeySet(DEVICES[device])

    def under_autocast(*arguments: Any) -> Any:
        dtype = torch.get_autocast_dtype(device)
        first, *others = arguments
        if name not in QUERIES_ALONE:
            others = [_cast(argument, device, dtype) for argument in others]
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return operator(_cast(first, device, dtype), *others)

    return under_autocast


for _name in (*OPERATORS, *QUERIES_ALONE):
    for _device, _key in DEVICES.items():
        _library.impl(_name, _rule(_name, _device), _key.name)
