"""The Hopper kernels of attention's backward, run on the host by an emulator of thread blocks, against float64."""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from emulated_sources import copy_for_emulator, emulator_flags

torch = pytest.importorskip("torch", reason="the reference is torch's")

from backward_cases import Case, Made, make, sequences  # noqa: E402
from test_backward_device import Arguments, check, gradients  # noqa: E402
from torch import Tensor  # noqa: E402

HOST = Path(__file__).with_name("backward_wgmma_host.cpp")
INSTANCES = ("d64", "d128", "d192_of_128", "d192", "d256")
PACKED = ("d64", "d128")
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


class One:
    """The library, given one of several packed sequences: rows of the others are in none."""

    def __init__(self, library: object, sequence: int) -> None:
        self.library, self.sequence = library, sequence

    def run(self, arguments: object) -> bytes | None:
        given = arguments._obj  # type: ignore[attr-defined]
        given.batch = 1
        for name in ("cu_seqlens_q", "cu_seqlens_kv"):
            setattr(given.options, name, getattr(given.options, name) + 4 * self.sequence)
        return self.library.run(arguments)  # type: ignore[attr-defined, no-any-return]


class Offsets:
    """The library, given these offsets of queries and of keys."""

    def __init__(self, library: object, offsets: list[int]) -> None:
        self.library, self.offsets = library, torch.tensor(offsets, dtype=torch.int32)

    def run(self, arguments: object) -> bytes | None:
        given = arguments._obj  # type: ignore[attr-defined]
        given.batch = len(self.offsets) - 1
        given.options.cu_seqlens_q = given.options.cu_seqlens_kv = self.offsets.data_ptr()
        return self.library.run(arguments)  # type: ignore[attr-defined, no-any-return]


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


SEVERAL = [130, 0, 1, 3, 0], [133, 9, 30, 0, 0]
"""Lengths that are no multiples of a tile, and sequences without queries, without keys, and without either."""


@pytest.mark.parametrize("deterministic", [False, True], ids=["free", "in_turn"])
@pytest.mark.parametrize("dtype", list(TYPES), ids=str)
@pytest.mark.parametrize("instance", PACKED)
def test_every_instance_for_packed_sequences(
    host: ctypes.CDLL, instance: str, dtype: torch.dtype, deterministic: bool
) -> None:
    library = Deterministic(host) if deterministic else host
    masks = {"with_lse": True}, {"right": 0}, {"right": 0, "bottom_right": True}
    for seed, words in enumerate(masks):
        host.seed(seed)
        check(library, Case(dtype, 1, 2, 1, *SEVERAL, *HEAD_DIMS[instance], packed=True, **words))  # type: ignore[arg-type]
        assert launched(host) == f"{instance}_{TYPES[dtype]}_packed" + "_deterministic" * deterministic


def test_a_window_over_packed_sequences(host: ctypes.CDLL) -> None:
    """In free order alone."""
    case = Case(torch.float16, 1, 2, 1, *SEVERAL, 64, 64, left=40, right=20, bottom_right=True, packed=True)
    check(host, case)
    assert launched(host) == "d64_float16_packed"
    with pytest.raises(AssertionError, match="these kernels do not take it"):
        check(Deterministic(host), case)  # type: ignore[arg-type]


@pytest.mark.parametrize("head_dim", [129, 192, 256])
def test_wider_packed_sequences_have_other_kernels(host: ctypes.CDLL, head_dim: int) -> None:
    with pytest.raises(AssertionError, match="these kernels do not take it"):
        check(host, Case(torch.float16, 1, 1, 1, [5, 3], [4, 2], head_dim, head_dim, packed=True))


def poisoned(made: Made, case: Case, sequence: int, poison: float) -> Made:
    """All rows but the sequence's have this value."""
    q_rows, kv_rows = list(sequences(case))[sequence]

    def but(tensor: Tensor, rows: slice) -> Tensor:
        changed = torch.full_like(tensor, poison)
        changed[:, :, rows] = tensor[:, :, rows]
        return changed

    of_q = {name: but(getattr(made, name), q_rows) for name in ("q", "d_out", "out", "lse", "d_lse")}
    return made._replace(**of_q, k=but(made.k, kv_rows), v=but(made.v, kv_rows))


