"""The Hopper kernels of attention's forward for head_dim 192, run on the host by an emulator of thread blocks."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from emulated_sources import copy_for_emulator, emulator_flags

torch = pytest.importorskip("torch", reason="the reference is torch's")

import ops_reference as reference  # noqa: E402
from test_backward_device import EVERY_KEY, Options, Strides  # noqa: E402
from torch import Tensor  # noqa: E402

HOST = Path(__file__).with_name("attention_wgmma_host.cpp")
TYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}  # ScalarType
dtypes = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])


class Arguments(ctypes.Structure):
    """AttentionArguments of kernels.h."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("q", "k", "v", "out")),
        *((name, ctypes.c_int32) for name in ("batch", "heads", "kv_heads", "seq_q", "seq_kv")),
        *((name, ctypes.c_int32) for name in ("head_dim", "value_dim")),
        *((f"{name}_stride", Strides) for name in ("q", "k", "v", "out")),
        ("scale", ctypes.c_float),
        ("causal", ctypes.c_bool),
        ("type", ctypes.c_int32),
        ("workspace", ctypes.c_void_p),
    ]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, compile_for_host: Callable[..., ctypes.CDLL]) -> ctypes.CDLL:
    build = copy_for_emulator(tmp_path_factory.mktemp("attention_wgmma") / "csrc")
    library = compile_for_host(HOST, build, *emulator_flags(build))
    library.run.restype = library.name_of_launched.restype = ctypes.c_char_p
    library.takes.restype = ctypes.c_bool
    assert library.bytes_of_arguments() == ctypes.sizeof(Arguments)
    return library


def made(
    dtype: torch.dtype, heads: tuple[int, int], seq_q: int, seq_kv: int, *dims: int, batch: int = 1
) -> list[Tensor]:
    """q, k and v of so many heads of queries and of keys; between the rows of v lie NaN."""
    generator = torch.Generator().manual_seed(seq_q)
    shapes = (heads[0], seq_q, dims[0]), (heads[1], seq_kv, dims[0]), (heads[1], seq_kv, dims[1])
    q, k, v = (torch.randn(batch, *shape, generator=generator).to(dtype) for shape in shapes)
    return [q, k, torch.cat([v, torch.full_like(v, torch.nan)], -1)[..., : dims[1]]]


def arguments_of(q: Tensor, k: Tensor, v: Tensor, out: Tensor, causal: bool = False) -> Arguments:
    sizes = {
        "batch": q.shape[0],
        "heads": q.shape[1],
        "kv_heads": k.shape[1],
        "seq_q": q.shape[2],
        "seq_kv": k.shape[2],
    }
    dims = {"head_dim": q.shape[3], "value_dim": v.shape[3]}
    arguments = Arguments(**sizes, **dims, scale=q.shape[3] ** -0.5, causal=causal, type=TYPES[q.dtype])
    for name, tensor in (("q", q), ("k", k), ("v", v), ("out", out)):
        setattr(arguments, name, tensor.data_ptr())
        setattr(arguments, f"{name}_stride", Strides(*tensor.stride()[:3]))
    return arguments


def attend(
    host: ctypes.CDLL, q: Tensor, k: Tensor, v: Tensor, causal: bool, options: Options | None = None, few: int = 132
) -> tuple[Tensor, str]:
    """The output, on so many multiprocessors, and the kernel's name. Behind each row of it nothing is written."""
    room = torch.full((*q.shape[:3], v.shape[3] + 8), torch.nan, dtype=q.dtype)
    arguments = arguments_of(q, k, v, room[..., : v.shape[3]], causal)
    fault = host.run(ctypes.byref(arguments), None if options is None else ctypes.byref(options), few, few)
    assert fault is None, fault
    assert room[..., v.shape[3] :].isnan().all()
    return room[..., : v.shape[3]], host.name_of_launched().decode()


@dtypes
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("dims", [(192, 128), (136, 128), (192, 72)], ids=lambda dims: "of".join(map(str, dims)))
def test_narrow_values(host: ctypes.CDLL, dtype: torch.dtype, causal: bool, dims: tuple[int, int]) -> None:
    """Two query heads on one key head, partial tiles of queries and keys, one tile a block and several."""
    q, k, v = made(dtype, (2, 1), 150, 200, *dims)
    out, name = attend(host, q, k, v, causal, few=3)
    assert name.endswith("wgmma 128x192, V of 128")
    reference.assert_right(out, reference.attention("flash_attention", q, k, v, causal, None))


@dtypes
def test_equal_values_take_the_kernel_of_before(host: ctypes.CDLL, dtype: torch.dtype) -> None:
    q, k, v = made(dtype, (2, 2), 70, 100, 192, 192)
    out, name = attend(host, q, k, v, True)
    assert name.endswith("wgmma 128x192")
    reference.assert_right(out, reference.attention("flash_attention", q, k, v, True, None))


MASKS = [{"is_causal": True, "bottom_right": True}, {"window": (40, 9)}, {"window": (5, -1), "bottom_right": True}, {}]


