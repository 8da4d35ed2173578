"""Random calls: a valid one is drawn first, with every layout and size that matters, then some are spoiled."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
import torch
from torch import Tensor

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
HEAD_DIMS = (0, 1, 2, 3, 7, 8, 15, 16, 24, 32, 33, 40, 64, 65, 72, 80, 96, 100, 127, 128, 129, 144, 192, 200, 255, 256)
SEQUENCES = (0, 1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 66, 100, 127, 128, 129, 130, 150)
EXTENTS = (0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 40, 63, 64, 65, 72, 100, 127, 128, 129, 136, 200, 257)
MOST_MULTIPLICATIONS = 1_000_000


@dataclass
class Call:
    """Keyword arguments, and what was done to spoil them; `must_fail` where no right answer exists."""

    arguments: dict[str, Any]
    spoiled: list[str] = field(default_factory=list)
    must_fail: bool = False

    def __repr__(self) -> str:
        parts = []
        for name, value in self.arguments.items():
            if isinstance(value, Tensor):
                text = f"{str(value.dtype).removeprefix('torch.')}{tuple(value.shape)}"
                if value.layout == torch.strided and not value.is_nested:
                    text += f" strides {value.stride()} offset {value.storage_offset()}"
                parts.append(f"{name}={text} on {value.device}")
            else:
                parts.append(f"{name}={value!r:.60}")
        return f"Call({', '.join(parts)}, spoiled={self.spoiled}, must_fail={self.must_fail})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # what hypothesis prints, without every element
        printer.text(repr(self))


def _store(tensor: Tensor, order: tuple[int, ...], pads: tuple[int, ...], step: tuple[int, ...], offset: int) -> Tensor:
    """The same values with dimensions in memory in `order`, each padded and stepped over, from an odd offset on."""
    sizes = [tensor.shape[dim] * step[dim] + pads[dim] for dim in order]
    store = torch.full((offset + math.prod(sizes),), math.nan, dtype=tensor.dtype, device=tensor.device)
    view = store[offset:].view(sizes).permute([order.index(dim) for dim in range(tensor.dim())])
    view = view[tuple(slice(0, tensor.shape[dim] * step[dim], step[dim]) for dim in range(tensor.dim()))]
    view.copy_(tensor)
    return view


@st.composite
def tensors(draw: st.DrawFn, shape: tuple[int, ...], dtype: torch.dtype, device: str, special: bool = True) -> Tensor:
    """A tensor of random values and random layout; what lies between its elements in memory is NaN."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    values = torch.randn(shape, generator=generator) * draw(st.sampled_from((1.0, 1.0, 1.0, 0.01, 8.0, 0.0)))
    values = values.to(dtype).to(device)
    if special and values.numel() and draw(st.integers(0, 9)) == 0:
        at = draw(st.integers(0, values.numel() - 1))
        values.view(-1)[at] = draw(st.sampled_from((math.nan, math.inf, -math.inf)))
    kind = draw(st.sampled_from(("dense", "dense", "stored", "stored", "expanded")))
    if kind == "stored" and values.numel():
        rank = len(shape)
        return _store(
            values,
            tuple(draw(st.permutations(range(rank)))),
            tuple(draw(st.sampled_from((0, 0, 1, 3, 8))) for _ in range(rank)),
            tuple(draw(st.sampled_from((1, 1, 1, 2, 3))) for _ in range(rank)),
            draw(st.sampled_from((0, 0, 1, 3, 8))),
        )
    if kind == "expanded" and values.numel():
        dim = draw(st.integers(0, len(shape) - 1))
        return values.narrow(dim, 0, 1).expand(shape)
    return values


