"""The reading of a trace: made-up profiles become shares and sentences; the command writes and refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from perfsuite.analyze import trace_recorded
from perfsuite.analyze.timeline import ProfilerError
from perfsuite.analyze.trace import RANGE, Kernel, Operator, Trace, dearest, read
from perfsuite.cli.commands import trace as command
from perfsuite.cli.main import main

CPU, CUDA = torch.autograd.DeviceType.CPU, torch.autograd.DeviceType.CUDA
OPERATORS = (
    Operator("aten::mm", 2, 600e-6, 20e-6, 2e6),
    Operator("aten::copy_", 4, 300e-6, 20e-6, 0.0),
    Operator("aten::add", 2, 100e-6, 20e-6, 4e6),
    Operator("aten::empty", 2, 0.0, 4e-6, -4e6),
)
MADE = Trace(
    calls=2,
    seconds=520e-6,
    host_seconds=80e-6,
    device_seconds=500e-6,
    waiting_seconds=0.0,
    waits=0.0,
    copied_seconds=0.0,
    kernels_a_call=4.0,
    operators=OPERATORS,
    kernels=(Kernel("gemm", 2, 600e-6), Kernel("copy", 6, 400e-6)),
    peak_bytes=8e6,
)


def event(name: str, start: float, end: float, device: Any = CPU) -> SimpleNamespace:
    """An event of torch's profiler; it counts in microseconds."""
    span = SimpleNamespace(start=start, end=end, elapsed_us=lambda: end - start)
    return SimpleNamespace(name=name, time_range=span, device_type=device, is_user_annotation=name == RANGE)


def average(key: str, device: Any = CPU, count: int = 2, own: float = 0.0, bytes: float = 0.0) -> SimpleNamespace:
    return SimpleNamespace(
        key=key,
        device_type=device,
        count=count,
        self_device_time_total=own,
        self_cpu_time_total=1.0,
        self_device_memory_usage=bytes,
    )


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::mm", "matmul"),
        ("aten::addmm", "matmul"),
        ("aten::_scaled_mm", "matmul"),
        ("cuda_llm_ops::gemm", "matmul"),
        ("aten::_scaled_dot_product_flash_attention", "attention"),
        ("cuda_llm_ops::flash_attention", "attention"),
        ("aten::copy_", "copy"),
        ("Memcpy DtoH", "copy"),
        ("aten::_softmax", "softmax"),
        ("aten::native_layer_norm", "normalisation"),
        ("aten::mm_like_something_else", "other"),
        ("aten::add", "other"),
    ],
)
def test_operators_are_told_apart_by_name(name: str, kind: str) -> None:
    assert Operator(name, 1, 0.0, 0.0, 0.0).kind == kind


def test_the_dearest_come_first_and_what_costs_nothing_is_left_out() -> None:
    assert [one.name for one in dearest(OPERATORS, "device_seconds")] == ["aten::mm", "aten::copy_", "aten::add"]
    assert [one.name for one in dearest(OPERATORS, "bytes")] == ["aten::add", "aten::mm"]
    many = [Operator(str(place), 1, float(place), 0.0, 0.0) for place in range(1, 30)]
    assert len(dearest(many, "device_seconds")) == 10


def test_the_reading_gives_shares_and_what_follows() -> None:
    said = {one.what: one for one in read(MADE)}
    assert said["matmul of device time"].share == pytest.approx(0.6)
    assert said["copy of device time"].share == pytest.approx(0.3)
    assert "layouts or dtypes change too often" in said["copy of device time"].words
    assert said["other of device time"].words == "", "a tenth is not worth a word"
    assert said["synchronisation of the time"].words == "no waits"
    assert said["device busy of the time"].share == pytest.approx(500 / 520)
    assert "the device takes longer (500 us) than the host (80 us)" in said["device busy of the time"].words


def test_a_slow_host_and_waits_are_named() -> None:
    slow = replace(MADE, host_seconds=900e-6, seconds=1000e-6, waiting_seconds=100e-6, waits=3.0)
    said = {one.what: one for one in read(slow)}
    assert said["synchronisation of the time"].share == pytest.approx(0.1)
    assert "perfsuite diagnose" in said["synchronisation of the time"].words
    assert "launches bound it" in said["device busy of the time"].words


def test_fusion_is_counted() -> None:
    assert replace(MADE, kernels_a_call=1.0).fused == "1 kernel a call: fused"
    assert replace(MADE, kernels_a_call=4.0).fused == "4 kernels a call"


