"""Every access of the decode kernels to shared memory is ordered, whatever the order in which threads run.

The emulator of thread blocks keeps a vector clock for each thread (`emulated_races.h`), so that a barrier too few is
found even where the results are right. A card's racecheck watches the same on the device.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from emulated_sources import copy_for_emulator, emulator_flags

torch = pytest.importorskip("torch", reason="the reference is torch's")

import decode_quantised_cases as quantised  # noqa: E402
import test_decode_wide as wide  # noqa: E402

from tests.conftest import TOOLKIT  # noqa: E402

HERE = Path(__file__).parent
ENGINE = HERE / "emulated_races.cpp"
ROWS = {"4": (4, 1), "8": (4, 2), "16": (4, 4), "32": (5, 5)}
"""Group and tokens that take the kernel of so many rows."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("g++")
    if compiler is None or not (TOOLKIT / "cuda_runtime.h").is_file():
        pytest.skip(f"needs g++ and the headers of CUDA in {TOOLKIT}")
    folder = tmp_path_factory.mktemp("decode_races")
    sources = copy_for_emulator(folder / "csrc")
    # Without -fno-gnu-unique, variables of the emulator would be those of another test's library, which are laid out
    # otherwise.
    always = [compiler, "-std=c++17", "-g", "-fPIC", "-fno-gnu-unique", "-DEMULATED_RACES", "-c", f"-I{TOOLKIT}"]
    watched = [*emulator_flags(sources), "-O1", "-fsanitize=thread", "-fno-threadsafe-statics"]
    files = [sources / "cuda/decode/mma/mma.cu", sources / "cuda/decode/quantised/mma.cu", wide.HOST]
    jobs = [[*always, *watched, str(file), "-o", str(folder / f"{i}.o")] for i, file in enumerate(files)]
    jobs.append([*always, "-w", "-O2", f"-I{HERE}", str(ENGINE), "-o", str(folder / "engine.o")])
    for job in jobs:
        subprocess.run(job, check=True, capture_output=True)
    objects = sorted(folder.glob("*.o"))
    subprocess.run([compiler, "-shared", *objects, "-o", folder / "races.so"], check=True)
    return folder / "races.so"


@pytest.fixture
def host(library: Path) -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(library))
    loaded.decode.restype = loaded.races_found.restype = ctypes.c_char_p
    loaded.races_checked.restype = ctypes.c_long
    found(loaded, library)
    return loaded


def found(host: ctypes.CDLL, library: Path, place: Callable[[Path, int], str] | None = None) -> list[str]:
    """What was found since the last call, with the lines of both accesses, or what `place` says of their addresses."""
    place = place or lines
    maps = Path("/proc/self/maps").read_text().splitlines()
    base = next((int(line.split("-")[0], 16) for line in maps if str(library) in line), 0)
    told = []
    while (one := host.races_found()) is not None:
        kind, *places, rest = one.decode().split(" ", 3)
        told.append(f"{kind} {' and '.join(place(library, int(one, 16) - base - 1) for one in places)}, {rest}")
    return sorted(told)


def lines(library: Path, offset: int) -> str:
    """The lines of the kernel's sources at an address: the innermost first."""
    program = shutil.which("addr2line")
    if program is None:
        return hex(offset)
    told = subprocess.run([program, "-ie", library, hex(offset)], capture_output=True, text=True, check=True).stdout
    places = [Path(line.split(" ")[0]).name for line in told.splitlines() if "/csrc/" in line]
    return " in ".join(places[:3])


@pytest.mark.parametrize("lengths", [[150], [64, 0, 130]])
@pytest.mark.parametrize("kind", ["e4m3", "int8"])
@pytest.mark.parametrize("rows", ROWS)
def test_every_access_is_ordered(rows: str, kind: str, lengths: list[int], host: ctypes.CDLL, library: Path) -> None:
    """Whole and partial tiles, units one after the other, and scores that rise above the base."""
    cache, dtype = (torch.float8_e4m3fn, torch.float16) if kind == "e4m3" else (torch.int8, torch.bfloat16)
    group, seq_q = ROWS[rows]
    words = {"group": group, "seq_q": seq_q, "kv_heads": 1 if len(lengths) == 1 else 2}
    case = quantised.small(dtype, cache, lengths, kind="token" if len(lengths) == 1 else "head", **words)
    case.arguments["q"] *= 4
    name, out = wide.decode(host, kind, case.arguments, 2, 3)
    assert f" {rows} rows" in name
    quantised.assert_right(out, case)
    assert host.races_checked() > 10_000
    assert found(host, library) == []


@pytest.mark.parametrize("kind", ["e4m3", "int8"])
def test_so_is_every_access_of_two_blocks_that_share_a_unit(kind: str, host: ctypes.CDLL, library: Path) -> None:
    cache, dtype = (torch.float8_e4m3fn, torch.float16) if kind == "e4m3" else (torch.int8, torch.bfloat16)
    case = quantised.small(dtype, cache, [256, 256], kind="head", group=3, seq_q=8, kv_heads=1)
    name, _ = wide.decode(host, kind, case.arguments, 4, 0)
    assert name.endswith("in pairs")
    assert found(host, library) == []


@pytest.mark.parametrize("cluster", [2, 3])
def test_and_of_a_cluster(cluster: int, host: ctypes.CDLL, library: Path) -> None:
    case = quantised.small(torch.float16, torch.float8_e4m3fn, [219], kind="token", group=4, seq_q=2, kv_heads=1)
    name, _ = wide.decode(host, "e4m3", case.arguments, 4, 1, cluster)
    assert name.startswith("cluster")
    assert found(host, library) == []


@pytest.mark.parametrize("barrier", [1, 2, 3])
def test_a_barrier_too_few_is_found(barrier: int, host: ctypes.CDLL, library: Path) -> None:
    """That of all warps, and those of the warpgroups: results stay right, since the emulator still waits there.

    Rows of sums, which racecheck says to be read too early, have the former alone between their stores and loads.
    """
    case = quantised.small(torch.float16, torch.float8_e4m3fn, [150, 90], kind="head", group=4, seq_q=5, kv_heads=1)
    host.races_leave_out(barrier)
    try:
        _, out = wide.decode(host, "e4m3", case.arguments, 1, 5)
    finally:
        host.races_leave_out(-1)
    quantised.assert_right(out, case)
    told = found(host, library)
    assert any(one.startswith("write-read wide.cuh:") for one in told), told
    assert any("columns.cuh" in one for one in told) == (barrier == 1)
