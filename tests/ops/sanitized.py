"""Small calls of every kernel for 4- and 8-bit operands and of attention's backward, each judged.

They are what a sanitizer watches in a minute.

    compute-sanitizer --tool racecheck --error-exitcode 9 python -m tests.ops.sanitized
    python -m tests.ops.sanitized --coverage    # which instances these calls launched, without a sanitizer

What a call is compared with is computed on the CPU, so that no other kernel is watched. `test_sanitize.py` has the same
calls as tests.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))  # the cases are imported by their own names, as under pytest

import backward_cases
import cuda_llm_ops
import decode_cases
import decode_quantised_cases as decodes
import fp8_cases
import weight_only_cases

Call = Callable[[], None]
DEVICE = "cuda"
HALVES = (torch.float16, torch.bfloat16)
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
CALL = "call: "
"""How --named begins the line of a call."""
SETTLES = 0.02
"""Seconds for what a tool prints of a call to come before the next call's line."""
ON_A_GPU = {"cuda": fp8_cases.PROMISED_BITS, "cpu": None}
KERNELS = (
    "weight_only_",
    *("cluster_decode", "tma_decode", "cp_async_decode", "simt_decode"),
    "quantised_",
    "fp8_",
    "simt_fp8",
    "sums_kernel",
    "keys_kernel",
    "queries_kernel",
    "backward::kernel<",
)
"""How the names of these kernels begin."""


TILES = re.compile(r"mma_backward_(?:keys|queries)_([a-z0-9]+)_(\d+(?:_\d+)?)(?:_(large|small))?")
"""Names of the backward's tiles: dtype, head_dims, and which devices they are for."""
SHOWN = ("weight_only", "flash_decode", "fp8", "quantize", "rms_norm", "swiglu", "flash_attention_backward")
"""How their families begin in kernel_attributes()."""


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def weight_only() -> Iterator[tuple[str, Call]]:
    """Every number of rows that has an instance; n of 272 for the Hopper kernels, 40 for those of every card.

    k decides whether blocks share a tile, and of few rows whether a cluster does.
    """
    for m in (5, 12, 30, 60, 100):
        for n, k in ((272, 256), (144, 1536), (40, 256)) if m <= 60 else ((272, 256), (144, 1536)):
            for group, zeros in ((64, True), (128, False), (0, False)):
                for dtype in HALVES:
                    yield (
                        f"weight-only {m}x{n}x{k} group {group} {short(dtype)}",
                        _weight_only(m, n, k, group, zeros, dtype),
                    )
    # Whole tiles and even runs, of more blocks than a card holds; rows of x that begin anywhere.
    for m, n, k in ((12, 8448, 128), (60, 17408, 128), (30, 10240, 384)):
        yield f"weight-only {m}x{n}x{k}", _weight_only(m, n, k, 128, False, torch.bfloat16)
    # Seven packed tiles a block: warps take twice the k of a stage.
    for group, zeros in ((64, True), (128, False), (0, False)):
        for dtype in HALVES:
            yield (
                f"weight-only 5x28672x384 group {group} {short(dtype)}",
                _weight_only(5, 28672, 384, group, zeros, dtype),
            )
    yield "weight-only unaligned", _weight_only(7, 272, 256, 64, True, torch.float16, padding=1)


def _weight_only(m: int, n: int, k: int, group: int, zeros: bool, dtype: torch.dtype, *, padding: int = 0) -> Call:
    def call() -> None:
        case = weight_only_cases.case(m, n, k, group, zeros=zeros, dtype=dtype)
        given = weight_only_cases.on(DEVICE, case)
        if padding:
            given["x"] = torch.nn.functional.pad(case.arguments["x"], (padding, 0)).to(DEVICE)[:, padding:]
        weight_only_cases.assert_right(cuda_llm_ops.weight_only_gemm(**given).cpu(), case)

    return call


def decode() -> Iterator[tuple[str, Call]]:
    for name, words in decodes.kernels().items():
        for cache in decodes.CACHES:
            for dtype in HALVES:
                yield f"decode {name} {short(cache)} {short(dtype)}", _decode(cache, dtype, words)
        if name == "d33":
            yield "decode d33 float32", _decode(E4M3, torch.float32, words)


def _decode(cache: torch.dtype, dtype: torch.dtype, words: dict[str, object]) -> Call:
    def call() -> None:
        case = decodes.small(dtype, cache, **words)  # type: ignore[arg-type]
        given = {key: one.to(DEVICE) if isinstance(one, Tensor) else one for key, one in case.arguments.items()}
        decodes.assert_right(cuda_llm_ops.flash_decode(**given).cpu(), case)

    return call


def decode_16() -> Iterator[tuple[str, Call]]:
    """Of 16-bit caches, for one query token and for several."""
    for name, words in decode_cases.kernels().items():
        for dtype in HALVES:
            yield f"decode-16 {name} {short(dtype)}", _decode_16(dtype, words)
    yield "decode-16 d33 float32", _decode_16(torch.float32, decode_cases.kernels()["d33"])


