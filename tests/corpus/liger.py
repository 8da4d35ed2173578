"""Operators of liger-kernel 0.8.5 against torch, forward and backward: python -m tests.corpus --what liger.

They are the functions of `liger_kernel.transformers.functional`, and the functions of `liger_kernel.ops` that have none
there. Each rival is a function of torch. Liger's kernels are written in Triton and run on a card only. Without them the
rivals are judged against their own copies, so that arguments and rivals are tried on every machine.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_map_only

from .written import Call, Given

VERSION = "0.8.5"
PLACE = "liger_kernel.transformers.functional"
Made = tuple[Callable[..., Any], tuple[Any, ...]]
"""The rival, and the arguments of both sides."""
OPERATORS: dict[str, Callable[[int, int], Made]] = {}
LACKING = {
    "LigerFusedLinearScaledCrossEntropyFunction": "is one process's part of a product over several",
    "LigerTiledMLPFunction": "takes a module and calls it by parts; its kernels are those of LigerMLPFunction",
    "liger_fused_linear_scaled_cross_entropy_tp": "takes a group of processes, one for each card",
    "liger_mhc_forward": "composes liger_mhc_coeffs, liger_mhc_pre, a module and liger_mhc_post_res",
}
"""Public names that are not judged, with the reason."""


def operator(function: Callable[[int, int], Made]) -> Callable[[int, int], Made]:
    """Adds an operator by the function's name."""
    OPERATORS[function.__name__] = function
    return function


def loss(values: torch.Tensor) -> torch.Tensor:
    return values.log_softmax(-1)