@dtypes
@pytest.mark.parametrize("mask", MASKS, ids=str)
@pytest.mark.parametrize("dims", [(192, 128), (152, 40)], ids=lambda dims: "of".join(map(str, dims)))
def test_options(host: ctypes.CDLL, dtype: torch.dtype, mask: dict[str, object], dims: tuple[int, int]) -> None:
    q, k, v = made(dtype, (2, 1), 150, 220, *dims)
    lse = torch.full(q.shape[:3], torch.nan)
    left, right = mask.get("window", (-1, 0 if mask.get("is_causal") else -1))  # type: ignore[misc]
    options = Options(*(EVERY_KEY if side < 0 else side for side in (left, right)), mask.get("bottom_right", False))
    options.lse, options.lse_stride_batch, options.lse_stride_head = lse.data_ptr(), *lse.stride()[:2]
    out, name = attend(host, q, k, v, False, options)
    assert name.endswith("general 128x192, V of 128")
    band = {"is_causal": False, **mask}
    reference.assert_right(out, reference.attention("flash_attention", q, k, v, scale=None, **band))
    reference.assert_right(lse, reference.log_sum_exp(q, k, scale=None, **band))


def test_packed_sequences(host: ctypes.CDLL) -> None:
    """Sequences of 1, 130 and 70 tokens, causal."""
    q, k, v = made(torch.bfloat16, (2, 2), 201, 201, 192, 128)
    ends = torch.tensor([0, 1, 131, 201], dtype=torch.int32)
    options = Options(EVERY_KEY, 0, False, cu_seqlens_q=ends.data_ptr(), cu_seqlens_kv=ends.data_ptr())
    options.total_q = options.total_kv = 201
    out = torch.full((1, 2, 201, 128), torch.nan, dtype=q.dtype)
    arguments = arguments_of(q, k, v, out)
    arguments.batch, arguments.seq_q, arguments.seq_kv = 3, 130, 130
    for name in ("q", "k", "v", "out"):
        getattr(arguments, f"{name}_stride").batch = 0
    assert host.run(ctypes.byref(arguments), ctypes.byref(options), 132, 0) is None
    for begin, end in ((0, 1), (1, 131), (131, 201)):
        one = (tensor[:, :, begin:end] for tensor in (q, k, v))
        reference.assert_right(out[:, :, begin:end], reference.attention("flash_attention", *one, True, None))


def test_rows_whose_weights_outgrow_those_before(host: ctypes.CDLL) -> None:
    """Keys get longer towards the first, which comes last: each block is computed again with its own maximum."""
    q, k, v = made(torch.float16, (1, 1), 64, 384, 192, 128)
    k *= torch.linspace(6.0, 0.1, 384, dtype=torch.float16)[:, None]
    out, _ = attend(host, q, k, v, False)
    reference.assert_right(out, reference.attention("flash_attention", q, k, v, False, None))


def takes(host: ctypes.CDLL, q: Tensor, k: Tensor, v: Tensor, options: Options | None = None) -> bool:
    arguments = arguments_of(q, k, v, v.new_empty(*q.shape[:3], v.shape[3]))
    answer: bool = host.takes(ctypes.byref(arguments), None if options is None else ctypes.byref(options))
    return answer


@pytest.mark.parametrize("with_options", [False, True], ids=["plain", "options"])
def test_narrow_values_that_are_taken(host: ctypes.CDLL, with_options: bool) -> None:
    """The others get a copy with zeros, so each refusal here is slow and right."""
    options = Options(EVERY_KEY, EVERY_KEY) if with_options else None
    fits = lambda *dims: takes(host, *made(torch.float16, (2, 1), 9, 9, *dims), options)  # noqa: E731
    assert all(fits(*dims) for dims in [(192, 128), (136, 128), (192, 8)])
    assert not any(fits(*dims) for dims in [(192, 136), (128, 64), (200, 128), (192, 100), (190, 128)])
    q, k, v = made(torch.float16, (2, 1), 9, 9, 192, 128)
    assert not takes(host, q.float(), k.float(), v.float(), options)
    assert not takes(host, q, k, v[:, :, :1].expand(v.shape), options)
    assert not takes(host, q, k, torch.cat([v.new_zeros(4), v.flatten()])[4:].view(v.shape), options)


@pytest.mark.parametrize("seed", range(8))
def test_random_shapes(host: ctypes.CDLL, seed: int) -> None:
    random = Random(seed)
    kv_heads, group = random.randint(1, 2), random.randint(1, 2)
    head_dim, value_dim = random.randrange(136, 193, 8), random.randrange(8, 129, 8)
    lengths = random.randint(1, 140), random.randint(1, 150)
    dtype = random.choice([torch.float16, torch.bfloat16])
    q, k, v = made(dtype, (kv_heads * group, kv_heads), *lengths, head_dim, value_dim, batch=1 + (seed == 3))
    causal = random.random() < 0.5
    out, _ = attend(host, q, k, v, causal, few=random.choice([1, 2, 5, 132]))
    reference.assert_right(out, reference.attention("flash_attention", q, k, v, causal, None))
