"""Kernels of the package flash-attn-4 that were compiled beforehand, on a machine that has its compiler.

`flash_export` writes a folder: a library of kernels for Hopper, and for each problem a plan of its calls, as the
package itself made them. Here the calls are made again: that needs torch and the small package apache-tvm-ffi, but not
the package, nor its compiler. The environment variable PERFSUITE_FLASH_ATTN_OBJECTS names the folder.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

VARIABLE = "PERFSUITE_FLASH_ATTN_OBJECTS"
PLANS, LIBRARY = "plans.json", "flash_attn.so"
Plan = Mapping[str, Any]
"""scratch: the tensors that are allocated; calls: names of kernels with their arguments; returns: the result's."""


def asked_for() -> bool:
    """True if the environment names a folder."""
    return bool(os.environ.get(VARIABLE))


def missing() -> str | None:
    """The reason why there are no kernels that were compiled beforehand, or None if there are."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return f"{VARIABLE} names no folder"
    for name in (PLANS, LIBRARY):
        if not Path(folder, name).is_file():
            return f"{VARIABLE} is {folder}, where there is no {name}"
    return None if importlib.util.find_spec("tvm_ffi") else "there is no tvm_ffi here (pip install apache-tvm-ffi)"


def version() -> str | None:
    """That of the package whose kernels they are."""
    return str(_plans(os.environ[VARIABLE])["flash-attn-4"]) if missing() is None else None


def key(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    softmax_scale: float | None,
    causal: bool,
    window_size: Sequence[int | None],
) -> str:
    """The name of a plan. The tensors: (batch, sequence, heads, head_dim)."""
    shapes = " ".join("x".join(map(str, one.shape)) for one in (q, k, v))
    left, right = window_size
    return f"{str(q.dtype).removeprefix('torch.')} {shapes} scale {softmax_scale} causal {causal} window {left},{right}"


def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Sequence[int | None] = (None, None),
) -> torch.Tensor:
    """The package's function of this name, for the problems that have a plan; with a backward.

    NotImplementedError for any other problem.
    """
    import torch

    folder = os.environ[VARIABLE]
    name = key(q, k, v, softmax_scale, causal, window_size)
    plan = _plans(folder)["problems"].get(name)
    if plan is None:
        raise NotImplementedError(f"{folder} has no plan for {name}; export this problem too")
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        attended: torch.Tensor = _function().apply(folder, plan, q, k, v)
        return attended
    return run(plan["inference"], library(folder), {"q": q, "k": k, "v": v})[0]


@lru_cache
def _function() -> Any:
    import torch

    class Planned(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, folder: str, plan: Plan, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
            out, lse = run(plan["forward"], library(folder), {"q": q, "k": k, "v": v})
            ctx.folder, ctx.plan = folder, plan
            ctx.save_for_backward(q, k, v, out, lse)
            return out

        @staticmethod
        def backward(ctx: Any, d_out: torch.Tensor) -> Any:
            q, k, v, out, lse = ctx.saved_tensors
            if d_out.stride(-1) != 1 or 0 in d_out.stride():
                d_out = d_out.contiguous()  # as the package does
            inputs = {"q": q, "k": k, "v": v, "out": out, "dout": d_out, "lse": lse}
            return None, None, *run(ctx.plan["backward"], library(ctx.folder), inputs)

    return Planned


def run(plan: Plan, kernels: Any, inputs: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    """Make a plan's calls on the current stream; returns what it returns."""
    import torch

    scratch = []
    for one in plan["scratch"]:
        make = torch.zeros if one["zero"] else torch.empty
        like = inputs["q"]
        flat = make(_extent(one["shape"], one["stride"]), dtype=getattr(torch, one["dtype"]), device=like.device)
        scratch.append(flat.as_strided(one["shape"], one["stride"]))

    for name, arguments in plan["calls"]:
        kernels[name](*_given(arguments, inputs, scratch))
    return list(_given(plan["returns"], inputs, scratch))


def _given(
    written: Sequence[Any], inputs: Mapping[str, torch.Tensor], scratch: Sequence[torch.Tensor]
) -> Iterator[Any]:
    """The arguments that a plan writes down."""
    for one in written:
        if isinstance(one, dict):
            yield inputs[one["input"]] if "input" in one else scratch[one["scratch"]]
        else:
            yield tuple(_given(one, inputs, scratch)) if isinstance(one, list) else one


def _extent(shape: Sequence[int], stride: Sequence[int]) -> int:
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True)) if 0 not in shape else 0


@lru_cache
def library(folder: str) -> Any:
    """The kernels by name. torch is imported first: it brings the CUDA runtime that the library is linked to."""
    import torch  # noqa: F401

    return importlib.import_module("tvm_ffi").load_module(str(Path(folder, LIBRARY)))


@lru_cache
def _plans(folder: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(folder, PLANS).read_text())
    return found
