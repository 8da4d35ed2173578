"""The Hopper kernels of attention's backward, run on the host by an emulator of thread blocks, against float64."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from emulated_sources import copy_for_emulator, emulator_flags

torch = pytest.importorskip("torch", reason="the reference is torch's")

from backward_cases import Case, make  # noqa: E402
from test_backward_device import Arguments, check, gradients  # noqa: E402

HOST = Path(__file__).with_name("backward_wgmma_host.cpp")
INSTANCES = ("d64", "d128", "d192_of_128", "d192", "d256")
TYPES = {torch.float16: "float16", torch.bfloat16: "bfloat16"}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, compile_for_host: Callable[..., ctypes.CDLL]) -> ctypes.CDLL:
    build = copy_for_emulator(tmp_path_factory.mktemp("backward_wgmma") / "csrc")
    folder = build / "cuda/backward"
    for source in folder.glob("*.cuh"):
        source.write_text(source.read_text().replace("__shared__ __align__(16) T tile", "static T tile"))
    hosts = [str(folder / f"sm90_{name}.cu") for name in ("backward", *INSTANCES)]
    library = compile_for_host(HOST, build, *emulator_flags(build), *hosts)
    library.run.restype = library.name_of_launched.restype = ctypes.c_char_p
    assert library.bytes_of_arguments() == ctypes.sizeof(Arguments)
    return library


class Deterministic:
    """The library, asked for the same bits at every launch."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library

    def run(self, arguments: object) -> bytes | None:
        arguments._obj.deterministic = True  # type: ignore[attr-defined]
        return self.library.run(arguments)  # type: ignore[no-any-return]


def launched(host: ctypes.CDLL) -> str:
    name: bytes = host.name_of_launched()
    return name.decode().removeprefix("sm90_backward_")


HEAD_DIMS = {"d64": (64, 64), "d128": (128, 128), "d192_of_128": (192, 128), "d192": (192, 192), "d256": (256, 256)}


@pytest.mark.parametrize("dtype", list(TYPES), ids=str)
@pytest.mark.parametrize("instance", INSTANCES)
def test_every_instance(host: ctypes.CDLL, instance: str, dtype: torch.dtype) -> None:
    """Two query heads, partial tiles, several tiles of keys, top-left and windowed, in free order and in turn."""
    head_dim, value_dim = HEAD_DIMS[instance]
    host.seed(1)
    case = Case(dtype, 1, 2, 1, [150], [133], head_dim, value_dim, right=0, with_lse=True)
    check(host, case)
    assert launched(host) == f"{instance}_{TYPES[dtype]}"
    check(Deterministic(host), case)  # type: ignore[arg-type]
    assert launched(host) == f"{instance}_{TYPES[dtype]}_deterministic"
    check(host, Case(dtype, 1, 2, 1, [150], [133], head_dim, value_dim, left=40, right=20, bottom_right=True))
    assert launched(host) == f"{instance}_{TYPES[dtype]}_window"


@pytest.mark.parametrize(
    ("head_dim", "value_dim", "instance"),
    [(129, 128, "d192_of_128"), (129, 129, "d192"), (192, 8, "d192_of_128"), (193, 128, "d256"), (200, 200, "d256")],
    ids=str,
)
def test_other_head_dims_take_the_next(host: ctypes.CDLL, head_dim: int, value_dim: int, instance: str) -> None:
    check(host, Case(torch.float16, 2, 1, 1, [40], [70], head_dim, value_dim))
    assert launched(host) == f"{instance}_float16"


@pytest.mark.parametrize("instance", INSTANCES)
def test_the_same_bits_in_turn(host: ctypes.CDLL, instance: str) -> None:
    """However the threads and the copies of a thread block come one after the other."""
    case = Case(torch.bfloat16, 1, 2, 2, [130], [200], *HEAD_DIMS[instance])
    made = make(case)
    found = []
    for seed in range(2):
        host.seed(seed)
        found.append(gradients(Deterministic(host), case, made))  # type: ignore[arg-type]
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def random_case(seed: int) -> Case:
    random = Random(seed)
    kv_heads = random.randint(1, 2)
    head_dim = random.randint(129, 256) if seed % 3 else random.randint(1, 128)
    side = lambda: random.randint(0, 90)  # noqa: E731
    window = random.choice([(-1, -1), (-1, 0), (side(), 0), (side(), side()), (side(), -1), (-1, side())])
    return Case(
        random.choice(list(TYPES)),
        random.randint(1, 2),
        kv_heads * random.randint(1, 2),
        kv_heads,
        [random.randint(1, 150)],
        [random.randint(1, 150)],
        head_dim,
        head_dim if seed % 4 else random.randint(1, head_dim),
        *window,
        bottom_right=random.random() < 0.5,
        with_lse=random.random() < 0.3,
        scale=random.choice([0.0, 0.2, 1.3]),
        seed=seed,
    )


@pytest.mark.parametrize("seed", range(int(os.environ.get("CUDA_LLM_OPS_FUZZ_CALLS", "16"))))
def test_random_cases(host: ctypes.CDLL, seed: int) -> None:
    host.seed(seed)
    check(host, random_case(seed))
