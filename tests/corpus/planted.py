"""Faults for kernels whose operands have few bits: each is a right answer with one mistake planted in it.

A family's faults are functions of (problem, positional arguments, keywords) of a call. None says nothing at that
problem where `fits` is False.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from perfsuite.problems import Decode, Fp8Gemm, GroupedGemm, WeightOnlyGemm
from perfsuite.problems.fp8 import BLOCK, spread
from perfsuite.problems.weights import packed_tiles, unpacked_tiles

Args = tuple[Any, ...]
Options = dict[str, Any]


@dataclass(frozen=True)
class Fault:
    """One mistake, and the problems and inputs on which it shows."""

    answer: Callable[[Any, Args, Options], Any]
    fits: Callable[[Any], bool] = lambda problem: True
    distribution: str = "normal"


def weight_only(problem: WeightOnlyGemm, args: Args, options: Options) -> Any:
    return problem.library()(*args)


def with_weights(change: Callable[[torch.Tensor], torch.Tensor]) -> Fault:
    """The product with other numbers."""

    def answer(problem: WeightOnlyGemm, args: Args, options: Options) -> Any:
        numbers = change(unpacked_tiles(args[1], problem.n).clone())
        return weight_only(problem, (args[0], packed_tiles(numbers), *args[2:]), options)

    return Fault(answer)


def with_argument(right: Callable[[Any, Args, Options], Any], place: int, change: Callable[[Any], Any]) -> Fault:
    return Fault(
        lambda problem, args, options: right(problem, (*args[:place], change(args[place]), *args[place + 1 :]), options)
    )


def swapped(numbers: torch.Tensor) -> torch.Tensor:
    """Neighbours along k take each other's places, as nibbles of a byte."""
    return numbers.unflatten(0, (-1, 2)).flip(1).flatten(0, 1).contiguous()


