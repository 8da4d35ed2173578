"""Every access of the Hopper backward to shared memory is ordered, whatever the order in which threads run.

As `test_decode_races.py`, and one thing more: rows of lse and d_sum, which ordinary loads read, have a fence before TMA
writes there again. No barrier takes its place, and results are right without it.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from emulated_sources import copy_for_emulator, emulator_flags

torch = pytest.importorskip("torch", reason="the reference is torch's")

from backward_cases import Case  # noqa: E402
from test_backward_device import Arguments, check  # noqa: E402
from test_backward_wgmma import Deterministic  # noqa: E402
from test_decode_races import ENGINE, found  # noqa: E402

from tests.conftest import TOOLKIT  # noqa: E402

HERE = Path(__file__).parent
HOST = HERE / "backward_races_host.cpp"
FIRST = {"q_full": 4, "q_empty": 6, "o_full": 8, "o_empty": 10, "ds_full": 12}
"""Of the mbarriers in sm90_walk.cuh, where there are two stages of each: the number of that of stage 0."""
PACKED = {"k_landed": 12, "v_landed": 13, "q_landed": 14, "o_landed": 16}
"""So for packed sequences, in the place of ds_full."""
ZEROS = "store_shared_vector<uint4>"
"""How rows of other sequences are made zeros."""
ROWS = "bulk_load", "load_from<float2>"
"""How the rows of lse and d_sum are written and read."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("g++")
    if compiler is None or not (TOOLKIT / "cuda_runtime.h").is_file():
        pytest.skip(f"needs g++ and the headers of CUDA in {TOOLKIT}")
    folder = tmp_path_factory.mktemp("backward_races")
    sources = copy_for_emulator(folder / "csrc")
    for source in (sources / "cuda/backward").glob("*.cuh"):
        source.write_text(source.read_text().replace("__shared__ __align__(16) T tile", "static T tile"))
    # Kernels reach shared memory by the instructions of emulated_block.h alone, which tell the engine themselves.
    always = [compiler, "-std=c++17", "-g1", "-fPIC", "-fno-gnu-unique", "-DEMULATED_RACES", "-c", f"-I{TOOLKIT}"]
    files = [HOST, sources / "cuda/backward/sm90_backward.cu"]
    jobs = [
        [*always, *emulator_flags(sources), "-O1", str(file), "-o", str(folder / f"{file.stem}.o")] for file in files
    ]
    jobs.append([*always, "-w", "-O2", f"-I{HERE}", str(ENGINE), "-o", str(folder / "engine.o")])
    running = [subprocess.Popen(job, stderr=subprocess.PIPE, text=True) for job in jobs]
    told = [one.communicate()[1] for one in running]
    assert not any(one.returncode for one in running), told
    subprocess.run([compiler, "-shared", *folder.glob("*.o"), "-o", folder / "races.so"], check=True)
    return folder / "races.so"


@pytest.fixture
def host(library: Path) -> Iterator[ctypes.CDLL]:
    loaded = ctypes.CDLL(str(library))
    loaded.run.restype = loaded.races_found.restype = ctypes.c_char_p
    loaded.races_checked.restype = ctypes.c_long
    assert loaded.bytes_of_arguments() == ctypes.sizeof(Arguments)
    found(loaded, library)
    loaded.seed(1)
    loaded.races_fences(True, True)
    yield loaded
    loaded.races_fences(True, True)
    for leave_out in (loaded.races_leave_out, loaded.races_leave_out_waits, loaded.races_leave_out_arrivals):
        leave_out(-1)


def function(library: Path, offset: int) -> str:
    """The instruction of emulated_block.h that an address is in."""
    command = ["addr2line", "-f", "-C", "-e", str(library), hex(offset)]
    name = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    return name.partition("(")[0].rpartition(" ")[2].rpartition("::")[2]


def races(host: ctypes.CDLL, library: Path) -> set[str]:
    """What was found: "KIND FUNCTION and FUNCTION"."""
    if shutil.which("addr2line") is None:
        pytest.skip("needs addr2line")
    return {one.partition(",")[0] for one in found(host, library, function)}