def test_the_profiler_s_events_become_a_trace() -> None:
    events = [
        event(RANGE, 0, 40),
        event(RANGE, 40, 90),
        event(RANGE, 5, 200, CUDA),  # the range's shadow on the device is no kernel
        event("cudaLaunchKernel", 2, 6),
        event("cudaStreamSynchronize", 50, 80),
        event("cudaDeviceSynchronize", 95, 200),  # the profiler's own, behind the calls
        event("gemm", 10, 60, CUDA),
        event("gemm", 60, 110, CUDA),
        event("Memcpy DtoH (Device -> Pageable)", 110, 130, CUDA),
    ]
    averages = [
        average("aten::mm", own=100.0, bytes=512.0),
        average("cudaLaunchKernel", own=3.0),
        average(RANGE),
        average("gemm", CUDA, own=100.0),
        average("cuda_llm_ops::gemm", own=5.0),
    ]
    found = trace_recorded.read(events, averages, peak_bytes=1e6)
    assert found.calls == 2
    assert found.seconds == pytest.approx(65e-6)
    assert found.host_seconds == pytest.approx(45e-6)
    assert found.device_seconds == pytest.approx(60e-6)
    assert (found.waits, found.waiting_seconds) == (0.5, pytest.approx(15e-6))
    assert found.copied_seconds == pytest.approx(10e-6)
    assert found.kernels == (Kernel("gemm", 2, pytest.approx(100e-6)),)
    assert [(one.name, one.device_seconds, one.bytes) for one in found.operators] == [
        ("aten::mm", pytest.approx(100e-6), 512.0),
        ("cuda_llm_ops::gemm", pytest.approx(5e-6), 0.0),
    ]


def test_a_profile_without_the_device_is_an_error() -> None:
    with pytest.raises(ProfilerError, match="saw nothing of the calls on the device"):
        trace_recorded.read([event(RANGE, 0, 40)], [])


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the recorder was asked for; it gives MADE."""
    asked: list[dict[str, Any]] = []

    def record(workload: Any, calls: int, **options: Any) -> Trace:
        asked.append({"name": workload.name, "calls": calls, **options})
        return MADE

    monkeypatch.setattr(command, "cards", lambda: ())
    monkeypatch.setattr(trace_recorded, "record", record)
    return asked


def test_flash_on_and_off_are_traced_and_compared(
    traced: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["attention:2x8x256x64", "--candidate", "sdpa:flash", "--candidate", "sdpa:math", "--calls", "3"]
    assert main(["trace", *asked, "--output", str(tmp_path / "trace.json")]) == 0
    assert [(one["calls"], one["file"]) for one in traced] == [
        (3, tmp_path / "trace-1.json"),
        (3, tmp_path / "trace-2.json"),
    ]
    printed = capsys.readouterr().out
    assert "attention 2x8x256x64 float16 by sdpa:flash: 520 us a call, 4 kernels a call" in printed
    lines = printed.splitlines()
    assert [line.split()[-4:] for line in lines[-2:]] == [["500", "4", "8.00", "MB"]] * 2
    assert any(line.split() == ["aten::mm", "1", "300", "60.0%", "1.00", "MB"] for line in lines)


def test_json_has_the_reading(traced: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "gemm:64x64x64", "--candidate", "cublas", "--json"]) == 0
    [told] = json.loads(capsys.readouterr().out)
    assert told["workload"] == "gemm 64x64x64 float16 by cublas"
    assert told["reading"][0] == {
        "what": "matmul of device time",
        "share": pytest.approx(0.6),
        "words": "tensor cores decide: sizes that are multiples of 16, lower precision",
    }


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--calls", "0"], "at least 1"),
        (["--output", "/nowhere/trace.json"], "there is no folder /nowhere"),
        (["--output", "a.json", "--tensorboard", "b"], "exclude each other"),
        (["--candidate", "sdpa:fast"], "the libraries for gemm are cublas"),
    ],
)
def test_bad_input_is_named(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "gemm:64x64x64", "--candidate", "cublas", *options]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.gpu
def test_flash_attention_is_one_kernel_and_the_plain_formula_several(gpu: Any) -> None:
    from perfsuite.analyze.workload import of_problem
    from perfsuite.problems import Attention

    problem = Attention(8, 16, 1024, 64)  # so large that flash does not split the keys over two kernels
    found = {
        name: trace_recorded.record(of_problem(problem, lambda one, name=name: one.rival(name)), 3).kernels_a_call
        for name in ("sdpa:flash", "sdpa:math")
    }
    assert found["sdpa:flash"] == 1.0
    assert found["sdpa:math"] >= 3.0
