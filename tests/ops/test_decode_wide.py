"""Kernels that decode many rows at once, or 8-bit caches, run on the host by an emulator of thread blocks."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from emulated_sources import copy_for_emulator, emulator_flags

torch = pytest.importorskip("torch", reason="the reference is torch's")

import decode_cases as plain  # noqa: E402
import decode_quantised_cases as quantised  # noqa: E402
from torch import Tensor  # noqa: E402

HOST = Path(__file__).with_name("decode_wide_host.cpp")
KINDS = {"float16": 0, "e4m3": 1, "int8": 2}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, compile_for_host: Callable[..., ctypes.CDLL]) -> ctypes.CDLL:
    build = copy_for_emulator(tmp_path_factory.mktemp("decode_wide") / "csrc")
    hosts = [str(build / f"cuda/decode/{folder}/mma.cu") for folder in ("mma", "quantised")]
    library = compile_for_host(HOST, build, *emulator_flags(build), *hosts)
    library.decode.restype = ctypes.c_char_p
    return library


def strides_of(cache: Tensor, paged: bool) -> list[int]:
    """Of a page (or sequence), a slot and a head: (pages, slots, heads, ...) or (batch, heads, slots, ...)."""
    page, first, second = cache.stride()[:3]
    return [page, first, second] if paged else [page, second, first]


def decode(
    host: ctypes.CDLL, kind: str, given: dict[str, Tensor], devices: int, seed: int, cluster: int = 0
) -> tuple[str, Tensor]:
    """The name of what ran, and its output."""
    q, k, v, table = given["q"].contiguous(), given["k_cache"], given["v_cache"], given.get("block_table")
    out = torch.full_like(q, float("nan"))
    paged = table is not None
    slots = k.shape[1] if paged else k.shape[2]
    capacity = slots * table.shape[1] if table is not None else slots
    kv_heads = k.shape[2] if paged else k.shape[1]
    sizes = [*q.shape[:2], kv_heads, q.shape[2], q.shape[3], capacity, slots, k.shape[0]]
    scales = [given.get("k_scale"), given.get("v_scale")]
    strides = [*q.stride()[:3], *strides_of(k, paged), *strides_of(v, paged)]
    for scale in scales:
        if scale is None or scale.ndim == 0:
            strides += [0, 0, 0]
        else:
            strides += [0, 0, scale.stride(0)] if scale.ndim == 1 else strides_of(scale, paged)
    strides.append(0 if table is None else table.stride(0))
    tensors = [q, k, v, out, given["cache_lens"], table, *scales]
    pointers = (ctypes.c_void_p * 8)(*(None if one is None else one.data_ptr() for one in tensors))
    name = host.decode(
        pointers,
        (ctypes.c_int64 * 8)(*sizes),
        (ctypes.c_int64 * 16)(*strides),
        ctypes.c_float(float(given.get("scale") or q.shape[3] ** -0.5)),
        KINDS[kind],
        devices,
        cluster,
        seed,
    )
    assert name is not None, "nothing was launched, or counters are left"
    return name.decode(), out


@pytest.mark.parametrize("number", range(2))
@pytest.mark.parametrize("kind", KINDS)
def test_random_calls(host: ctypes.CDLL, kind: str, number: int) -> None:
    """Queries of causal order, pages, ragged lengths, scales of every kind, any number of thread blocks."""
    random = Random(f"{kind} {number}")
    group = random.choice((1, 2, 3, 5, 8))
    rows = random.randint(17 if kind == "float16" else 9, 70)
    words = {"group": group, "seq_q": -(-rows // group), "kv_heads": random.choice((1, 1, 2))}
    words |= {"head_dim": random.choice((64, 96, 128, 128)), "page_size": random.choice((None, 16, 48, 64, 256))}
    words |= {
        "lengths": [random.choice((0, 5, 64, random.randint(1, 300))) for _ in range(2)] + [random.randint(65, 200)]
    }
    if kind == "float16":
        case = plain.small(torch.float16, **words)
    else:
        cache, dtype = (torch.float8_e4m3fn, torch.float16) if kind == "e4m3" else (torch.int8, torch.bfloat16)
        case = quantised.small(dtype, cache, kind=random.choice(quantised.SCALES), **words)
    name, out = decode(host, kind, case.arguments, random.randint(1, 5), number)
    assert name.removesuffix(f" {kind}").endswith("rows")
    (plain if kind == "float16" else quantised).assert_right(out, case)


@pytest.mark.parametrize("kind", KINDS)
def test_two_thread_blocks_share_a_unit(host: ctypes.CDLL, kind: str) -> None:
    words = {"lengths": [256, 256], "group": 3, "seq_q": 8, "kv_heads": 1, "head_dim": 128}
    if kind == "float16":
        case = plain.small(torch.float16, **words)
        case.arguments |= {side: case.arguments[side][:, :, :256] for side in ("k_cache", "v_cache")}
    else:
        cache, dtype = (torch.float8_e4m3fn, torch.float16) if kind == "e4m3" else (torch.int8, torch.bfloat16)
        case = quantised.small(dtype, cache, kind="head", **words)
    name, out = decode(host, kind, case.arguments, 4, 0)
    assert name.endswith("in pairs")
    (plain if kind == "float16" else quantised).assert_right(out, case)


@pytest.mark.parametrize("seq_q", [1, 2, 4, 6])  # 4 rows; 8; 16; 24
@pytest.mark.parametrize("cluster", [0, 3])
@pytest.mark.parametrize("scales", ["head", "token"])
def test_float16_results_err_as_float32_does(host: ctypes.CDLL, seq_q: int, cluster: int, scales: str) -> None:
    """The rounding of weights would add 20 to 41 % here, where many keys share the weight."""
    words = {"lengths": [219], "group": 4, "seq_q": seq_q, "kv_heads": 1, "kind": scales}
    case = quantised.small(torch.float16, torch.float8_e4m3fn, **words)
    case.arguments["q"] *= 0.25
    name, out = decode(host, "e4m3", case.arguments, 4, seq_q, cluster)
    rows = {1: 4, 2: 8, 4: 16, 6: 16 if cluster else 32}[seq_q]
    assert name.removesuffix(" in pairs") == f"{'cluster' if cluster else 'tma'} d128 {rows} rows e4m3"
    q = case.arguments["q"].double()[0]
    scores = q @ case.keys[0].mT * (case.arguments["scale"] or 128**-0.5)
    hidden = torch.arange(219) > 218 - seq_q + 1 + torch.arange(seq_q)[:, None]
    right = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ case.values[0]
    rounding = (right.half().double() - right).norm()
    assert (out[0].double() - right).norm() < 1.05 * rounding
