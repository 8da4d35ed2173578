"""The memory hierarchy: the chase's ring, the arithmetic of a level, and the device code as a compiler sees it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from perfsuite.cli.commands import hierarchy as command
from perfsuite.cli.main import main
from perfsuite.device.cards import Device
from perfsuite.machine import hierarchy, hierarchy_measured
from perfsuite.machine.device_code import DeviceCodeError, compiled
from perfsuite.machine.hierarchy import LINE_BYTES, Level, ring
from perfsuite.machine.hierarchy_source import SOURCE

NVCC = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
LEVELS = (
    Level("shared memory", 32e12, 12e-9, 23.0, 16384.0, 33e12),
    Level("L2", 8e12, 120e-9, 240.0, 12e6),
    Level("device memory", 4e12, 400e-9, 800.0, 2.0**30, 4.8e12),
)


@pytest.mark.parametrize("lines", [1, 2, 1000])
def test_a_chase_visits_every_line_once(lines: int) -> None:
    base = 4096
    table = ring(lines, base, torch.Generator().manual_seed(1))
    assert table.shape == (lines, 16)
    at, seen = base, []
    for _ in range(lines):
        seen.append(at)
        at = int(table[(at - base) // LINE_BYTES, 0])
    assert at == base, "it comes back to where it began"
    assert sorted(seen) == [base + LINE_BYTES * line for line in range(lines)]
    assert lines < 3 or seen != sorted(seen), "and not in order, which would be prefetched"


def test_peaks_follow_from_the_card_s_own_numbers() -> None:
    # An H200: 132 SMs at 1.98 GHz.
    assert hierarchy.shared_peak(132, 1.98e9) == pytest.approx(33.45e12, rel=1e-3)


def test_little_s_law_and_shares() -> None:
    shared, l2, memory = LEVELS
    assert memory.bytes_in_flight == pytest.approx(1.6e6)
    assert memory.share == pytest.approx(4 / 4.8)
    assert l2.share is None
    assert hierarchy.ratios(LEVELS) == [
        "shared memory gives 4.0 times the bytes of L2 at 10% of its latency",
        "L2 gives 2.0 times the bytes of device memory at 30% of its latency",
    ]
    assert shared.bytes_in_flight == pytest.approx(384e3)


@pytest.mark.skipif(NVCC is None, reason="no nvcc here")
@pytest.mark.parametrize("arch", ["80", "90"])
def test_the_device_code_compiles_without_spills(arch: str, tmp_path: Path) -> None:
    from perfsuite.analyze.ptxas import compile_resources

    source = tmp_path / "hierarchy.cu"
    source.write_text(SOURCE)
    made = compile_resources(source, arch, nvcc=str(NVCC), flags=["-O3"], cubin=tmp_path / "hierarchy.cubin")
    assert {kernel.name.partition("(")[0] for kernel in made.kernels} == {
        "chase_global",
        "chase_shared",
        "read_global",
        "copy_global",
        "read_shared",
    }
    assert not any(kernel.spills for kernel in made.kernels)


def test_a_torch_that_cannot_compile_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.cuda, "_compile_kernel")
    with pytest.raises(DeviceCodeError, match=r"cannot compile device code at run time; 2\.10 or newer can"):
        compiled(SOURCE, "chase_global")


def test_a_failed_compilation_gives_its_first_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: str, name: str) -> Any:
        raise OSError("libnvrtc.so: cannot open\nmore")

    monkeypatch.setattr(torch.cuda, "_compile_kernel", refuse)
    with pytest.raises(DeviceCodeError, match=r"chase_global cannot be compiled: libnvrtc.so: cannot open \(NVRTC"):
        compiled(SOURCE, "chase_global")


@pytest.fixture
def on_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """A card whose levels are made up."""
    card = Device(0, "NVIDIA H200", "GPU-0", (9, 0), 150 * 10**9, "0")
    monkeypatch.setattr(command, "cards", lambda: (card,))
    found = hierarchy_measured.Measured(LEVELS, 4.2e12, 4.0e12)
    monkeypatch.setattr(hierarchy_measured, "measure", lambda tell: found)


@pytest.mark.usefixtures("on_a_card")
def test_the_command_prints_the_levels(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hierarchy"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "NVIDIA H200"
    assert " ".join(lines[2].split()) == "shared memory 32.0 TB/s 97.0% 12.0 ns 23.0 384 kB 16.4 kB"
    assert lines[3].split()[:4] == ["L2", "8.00", "TB/s", "-"]
    assert "4.20 TB/s read and written by our kernel, 4.00 TB/s by torch's: x1.050" in lines[5]


@pytest.mark.usefixtures("on_a_card")
def test_the_command_gives_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hierarchy", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [level["name"] for level in told["levels"]] == ["shared memory", "L2", "device memory"]
    assert told["copy"] == 4.2e12


def test_without_a_card_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert main(["hierarchy"]) == 2
    assert "a GPU is needed" in capsys.readouterr().err


@pytest.mark.gpu
def test_levels_are_ordered_and_the_copy_is_the_library_s(gpu: Any) -> None:
    found = hierarchy_measured.measure()
    bandwidths = [level.bytes_a_second for level in found.levels]
    latencies = [level.latency_seconds for level in found.levels]
    assert bandwidths == sorted(bandwidths, reverse=True)
    assert latencies == sorted(latencies)
    assert found.copy_bytes_a_second == pytest.approx(found.library_copy_bytes_a_second, rel=0.05)