def _decode_16(dtype: torch.dtype, words: dict[str, Any]) -> Call:
    def call() -> None:
        case = decode_cases.small(dtype, **words)
        given = {name: tensor.to(DEVICE) for name, tensor in case.arguments.items()}
        decode_cases.assert_right(cuda_llm_ops.flash_decode(**given).cpu(), case)

    return call


def fp8() -> Iterator[tuple[str, Call]]:
    """Every plan of a product with few rows, and of one with many; odd sizes are realigned."""
    sizes = (7, 130, 2064), (70, 200, 400), (300, 392, 272)
    for m, n, k in sizes:
        for kind in ("row", "block"):
            for dtype in (E4M3, E5M2):
                plans = cuda_llm_ops._C.fp8_gemm_plans(m, n, k, kind == "block") or [""]
                for place, plan in enumerate(plans):
                    out = fp8_cases.OUT[place % len(fp8_cases.OUT)]
                    name = f"fp8 {m}x{n}x{k} {kind} {short(dtype)} {short(out)} {plan}"
                    yield name, _fp8(m, n, k, kind, dtype, out, plan)
    for out in fp8_cases.OUT:
        yield f"fp8 portable {short(out)}", _fp8(33, 72, 272, "block", E4M3, out, "portable")
    yield "fp8 unaligned", _fp8(33, 40, 1030, "tensor", E4M3, torch.bfloat16, "")
    yield "fp8 no k to speak of", _fp8(3, 5, 1, "row", E4M3, torch.float32, "")
    for kind in ("row", "block"):
        for capacity in (None, 150):
            yield f"fp8 groups {kind} capacity {capacity}", _groups(kind, capacity)


def _fp8(m: int, n: int, k: int, kind: str, dtype: torch.dtype, out: torch.dtype, plan: str) -> Call:
    def call() -> None:
        case = fp8_cases.gemm(m, n, k, kind, dtype=dtype, bias=True, out_dtype=out)
        given = fp8_cases.on(DEVICE, case)
        cuda_llm_ops._C.force_fp8_gemm_plan(plan)
        try:
            found = cuda_llm_ops.fp8_gemm(**given)
        finally:
            cuda_llm_ops._C.force_fp8_gemm_plan("")
        fp8_cases.assert_right(found.cpu(), case, bits=ON_A_GPU[DEVICE])

    return call


def _groups(kind: str, capacity: int | None) -> Call:
    def call() -> None:
        case = fp8_cases.grouped([3, 0, 130, 70], 200, 400, kind, capacity=capacity, spare=5)
        found = cuda_llm_ops.fp8_grouped_gemm(**fp8_cases.on(DEVICE, case))
        fp8_cases.assert_right(found.cpu(), case, bits=ON_A_GPU[DEVICE])

    return call


def quantisers() -> Iterator[tuple[str, Call]]:
    for dtype in (*HALVES, torch.float32):
        # The last two give each thread as many vectors as it can keep, and half as many.
        for columns in (100, 515, 4096, 16384, *((32768,) if dtype in HALVES else ())):
            for kind in ("tensor", "row", "1x128", "128x128"):
                yield f"quantiser {kind} {columns} {short(dtype)}", _quantiser(kind, columns, dtype)


def _quantiser(kind: str, columns: int, dtype: torch.dtype) -> Call:
    def call() -> None:
        rows = 130 if columns <= 4096 else 9
        x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(columns)).to(dtype)
        sides = (cuda_llm_ops.quantize_fp8(one, kind) for one in (x.to(DEVICE), x))
        for mine, right in zip(*sides, strict=True):
            assert torch.equal(mine.cpu().float(), right.float())
        if kind in ("row", "1x128"):
            pairs = (
                (cuda_llm_ops.rms_norm_fp8(one, one[0], scales=kind), cuda_llm_ops.swiglu_fp8(one, one, kind))
                for one in (x.to(DEVICE), x)
            )
            for (mine, of_mine), (right, of_right) in zip(*pairs, strict=True):
                # A number may be rounded to its neighbour, as the sum of squares is in another order.
                far = (mine.cpu().float() - right.float()).abs() > 2.0**-3 * right.float().abs() + 2.0**-8
                assert not far.any()
                torch.testing.assert_close(of_mine.cpu(), of_right, rtol=1e-4, atol=0)

    return call


def backward() -> Iterator[tuple[str, Call]]:
    """Every head_dim that has an instance, with partial tiles; what Hopper's kernels take; an odd head_dim."""
    sizes = [(64, 64), (96, 96), (128, 128), (192, 128), (192, 192), (256, 256), (33, 33)]
    packed = [3, 70, 0, 130], [140, 40, 9, 131]
    for dtype in backward_cases.DTYPES:
        for size in sizes:
            cases = {
                "window": backward_cases.Case(dtype, 1, 2, 1, [70], [133], *size, left=90, right=3),
                "causal": backward_cases.Case(dtype, 1, 2, 1, [150], [150], *size, right=0, with_lse=True),
                "packed": backward_cases.Case(dtype, 1, 2, 1, *packed, *size, right=0, packed=True),
            }
            if dtype != torch.float32:
                cases["in turn"] = replace(cases["causal"], deterministic=True)
                if size[0] <= 128:  # kernels of their own
                    cases["packed in turn"] = replace(cases["packed"], deterministic=True)
                    cases["window in turn"] = replace(cases["window"], deterministic=True)
            for kind, case in cases.items():
                yield f"backward {size[0]}/{size[1]} {kind} {short(dtype)}", _backward(case)