def norm(x: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(shape).requires_grad_()


def weights(width: int) -> torch.Tensor:
    return (0.5 + torch.rand(width)).requires_grad_()


def shares(n: int, d: int) -> torch.Tensor:
    return torch.randn(n, d).softmax(-1).detach()


@operator
def liger_cross_entropy(n: int, d: int) -> Made:
    return lambda x, target: F.cross_entropy(x, target), (leaf(n, d), torch.randint(d, (n,)))


@operator
def liger_fused_linear_cross_entropy(n: int, d: int) -> Made:
    def rival(x: Any, weight: Any, target: Any) -> Any:
        return F.cross_entropy(x @ weight.t(), target)

    return rival, (leaf(n, d // 4), (torch.randn(d, d // 4) / d**0.5).requires_grad_(), torch.randint(d, (n,)))


def jensen_shannon(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Of logarithms of probabilities, a mean over rows."""
    middle = torch.log((one.exp() + other.exp()) / 2)
    parts = (F.kl_div(middle, given, log_target=True, reduction="sum") for given in (one, other))
    return sum(parts) / 2 / len(one)


@operator
def liger_fused_linear_jsd(n: int, d: int) -> Made:
    def rival(x: Any, weight: Any, teacher: Any, its_weight: Any) -> Any:
        return jensen_shannon((x @ weight.t()).log_softmax(-1), (teacher @ its_weight.t()).log_softmax(-1))

    h = d // 4
    small = [(torch.randn(d, h) / h**0.5) for _ in range(2)]
    return rival, (leaf(n, h), small[0].requires_grad_(), torch.randn(n, h), small[1])


@operator
def liger_fused_linear_kl_div(n: int, d: int) -> Made:
    def rival(x: Any, weight: Any, target: Any) -> Any:
        return F.kl_div((x @ weight.t()).log_softmax(-1), target, reduction="batchmean")

    h = d // 4
    return rival, (leaf(n, h), (torch.randn(d, h) / h**0.5).requires_grad_(), shares(n, d))


@operator
def liger_geglu(n: int, d: int) -> Made:
    return lambda a, b: F.gelu(a, approximate="tanh") * b, (leaf(n, d), leaf(n, d))


@operator
def liger_group_norm(n: int, d: int) -> Made:
    def rival(x: Any, weight: Any, bias: Any, channels: int, groups: int, eps: float) -> Any:
        return F.group_norm(x, groups, weight, bias, eps)

    return rival, (leaf(n, 16, d), weights(16), leaf(16), 16, 4, 1e-6)


@operator
def liger_jsd(n: int, d: int) -> Made:
    return jensen_shannon, (loss(torch.randn(n, d)).requires_grad_(), loss(torch.randn(n, d)))


@operator
def liger_kl_div(n: int, d: int) -> Made:
    return lambda x, target: F.kl_div(x, target, reduction="mean"), (
        loss(torch.randn(n, d)).requires_grad_(),
        shares(n, d),
    )


def sparsemax(x: torch.Tensor) -> torch.Tensor:
    """The nearest point of the simplex to each row (A. Martins, R. Astudillo, 2016)."""
    ordered = x.sort(-1, descending=True).values
    sums = ordered.cumsum(-1) - 1
    places = torch.arange(1, x.shape[-1] + 1, device=x.device, dtype=x.dtype)
    count = (ordered * places > sums).sum(-1, keepdim=True)
    return (x - sums.gather(-1, count - 1) / count).clamp(min=0)


@operator
def liger_sparsemax(n: int, d: int) -> Made:
    return sparsemax, (leaf(n, d),)


@operator
def liger_multi_token_attention(n: int, d: int) -> Made:
    def rival(scores: Any, weight: Any, bias: Any, stride: int, padding: int) -> Any:
        length = scores.shape[-1]
        later = torch.triu(torch.ones(length, length, dtype=torch.bool, device=scores.device), 1)
        shown = scores.masked_fill(later, -torch.inf).softmax(-1)
        return F.conv2d(shown, weight, bias, padding=padding).masked_fill(later, 0.0)

    length = min(n, 512)
    return rival, (leaf(2, 4, length, length), (torch.randn(4, 4, 3, 3) / 6).requires_grad_(), leaf(4), 1, 1)


@operator
def liger_fused_neighborhood_attention(n: int, d: int) -> Made:
    def rival(q: Any, k: Any, v: Any, size: int) -> Any:
        place = torch.arange(q.shape[-2], device=q.device)
        near = (place[:, None] - place).abs() <= size // 2
        scores = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).masked_fill(~near, -torch.inf)
        return scores.softmax(-1) @ v

    length = min(n, 1024)
    return rival, (leaf(2, 4, length, 32), leaf(2, 4, length, 32), leaf(2, 4, length, 32), 7)


@operator
def liger_tvd(n: int, d: int) -> Made:
    def rival(one: Any, other: Any) -> Any:
        return (one - other).abs().mean() / 2

    return rival, (shares(n, d).requires_grad_(), shares(n, d))


@operator
def liger_layer_norm(n: int, d: int) -> Made:
    def rival(x: Any, weight: Any, bias: Any, eps: float) -> Any:
        return F.layer_norm(x, x.shape[-1:], weight, bias, eps)

    return rival, (leaf(n, d), weights(d), leaf(d), 1e-6)


def turned(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    one, two = x.chunk(2, -1)
    return x * cosine + torch.cat([-two, one], -1) * sine


def half(given: torch.Tensor) -> torch.Tensor:
    """The left half, twice: Liger reads no more of its cosines and sines, since the right half is to be a copy."""
    left = given[..., : given.shape[-1] // 2]
    return torch.cat([left, left], -1)


def angles(*shape: int, width: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    turn = 6.0 * torch.rand(*shape, width // 2)
    turn = torch.cat([turn, turn], -1)
    return turn.cos(), turn.sin()


@operator
def liger_qwen2vl_mrope(n: int, d: int) -> Made:
    def rival(q: Any, k: Any, cosine: Any, sine: Any, section: list[int]) -> Any:
        parts = list(section) * 2
        one, two = (
            torch.cat([part[i % 3] for i, part in enumerate(half(given).split(parts, -1))], -1).unsqueeze(1)
            for given in (cosine, sine)
        )
        return turned(q, one, two), turned(k, one, two)

    length = min(n, 1024)
    return rival, (leaf(2, 8, length, 64), leaf(2, 2, length, 64), *angles(3, 2, length), [16, 8, 8])


@operator
def liger_relu_squared(n: int, d: int) -> Made:
    return lambda x: F.relu(x).square(), (leaf(n, d),)


@operator
def liger_rms_norm(n: int, d: int) -> Made:
    def rival(x: Any, weight: Any, eps: float, *_: Any) -> Any:
        return norm(x, eps) * weight

    return rival, (leaf(n, d), weights(d), 1e-6, 0.0, "llama", False)


@operator
def liger_modulated_rms_norm(n: int, d: int) -> Made:
    def rival(x: Any, weight: Any, scale: Any, shift: Any, eps: float, *_: Any) -> Any:
        return norm(x, eps) * weight * (1 + scale) + shift

    rest = (1e-6, 0.0, "llama", False)
    return rival, (leaf(2, n // 2, d), weights(d), leaf(2, 1, d), leaf(2, 1, d), *rest)


@operator
def liger_poly_norm(n: int, d: int) -> Made:
    def rival(x: Any, weight: Any, bias: Any, eps: float, *_: Any) -> Any:
        return weight[0] * norm(x**3, eps) + weight[1] * norm(x**2, eps) + weight[2] * norm(x, eps) + bias

    return rival, (leaf(n, d), weights(3), leaf(), 1e-6, False)


@operator
def liger_fused_add_rms_norm(n: int, d: int) -> Made:
    def rival(x: Any, residual: Any, weight: Any, eps: float, *_: Any) -> Any:
        added = x + residual
        return norm(added, eps) * weight, added

    return rival, (leaf(n, d), leaf(n, d), weights(d), 1e-6, 0.0, "llama", False)


@operator
def liger_rope(n: int, d: int) -> Made:
    def rival(q: Any, k: Any, cosine: Any, sine: Any) -> Any:
        one, two = half(cosine).unsqueeze(1), half(sine).unsqueeze(1)
        return turned(q, one, two), turned(k, one, two)

    length = min(n, 1024)
    return rival, (leaf(2, 8, length, 64), leaf(2, 2, length, 64), *angles(1, length))


@operator
def liger_swiglu(n: int, d: int) -> Made:
    return lambda a, b: F.silu(a) * b, (leaf(n, d), leaf(n, d))


@operator
def liger_softmax(n: int, d: int) -> Made:
    return lambda x: x.softmax(-1), (leaf(n, d),)


@operator
def liger_dyt(n: int, d: int) -> Made:
    def rival(x: Any, alpha: Any, gamma: Any, beta: Any) -> Any:
        return gamma * torch.tanh(alpha * x) + beta

    return rival, (leaf(n, d), weights(1), weights(d), leaf(d))


LANES = 4
"""Streams of the manifold-constrained hyper-connections."""


@operator
def liger_mhc_coeffs(n: int, d: int) -> Made:
    def rival(x: Any, phi: Any, bias: Any, before: Any, after: Any, between: Any) -> Any:
        mixed = norm(x.float().flatten(-2)) @ phi.float()
        one, two, rest = mixed.split([LANES, LANES, LANES * LANES], -1)
        mine, theirs, others = bias.float().split([LANES, LANES, LANES * LANES])
        square = (rest * between + others).unflatten(-1, (LANES, LANES)).softmax(-1) + 1e-6
        square = square / (square.sum(-2, keepdim=True) + 1e-6)
        for _ in range(19):
            square = square / (square.sum(-1, keepdim=True) + 1e-6)
            square = square / (square.sum(-2, keepdim=True) + 1e-6)
        return (one * before + mine).sigmoid(), 2 * (two * after + theirs).sigmoid(), square

    width = d // LANES
    inner = LANES * (LANES + 2)
    x = torch.randn(n, LANES, width).bfloat16().requires_grad_()
    phi = (torch.randn(d, inner) / d**0.5).requires_grad_()
    return rival, (x, phi, leaf(inner), weights(1)[0].detach(), weights(1)[0].detach(), weights(1)[0].detach())


def lanes(n: int, d: int) -> torch.Tensor:
    return leaf(n, LANES, d // LANES)


def gathered(x: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    return (x * before.unsqueeze(-1)).sum(-2)


def spread(x: torch.Tensor, inner: torch.Tensor, after: torch.Tensor, between: torch.Tensor) -> torch.Tensor:
    return between @ x + after.unsqueeze(-1) * inner.unsqueeze(-2)


@operator
def liger_mhc_pre(n: int, d: int) -> Made:
    return gathered, (lanes(n, d), leaf(n, LANES))


@operator
def liger_mhc_post_res(n: int, d: int) -> Made:
    return spread, (lanes(n, d), leaf(n, d // LANES), leaf(n, LANES), leaf(n, LANES, LANES))


@operator
def liger_mhc_apply(n: int, d: int) -> Made:
    def rival(x: Any, inner: Any, before: Any, after: Any, between: Any) -> Any:
        return spread(x, inner, after, between)

    rest = (leaf(n, LANES), leaf(n, LANES), leaf(n, LANES, LANES))
    return rival, (lanes(n, d), leaf(n, d // LANES), *rest)


@operator
def liger_attn_res(n: int, d: int) -> Made:
    def rival(blocks: Any, query: Any, weight: Any) -> Any:
        scores = (norm(blocks) * weight * query).sum(-1)
        return (scores.softmax(0).unsqueeze(-1) * blocks).sum(0)

    return rival, (leaf(8, 2, n // 2, d), (torch.randn(d) / d**0.5).requires_grad_(), weights(d))


@operator
def LigerFusedCETVDFunction(n: int, d: int) -> Made:
    def rival(student: Any, teacher: Any, target: Any) -> Any:
        apart = (student.softmax(-1) - teacher.softmax(-1)).abs().sum(-1) / 2
        return F.cross_entropy(student, target, reduction="none"), apart

    return rival, (leaf(n, d), torch.randn(n, d), torch.randint(d, (n,)))


@operator
def LigerLlama4RopeFunction(n: int, d: int) -> Made:
    def rival(q: Any, k: Any, turns: Any) -> Any:
        def turn(x: Any) -> Any:
            pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
            return torch.view_as_real(pairs * turns[None, :, None, :]).flatten(-2)

        return turn(q), turn(k)

    length = min(n, 1024)
    turns = torch.polar(torch.ones(length, 32), 6.0 * torch.rand(length, 32))
    return rival, (leaf(2, length, 8, 64), leaf(2, length, 2, 64), turns)


@operator
def LigerFusedMoEFunction(n: int, d: int) -> Made:
    def rival(x: Any, into: Any, out: Any, chosen: Any, shares: Any) -> Any:
        total = torch.zeros_like(x)
        for expert in range(len(into)):
            gate, up = (x @ into[expert].t()).chunk(2, -1)
            share = (shares * (chosen == expert)).sum(-1, keepdim=True)
            total = total + share * ((F.silu(gate) * up) @ out[expert].t())
        return total

    tokens, h, inner, experts = min(n, 2048), min(d, 1024), min(d, 1024) // 2, 4
    into = (torch.randn(experts, 2 * inner, h) / h**0.5).requires_grad_()
    out = (torch.randn(experts, h, inner) / inner**0.5).requires_grad_()
    chosen = torch.rand(tokens, experts).argsort(-1)[:, :2].to(torch.int32)
    return rival, (leaf(tokens, h), into, out, chosen, torch.rand(tokens, 2).softmax(-1).requires_grad_())


@operator
def LigerMLPFunction(n: int, d: int) -> Made:
    def rival(x: Any, gate: Any, up: Any, down: Any) -> Any:
        return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)

    def weight(rows: int, columns: int) -> torch.Tensor:
        return (torch.randn(rows, columns) / columns**0.5).bfloat16().requires_grad_()

    tokens, h = min(n, 2048), min(d, 1024)
    x = torch.randn(2, tokens // 2, h).bfloat16().requires_grad_()
    return rival, (x, weight(2 * h, h), weight(2 * h, h), weight(h, 2 * h))


@operator
def LigerEmbeddingFunction(n: int, d: int) -> Made:
    return lambda table, places: F.embedding(places, table), (leaf(d, 64), torch.randint(d, (n,)))


@operator
def LigerVocabParallelCEFunction(n: int, d: int) -> Made:
    def rival(x: Any, target: Any, *_: Any) -> Any:
        return F.cross_entropy(x.flatten(0, 1), target.flatten(), reduction="none").view(target.shape)

    return rival, (leaf(n, 1, d), torch.randint(d, (n, 1)), None, -100, 0.0, "megatron", "global")


@operator
def LigerFusedGateUpSiLUMulFunction(n: int, d: int) -> Made:
    def rival(both: Any) -> Any:
        gate, up = both.chunk(2, -1)
        return F.silu(gate) * up

    return rival, (leaf(n, 2 * d),)


def public() -> set[str]:
    """The public operators of the installed version, from its source: to import it takes Triton."""
    spec = importlib.util.find_spec("liger_kernel")
    if spec is None or not spec.submodule_search_locations:
        return set()
    root = Path(spec.submodule_search_locations[0])
    functional = (root / "transformers" / "functional.py").read_text()
    of_ops = set(re.findall(r"import (Liger\w+Function)", (root / "ops" / "__init__.py").read_text()))
    named = set(re.findall(r"import (Liger\w+Function)", functional))
    return set(re.findall(r"^def (liger_\w+)\(", functional, re.MULTILINE)) | of_ops - named


def missing() -> str:
    """The reason why Liger's kernels cannot run here; empty if they can."""
    if importlib.util.find_spec("liger_kernel") is None:
        return f"liger-kernel is not installed (pip install liger-kernel=={VERSION})"
    return "" if torch.cuda.is_available() else "liger-kernel's kernels are written in Triton and need a GPU"


def calls() -> Iterator[Call]:
    """Forward and backward of every operator; of their rivals' copies where Liger cannot run."""
    for name, make in OPERATORS.items():
        for kind in ("forward", "backward"):
            yield Call(f"{name} {kind}", f"liger {kind}", functools.partial(given, name, make, kind == "backward"))


def given(name: str, make: Callable[[int, int], Made], backward: bool, n: int, d: int) -> Given:
    rival, args = make(n, d)
    if not backward:
        args = tree_map_only(torch.Tensor, lambda one: one.detach(), args)
    candidate = functools.partial(rival) if missing() else function(name)
    return Given(candidate, rival, args, backward=backward)


def on_copies(one: Given) -> Given:
    """The same call on copies: some of Liger's kernels write gradients over their arguments."""

    def candidate(*args: Any, **kwargs: Any) -> Any:
        return one.candidate(*tree_map_only(torch.Tensor, torch.clone, args), **kwargs)

    return Given(candidate, one.rival, one.args, one.kwargs, one.backward, one.deterministic, one.options)


def function(name: str) -> Callable[..., Any]:
    """Liger's operator of that name."""
    if name.startswith("liger_"):
        found: Callable[..., Any] = getattr(importlib.import_module(PLACE), name)
        return found
    apply: Callable[..., Any] = getattr(importlib.import_module("liger_kernel.ops"), name).apply
    return apply