def case(head_dim: int) -> Case:
    """Three tiles of queries, so that stages are loaded again, and a pair of blocks with the second's keys partial."""
    return Case(torch.bfloat16 if head_dim == 192 else torch.float16, 1, 3, 1, [20], [70], head_dim, head_dim)


def packed(head_dim: int) -> Case:
    """Each sequence ends within a tile, and the first has two tiles of queries of each of three heads."""
    dtype = torch.bfloat16 if head_dim == 64 else torch.float16
    return Case(dtype, 1, 3, 1, [130, 9], [70, 20], head_dim, head_dim, right=0, packed=True)


@pytest.mark.parametrize("head_dim", [64, 128])
def test_every_access_is_ordered_of_packed_sequences(head_dim: int, host: ctypes.CDLL, library: Path) -> None:
    """In free order and in turn."""
    check(Deterministic(host) if head_dim == 128 else host, packed(head_dim))  # type: ignore[arg-type]
    assert host.races_checked() > 1_000_000
    assert found(host, library, function) == []


@pytest.mark.parametrize("operand", ["k", "v", "q", "o"])
def test_zeros_before_the_copy_is_there_are_found(operand: str, host: ctypes.CDLL, library: Path) -> None:
    host.races_leave_out_waits(PACKED[f"{operand}_landed"])
    check(host, packed(64))
    assert f"write-write tma and {ZEROS}" in races(host, library)


@pytest.mark.parametrize("operand", ["q", "o"])
def test_zeros_behind_a_product_are_found(operand: str, host: ctypes.CDLL, library: Path) -> None:
    """Those of keys are made before those of queries, by the same warp."""
    host.races_leave_out_arrivals(FIRST[f"{operand}_full"])
    check(host, packed(64))
    assert f"write-read {ZEROS} and element" in races(host, library)


def test_zeros_without_a_fence_are_found(host: ctypes.CDLL, library: Path) -> None:
    host.races_fences(True, False)
    check(host, packed(64))
    assert f"unfenced {ZEROS} and element" in races(host, library)


@pytest.mark.parametrize("head_dim", [128, 192, 256])
def test_every_access_is_ordered(head_dim: int, host: ctypes.CDLL, library: Path) -> None:
    """Single blocks; pairs with two stages of dO; pairs with one, whose sums are added in turn."""
    check(Deterministic(host) if head_dim == 256 else host, case(head_dim))  # type: ignore[arg-type]
    assert host.races_checked() > 1_000_000
    assert found(host, library, function) == []


@pytest.mark.parametrize(
    ("side", "barrier", "race"),
    [
        ("waits", "q_full", f"write-read {ROWS[0]} and {ROWS[1]}"),
        ("arrivals", "q_empty", f"read-write {ROWS[1]} and {ROWS[0]}"),
        ("arrivals", "o_empty", "read-write element and tma"),
        ("waits", "ds_full", "write-read bulk_copy_to_cluster and element"),
    ],
)
def test_a_wait_or_an_arrival_too_few_is_found(
    side: str, barrier: str, race: str, host: ctypes.CDLL, library: Path
) -> None:
    """Results stay right, since the emulator still waits there."""
    leave_out = host.races_leave_out_waits if side == "waits" else host.races_leave_out_arrivals
    leave_out(FIRST[barrier])
    check(host, case(192))
    assert race in races(host, library)


def test_a_fence_too_few_is_found(host: ctypes.CDLL, library: Path) -> None:
    host.races_fences(True, False)
    check(host, case(192))
    told = races(host, library)
    assert f"unfenced {ROWS[1]} and {ROWS[0]}" in told
    assert any(one.startswith("unfenced scatter and ") for one in told), told


@pytest.mark.parametrize(("named", "kind"), [(4, "write-read"), (6, "read-write")], ids=["stored", "free"])
def test_a_barrier_of_dq_too_few_is_found(named: int, kind: str, host: ctypes.CDLL, library: Path) -> None:
    """dQ's parts in shared memory: stored by a warpgroup, read by TMA."""
    host.races_leave_out(named)
    check(host, case(128))
    assert any(one.startswith(kind) for one in races(host, library))
