"""A decoder layer of a language model whose weights and cache have few bits, and the same layer in float64.

`cuda_llm_ops.levers` times it. Sizes are those of Llama 3 8B unless others are given; rotary embeddings are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor

from .fp8 import Scales, fp8_gemm, quantize_fp8, rms_norm_fp8, swiglu_fp8
from .ops import flash_attention, flash_decode, gemm
from .weight_only import pack_int4, pack_int8, weight_only_gemm

DTYPE = torch.bfloat16
EPSILON = 1e-6
GROUP = 128
SHARPNESS = 2.0
"""Standard deviation of the scores: some hundred of 8192 keys have most of the weight."""
FP8_SCALES: dict[str, tuple[Scales, Scales]] = {"fp8 rows": ("row", "row"), "fp8 blocks": ("1x128", "128x128")}
"""Form of weights -> values of an activation and of a weight that share a scale."""
WEIGHTS = ("bfloat16", "int8", "int4", *FP8_SCALES)
CACHES = {"bfloat16": DTYPE, "fp8": torch.float8_e4m3fn, "int8": torch.int8}
TOP = {torch.float8_e4m3fn: 448.0, torch.int8: 127.0}


@dataclass(frozen=True)
class Sizes:
    """Of a layer."""

    hidden: int = 4096
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    inner: int = 14336

    @property
    def products(self) -> dict[str, tuple[int, int]]:
        """Name of a weight -> its shape (n, k)."""
        width = self.heads * self.head_dim
        return {
            "qkv": (width + 2 * self.kv_heads * self.head_dim, self.hidden),
            "out": (self.hidden, width),
            "gate_up": (2 * self.inner, self.hidden),
            "down": (self.hidden, self.inner),
        }

    def wide_weights(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Normal weights in bfloat16, those of queries so large that scores differ."""
        made = {}
        for name, (n, k) in self.products.items():
            one = torch.randn(n, k, generator=generator, device=generator.device) / k**0.5
            if name == "qkv":
                one[: self.heads * self.head_dim] *= SHARPNESS
            made[name] = one.to(DTYPE)
        return made


@dataclass(frozen=True)
class Weight:
    """One weight in the form that a product takes; `values` (n, k) in float64 only where they were asked for."""

    operands: tuple[Tensor, ...]
    values: Tensor | None = field(default=None, repr=False)

    @property
    def bytes(self) -> int:
        return sum(one.numel() * one.element_size() for one in self.operands)


def weight(wide: Tensor, form: str, *, values: bool = False) -> Weight:
    """A weight (n, k) in one of WEIGHTS; int4 is symmetric, with a scale for each 128 along k."""
    if form == "bfloat16":
        return Weight((wide,), wide.double() if values else None)
    if form in FP8_SCALES:
        numbers, scale = quantize_fp8(wide, FP8_SCALES[form][1])
        return Weight((numbers, scale), fp8_values(numbers, scale) if values else None)
    k = wide.shape[1]
    grouped = wide.float().unflatten(1, (-1, GROUP if form == "int4" else k))
    scales = (grouped.abs().amax(-1) / (7.5 if form == "int4" else 127.0)).to(DTYPE)
    along = scales.float()[..., None]
    low, high = (-8, 7) if form == "int4" else (-127, 127)
    numbers = torch.where(along > 0, grouped / along, 0.0).round_().clamp_(low, high)
    exact = (numbers.double() * along.double()).flatten(1) if values else None
    rows = numbers.flatten(1).to(torch.int8).T
    if form == "int8":
        return Weight((pack_int8(rows.contiguous()), scales[:, 0].contiguous()), exact)
    shifted = (rows + 8).view(torch.uint8)
    return Weight((pack_int4(shifted[0::2] | shifted[1::2] << 4), scales.T.contiguous()), exact)


@dataclass(frozen=True)
class Cache:
    """Keys and values (2, sequences, kv_heads, context, head_dim), and a scale of each head of 8-bit numbers."""

    numbers: Tensor
    scales: Tensor | None

    @property
    def bytes(self) -> int:
        return self.numbers.numel() * self.numbers.element_size()

    def values(self, sequence: int) -> Tensor:
        """(2, kv_heads, context, head_dim) of one sequence, in float64."""
        wide = self.numbers[:, sequence].float().double()
        return wide if self.scales is None else wide * self.scales.double()[..., None, None]


def kv_cache(wide: Tensor, form: str) -> Cache:
    """A cache in one of CACHES, of bfloat16 keys and values (2, sequences, kv_heads, context, head_dim)."""
    dtype = CACHES[form]
    if dtype == DTYPE:
        return Cache(wide.clone(), None)
    scales = wide.abs().amax((1, 3, 4)).float() / TOP[dtype]
    numbers = torch.empty(wide.shape, dtype=dtype, device=wide.device)
    for sequence in range(wide.shape[1]):
        numbers[:, sequence] = narrowed(wide[:, sequence], scales[..., None, None], dtype)
    return Cache(numbers, scales)