def zero_off_by_one(problem: WeightOnlyGemm, args: Args, options: Options) -> Any:
    if problem.bits == 8:
        numbers = unpacked_tiles(args[1], problem.n)
        return problem.library()(args[0], packed_tiles(numbers.clamp(max=126) + 1), args[2])
    groups = (problem.k // problem.group, problem.n)
    zeros = args[3] if problem.zeros else torch.full(groups, 8, dtype=torch.uint8, device=args[1].device)
    with_them = WeightOnlyGemm(**problem.params | {"zeros": True})  # type: ignore[arg-type]
    return with_them.library()(*args[:3], zeros + 1)


def dropped_group(problem: WeightOnlyGemm, args: Args, options: Options) -> Any:
    x = args[0].clone()
    x[:, -problem.depth :] = 0
    return problem.library()(x, *args[1:])


def of_any_result(right: Callable[[Any, Args, Options], Any]) -> dict[str, Fault]:
    return {
        "zeros": Fault(lambda problem, args, options: torch.zeros_like(right(problem, args, options))),
        "inverted sign": Fault(lambda problem, args, options: -right(problem, args, options)),
    }


WEIGHT_ONLY: dict[str, Fault] = {
    **of_any_result(weight_only),
    "scale left out": with_argument(weight_only, 2, torch.ones_like),
    "scale twice": with_argument(weight_only, 2, torch.square),
    "scale of the next column": with_argument(weight_only, 2, lambda scales: scales.roll(1, -1)),
    "swapped nibble": with_weights(swapped),
    "zero point off by one": Fault(zero_off_by_one),
    "dropped group": Fault(dropped_group),
}


def decode(problem: Decode, args: Args, options: Options) -> Any:
    """Through the table, so that a fault in it shows."""
    q, k, v, lens, *rest = args
    if rest:
        pages = rest[0].long().flatten()
        options = {
            name: value[pages] if name.endswith("_scale") and value.dim() == 3 else value
            for name, value in options.items()
        }
        k, v = (
            cache.view(torch.uint8)[pages].view(cache.dtype).view(-1, problem.page_size, *cache.shape[2:])
            for cache in (k, v)
        )
    return problem.rival("dequantised")(q, k, v, lens, **options)


def with_option(name: str, change: Callable[[Any], Any]) -> Fault:
    return Fault(lambda problem, args, options: decode(problem, args, options | {name: change(options[name])}))


def without_the_newest(problem: Decode, args: Args, options: Options) -> Any:
    """As if every sequence had one token less: the newest one's weight is zero."""
    q, k, v, lens, *rest = args
    shorter = problem.length - 1
    if rest:
        pages = rest[0].long()
        options = dict(options)
        sides = []
        for cache, name in ((k, "k_scale"), (v, "v_scale")):
            whole = cache.view(torch.uint8)[pages].flatten(1, 2).transpose(1, 2).view(cache.dtype)
            sides.append(whole[:, :, :shorter])
            if options[name].dim() == 3:
                options[name] = options[name][pages].flatten(1, 2).transpose(1, 2)[:, :, :shorter]
        k, v = sides
    else:
        k, v = k[:, :, :shorter], v[:, :, :shorter]
        options = {
            name: value[:, :, :shorter] if name.endswith("_scale") and value.dim() == 3 else value
            for name, value in options.items()
        }
    fewer = Decode(**problem.params | {"length": shorter, "page_size": None, "seq_q": min(problem.seq_q, shorter)})  # type: ignore[arg-type]
    return fewer.rival("dequantised")(q, k, v, lens, **options)


def a_page_twice(problem: Decode, args: Args, options: Options) -> Any:
    *most, table = args
    table = table.clone()
    table[:, 0] = table[:, 1]
    return decode(problem, (*most, table), options)


DECODE: dict[str, Fault] = {
    **of_any_result(decode),
    "scale of keys left out": with_option("k_scale", torch.ones_like),
    "scale of values left out": with_option("v_scale", torch.ones_like),
    "scale of keys twice": with_option("k_scale", torch.square),
    "scale of values twice": with_option("v_scale", torch.square),
    "scale of another": with_option("v_scale", lambda scale: scale.roll(1, -1) if scale.dim() else scale * 1.05),
    "newest token left out": Fault(without_the_newest),
    "page read twice": Fault(a_page_twice, fits=lambda problem: problem.pages > 1),
}


def fp8(problem: Any, args: Args, options: Options) -> Any:
    return problem.library()(*args, **options)


def without_a_block(problem: Any, args: Args, options: Options) -> Any:
    """The last 128 of k, as a loop leaves out that ends too early."""
    a = args[0].view(torch.uint8).clone()
    a[..., (problem.k - 1) // BLOCK * BLOCK :] = 0
    return fp8(problem, (a.view(args[0].dtype), *args[1:]), options)


def exchanged(problem: Any, args: Args, options: Options) -> Any:
    """Each scale of a row where that of a column belongs."""
    scale_a, scale_b = args[2], args[3]
    mine, theirs = (
        other.flatten().repeat(-(-own.numel() // other.numel()))[: own.numel()].view(own.shape)
        for own, other in ((scale_a, scale_b), (scale_b, scale_a))
    )
    return fp8(problem, (*args[:2], mine, theirs, *args[4:]), options)


def of_another_group(problem: Any, args: Args, options: Options) -> Any:
    return fp8(problem, (args[0], args[1].view(torch.uint8).roll(1, 0).view(args[1].dtype), *args[2:]), options)


def in_few_bits(problem: Fp8Gemm, args: Args, options: Options) -> Any:
    """The sum over all of k in a tensor core, as torch's fast product forms it. On a GPU alone."""
    a, b, scale_a, scale_b = args
    one = torch.ones((), device=a.device)
    sums = torch._scaled_mm(a, b.T, one, one, out_dtype=torch.float32, use_fast_accum=True)
    return (sums * spread(scale_a, sums, 1) * scale_b).to(options["out_dtype"])


def _promotion_promised(problem: Any) -> bool:
    """And on a GPU, and of sizes that torch's product takes, with scales that do not promote it in any case."""
    plain = isinstance(problem, Fp8Gemm) and problem.scales != "block" and not problem.fast_sums
    aligned = problem.n % 16 == 0 and problem.k % 16 == 0
    return plain and aligned and problem.k >= 1024 and torch.cuda.is_available()


FP8: dict[str, Fault] = {
    **of_any_result(fp8),
    "scale of a left out": with_argument(fp8, 2, torch.ones_like),
    "scale of b left out": with_argument(fp8, 3, torch.ones_like),
    "scale of a twice": with_argument(fp8, 2, torch.square),
    "scale of b twice": with_argument(fp8, 3, torch.square),
    # A product of two single scales is the same when they are exchanged.
    "scales exchanged": Fault(exchanged, fits=lambda problem: bool(problem.scales != "tensor")),
    "block of 128 dropped": Fault(without_a_block),
    "weight of another group": Fault(of_another_group, fits=lambda problem: isinstance(problem, GroupedGemm)),
    "sums in few bits, cancelling": Fault(in_few_bits, _promotion_promised, "cancellation"),
    # An ordinary sum shows few bits only where it is long and its result has many.
    "sums in few bits, long": Fault(
        in_few_bits,
        lambda problem: _promotion_promised(problem) and problem.out_dtype == "float32" and problem.k >= 16384,
    ),
}

RIGHT: Mapping[str, Callable[[Any, Args, Options], Any]] = {
    "weight-only-gemm": weight_only,
    "decode": decode,
    "fp8-gemm": fp8,
    "grouped-gemm": fp8,
}
"""Family -> what its faults are planted in."""
FAULTS: Mapping[str, Mapping[str, Fault]] = {
    "weight-only-gemm": WEIGHT_ONLY,
    "decode": DECODE,
    "fp8-gemm": FP8,
    "grouped-gemm": FP8,
}


def planted(problem: Any, name: str) -> Callable[..., Any]:
    """A candidate with the fault."""
    fault = FAULTS[problem.family][name]
    return lambda *args, **options: fault.answer(problem, args, options)