def _backward(case: backward_cases.Case) -> Call:
    def call() -> None:
        made = backward_cases.make(case)
        made.check(case, backward_cases.gradients(case, made, DEVICE))

    return call


FAMILIES = {
    "weight-only": weight_only,
    "decode": decode,
    "decode-16": decode_16,
    "fp8": fp8,
    "quantisers": quantisers,
    "backward": backward,
}


def calls(families: Sequence[str] = tuple(FAMILIES)) -> list[tuple[str, Call]]:
    return [one for family in families for one in FAMILIES[family]()]


def launched(chosen: Sequence[tuple[str, Call]]) -> Counter[str]:
    """How often each of these kernels ran, by its full name, template arguments and all."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _, call in chosen:
            with suppress(AssertionError):  # which the run itself tells
                call()
        torch.cuda.synchronize()
    names = [event.name for event in found.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    return Counter(filter(is_counted, names))


def is_counted(name: str) -> bool:
    """Whether a kernel is one of those that the calls are for, by its full name."""
    return any(f"::{begin}" in name or name.startswith(begin) for begin in KERNELS)


def choosable(kernels: Sequence[dict[str, Any]], shared_bytes: int) -> list[dict[str, Any]]:
    """Those that a device which gives a thread block this much shared memory may launch.

    Of attention's backward the first tiles that fit, of keys and of queries, serve a head_dim; the lists also have some
    for devices with less or more. Every other kernel is chosen by its arguments alone.
    """
    tiles: dict[tuple[str, str], dict[str, list[dict[str, Any]]]] = {}
    others = []
    for one in kernels:
        found = TILES.fullmatch(one["name"])
        if found is None:
            others.append(one)
        else:
            dtype, size, kind = found.groups()
            tiles.setdefault((dtype, size), {}).setdefault(kind or "", []).append(one)
    for kinds in tiles.values():
        fit = (pair for pair in kinds.values() if all(one["dynamic_shared"] <= shared_bytes for one in pair))
        others += next(fit, [])
    return others


def told(counts: Counter[str], shared_bytes: int) -> Iterator[str]:
    """The instances launched of each kernel, beside those of the build that the device can choose."""
    function = re.compile(r"(backward::kernel|\w+)<")
    found: dict[str, set[str]] = {}
    for name in counts:
        stem = next((one for one in function.findall(name) if f"{one}<".startswith(KERNELS)), name)
        found.setdefault(stem, set()).add(name)
    for stem, names in sorted(found.items()):
        yield f"{stem}: {len(names)} instances, {sum(counts[name] for name in names)} launches"
    kernels = choosable(list(map(dict, cuda_llm_ops.kernel_attributes())), shared_bytes)
    built = Counter(one["family"] for one in kernels)
    for family, number in sorted(built.items()):
        if family.startswith(SHOWN):
            yield f"built: {family}: {number}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", nargs="+", choices=tuple(FAMILIES), default=tuple(FAMILIES))
    parser.add_argument("--part", type=int, nargs=2, metavar=("I", "N"), default=(0, 1), help="every Nth, from I on")
    parser.add_argument("--seconds", type=float, default=600.0, help="begin no further call after these")
    parser.add_argument("--named", action="store_true", help="print the name of each call before it")
    parser.add_argument("--coverage", action="store_true", help="print the instances that were launched, and no more")
    given = parser.parse_args(arguments)
    if DEVICE == "cuda" and not torch.cuda.is_available():
        parser.error("there is no GPU whose kernels could be watched")
    torch.set_num_threads(1)
    chosen = calls(given.family)[given.part[0] :: given.part[1]]
    if given.coverage:
        shared_bytes = torch.cuda.get_device_properties(DEVICE).shared_memory_per_block_optin
        print("\n".join(told(launched(chosen), shared_bytes)), flush=True)
        return 0
    start, failed = time.monotonic(), 0
    for done, (name, call) in enumerate(chosen):
        if time.monotonic() - start > given.seconds:
            print(f"{done} of {len(chosen)} calls in {time.monotonic() - start:.0f} s, {failed} failed: out of time")
            return 3
        if given.named:
            time.sleep(SETTLES)
            print(f"{CALL}{name}", flush=True)
        try:
            call()
        except (AssertionError, RuntimeError) as error:
            failed += 1
            print(f"{name}: {error}"[:300], flush=True)
    print(f"{len(chosen)} calls in {time.monotonic() - start:.0f} s, {failed} failed", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
