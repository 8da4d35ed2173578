"""Attention of the newest tokens against a key-value cache, as a language model computes it at every step."""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from perfsuite.problems.base import Inputs, Scalar
from perfsuite.problems.checks import ITEM_BYTES, dtype_name, positive, torch_dtype
from perfsuite.problems.distributions import dominate, draw
from perfsuite.problems.exact import BLOCK_BYTES, attended, running
from perfsuite.problems.heads import Heads
from perfsuite.problems.quantise import CACHE_DTYPES, CACHE_SCALES, dequantised, quantise, saturate, uneven

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch

INDEX_BYTES = 4
SCALE_BYTES = 4


@dataclass(frozen=True)
class Decode(Heads):
    """softmax(scale q k^T) v for the newest seq_q of `length` tokens, against the cache that holds them all.

    kv_heads: fewer than heads for grouped queries; query head h reads kv head h // (heads // kv_heads).
    seq_q: query i sees the keys j < length - (seq_q - 1 - i): causal, counted from the bottom right.
    page_size: None for caches (batch, kv_heads, length, head_dim), or the tokens of a page of caches (pages, page_size,
    kv_heads, head_dim), which a table (batch, pages of a sequence) puts in order; it must divide length.
    cache_dtype: None for caches of `dtype`, or "float8_e4m3fn" or "int8" for quantised ones.
    cache_scales: what shares a scale of a quantised cache: "cache", "head" or "token" (of each kv head).
    Candidates are called `f(q, k_cache, v_cache, cache_lens)` with the table of a paged cache as the fifth
    argument, and with `scale=...` where it differs from 1/sqrt(head_dim). Lengths and table are int32. Of quantised
    caches they get `k_scale=...` and `v_scale=...` too: float32, without dimensions, (kv_heads,), or the shape of the
    cache without head_dim. The right answer is that on the values which numbers and scales give.

    The pages of a sequence lie side by side but in random order. SDPA, which knows no pages, can therefore take the
    same memory as a cache (batch, length, kv_heads, head_dim): with one query the order of the keys does not matter.
    """

    family: ClassVar[str] = "decode"
    candidate: ClassVar[str | None] = "cuda_llm_ops:flash_decode"
    vetted: ClassVar[bool] = True
    phrases: ClassVar[tuple[str, ...]] = (
        r"(?P<cache_dtype>\w+) cache, scale a (?P<cache_scales>\w+),?",
        r"(?P<seq_q>\d+) queries",
        r"pages of (?P<page_size>\d+)",
    )

    batch: int
    heads: int
    length: int
    head_dim: int
    _: KW_ONLY
    kv_heads: int | None = None
    seq_q: int = 1
    page_size: int | None = None
    scale: float | None = None
    dtype: str = "float16"
    cache_dtype: str | None = None
    cache_scales: str = "head"

    def __post_init__(self) -> None:
        self.check_heads("batch", "length", "seq_q")
        if self.cache_dtype is not None:
            object.__setattr__(self, "cache_dtype", dtype_name("cache_dtype", self.cache_dtype, tuple(CACHE_DTYPES)))
        if self.cache_scales not in CACHE_SCALES:
            raise ValueError(f"cache_scales is {self.cache_scales!r}; it must be one of {', '.join(CACHE_SCALES)}")
        if self.seq_q > self.length:
            raise ValueError(f"seq_q is {self.seq_q}; it must be at most length, which is {self.length}")
        if self.page_size is not None:
            object.__setattr__(self, "page_size", positive("page_size", self.page_size))
            if self.length % self.page_size:
                raise ValueError(f"page_size is {self.page_size}; it must divide length, which is {self.length}")
            if self.seq_q > 1:
                raise ValueError(f"seq_q is {self.seq_q}; with a page_size it must be 1, for SDPA to be comparable")

    @property
    def pages(self) -> int:
        """Pages of one sequence; 0 for a cache without pages."""
        return 0 if self.page_size is None else self.length // self.page_size

    @classmethod
    def parse(cls, shape: str, words: Sequence[str]) -> Self:
        """The shape is batch x heads x length x head_dim; heads may be those of queries / of keys and values: "8/2"."""
        found = re.fullmatch(r"(\d+x\d+)/(\d+)(x.+)", shape)
        if found is None:
            return super().parse(shape, words)
        made = super().parse(found[1] + found[3], words)
        return replace(made, kv_heads=int(found[2]))

    @property
    def name(self) -> str:
        queries = "" if self.seq_q == 1 else f" {self.seq_q} queries"
        paged = "" if self.page_size is None else f" pages of {self.page_size}"
        size = f"{self.batch}x{self.heads_word}x{self.length}x{self.head_dim}"
        cache = "" if self.cache_dtype is None else f" {self.cache_dtype} cache, scale a {self.cache_scales},"
        return f"{size} {self.dtype}{cache}{queries}{paged}{self.scale_word}".rstrip(",")

    @property
    def params(self) -> dict[str, Scalar]:
        shown = ["batch", "heads", "kv_heads", "seq_q", "length", "head_dim", "page_size", "scale", "dtype"]
        if self.cache_dtype is not None:
            shown += ["cache_dtype", "cache_scales"]
        return {name: getattr(self, name) for name in shown}

    @property
    def result_dtype(self) -> str:
        return self.dtype

    @property
    def flops(self) -> float:
        """Two products, each of two operations a visible pair and channel; softmax is left out."""
        pairs = self.seq_q * self.length - self.seq_q * (self.seq_q - 1) // 2
        return 4.0 * self.batch * self.heads * pairs * self.head_dim

    @property
    def bytes(self) -> float:
        """The cache and the queries read once, the output written once, lengths, table and tokens' scales read."""
        item = ITEM_BYTES[self.dtype]
        tokens, token = 2 * self.key_heads * self.length, self.head_dim * (item if self.cache_dtype is None else 1)
        if self.cache_dtype is not None and self.cache_scales == "token":
            token += SCALE_BYTES
        rows = 2 * self.heads * self.seq_q * self.head_dim * item
        return float(self.batch * (rows + tokens * token + (1 + self.pages) * INDEX_BYTES))

    def inputs(self, generator: torch.Generator, *, distribution: str = "normal") -> Inputs:
        """(q, k_cache, v_cache, cache_lens), and the block table of a paged cache, on the generator's device."""
        import torch

        dtype, device = torch_dtype(self.dtype), generator.device

        def cache(role: str, axis: int) -> torch.Tensor:
            # The axis is that of (batch, kv_heads, length, head_dim), which is how the sum runs.
            if self.page_size is None:
                shape = (self.batch, self.key_heads, self.length, self.head_dim)
                return draw(distribution, shape, dtype, generator, role=role, axis=axis)
            shape = (self.batch, self.length, self.key_heads, self.head_dim)
            return draw(distribution, shape, dtype, generator, role=role, axis=-3 if axis == -2 else axis)

        q_shape = (self.batch, self.heads, self.seq_q, self.head_dim)
        q = draw(distribution, q_shape, dtype, generator, role="q")
        k, v = cache("k", -1), cache("v", -2)
        kwargs: dict[str, Any] = {} if self.scale is None else {"scale": self.scale}
        keys = k if self.page_size is None else k.transpose(1, 2)
        if self.cache_dtype is not None:
            (k, kwargs["k_scale"]), (v, kwargs["v_scale"]) = (
                self._quantised(values, generator, distribution != "normal", role)
                for role, values in zip("kv", (k, v), strict=True)
            )
            if distribution == "dominant":
                keys = self.in_memory(dequantised(k, kwargs["k_scale"], self.head_axis, dtype))
        if distribution == "dominant":
            # Only the first tokens: every query sees those.
            seen = self.length - self.seq_q + 1
            # A group of heads is taken as more queries of its kv head, so that no key is repeated.
            rows = self.heads // self.key_heads * self.seq_q
            grouped = q.view(self.batch, self.key_heads, rows, self.head_dim)
            aimed = dominate(grouped, keys[:, :, :seen], scale=self.scaling, generator=generator)
            q = aimed.view(q_shape)
        lens = torch.full((self.batch,), self.length, dtype=torch.int32, device=device)
        if self.page_size is None:
            return Inputs((q, k, v, lens), kwargs)
        pool = (self.batch * self.pages, self.page_size, self.key_heads, self.head_dim)
        for name in ("k_scale", "v_scale"):
            if name in kwargs and kwargs[name].dim() == 3:
                kwargs[name] = kwargs[name].view(pool[:3])
        order = torch.rand((self.batch, self.pages), generator=generator, device=device).argsort(1)
        first = torch.arange(self.batch, device=device)[:, None] * self.pages
        return Inputs((q, k.view(pool), v.view(pool), lens, (first + order).to(torch.int32)), kwargs)

    @property
    def head_axis(self) -> int:
        """The axis of a cache that is its kv heads'."""
        return 1 if self.page_size is None else 2

    def _quantised(
        self, values: torch.Tensor, generator: torch.Generator, hard: bool, role: str
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(numbers, scales) of a cache of four axes; hard ones have tokens of zeros, of all sizes, and saturated."""
        assert self.cache_dtype is not None
        if hard:
            spread = role == "v" and self.cache_scales == "token"
            values = uneven(values, 3 - self.head_axis, generator, spread=spread)
        numbers, scales = quantise(values, self.cache_dtype, self.cache_scales, self.head_axis)
        return (saturate(numbers, generator) if hard else numbers), scales

    def own_rivals(self) -> Mapping[str, Callable[..., Any]]:
        return {} if self.cache_dtype is None else {"dequantised": self._dequantised}

    def library(self) -> Callable[..., Any]:
        return super().library() if self.cache_dtype is None else self._dequantised

    def _dequantised(
        self, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, *rest: Any, **kwargs: Any
    ) -> Any:
        """torch's attention in float32 on the values that a quantised cache stands for, rounded to q's dtype."""
        import torch

        scales = kwargs.pop("k_scale"), kwargs.pop("v_scale")
        k, v = (
            self.in_memory(dequantised(cache, scale, self.head_axis, torch.float32))
            for cache, scale in zip((k_cache, v_cache), scales, strict=True)
        )
        mask = None if self.seq_q == 1 else self.visible(q.device)
        attention = torch.nn.functional.scaled_dot_product_attention
        out = attention(q.float(), k, v, attn_mask=mask, enable_gqa=self.heads != self.key_heads, **kwargs)
        return out.to(q.dtype)

    def visible(self, device: torch.device) -> torch.Tensor:
        """(seq_q, length), bool: True where the query sees the key."""
        import torch

        last = torch.arange(self.length - self.seq_q, self.length, device=device)
        return torch.arange(self.length, device=device) <= last[:, None]

    def in_memory(self, cache: torch.Tensor) -> torch.Tensor:
        """A cache as (batch, kv_heads, length, head_dim), the keys of pages in the order of memory."""
        if self.page_size is None:
            return cache
        return cache.view(self.batch, self.length, self.key_heads, self.head_dim).transpose(1, 2)

    def reference(self, inputs: Inputs, *, rows: torch.Tensor | None = None) -> torch.Tensor:
        """Computed in blocks of sequences, or of key heads of one sequence; pages are gathered first."""
        import torch

        q, k_cache, v_cache, _, *table = inputs.args
        block_table = table[0] if table else None
        group = self.heads // self.key_heads * self.seq_q
        # (batch, kv_heads, group and queries, head_dim): one product for all that share keys.
        queries = q.reshape(self.batch, self.key_heads, group, self.head_dim)
        out = torch.empty(queries.shape, dtype=torch.float64, device=q.device)
        hidden = ~self.visible(q.device).repeat(group // self.seq_q, 1) if self.seq_q > 1 else None
        room = max(1, BLOCK_BYTES[q.device.type] // (8 * self.length * max(self.head_dim, group)))
        heads = min(self.key_heads, room)
        sequences = max(1, room // self.key_heads)
        for start in range(0, self.batch, sequences):
            for head in range(0, self.key_heads, heads):
                some = slice(start, start + sequences), slice(head, head + heads)
                keys = values_of(k_cache, inputs.kwargs.get("k_scale"), block_table, *some)
                logits = (queries[some].double() * self.scaling) @ keys.mT
                del keys
                if hidden is not None:
                    logits.masked_fill_(hidden, float("-inf"))
                values = values_of(v_cache, inputs.kwargs.get("v_scale"), block_table, *some)
                out[some] = logits.softmax(-1) @ values
        return out.reshape(q.shape)

    def in_order(
        self, inputs: Inputs, right: torch.Tensor, rows: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        q, k_cache, v_cache, _, *table = inputs.args
        block_table = table[0] if table else None
        last = slice(self.key_heads - 1, self.key_heads)
        keys, values = (
            values_of(cache, inputs.kwargs.get(name), block_table, slice(-1, None), last)[0, 0].float()
            for cache, name in ((k_cache, "k_scale"), (v_cache, "v_scale"))
        )
        logits = running(q[-1, -1].float(), keys.mT) * self.scaling
        if self.seq_q > 1:
            logits.masked_fill_(~self.visible(q.device), float("-inf"))
        return attended(logits, values), right[-1, -1]


def keys_of(cache: torch.Tensor, block_table: torch.Tensor | None, sequences: slice, heads: slice) -> torch.Tensor:
    """(sequences, heads, length, head_dim): the keys, or values, of some heads of some sequences of a Decode."""
    if block_table is None:
        return cache[sequences, heads]
    import torch

    # (sequences, pages, page, heads, head_dim); torch gathers bytes of every kind
    found = cache.view(torch.uint8) if cache.element_size() == 1 else cache
    return found[block_table[sequences].long(), :, heads].flatten(1, 2).transpose(1, 2).view(cache.dtype)


def values_of(
    cache: torch.Tensor,
    scale: torch.Tensor | None,
    block_table: torch.Tensor | None,
    sequences: slice,
    heads: slice,
) -> torch.Tensor:
    """`keys_of` in float64, times their scales if the cache is quantised."""
    values = keys_of(cache, block_table, sequences, heads).double()
    if scale is None:
        return values
    if scale.dim() == 1:
        scale = scale[heads, None, None]
    elif scale.dim() == 3:
        scale = keys_of(scale[..., None], block_table, sequences, heads)
    return values * scale.double()
