"""Forms of calls that kernel libraries have: callables, arguments, results, dtypes, writes, state, gradients, chance.

Each is an honest candidate and a rival, given to the plain call.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from .written import Call, Given

CALLS: list[Call] = []


def form(kind: str, name: str) -> Callable[[Callable[[int, int], Given]], Callable[[int, int], Given]]:
    """Adds a function that makes a form of call."""

    def add(make: Callable[[int, int], Given]) -> Callable[[int, int], Given]:
        CALLS.append(Call(name, kind, make))
        return make

    return add


def simple(kind: str, name: str, candidate: Any, rival: Any, *make: Callable[[int, int], Any], **given: Any) -> None:
    """Adds a form whose arguments are made one by one, by default one tensor of normal values."""
    makers = make or (normal,)
    CALLS.append(Call(name, kind, lambda n, d: Given(candidate, rival, tuple(one(n, d) for one in makers), **given)))


def normal(n: int, d: int) -> torch.Tensor:
    return torch.randn(n, d)


def softmax(x: torch.Tensor) -> torch.Tensor:
    weights = (x - x.amax(-1, keepdim=True)).exp()
    return weights / weights.sum(-1, keepdim=True)


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight


# Callables.


class Kernel:
    """Holds an option, and counts its calls."""

    def __init__(self, scale: float) -> None:
        self.scale, self.calls = scale, 0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.scale + 1

    def launch(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale + 1


class Norm(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(d) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, self.weight)


class Norms(torch.autograd.Function):
    """The norm with a backward of its own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        ctx.save_for_backward(x, weight, scale)
        return x * scale * weight

    @staticmethod
    def backward(ctx: Any, given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, weight, scale = ctx.saved_tensors
        unit, inner = x * scale, given * weight
        return scale * (inner - unit * (inner * unit).mean(-1, keepdim=True)), (given * unit).sum(0)


@torch.library.custom_op("perfsuite_corpus::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x.mul(2).exp()


def affine(x: torch.Tensor) -> torch.Tensor:
    return torch.add(torch.ones_like(x), x, alpha=3.0)


def modules(d: int) -> tuple[Norm, Norm]:
    one, two = Norm(d), Norm(d)
    one.load_state_dict(two.state_dict())
    return one, two


def scaled(x: torch.Tensor, *, by: torch.Tensor, shift: float = 0.0) -> torch.Tensor:
    return x * by + shift


simple("callables", "function", softmax, lambda x: x.softmax(-1))
simple("callables", "function of torch", torch.nn.functional.gelu, lambda x: F.gelu(x))
simple("callables", "object with state", Kernel(3.0), affine)
simple("callables", "method", Kernel(3.0).launch, affine)
simple("callables", "partial", functools.partial(torch.softmax, dim=-1), softmax)
simple(
    "callables",
    "operator of torch.ops",
    torch.ops.aten._softmax.default,
    lambda x, dim, half: torch.softmax(x, dim),
    normal,
    lambda n, d: -1,
    lambda n, d: False,
)
simple("callables", "own operator as candidate", doubled, lambda x: (2 * x).exp())
simple("callables", "own operator as rival", lambda x: (2 * x).exp(), doubled)
simple("callables", "compiled function", torch.compile(softmax, backend="aot_eager"), softmax)


@form("callables", "tensors by keyword")
def by_keyword(n: int, d: int) -> Given:
    def rival(x: torch.Tensor, by: torch.Tensor, shift: float) -> torch.Tensor:
        return torch.addcmul(torch.full_like(x, shift), x, by)

    return Given(scaled, rival, (torch.randn(n, d),), {"by": torch.randn(n, d), "shift": 0.5})


@form("callables", "module")
def module(n: int, d: int) -> Given:
    return Given(*modules(d), (torch.randn(n, d),))


@form("callables", "method of a module")
def method_of_module(n: int, d: int) -> Given:
    one, two = modules(d)
    return Given(one.forward, two, (torch.randn(n, d),))


@form("callables", "compiled module")
def compiled_module(n: int, d: int) -> Given:
    one, two = modules(d)
    return Given(torch.compile(one, backend="aot_eager"), torch.compile(two, backend="aot_eager"), (torch.randn(n, d),))


@form("callables", "function of autograd")
def of_autograd(n: int, d: int) -> Given:
    return Given(Norms.apply, rms_norm, (torch.randn(n, d), torch.rand(d)))


@form("callables", "function against a module")
def against_module(n: int, d: int) -> Given:
    one, _ = modules(d)
    return Given(lambda x: rms_norm(x, one.weight), one, (torch.randn(n, d),))


# Arguments.


@dataclass(frozen=True)
class Pair:
    keys: torch.Tensor
    values: torch.Tensor


class Named(NamedTuple):
    keys: torch.Tensor
    values: torch.Tensor


def of_pair(pair: Any) -> torch.Tensor:
    return pair.keys @ pair.values.t()


def arguments(name: str, candidate: Any, rival: Any, build: Callable[[torch.Tensor, torch.Tensor], Any]) -> None:
    simple("arguments", name, candidate, rival, lambda n, d: build(torch.randn(n, d), torch.randn(n, d)))


arguments("list", lambda two: torch.cat(two, -1), lambda two: torch.hstack(two), lambda x, y: [x, y])
arguments(
    "dictionary",
    lambda two: two["x"] - two["y"],
    lambda two: torch.sub(two["x"], two["y"]),
    lambda x, y: {"x": x, "y": y},
)
arguments("dataclass", of_pair, lambda two: F.linear(two.keys, two.values), Pair)
arguments("named tuple", of_pair, lambda two: F.linear(*two), Named)
arguments(
    "nest with None",
    lambda two: two[0]["x"] * two[2],
    lambda two: two[2] * two[0]["x"],
    lambda x, y: [{"x": x}, None, 2.5],
)
simple(
    "arguments",
    "numbers and text",
    lambda x, p, how: (x**p).sum(-1) if how == "sum" else x,
    lambda x, p, how: torch.pow(x, p).sum(-1),
    normal,
    lambda n, d: 2,
    lambda n, d: "sum",
)
simple(
    "arguments",
    "strided",
    lambda x: x.t().contiguous() * 2,
    lambda x: 2 * x.t(),
    lambda n, d: torch.randn(n, 2 * d)[:, ::2],
)
simple(
    "arguments",
    "expanded",
    lambda x: x.sum(-1) + x[:, 0],
    lambda x: x.sum(-1).add(x[:, 0]),
    lambda n, d: torch.randn(n, 1).expand(n, d),
)
simple("arguments", "no axes", lambda x, s: x * s, lambda x, s: s.mul(x), normal, lambda n, d: torch.tensor(1.5))
simple("arguments", "one element", lambda x: x.exp() + 1, lambda x: 1 + torch.exp(x), lambda n, d: torch.randn(1))
simple(
    "arguments",
    "indices",
    lambda x, i: x[i],
    lambda x, i: x.index_select(0, i),
    normal,
    lambda n, d: torch.randint(n, (n,)),
)
simple(
    "arguments",
    "mask",
    lambda x, m: x.masked_fill(m, 0.0),
    lambda x, m: torch.where(m, 0.0, x),
    normal,
    lambda n, d: torch.rand(n, d) > 0.5,
)


@form("arguments", "made by a callable")
def made(n: int, d: int) -> Given:
    def make(generator: torch.Generator, near: Callable[[int], int]) -> tuple[torch.Tensor, ...]:
        rows = near(n)
        keys = torch.randint(0, rows, (rows,), generator=generator, device=generator.device).sort().values
        return keys, torch.randn(rows, d, generator=generator, device=generator.device)

    return Given(lambda i, x: x[i].cumsum(0), lambda i, x: torch.cumsum(x.index_select(0, i), 0), make)


# Results.

simple("results", "dictionary", lambda x: {"a": x.exp(), "b": x.sum(-1)}, lambda x: {"b": x.sum(-1), "a": torch.exp(x)})
simple("results", "dataclass", lambda x: Pair(x * 2, x.exp()), lambda x: Pair(x + x, torch.exp(x)))
simple("results", "named tuple", lambda x: Named(x * 2, x.exp()), lambda x: (x + x, torch.exp(x)))
simple("results", "torch's return type", lambda x: tuple(x.sort(-1)), lambda x: torch.sort(x, -1))
simple("results", "ordered dictionary", lambda x: collections.OrderedDict(a=x * 2), lambda x: {"a": x + x})
simple("results", "number", lambda x: float(x.sum()), lambda x: x.sum().item())
simple("results", "None beside a tensor", lambda x: (x * 2, None), lambda x: (x + x, None))
simple("results", "strided", lambda x: (x * 2).t(), lambda x: (x + x).t().contiguous())
simple(
    "results",
    "expanded",
    lambda x: x.sum(-1, keepdim=True).expand(-1, 7),
    lambda x: x.sum(-1, keepdim=True).repeat(1, 7),
)
simple("results", "view of an argument", lambda x: x[:, ::2], lambda x: x[:, 0::2])
simple("results", "empty", lambda x: x[:0] * 2, lambda x: 2 * x[:0])
simple("results", "size by data", lambda x: x[x > 0.5], lambda x: torch.masked_select(x, x > 0.5))
simple("results", "no axes", lambda x: x.mean(), lambda x: x.sum() / x.numel())

# Dtypes and layouts.

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def eight(n: int, d: int) -> torch.Tensor:
    return torch.randn(n, d).to(E4M3)


def halves(packed: torch.Tensor) -> torch.Tensor:
    return torch.stack([packed & 15, packed >> 4], -1).flatten(-2)


def unpacked(packed: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return (halves(packed).to(scale.dtype) - 8) * scale


def unpacked_by_parts(packed: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    out = torch.empty(*packed.shape[:-1], 2 * packed.shape[-1], dtype=scale.dtype, device=packed.device)
    out[..., ::2], out[..., 1::2] = (packed % 16).to(scale.dtype), (packed // 16).to(scale.dtype)
    return (out - 8) * scale


def product_of_8_bits(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x.float() @ y.float().t()).bfloat16()


def library_of_8_bits(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    one = torch.ones((), device=x.device)
    return torch._scaled_mm(x, y.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)


def bytes_of(dtype: torch.dtype, low: int, high: int) -> Callable[[int, int], torch.Tensor]:
    return lambda n, d: torch.randint(low, high, (n, d), dtype=dtype)


simple("dtypes", "float8 argument", lambda x: x.float() * 2, lambda x: x.to(torch.float32) + x.to(torch.float32), eight)
simple("dtypes", "float8 result", lambda x: (x * 2).to(E4M3), lambda x: (x + x).to(E4M3))
simple("dtypes", "float8 of five bits result", lambda x: (x * 3).to(E5M2), lambda x: (x + x + x).to(E5M2))
simple(
    "dtypes", "float8 product", product_of_8_bits, library_of_8_bits, eight, lambda n, d: torch.randn(48, d).to(E4M3)
)
simple(
    "dtypes",
    "int8 values",
    lambda x, y: x.int() * y.int(),
    lambda x, y: torch.mul(x.to(torch.int32), y.to(torch.int32)),
    bytes_of(torch.int8, -128, 128),
    bytes_of(torch.int8, -128, 128),
)
simple(
    "dtypes",
    "int8 quantiser",
    lambda x: (x * 20).round().clamp(-128, 127).to(torch.int8),
    lambda x: torch.clamp(torch.round(20 * x), -128, 127).to(torch.int8),
)
simple(
    "dtypes", "packed int4", unpacked_by_parts, unpacked, bytes_of(torch.uint8, 0, 256), lambda n, d: torch.rand(n, 1)
)
simple(
    "dtypes",
    "int32",
    lambda x: x.cumsum(-1, dtype=torch.int32),
    lambda x: torch.cumsum(x, -1, dtype=torch.int32),
    bytes_of(torch.int32, -50, 50),
)
simple("dtypes", "int64", lambda x: x.sum(-1), lambda x: torch.sum(x, -1), bytes_of(torch.int64, 0, 1000))
simple("dtypes", "bool", lambda x, y: (x > 0) & (y > 0), lambda x, y: torch.logical_and(x > 0, y > 0), normal, normal)
simple(
    "dtypes",
    "complex",
    lambda x: torch.fft.fft(x),
    lambda x: torch.fft.fft(x.contiguous()),
    lambda n, d: torch.complex(torch.randn(n, d), torch.randn(n, d)),
)
simple("dtypes", "real spectrum", lambda x: torch.fft.rfft(x).abs(), lambda x: torch.fft.rfft(x, norm="backward").abs())
simple(
    "dtypes",
    "bfloat16",
    lambda x: softmax(x.float()).bfloat16(),
    lambda x: x.softmax(-1),
    lambda n, d: torch.randn(n, d).bfloat16(),
)
simple(
    "dtypes",
    "float16",
    lambda x: softmax(x.float()).half(),
    lambda x: x.softmax(-1),
    lambda n, d: torch.randn(n, d).half(),
)
simple("dtypes", "float64", softmax, lambda x: x.softmax(-1), lambda n, d: torch.randn(n, d, dtype=torch.float64))


def sparse(n: int, d: int) -> torch.Tensor:
    x = torch.randn(n, d)
    return (x * (x > 0)).to_sparse_csr()


def jagged(n: int, d: int) -> torch.Tensor:
    return torch.nested.nested_tensor([torch.randn(n, d), torch.randn(n // 2, d)], layout=torch.jagged)


simple(
    "layouts",
    "sparse argument",
    lambda a, x: a.to_dense() @ x,
    lambda a, x: a @ x,
    sparse,
    lambda n, d: torch.randn(d, 8),
)
simple("layouts", "sparse result", lambda x: torch.relu(x).to_sparse(), lambda x: (x * (x > 0)).to_sparse())
simple("layouts", "compressed result", lambda x: torch.relu(x).to_sparse_csr(), lambda x: (x * (x > 0)).to_sparse_csr())
simple("layouts", "nested argument and result", lambda x: x * 2, lambda x: x + x, jagged)
simple(
    "layouts",
    "channels last",
    lambda x: x.relu(),
    lambda x: F.relu(x),
    lambda n, d: torch.randn(2, 4, n, d).to(memory_format=torch.channels_last),
)

# Writes and state.


def add_and_return(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.add_(y)


def add_in_place(x: torch.Tensor, y: torch.Tensor) -> None:
    x += y


def into(x: torch.Tensor, *, out: torch.Tensor) -> None:
    out.copy_(x.softmax(-1))


def append(cache: torch.Tensor, rows: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    cache.index_copy_(0, place, rows)
    return cache.sum(-1)


def append_by_index(cache: torch.Tensor, rows: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    cache[place] = rows
    return torch.sum(cache, -1)


def places(n: int, d: int) -> torch.Tensor:
    return torch.randperm(n)[: n // 2]


simple("writes", "in place, returned", add_and_return, lambda x, y: x.add_(y), normal, normal)
simple("writes", "in place, None returned", add_in_place, lambda x, y: x.add_(y), normal, normal)
simple(
    "writes", "two arguments", lambda x, y: (x.mul_(2), y.add_(1)), lambda x, y: (x.add_(x), y.add_(1)), normal, normal
)
simple("writes", "named by the test", add_in_place, add_and_return, normal, normal, options={"writes": ("x",)})
simple(
    "writes",
    "cache and a result beside it",
    append,
    append_by_index,
    normal,
    lambda n, d: torch.randn(n // 2, d),
    places,
)


@form("writes", "out by keyword")
def out_by_keyword(n: int, d: int) -> Given:
    def rival(x: torch.Tensor, out: torch.Tensor) -> None:
        torch.softmax(x, -1, out=out)

    return Given(into, rival, (torch.randn(n, d),), {"out": torch.empty(n, d).normal_()})


@form("writes", "buffer kept between calls")
def kept_buffer(n: int, d: int) -> Given:
    buffer = torch.empty(n, d)

    def candidate(x: torch.Tensor) -> torch.Tensor:
        return torch.mul(x, 2, out=buffer).clone()

    return Given(candidate, lambda x: x + x, (torch.randn(n, d),))


class Cache:
    """Appends rows to a cache that lies in the object."""

    def __init__(self, n: int, d: int) -> None:
        self.rows, self.length = torch.zeros(8 * n, d), 0

    def reset(self, _: Any = None) -> None:
        self.rows.zero_()
        self.length = 0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.rows[self.length : self.length + len(x)] = x
        self.length += len(x)
        return self.rows[: self.length].sum(0)


@form("state", "cache with a reset")
def cache_with_reset(n: int, d: int) -> Given:
    mine, theirs = Cache(n, d), Cache(n, d)

    def reset(inputs: Any) -> None:
        mine.reset()
        theirs.reset()

    return Given(mine, theirs, (torch.randn(n, d),), options={"reset": reset, "calls_per_reset": 1})


@form("state", "accumulator that a reset clears")
def accumulator(n: int, d: int) -> Given:
    mine, theirs = torch.zeros(n, d), torch.zeros(n, d)

    def reset(inputs: Any) -> None:
        mine.zero_()
        theirs.zero_()

    def rival(x: torch.Tensor) -> torch.Tensor:
        return torch.add(theirs, x, out=theirs).clone()

    return Given(
        lambda x: mine.add_(x).clone(), rival, (torch.randn(n, d),), options={"reset": reset, "calls_per_reset": 1}
    )


@form("state", "workspace made at the first call")
def workspace(n: int, d: int) -> Given:
    kept: dict[str, torch.Tensor] = {}

    def candidate(x: torch.Tensor) -> torch.Tensor:
        space = kept.setdefault("space", torch.empty_like(x))
        return space.copy_(x).exp_().sum(-1)

    return Given(candidate, lambda x: x.exp().sum(-1), (torch.randn(n, d),))


# Gradients.


def leaves(n: int, d: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(n, d, requires_grad=True), torch.rand(d, requires_grad=True)


@form("gradients", "forward and backward")
def forward_and_backward(n: int, d: int) -> Given:
    return Given(Norms.apply, rms_norm, leaves(n, d), backward=True)


@form("gradients", "of one argument only")
def of_one(n: int, d: int) -> Given:
    x, weight = leaves(n, d)
    return Given(Norms.apply, rms_norm, (x, weight.detach()), backward=True)


@form("gradients", "of a module's parameters")
def of_parameters(n: int, d: int) -> Given:
    return Given(*modules(d), (torch.randn(n, d),), backward=True)


@form("gradients", "of a loss in half precision")
def of_a_loss(n: int, d: int) -> Given:
    target = torch.randint(d, (n,))

    def candidate(x: torch.Tensor) -> torch.Tensor:
        return -x.float().log_softmax(-1).gather(-1, target[:, None]).mean()

    return Given(
        candidate,
        lambda x: F.cross_entropy(x.float(), target),
        (torch.randn(n, d).bfloat16().requires_grad_(),),
        backward=True,
    )


@form("gradients", "written inside the call")
def inside(n: int, d: int) -> Given:
    def candidate(x: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
        y = x.softmax(-1)
        return y * (given - (given * y).sum(-1, keepdim=True))

    def rival(x: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad(x.softmax(-1), x, given)[0]

    return Given(candidate, rival, (torch.randn(n, d), torch.randn(n, d)))


# Chance and order.


def other_dropout(x: torch.Tensor) -> torch.Tensor:
    return x * (torch.rand_like(x) > 0.25) / 0.75


simple(
    "chance", "dropout from the same generator", lambda x: F.dropout(x, 0.25), lambda x: torch.dropout(x, 0.25, True)
)
simple("chance", "dropout from numbers of its own", other_dropout, lambda x: F.dropout(x, 0.25))
simple("chance", "noise", lambda x: torch.randn_like(x) * 0.1 + x, lambda x: x + 0.1 * torch.randn_like(x))


def any_order(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    """Adds rows in an order that nobody knows, as atomic additions do."""
    order = torch.randperm(len(i), device=x.device)
    return torch.zeros(8, x.shape[1], device=x.device, dtype=x.dtype).index_add_(0, i[order], x[order])


def in_order(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return torch.zeros(8, x.shape[1], device=x.device, dtype=x.dtype).index_add_(0, i, x)


simple(
    "chance", "atomic additions", any_order, in_order, normal, lambda n, d: torch.randint(8, (n,)), deterministic=False
)
simple(
    "chance",
    "order of equal values",
    lambda x: torch.topk(x, 4),
    lambda x: (x.sort(-1, descending=True).values[:, :4], x.argsort(-1, descending=True)[:, :4]),
    lambda n, d: torch.randn(n, d).round(),
)
simple(
    "chance",
    "histogram",
    lambda i: (i[:, None] == torch.arange(16, device=i.device)).sum(0),
    lambda i: torch.bincount(i, minlength=16),
    lambda n, d: torch.randint(16, (n * 8,)),
)


class Averaged(nn.Module):
    """Takes a running mean off its input; each call moves the mean."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.mean: torch.Tensor
        self.register_buffer("mean", torch.zeros(d))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean.mul_(0.9).add_(x.mean(0) * 0.1)
        return x - self.mean


class AveragedAtOnce(Averaged):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean.lerp_(x.sum(0) / len(x), 0.1)
        return x - self.mean


@form("state", "buffers that each call moves")
def moved_buffers(n: int, d: int) -> Given:
    return Given(AveragedAtOnce(d), Averaged(d), (torch.randn(n, d),))


@dataclass
class Part:
    values: torch.Tensor
    signs: list[torch.Tensor]


@dataclass
class Whole:
    part: Part
    factor: float


simple(
    "results",
    "dataclass in a dataclass",
    lambda x: Whole(Part(x * 2, [x > 0]), 2.0),
    lambda x: Whole(Part(x + x, [x.gt(0)]), 2.0),
)
simple("results", "size beside a tensor", lambda x: (x * 2, x.shape), lambda x: (x + x, x.size()))


def nested_strided(n: int, d: int) -> torch.Tensor:
    return torch.nested.nested_tensor([torch.randn(n, d), torch.randn(n // 2, d)])


simple(
    "layouts",
    "nested of torch.strided",
    lambda x: torch.nested.nested_tensor([part * 2 for part in x.unbind()]),
    lambda x: x * 2,
    nested_strided,
)