def _trimmed(sizes: list[int], order: tuple[int, ...]) -> list[int]:
    """Halve sizes, in turn, until their product is affordable."""
    turn = 0
    while math.prod(max(size, 1) for size in sizes) > MOST_MULTIPLICATIONS:
        dim = order[turn % len(order)]
        sizes[dim] = max(1, sizes[dim] // 2)
        turn += 1
    return sizes


def _value_dim(head_dim: int) -> st.SearchStrategy[int]:
    """That of v: as wide as q and k, or narrower."""
    return st.one_of(st.just(head_dim), st.integers(min(1, head_dim), head_dim))


OPTIONS = ("bottom_right", "window", "return_lse")  # of flash_attention alone


@st.composite
def _options(draw: st.DrawFn) -> dict[str, Any]:
    side = st.one_of(st.sampled_from((-1, 0, 1, 31, 64, 100, 2**31, 2**63)), st.integers(0, 150))
    chosen: dict[str, Any] = {}
    if draw(st.booleans()):
        chosen["bottom_right"] = draw(st.booleans())
    if draw(st.booleans()):
        chosen["window"] = draw(st.one_of(st.none(), st.tuples(side, side)))
    if draw(st.booleans()):
        chosen["return_lse"] = draw(st.booleans())
    return chosen


@st.composite
def varlen_calls(draw: st.DrawFn, device: str) -> Call:
    dtype, head_dim = draw(st.sampled_from(DTYPES)), draw(st.sampled_from(HEAD_DIMS[1:]))
    kv_heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    most = max(1, int(math.sqrt(MOST_MULTIPLICATIONS / (head_dim * kv_heads * group))))
    lengths = st.lists(st.tuples(st.sampled_from(SEQUENCES), st.sampled_from(SEQUENCES)), max_size=4)
    pairs = [(min(q, most), min(kv, most)) for q, kv in draw(lengths)]
    behind = draw(st.sampled_from((0, 0, 1, 70)))  # rows of no sequence
    totals = [sum(pair[side] for pair in pairs) + behind for side in (0, 1)]
    arguments: dict[str, Any] = {
        "q": draw(tensors((totals[0], kv_heads * group, head_dim), dtype, device)),
        "k": draw(tensors((totals[1], kv_heads, head_dim), dtype, device)),
        # What lies behind a sequence may share a block of keys with its end.
        "v": draw(tensors((totals[1], kv_heads, draw(_value_dim(head_dim))), dtype, device, special=False)),
    }
    for side, name in enumerate(("q", "k")):
        ends = [0, *(pair[side] for pair in pairs)]
        arguments[f"cu_seqlens_{name}"] = torch.tensor(ends).cumsum(0).to(device, torch.int32)
        arguments[f"max_seqlen_{name}"] = max(ends) + draw(st.sampled_from((0, 0, 1, 100)))
    arguments |= draw(_options())
    if draw(st.booleans()):
        arguments["is_causal"] = draw(st.booleans())
    if draw(st.booleans()):
        arguments["scale"] = draw(st.one_of(st.none(), st.floats(0.0, 2.0, width=32)))
    return draw(_spoiled(Call(arguments), ("q", "k", "v"), [*ATTENTION_SPOILS, *OPTION_SPOILS, *VARLEN_SPOILS]))


@st.composite
def attention_calls(draw: st.DrawFn, device: str, options: bool = False, backward: bool = False) -> Call:
    dtype = draw(st.sampled_from(DTYPES))
    batch, kv_heads, group = draw(st.sampled_from((0, 1, 1, 2, 3))), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    seq_q, seq_kv = draw(st.sampled_from(SEQUENCES)), draw(st.sampled_from(SEQUENCES))
    head_dim = draw(st.sampled_from(HEAD_DIMS))
    batch, kv_heads, group, seq_q, seq_kv, head_dim = _trimmed(
        [batch, kv_heads, group, seq_q, seq_kv, head_dim], (0, 2, 3, 4)
    )
    arguments: dict[str, Any] = {
        "q": draw(tensors((batch, kv_heads * group, seq_q, head_dim), dtype, device)),
        "k": draw(tensors((batch, kv_heads, seq_kv, head_dim), dtype, device)),
        # An infinite value times a weight that underflows is NaN or not, depending on the order of the arithmetic.
        "v": draw(tensors((batch, kv_heads, seq_kv, draw(_value_dim(head_dim))), dtype, device, special=False)),
    }
    if draw(st.booleans()):
        arguments["is_causal"] = draw(st.booleans())
    if draw(st.booleans()):
        arguments["scale"] = draw(st.one_of(st.none(), st.floats(0.0, 2.0, width=32), st.integers(0, 2)))
    if options:
        arguments |= draw(_options())
        if head_dim == 0:  # a row without columns has no logarithm to return
            arguments.pop("return_lse", None)
    spoils = [*ATTENTION_SPOILS, *OPTION_SPOILS] if options else ATTENTION_SPOILS
    if backward:  # then a tensor that requires grad is no error
        spoils = [spoil for spoil in spoils if spoil[0] != "grad"]
    return draw(_spoiled(Call(arguments), ("q", "k", "v"), spoils))


@st.composite
def gemm_calls(draw: st.DrawFn, device: str, tensor_core: bool, spoiled: bool = True) -> Call:
    dtype = draw(st.sampled_from(DTYPES[1:] if tensor_core else DTYPES))
    m, n, k, batch = _trimmed(
        [draw(st.sampled_from(EXTENTS)) for _ in range(3)] + [draw(st.sampled_from((0, 1, 2, 3, 5)))], (0, 1, 2)
    )
    batched = draw(st.sampled_from(("none", "none", "both", "a", "b")))
    trans_a, trans_b = (False, False) if tensor_core else (draw(st.booleans()), draw(st.booleans()))
    a_shape, b_shape = ((k, m) if trans_a else (m, k)), ((n, k) if trans_b else (k, n))
    arguments: dict[str, Any] = {
        "a": draw(tensors(((batch,) if batched in ("both", "a") else ()) + a_shape, dtype, device)),
        "b": draw(tensors(((batch,) if batched in ("both", "b") else ()) + b_shape, dtype, device)),
    }
    if not tensor_core:
        arguments |= {"trans_a": trans_a} if trans_a or draw(st.booleans()) else {}
        arguments |= {"trans_b": trans_b} if trans_b or draw(st.booleans()) else {}
        if draw(st.booleans()):
            arguments["alpha"] = draw(st.sampled_from((1.0, 0.0, -1.0, 0.5, 2, 1.25)))
        if draw(st.booleans()):
            shape = (m, n) if batched == "none" else (batch, m, n)
            arguments["c"] = draw(tensors(shape, dtype, device))
            arguments["beta"] = draw(st.sampled_from((1.0, 0.0, -1.0, 0.5, 2)))
    if not spoiled:
        return Call(arguments)
    spoils = GEMM_SPOILS if not tensor_core else [spoil for spoil in GEMM_SPOILS if spoil[0] not in GEMM_ONLY]
    return draw(_spoiled(Call(arguments), ("a", "b"), spoils))


# ---- spoiling -------------------------------------------------------------------------------------------------------

# (what, a function of (value, draw) that gives the new value, whether no right answer exists any more, its argument:
# None for one of the tensors)
Spoil = tuple[str, Callable[[Any, st.DrawFn], Any], bool, str | None]

NO_TENSORS = ([1.0, 2.0], None, 1.0, "q", (), {}, 3 + 1j, b"")
NO_NUMBERS = ("1", [1.0], 1j, (), b"1", {})
NO_FLAGS = ("no", [True], b"", {})  # a number or None is taken for its truth, as torch does


def _another_size(tensor: Tensor, draw: st.DrawFn) -> Tensor:
    dim = draw(st.integers(0, tensor.dim() - 1))
    size = draw(st.sampled_from((0, 1, 2, 5, 64, 257)))
    return tensor.new_zeros((*tensor.shape[:dim], size, *tensor.shape[dim + 1 :]))


def _another_rank(tensor: Tensor, draw: st.DrawFn) -> Tensor:
    rank = draw(st.sampled_from((0, 1, 5, 6)))
    return tensor.new_zeros([1] * rank)


def _another_dtype(tensor: Tensor, draw: st.DrawFn) -> Tensor:
    wrong = (torch.float64, torch.int32, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.float8_e5m2)
    return tensor.to(draw(st.sampled_from(wrong)))


def _huge(tensor: Tensor, draw: st.DrawFn) -> Tensor:
    sizes = [2 ** draw(st.integers(8, 14)) for _ in range(tensor.dim() - 2)]
    return tensor.new_zeros(1).expand(*sizes, 2**16, 2**16)


COMMON_SPOILS: list[Spoil] = [
    ("size", _another_size, False, None),
    ("rank", _another_rank, True, None),
    ("dtype", _another_dtype, True, None),
    ("kind", lambda value, draw: draw(st.sampled_from(NO_TENSORS)), True, None),
    ("numpy", lambda value, draw: value.float().cpu().numpy(), True, None),
    ("grad", lambda value, draw: value.detach().requires_grad_(), True, None),
    ("sparse", lambda value, draw: value.to_sparse(), True, None),
    ("meta", lambda value, draw: value.to("meta"), True, None),
    ("huge", _huge, True, None),
    ("permuted", lambda value, draw: value.permute(*draw(st.permutations(range(value.dim())))), False, None),
]
ATTENTION_SPOILS: list[Spoil] = [
    *COMMON_SPOILS,
    (
        "scale",
        lambda value, draw: draw(st.sampled_from((math.nan, math.inf, -math.inf, -1.0, -1e-30, 1e300))),
        True,
        "scale",
    ),
    ("scale", lambda value, draw: draw(st.sampled_from(NO_NUMBERS)), True, "scale"),
    ("flag", lambda value, draw: draw(st.sampled_from(NO_FLAGS)), True, "is_causal"),
    ("unknown", lambda value, draw: 1, True, "dropout_p"),
]
NO_WINDOWS = (3, (1,), (1, 2, 3), (1.0, 2.0), (True, 1), "no", (None, 1), (-2, 1), (1, -5))
OPTION_SPOILS: list[Spoil] = [
    ("window", lambda value, draw: draw(st.sampled_from(NO_WINDOWS)), True, "window"),
    ("flag", lambda value, draw: draw(st.sampled_from(NO_FLAGS)), True, "bottom_right"),
]
VARLEN_SPOILS: list[Spoil] = [
    ("dtype", lambda value, draw: value.to(draw(st.sampled_from((torch.int64, torch.int8, torch.float32)))), True, o)
    for o in ("cu_seqlens_q", "cu_seqlens_k")
] + [
    ("rank", lambda value, draw: value[None], True, "cu_seqlens_q"),
    ("number", lambda value, draw: torch.cat([value, value[-1:]]), True, "cu_seqlens_k"),
    ("kind", lambda value, draw: draw(st.sampled_from(NO_TENSORS)), True, "cu_seqlens_k"),
    ("number", lambda value, draw: draw(st.sampled_from((-1, 2**29, 2**40))), True, "max_seqlen_q"),
    ("kind", lambda value, draw: draw(st.sampled_from((*NO_NUMBERS, None))), True, "max_seqlen_k"),
]
GEMM_ONLY = ("alpha", "flag", "beta", "c")
GEMM_SPOILS: list[Spoil] = [
    *(spoil for spoil in COMMON_SPOILS if spoil[0] != "grad"),
    ("alpha", lambda value, draw: draw(st.sampled_from((*NO_NUMBERS, None, 1e300, -1e39, 10**400))), True, "alpha"),
    ("beta", lambda value, draw: draw(st.sampled_from((*NO_NUMBERS, None, 1e300, -1e39))), True, "beta"),
    ("flag", lambda value, draw: draw(st.sampled_from(NO_FLAGS)), True, "trans_a"),
    (
        "c",
        lambda value, draw: draw(st.sampled_from(([1.0], "c", 1.0, torch.zeros(7, 7, 7), torch.zeros(1)))),
        True,
        "c",
    ),
    ("unknown", lambda value, draw: 1, True, "gamma"),
]


@st.composite
def _spoiled(draw: st.DrawFn, call: Call, names: tuple[str, ...], spoils: list[Spoil]) -> Call:
    if draw(st.integers(0, 9)) < 5:
        return call
    what, change, must_fail, argument = draw(st.sampled_from(spoils))
    target = argument or draw(st.sampled_from(names))
    call.arguments[target] = change(call.arguments.get(target), draw)
    call.spoiled.append(f"{what} of {target}")
    call.must_fail = must_fail
    return call
