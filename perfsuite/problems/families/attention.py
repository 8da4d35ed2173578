"""Scaled dot-product attention, from training shapes to a single query over a long cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Self

from perfsuite.problems.base import Inputs, Problem, Scalar
from perfsuite.problems.checks import DTYPE_WORDS, ITEM_BYTES, flag, positive, torch_dtype, window_sides
from perfsuite.problems.distributions import dominate, draw
from perfsuite.problems.exact import BLOCK_BYTES, MASKED_BLOCKS, MASKED_ROWS, MOST_ROWS, attended, running, spread
from perfsuite.problems.exact_gradients import attention_gradients
from perfsuite.problems.gradients import Differentiable
from perfsuite.problems.heads import Heads

if TYPE_CHECKING:
    import argparse

    import torch


@dataclass(frozen=True)
class Attention(Differentiable, Heads):
    """softmax(scale q k^T) v for q (batch, heads, seq_q, head_dim) and k, v (batch, kv_heads, seq_kv, head_dim).

    kv_heads: fewer than heads for grouped queries; query head h reads kv head h // (heads // kv_heads).
    causal: query i sees keys j <= i, counted from the top left, as SDPA does.
    scale: 1/sqrt(head_dim) unless given.
    bottom_right: the diagonal ends where the last query meets the last key, for `causal` and `window` alike.
    window: (left, right), FlashAttention's: query i sees the keys from `left` before the diagonal to `right` behind it;
        -1 for no limit.
    value_dim: the head_dim of v and of the result where it is smaller than that of q and k.
    backward: "only" for the gradients of q, k and v alone, True for forward and backward. As in FlashAttention's
        papers a backward has five products, three over head_dim and two over value_dim. The forward has one over
        each, so a backward has 2.5 times its FLOPs where they are equal.
    Candidates are called `f(q, k, v)`, with `is_causal=True`, `scale=...`, `bottom_right=True` and `window=...` only
    where they differ from the default.
    """

    family: ClassVar[str] = "attention"
    candidate: ClassVar[str | None] = "cuda_llm_ops:flash_attention"
    vetted: ClassVar[bool] = True
    bench_columns: ClassVar[Mapping[str, str]] = {"length": "seq_q", "head_dim": "head_dim"}

    batch: int
    heads: int
    seq_q: int
    head_dim: int
    _: KW_ONLY
    seq_kv: int | None = None
    kv_heads: int | None = None
    causal: bool = False
    scale: float | None = None
    dtype: str = "float16"
    bottom_right: bool = False
    window: tuple[int, int] | None = None
    backward: bool | str = False
    value_dim: int | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "seq_kv", self.seq_q if self.seq_kv is None else self.seq_kv)
        self.check_heads("batch", "seq_q", "seq_kv")
        columns = positive("value_dim", self.columns)
        if columns > self.head_dim:
            raise ValueError(f"value_dim is {columns}; it must be at most head_dim, which is {self.head_dim}")
        put(self, "value_dim", None if columns == self.head_dim else columns)
        flag("causal", self.causal)
        flag("bottom_right", self.bottom_right)
        self.check_backward()
        put(self, "window", window_sides(self.window))

    @property
    def keys(self) -> int:
        """Length of the keys and values."""
        assert self.seq_kv is not None  # __post_init__ filled it in
        return self.seq_kv

    @property
    def columns(self) -> int:
        """Those of v and of the result."""
        return self.head_dim if self.value_dim is None else self.value_dim

    @property
    def pairs(self) -> int:
        """(query, key) pairs that the mask lets through, in one head."""
        if self.banded:
            return _banded_pairs(self)
        if not self.causal:
            return self.seq_q * self.keys
        corner = min(self.seq_q, self.keys)
        return corner * (corner + 1) // 2 + (self.seq_q - corner) * self.keys

    @property
    def banded(self) -> bool:
        """True for a mask other than plain causal, counted from the top left."""
        return self.bottom_right or self.window is not None

    @property
    def _band(self) -> tuple[int, int, int]:
        """(key on the diagonal of query 0, keys seen before the diagonal, keys seen behind it); -1 for no limit."""
        left, right = self.window or (-1, -1)
        return self.keys - self.seq_q if self.bottom_right else 0, left, 0 if self.causal else right

    def span(self, query: int) -> tuple[int, int]:
        """(first key that a query sees, end of the keys that it sees); it sees no key if the end is not larger."""
        shift, left, right = self._band
        first = 0 if left < 0 else query + shift - left
        end = self.keys if right < 0 else query + shift + right + 1
        return max(0, first), min(self.keys, end)

    def visible(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """(queries, keys), bool: True where the query sees the key. Both are given by their positions."""
        shift, left, right = self._band
        behind = keys - (queries + shift)[:, None]
        seen = behind <= (right if right >= 0 else self.keys + self.seq_q)
        return seen if left < 0 else seen & (behind >= -left)

    def keys_of(self, first: int, last: int) -> tuple[slice, slice]:
        """(keys that any of these queries sees, one at least; keys that all of them see)."""
        if not (self.causal or self.banded):
            return slice(0, self.keys), slice(0, self.keys)
        (begin, all_end), (all_begin, end) = self.span(first), self.span(last)
        return slice(begin, max(1, end)), slice(all_begin, max(all_begin, all_end))

    def hide(self, logits: torch.Tensor, queries: torch.Tensor, seen: slice, common: slice) -> None:
        """Mask the logits (..., queries, keys) of the keys `seen`; of those in `common` none is hidden."""
        import torch

        for begin, end in (seen.start, min(common.start, seen.stop)), (max(common.stop, seen.start), seen.stop):
            if begin < end:
                hidden = ~self.visible(queries, torch.arange(begin, end, device=logits.device))
                logits[..., begin - seen.start : end - seen.start].masked_fill_(hidden, float("-inf"))

    def blind(self, queries: torch.Tensor, seen: slice) -> torch.Tensor:
        """Bool: True for a query that sees none of these keys."""
        import torch

        return ~self.visible(queries, torch.arange(seen.start, seen.stop, device=queries.device)).any(-1)

    @property
    def name(self) -> str:
        length = str(self.seq_q) if self.seq_q == self.seq_kv else f"{self.seq_q}/{self.seq_kv}"
        mask = " causal" if self.causal else ""
        mask += " bottom-right" if self.bottom_right else ""
        mask += "" if self.window is None else f" window {self.window[0]},{self.window[1]}"
        words = f"{self.dtype}{mask}{self.scale_word}{self.backward_word}"
        columns = str(self.head_dim) if self.value_dim is None else f"{self.head_dim}/{self.value_dim}"
        return f"{self.batch}x{self.heads_word}x{length}x{columns} {words}"

    @property
    def params(self) -> dict[str, Scalar]:
        # Defaults are left out: params stay equal to those of cases recorded before these parameters existed.
        band: dict[str, Scalar] = {"bottom_right": True} if self.bottom_right else {}
        if self.window is not None:
            band |= {"window_left": self.window[0], "window_right": self.window[1]}
        if self.backward is not False:
            band["backward"] = self.backward
        if self.value_dim is not None:
            band["value_dim"] = self.value_dim
        shown = ("batch", "heads", "kv_heads", "seq_q", "seq_kv", "head_dim", "causal", "scale", "dtype")
        return band | {name: getattr(self, name) for name in shown}

    @property
    def result_dtype(self) -> str:
        return self.dtype

    @property
    def operands(self) -> int:
        return 3

    @property
    def flops(self) -> float:
        """Two products, two operations a pair and channel in each; without softmax, as in FlashAttention's papers."""
        forward = self.head_dim + self.columns
        backward = 3 * self.head_dim + 2 * self.columns
        products = {False: forward, True: forward + backward, "only": backward}[self.backward]
        return 2.0 * self.batch * self.heads * self.pairs * products

    @property
    def bytes(self) -> float:
        """Of a backward: q, k, v, the result and its gradient are read, and three gradients are written."""
        seen = min(self.seq_q, self.keys) if self.causal else self.keys
        if self.banded:  # every query sees keys between those of the first and the last
            seen = max(0, self.span(self.seq_q - 1)[1] - self.span(0)[0])
        rows = self.heads * self.seq_q + self.key_heads * seen
        passes = {False: 1, True: 3, "only": 2}[self.backward]
        return float(passes * self.batch * rows * (self.head_dim + self.columns) * ITEM_BYTES[self.dtype])

    @property
    def row_count(self) -> int | None:
        return self.seq_q if self.backward is False else None

    def grown(self, factor: int) -> Problem:
        return replace(self, seq_q=factor * self.seq_q, seq_kv=factor * self.keys)

    def neighbour(self, near: Callable[[int], int]) -> Problem:
        length = near(self.seq_q)
        return replace(self, seq_q=length, seq_kv=length if self.keys == self.seq_q else near(self.keys))

    @property
    def innermost(self) -> str:
        return "head_dim"

    def variations(self) -> tuple[Problem, ...]:
        """Half the length at two and four times the batch; for decoding, more heads or more sequences."""
        if self.seq_q == self.keys and self.seq_q > 1:
            half = self.seq_q // 2
            return tuple(replace(self, seq_q=half, seq_kv=half, batch=factor * self.batch) for factor in (2, 4))
        # More heads on the same keys are more arithmetic; more sequences are more of both.
        return replace(self, heads=2 * self.heads), replace(self, batch=2 * self.batch)

    @classmethod
    def parse(cls, shape: str, words: Sequence[str]) -> Self:
        """The shape is batch x heads x length x head_dim.

        heads and length may be those of q / of k and v: "8/2"; head_dim that of q and k / of v: "192/128".
        """
        parts = [part.split("/") for part in shape.split("x")]
        whole = all(size.isdecimal() for part in parts for size in part)
        if not (whole and len(parts) == 4 and max(map(len, parts)) <= 2 and len(parts[0]) == 1):
            form = "batch x heads x length x head_dim, such as 2x8x4096x64, 2x8/2x1/4096x64 or 2x8x4096x192/128"
            raise ValueError(f"the shape is {shape!r}; it must be {form}, in whole numbers")
        (batch,), (heads, *kv_heads), (seq_q, *seq_kv), (head_dim, *value_dim) = (
            list(map(int, part)) for part in parts
        )
        named = {"kv_heads": kv_heads, "seq_kv": seq_kv, "value_dim": value_dim}
        given = {name: value[0] for name, value in named.items() if value} | cls.parse_words(words)
        return cls(batch, heads, seq_q, head_dim, **given)

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--seq-lengths", type=int, nargs="+", default=[512, 1024, 2048, 4096, 8192], metavar="N")
        parser.add_argument("--batch-size", type=int, default=2)
        parser.add_argument("--num-heads", type=int, default=8)
        parser.add_argument(
            "--head-dim", type=int, nargs="+", default=[64], metavar="D", help="several are compared, such as 128 129"
        )
        parser.add_argument("--causal", action="store_true")

    @classmethod
    def from_options(cls, options: argparse.Namespace) -> list[Self]:
        dtype = DTYPE_WORDS[options.dtype or "fp16"]
        return [
            cls(options.batch_size, options.num_heads, seq, head_dim, causal=options.causal, dtype=dtype)
            for seq in options.seq_lengths
            for head_dim in options.head_dim
        ]

    def inputs(self, generator: torch.Generator, *, distribution: str = "normal") -> Inputs:
        """(q, k, v) on the generator's device."""
        dtype = torch_dtype(self.dtype)

        def operand(role: str, heads: int, length: int, columns: int, axis: int) -> torch.Tensor:
            shape = (self.batch, heads, length, columns)
            return draw(distribution, shape, dtype, generator, role=role, axis=axis)

        q = operand("q", self.heads, self.seq_q, self.head_dim, -1)
        k = operand("k", self.key_heads, self.keys, self.head_dim, -1)
        v = operand("v", self.key_heads, self.keys, self.columns, -2)
        if distribution == "dominant":
            spans = [self.span(query) for query in range(self.seq_q)] if self.causal or self.banded else None
            tied = self.backward is not False
            q = dominate(q, k, scale=self.scaling, generator=generator, spans=spans, tied=tied)
        options = {
            "is_causal": self.causal,
            "scale": self.scale,
            "bottom_right": self.bottom_right,
            "window": self.window,
        }
        forward = Inputs(
            (q, k, v), {name: value for name, value in options.items() if value is not None and value is not False}
        )
        if self.backward is False:
            return forward
        shape = (*q.shape[:3], self.columns)
        return self.with_gradient(forward, draw("normal", shape, dtype, generator))

    def reference(self, inputs: Inputs, *, rows: torch.Tensor | None = None) -> Any:
        import torch

        if self.backward is not False:
            q, k, v, _, (gradient,) = inputs.args
            return self.answers(*attention_gradients(self, q, k, v, gradient))
        q, k, v = inputs.args
        device = q.device
        positions = torch.arange(self.seq_q, device=device)
        if rows is not None:
            positions = rows.to(device)
            q = q.index_select(2, positions)
        count, group = q.shape[2], self.heads // self.key_heads
        # One "head" below is a key head with the queries of its whole group: (batch * kv_heads, group, rows, head_dim).
        queries = q.reshape(-1, group, count, self.head_dim)
        keys, values = (t.reshape(-1, self.keys, t.shape[-1]) for t in (k, v))
        out = torch.empty((*queries.shape[:3], self.columns), dtype=torch.float64, device=device)
        room = max(1, BLOCK_BYTES[device.type] // (8 * self.keys * group))
        step = min(count, room)
        if self.causal or self.banded:
            step = min(step, max(MASKED_ROWS, -(-count // MASKED_BLOCKS)))
        heads = max(1, room // step)
        for head in range(0, queries.shape[0], heads):
            some = slice(head, head + heads)
            q64, k64, v64 = queries[some].double() * self.scaling, keys[some].double().mT, values[some].double()
            for start in range(0, count, step):
                block = slice(start, start + step)
                at = positions[block]
                first, last = start, min(start + step, count) - 1
                if rows is not None and (self.causal or self.banded):
                    first, last = int(rows[block].min()), int(rows[block].max())
                seen, common = self.keys_of(first, last)
                if seen.start >= seen.stop:  # no query of the block sees a key
                    out[some, :, block] = 0.0
                    continue
                # Passes over the scores take most of the time: queries are scaled instead, and softmax is one kernel.
                scores = q64[:, :, block].flatten(1, 2) @ k64[..., seen]
                self.hide(scores.unflatten(1, (group, -1)), at, seen, common)
                out[some, :, block] = (scores.softmax(-1) @ v64[:, seen]).unflatten(1, (group, -1))
                if self.banded:  # a query that sees no key gives zeros
                    out[some, :, block].masked_fill_(self.blind(at, seen)[:, None], 0.0)
        return out.reshape(*q.shape[:3], self.columns)

    def in_order(
        self, inputs: Inputs, right: torch.Tensor, rows: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        import torch

        if self.backward is not False:
            return None
        q, k, v = inputs.args
        chosen = spread(right.shape[-2], MOST_ROWS, q.device)
        some = chosen if rows is None else rows[chosen]
        queries, keys, values = q[-1, -1][some].float(), k[-1, -1].float(), v[-1, -1].float()
        logits = running(queries, keys.mT) * self.scaling
        if self.causal or self.banded:
            logits.masked_fill_(~self.visible(some, torch.arange(self.keys, device=q.device)), float("-inf"))
        return attended(logits, values), right[-1, -1][chosen]


@lru_cache(maxsize=256)
def _banded_pairs(problem: Attention) -> int:
    """The sum over all queries. It takes milliseconds for long sequences, and a case needs it several times."""
    return sum(max(0, end - first) for first, end in map(problem.span, range(problem.seq_q)))
