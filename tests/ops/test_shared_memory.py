"""No kernel that a card with 99 KB of shared memory a block would choose asks for more.

The dispatch of every operator runs against a made-up CUDA runtime (shared_memory.cpp), so no card is needed. All device
code must be compiled once for its host side, which takes minutes: nightly.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from perfsuite.analyze.ptxas import without_marks

ROOT = Path(__file__).parents[2]
DEVICE_CODE = ROOT / "ext/csrc/cuda"
NVCC = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
CARDS = {"86": (101_376, 102_400), "89": (101_376, 102_400), "120": (101_376, 102_400)}
"""Compute capability -> bytes of shared memory of a block (99 KB) and of a multiprocessor, by the programming guide."""
MACHINE_CODE = {"86": "80", "89": "80", "120": "120"}
"""Compute capability -> the architecture of its code: the wheel's, or what the driver makes of its PTX."""

REFUSED = {"REFUSED weight_only_gemm: the device has less shared memory for a thread block than the kernel needs"}
"""Operators that say so on such a card: with more than a few rows, the weight-only product was made for Hopper."""

pytestmark = [
    pytest.mark.skipif(NVCC is None, reason="no nvcc here"),
    pytest.mark.skipif(
        "PERFSUITE_WHOLE" not in os.environ, reason="takes minutes: `nox -s nightly` sets PERFSUITE_WHOLE"
    ),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dispatch of all operators, without the Hopper kernels, linked with the made-up runtime."""
    folder = Path(os.environ.get("PERFSUITE_SHARED_MEMORY_OBJECTS") or tmp_path_factory.mktemp("objects"))
    flags = ["-O0", "-std=c++17", "-DNDEBUG", "-gencode=arch=compute_80,code=compute_80", f"-I{ROOT / 'ext/csrc'}"]

    def compiled(source: Path) -> Path:
        made = folder / (str(source.relative_to(DEVICE_CODE)).replace("/", "_") + ".o")
        if not made.exists():
            line = [str(NVCC), *flags, "-c", str(source), "-o", str(made)]
            done = subprocess.run(line, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
        return made

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compiled, sorted(DEVICE_CODE.rglob("*.cu"))))
    made = folder / "shared_memory"
    line = [
        str(NVCC),
        "-std=c++17",
        "-cudart=none",
        f"-I{ROOT / 'ext/csrc'}",
        str(ROOT / "tests/ops/shared_memory.cpp"),
    ]
    line += [*map(str, objects), "-o", str(made)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return made


def static_bytes(arch: str) -> dict[str, int]:
    """Static shared memory of every kernel, by its symbol, from the record of device code."""
    found = {}
    for line in (ROOT / "records/kernels.jsonl").read_text().splitlines():
        said = json.loads(line)
        if said["arch"] == arch:
            found |= {kernel[0]: kernel[3] for kernel in said["kernels"]}
    return found


@pytest.mark.parametrize("capability", CARDS)
def test_no_kernel_that_is_chosen_asks_for_more_than_a_block_has(program: Path, capability: str) -> None:
    block, multiprocessor = CARDS[capability]
    line = [str(program), capability, str(block), str(multiprocessor)]
    printed = subprocess.run(line, capture_output=True, text=True, check=True).stdout.splitlines()
    refused = {line for line in printed if line.startswith("REFUSED")}
    assert refused <= REFUSED
    kernels = [line.split() for line in printed if line not in refused]
    chosen = [(without_marks(symbol), int(dynamic)) for symbol, dynamic in kernels]
    static = static_bytes(MACHINE_CODE[capability])
    assert len({symbol for symbol, _ in chosen}) > 50
    assert {symbol for symbol, _ in chosen} <= set(static), "kernels that the record of device code has not"
    assert [(symbol, one) for symbol, one in chosen if one + static[symbol] > block] == []


def test_a_card_with_less_is_seen(program: Path) -> None:
    """So that the other test can fail: the same calls on a card with more memory ask for more than 99 KB."""
    printed = subprocess.run(
        [str(program), "80", "166912", "167936"], capture_output=True, text=True, check=True
    ).stdout
    assert max(int(line.split()[1]) for line in printed.splitlines() if not line.startswith("REFUSED")) > 101_376
