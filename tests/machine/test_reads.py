"""Ceilings of reads of any size: how they are launched, that they compile, and what they are on a card."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from perfsuite.machine import reads
from perfsuite.machine.read_source import SOURCE

NVCC = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")


def test_every_vector_has_a_block() -> None:
    short = reads.LAUNCHES["short_blocks_4"]
    assert short.vectors_a_block == 4 * short.threads, "each thread reads four"
    assert [short.blocks(vectors, 132) for vectors in (1, 1024, 1025)] == [1, 1, 2]
    assert reads.LAUNCHES["bulk_ranges_8k"].blocks(10**9, 132) == 6 * 132
    assert len(reads.LAUNCHES) + 1 >= 6, "with the library's"


@pytest.mark.parametrize("bytes_", [0, 3, reads.LARGEST + 1])
def test_a_size_that_cannot_be_read_is_named(bytes_: int) -> None:
    pytest.importorskip("torch")
    with pytest.raises(ValueError, match=f"bytes_ is {bytes_}; it must be from 4 to"):
        reads.reads_of(bytes_, 1)


@pytest.mark.skipif(NVCC is None, reason="no nvcc here")
@pytest.mark.parametrize("arch", ["80", "90", "120"])
def test_the_kernels_compile_without_spills(tmp_path: Path, arch: str) -> None:
    source = tmp_path / "reads.cu"
    source.write_text(SOURCE)
    flags = [f"-arch=sm_{arch}", "-cubin", "-Xptxas", "-v", "-o", str(tmp_path / "reads.cubin")]
    done = subprocess.run([str(NVCC), *flags, str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Compiling entry function") == len(reads.LAUNCHES)
    assert done.stderr.count(" 0 bytes spill stores") == len(reads.LAUNCHES)


@pytest.mark.gpu
@pytest.mark.parametrize("bytes_", [100, 1 << 20, (1 << 26) + 16, 1 << 30])
def test_every_kernel_reads_every_byte_once(gpu: object, bytes_: int) -> None:
    """By the time: no kernel is faster than the data sheet allows, and the best is no slower than the library's sum."""
    import torch

    from perfsuite.verdict.floor import ceilings_of

    found = reads.own_size_bytes_a_second(0, bytes_)
    peak = ceilings_of(0).bytes_a_second
    if bytes_ >= 1 << 26 and peak:
        assert 0.6 * peak < found < 1.02 * peak
    of = reads.reads_of(bytes_, 1)
    for call in of.calls:
        call(0)
    torch.cuda.synchronize()
