"""Attention of the newest tokens against a key-value cache, as a language model computes it at every step."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from perfsuite.problems.base import Inputs, Scalar
from perfsuite.problems.checks import ITEM_BYTES, positive, torch_dtype
from perfsuite.problems.distributions import dominate, draw
from perfsuite.problems.exact import BLOCK_BYTES, attended, running
from perfsuite.problems.heads import Heads

if TYPE_CHECKING:
    import torch

INDEX_BYTES = 4


@dataclass(frozen=True)
class Decode(Heads):
    """softmax(scale q k^T) v for the newest seq_q of `length` tokens, against the cache that holds them all.

    kv_heads: fewer than heads for grouped queries; query head h reads kv head h // (heads // kv_heads).
    seq_q: query i sees the keys j < length - (seq_q - 1 - i): causal, counted from the bottom right.
    page_size: None for caches (batch, kv_heads, length, head_dim), or the tokens of a page of caches (pages, page_size,
    kv_heads, head_dim), which a table (batch, pages of a sequence) puts in order; it must divide length.
    Candidates are called `f(q, k_cache, v_cache, cache_lens)` with the table of a paged cache as the fifth
    argument, and with `scale=...` where it differs from 1/sqrt(head_dim). Lengths and table are int32.

    The pages of a sequence lie side by side but in random order. SDPA, which knows no pages, can therefore take the
    same memory as a cache (batch, length, kv_heads, head_dim): with one query the order of the keys does not matter.
    """

    family: ClassVar[str] = "decode"
    candidate: ClassVar[str | None] = "cuda_llm_ops:flash_decode"
    vetted: ClassVar[bool] = True

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

    def __post_init__(self) -> None:
        self.check_heads("batch", "length", "seq_q")
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

    @property
    def name(self) -> str:
        queries = "" if self.seq_q == 1 else f" {self.seq_q} queries"
        paged = "" if self.page_size is None else f" pages of {self.page_size}"
        size = f"{self.batch}x{self.heads_word}x{self.length}x{self.head_dim}"
        return f"{size} {self.dtype}{queries}{paged}{self.scale_word}"

    @property
    def params(self) -> dict[str, Scalar]:
        shown = ("batch", "heads", "kv_heads", "seq_q", "length", "head_dim", "page_size", "scale", "dtype")
        return {name: getattr(self, name) for name in shown}

    @property
    def flops(self) -> float:
        """Two products, each of two operations a visible pair and channel; softmax is left out."""
        pairs = self.seq_q * self.length - self.seq_q * (self.seq_q - 1) // 2
        return 4.0 * self.batch * self.heads * pairs * self.head_dim

    @property
    def bytes(self) -> float:
        """The cache and the queries read once, the output written once, lengths and table read."""
        elements = 2 * self.heads * self.seq_q + 2 * self.key_heads * self.length
        return float(self.batch * (elements * self.head_dim * ITEM_BYTES[self.dtype] + (1 + self.pages) * INDEX_BYTES))

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
        if distribution == "dominant":
            keys = k if self.page_size is None else k.transpose(1, 2)
            # Only the first tokens: every query sees those.
            seen = self.length - self.seq_q + 1
            # A group of heads is taken as more queries of its kv head, so that no key is repeated.
            rows = self.heads // self.key_heads * self.seq_q
            grouped = q.view(self.batch, self.key_heads, rows, self.head_dim)
            aimed = dominate(grouped, keys[:, :, :seen], scale=self.scaling, generator=generator)
            q = aimed.view(q_shape)
        kwargs: dict[str, Any] = {} if self.scale is None else {"scale": self.scale}
        lens = torch.full((self.batch,), self.length, dtype=torch.int32, device=device)
        if self.page_size is None:
            return Inputs((q, k, v, lens), kwargs)
        pool = (self.batch * self.pages, self.page_size, self.key_heads, self.head_dim)
        order = torch.rand((self.batch, self.pages), generator=generator, device=device).argsort(1)
        first = torch.arange(self.batch, device=device)[:, None] * self.pages
        return Inputs((q, k.view(pool), v.view(pool), lens, (first + order).to(torch.int32)), kwargs)

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
                logits = (queries[some].double() * self.scaling) @ keys_of(k_cache, block_table, *some).double().mT
                if hidden is not None:
                    logits.masked_fill_(hidden, float("-inf"))
                out[some] = logits.softmax(-1) @ keys_of(v_cache, block_table, *some).double()
        return out.reshape(q.shape)

    def in_order(
        self, inputs: Inputs, right: torch.Tensor, rows: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        q, k_cache, v_cache, _, *table = inputs.args
        block_table = table[0] if table else None
        last = slice(self.key_heads - 1, self.key_heads)
        keys, values = (
            keys_of(cache, block_table, slice(-1, None), last)[0, 0].float() for cache in (k_cache, v_cache)
        )
        logits = running(q[-1, -1].float(), keys.mT) * self.scaling
        if self.seq_q > 1:
            logits.masked_fill_(~self.visible(q.device), float("-inf"))
        return attended(logits, values), right[-1, -1]


def keys_of(cache: torch.Tensor, block_table: torch.Tensor | None, sequences: slice, heads: slice) -> torch.Tensor:
    """(sequences, heads, length, head_dim): the keys, or values, of some heads of some sequences of a Decode."""
    if block_table is None:
        return cache[sequences, heads]
    # (sequences, pages, page, heads, head_dim)
    return cache[block_table[sequences].long(), :, heads].flatten(1, 2).transpose(1, 2)
