"""How the Hopper attention kernel fetches and shifts rows that start anywhere, compiled for the host."""

from __future__ import annotations

import ctypes
import itertools
import shutil
import subprocess
from pathlib import Path

import pytest

HOST = Path(__file__).with_name("sm90_realign_host.cpp")
HEADER = HOST.parents[2] / "ext/csrc/cuda/attention/sm90_realign.cuh"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")
    build = tmp_path_factory.mktemp("sm90_realign")
    for folder in ("attention", "ptx"):
        (build / folder).mkdir()
    shutil.copy(HEADER, build / "attention")
    for name in ("barrier", "cluster", "fence", "mbarrier", "tma"):
        (build / f"ptx/{name}.cuh").touch()
    subprocess.run(
        [compiler, "-std=c++17", "-O1", "-shared", "-fPIC", f"-I{build}", "-o", build / "host.so", HOST], check=True
    )
    return ctypes.CDLL(str(build / "host.so"))


@pytest.mark.parametrize("head_dim", [1, 2, 7, 8, 33, 64, 65, 95, 98, 100, 112, 127, 128, *range(129, 137), 159, 191])
def test_every_element_gets_to_its_place(host: ctypes.CDLL, head_dim: int) -> None:
    for offset, pad, (seq_q, seq_kv) in itertools.product(range(8), [0, 1, 3, 7], [(200, 300), (256, 67), (3, 1)]):
        assert host.realign(seq_q, seq_kv, head_dim, offset, pad) == 0, (offset, pad, seq_q, seq_kv)