class Layer:
    """One layer: products in one of WEIGHTS, attention over a cache (decode), or over the tokens given (prefill).

    A call takes and returns (tokens, hidden) in bfloat16. In decode there is one token of each sequence, whose key and
    value take the last place of the cache.
    """

    def __init__(self, sizes: Sizes, form: str, weights: Mapping[str, Weight], cache: Cache | None = None) -> None:
        self.sizes, self.form, self.weights, self.cache = sizes, form, weights, cache
        device = next(iter(weights.values())).operands[0].device
        self.norms = torch.ones(2, sizes.hidden, device=device, dtype=DTYPE)
        self.lengths: Tensor | None = None
        if cache is not None:
            count, length = cache.numbers.shape[1], cache.numbers.shape[3]
            self.lengths = torch.full((count,), length, dtype=torch.int32, device=device)

    @property
    def bytes(self) -> int:
        """Of weights and cache."""
        return sum(one.bytes for one in self.weights.values()) + (0 if self.cache is None else self.cache.bytes)

    def __call__(self, x: Tensor) -> Tensor:
        x = x + self.attention_part(x)
        return x + self.inner_part(x)

    def attention_part(self, x: Tensor) -> Tensor:
        """What attention adds to x."""
        return self.output(self.attended(self.projected(x)))

    def inner_part(self, x: Tensor) -> Tensor:
        """What the gated products add to x."""
        return self.down(self.gate_and_up(x))

    def projected(self, x: Tensor) -> Tensor:
        """Queries, keys and values of every token, side by side."""
        return self._normed_product(x, 0, "qkv")

    def output(self, attended: Tensor) -> Tensor:
        """Attention's heads, multiplied by their weight."""
        if self.form in FP8_SCALES:
            return self._fp8_product(quantize_fp8(attended, FP8_SCALES[self.form][0]), "out")
        return self._product(attended, "out")

    def gate_and_up(self, x: Tensor) -> Tensor:
        """Both, side by side."""
        return self._normed_product(x, 1, "gate_up")

    def down(self, gate_and_up: Tensor) -> Tensor:
        """What the gate lets through, multiplied by its weight."""
        gate, up = gate_and_up.chunk(2, -1)
        if self.form in FP8_SCALES:
            return self._fp8_product(swiglu_fp8(gate, up, FP8_SCALES[self.form][0]), "down")
        return self._product(_fused(swiglu, gate.device.type)(gate, up), "down")

    def _normed_product(self, x: Tensor, norm: int, name: str) -> Tensor:
        if self.form in FP8_SCALES:
            scales = FP8_SCALES[self.form][0]
            return self._fp8_product(rms_norm_fp8(x, self.norms[norm], EPSILON, scales), name)
        return self._product(torch.nn.functional.rms_norm(x, x.shape[-1:], self.norms[norm], EPSILON), name)

    def _product(self, x: Tensor, name: str) -> Tensor:
        operands = self.weights[name].operands
        return gemm(x, operands[0].T) if self.form == "bfloat16" else weight_only_gemm(x, *operands)

    def _fp8_product(self, x: tuple[Tensor, Tensor], name: str) -> Tensor:
        (a, scale_a), (b, scale_b) = x, self.weights[name].operands
        return fp8_gemm(a, b, scale_a, scale_b)

    def heads(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(tokens, heads, head_dim) of queries, and of keys and values (tokens, kv_heads, head_dim)."""
        kv = self.sizes.kv_heads
        q, k, v = qkv.view(len(qkv), -1, self.sizes.head_dim).split([self.sizes.heads, kv, kv], 1)
        return q, k, v

    def attended(self, qkv: Tensor) -> Tensor:
        """Attention of every token, its heads side by side; in decode the cache gets the newest key and value."""
        q, k, v = self.heads(qkv)
        if self.cache is None:
            one, keys, values = (side.transpose(0, 1)[None] for side in (q, k, v))
            return flash_attention(one, keys, values, is_causal=True)[0].transpose(0, 1).reshape(len(qkv), -1)
        assert self.lengths is not None
        newest = qkv.view(len(qkv), -1, self.sizes.head_dim)[:, self.sizes.heads :]
        newest = newest.unflatten(1, (2, self.sizes.kv_heads)).transpose(0, 1)
        place = self.cache.numbers[:, :, :, -1]
        options: dict[str, Any] = {}
        if self.cache.scales is None:
            place.copy_(newest)
        else:
            _fused(write_newest, qkv.device.type)(place, newest, self.cache.scales)
            options = {"k_scale": self.cache.scales[0], "v_scale": self.cache.scales[1]}
        keys, values = self.cache.numbers
        return flash_decode(q[:, :, None], keys, values, self.lengths, **options).flatten(1)


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """gate · sigmoid(gate) · up, computed in float32."""
    return (torch.nn.functional.silu(gate.float()) * up.float()).to(gate.dtype)


def write_newest(place: Tensor, newest: Tensor, scales: Tensor) -> None:
    """Quantise the newest keys and values (2, sequences, kv_heads, head_dim) into their places of a cache."""
    place.copy_(narrowed(newest, scales[:, None, :, None], place.dtype))


def narrowed(values: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """The numbers of 8 bits that stand for values over scales."""
    wide = (values.float() / scales).clamp(-TOP[dtype], TOP[dtype])
    return (wide.round() if dtype == torch.int8 else wide).to(dtype)


@cache
def _fused(function: Callable[..., Any], device: str) -> Callable[..., Any]:
    """One kernel of a function without products, as a model in 16 bits has it too; on the CPU the function itself."""
    return torch.compile(function, dynamic=False) if device == "cuda" else function


def fp8_values(numbers: Tensor, scale: Tensor) -> Tensor:
    """The values (rows, k) in float64; scales () or (rows,), or of blocks, whose height follows from their shape."""
    wide, along = numbers.float().double(), scale.double()
    if scale.dim() < 2:
        return wide * (along[:, None] if scale.dim() else along)
    height = 1 if len(scale) == len(numbers) else GROUP
    along = along.repeat_interleave(GROUP, 1)[:, : numbers.shape[1]]
    return wide * along.repeat_interleave(height, 0)[: len(numbers)]