@pytest.mark.parametrize(
    ("instance", "deterministic", "poison"),
    [("d64", False, math.inf), ("d64", True, math.nan), ("d128", False, math.nan), ("d128", True, math.inf)],
)
def test_rows_of_other_sequences(host: ctypes.CDLL, instance: str, deterministic: bool, poison: float) -> None:
    """Their infinities and NaN change no bit, and none of their gradients is written."""
    library = Deterministic(host) if deterministic else host
    words = {"with_lse": True, "packed": True, "right": 0 if poison == math.inf else -1}
    case = Case(torch.float16, 1, 2, 1, [70, 0, 3, 190, 9], [40, 7, 1, 129, 30], *HEAD_DIMS[instance], **words)  # type: ignore[arg-type]
    made = make(case)
    host.seed(3)
    whole = gradients(library, case, made)  # type: ignore[arg-type]
    made.check(case, whole)
    for place, (q_rows, kv_rows) in enumerate(sequences(case)):
        found = gradients(One(library, place), case, poisoned(made, case, place, poison), fill=-7.0)  # type: ignore[arg-type]
        for name, mine, right, rows in zip("qkv", found, whole, (q_rows, kv_rows, kv_rows), strict=True):
            if name == "q" and not deterministic:  # two tiles of keys are added in any order
                assert torch.allclose(mine[:, :, rows].float(), right[:, :, rows].float(), rtol=1e-2, atol=1e-3)
            else:
                assert torch.equal(mine[:, :, rows], right[:, :, rows]), (place, name)
            mine[:, :, rows] = -7.0
            assert (mine == -7.0).all(), (place, name)


def test_more_sequences_than_a_warp_has_lanes(host: ctypes.CDLL) -> None:
    random = Random(5)
    lengths = [[random.choice((0, 0, 0, 0, 0, 0, 7)) for _ in range(70)] for _ in "qk"]
    lengths[0][-1] = lengths[1][-1] = 40
    check(host, Case(torch.bfloat16, 1, 1, 1, *lengths, 64, 64, right=0, packed=True))


@pytest.mark.parametrize("causal", [False, True])
def test_wrong_offsets(host: ctypes.CDLL, causal: bool) -> None:
    """The host does not look at them. No block waits for ever, and a right sequence is right: the fourth."""
    case = Case(torch.float16, 1, 1, 1, [180, 30], [180, 30], 64, 64, right=0 if causal else -1, packed=True)
    made = make(case)
    wrong = Offsets(Deterministic(host), [-9, 150, 20, 180, 210, 4000, 90])
    found = gradients(wrong, case, made)  # type: ignore[arg-type]
    for mine, right in zip(found, gradients(Deterministic(host), case, made), strict=True):  # type: ignore[arg-type]
        assert torch.equal(mine[:, :, 180:], right[:, :, 180:])


@pytest.mark.parametrize("count", [1, 3, 40])
def test_order_of_tiles(host: ctypes.CDLL, count: int) -> None:
    """Each tile once, by its sequence, or by how many follow in its sequence; what the grid has beyond them is told."""
    random = Random(count)
    lengths = [random.choice((0, 1, 128, random.randint(1, 1000))) for _ in range(count)]
    offsets = torch.tensor([0, *lengths]).cumsum(0).int()
    tiles = [-(-length // 128) for length in lengths]
    rests = {(sequence, n): of - n for sequence, of in enumerate(tiles) for n in range(of)}
    for by_rest, right in ((True, sorted(rests, key=lambda one: (-rests[one], one[0]))), (False, list(rests))):
        found = (ctypes.c_int * 2 * (sum(tiles) + 3))()
        host.key_tiles(ctypes.c_void_p(offsets.data_ptr()), count, max(lengths), by_rest, len(found), found)
        assert [tuple(one) for one in found] == [*right, *[(-1, 0)] * 3]


@pytest.mark.parametrize("lengths", [[130], [129, 0, 5]], ids=["one", "packed"])
@pytest.mark.parametrize("instance", INSTANCES)
def test_the_same_bits_in_turn(host: ctypes.CDLL, instance: str, lengths: list[int]) -> None:
    """However the threads and the copies of a thread block come one after the other."""
    packed = len(lengths) > 1
    if packed and instance not in PACKED:
        pytest.skip("no instance for packed sequences")
    keys = [length + 70 for length in lengths]
    case = Case(torch.bfloat16, 1, 2, 2, lengths, keys, *HEAD_DIMS[instance], packed=packed)
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


def random_packed(seed: int) -> Case:
    random = Random(seed)
    case, count = random_case(seed), random.randint(1, 5)
    case.packed, case.batch = True, 1
    case.seq_q, case.seq_kv = ([random.choice((0, 1, 130, random.randint(1, 150))) for _ in range(count)] for _ in "qk")
    # The gradients of few keys by large scores are but roundings.
    case.seq_q[-1], case.seq_kv[-1], case.scale = random.randint(60, 150), random.randint(60, 150), min(case.scale, 0.2)
    case.head_dim = random.choice((64, 128, random.randint(1, 128)))
    case.value_dim = random.choice((case.head_dim, random.randint(1, case.head_dim)))
    return case


FUZZ = pytest.mark.parametrize("seed", range(int(os.environ.get("CUDA_LLM_OPS_FUZZ_CALLS", "16"))))


@FUZZ
def test_random_cases(host: ctypes.CDLL, seed: int) -> None:
    host.seed(seed)
    check(host, random_case(seed))


@FUZZ
def test_random_packed_cases(host: ctypes.CDLL, seed: int) -> None:
    host.seed(seed)
    case = random_packed(seed)
    check(Deterministic(host) if seed % 2 and case.left < 0 else host, case)  # type: ignore[arg-type]
    assert "_packed" in launched(host)
