"""pytest-benchmark's fixture in a GPU test: its table and JSON hold device time, and it works as before elsewhere."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .conftest import Suite

DEVICE_TIMES = """
def pytest_perfsuite_device_times(function, args, kwargs, samples, settings):
    return [1e-5 * (1 + n % 3) for n in range(min(samples, 30))]
"""
BENCHMARKS = """
def add(a, b=0): return a + b

@pytest.mark.gpu
def test_device(benchmark):
    assert benchmark(add, 2, b=3) == 5
    benchmark.extra_info["mine"] = 1

@pytest.mark.gpu
@pytest.mark.benchmark(group="mine", min_rounds=3)
def test_pedantic(benchmark):
    assert benchmark.pedantic(add, setup=lambda: ((4,), {"b": 4}), rounds=6) == 8

@pytest.mark.gpu
@pytest.mark.benchmark(timer=__import__("time").perf_counter)
def test_own_timer(benchmark):
    assert benchmark.pedantic(add, args=(1,), rounds=2) == 1

@pytest.mark.gpu
def test_weave(benchmark):
    with pytest.raises(NotImplementedError, match="benchmark.weave has no device time"):
        benchmark.weave(add)

def test_host(benchmark):
    assert benchmark.pedantic(add, args=(1,), rounds=2) == 1
"""


@pytest.fixture
def benchmarks(suite: Suite) -> Suite:
    suite.add_hooks(DEVICE_TIMES)
    suite.write(BENCHMARKS)
    return suite


def test_the_card_is_in_the_json(benchmarks: Suite) -> None:
    benchmarks.add_hooks("\ndef pytest_perfsuite_fingerprint(fingerprint): fingerprint['gpu'] = 'Fake H200'\n")
    arguments = ["-p", "pytest_benchmark.plugin", "--benchmark-json=out.json", "-k", "device or host"]
    benchmarks.run("--gpu", *arguments, subprocess=True)
    document = json.loads((benchmarks.path / "out.json").read_text())
    assert document["machine_info"]["perfsuite"]["gpu"] == "Fake H200"


def stored(suite: Suite) -> dict[str, dict[str, Any]]:
    document = json.loads((suite.path / "out.json").read_text())
    return {one["name"]: one for one in document["benchmarks"]}


def test_device_time_reaches_table_and_json(benchmarks: Suite) -> None:
    outcome = benchmarks.run("--gpu", "-p", "pytest_benchmark.plugin", "--benchmark-json=out.json", subprocess=True)
    assert outcome.code == 0, outcome.out
    found = stored(benchmarks)
    device = found["test_device"]
    assert device["stats"]["data"] == pytest.approx([1e-5 * (1 + n % 3) for n in range(30)])
    assert device["stats"]["median"] == pytest.approx(2e-5)
    assert device["options"]["timer"] == "device_seconds"
    assert device["extra_info"] == {"mine": 1, "perfsuite": {"time": "device", "cache": "hot", "samples": 30}}
    assert (found["test_pedantic"]["group"], found["test_pedantic"]["stats"]["rounds"]) == ("mine", 6)
    assert found["test_own_timer"]["options"]["timer"] == "perf_counter"
    assert "perfsuite" not in found["test_own_timer"]["extra_info"] | found["test_host"]["extra_info"]
    outcome.has("test_device", "20.0000")


def test_save_and_compare_work(benchmarks: Suite) -> None:
    arguments = ["--gpu", "-p", "pytest_benchmark.plugin", "-k", "device or pedantic"]
    assert benchmarks.run(*arguments, "--benchmark-save=one", subprocess=True).code == 0
    outcome = benchmarks.run(*arguments, "--benchmark-compare", "--benchmark-compare-fail=median:1%", subprocess=True)
    assert outcome.code == 0, outcome.out
    outcome.has("(0001_one)")


def test_where_benchmarks_are_disabled_the_function_still_runs(benchmarks: Suite) -> None:
    outcome = benchmarks.run("--gpu", "-p", "pytest_benchmark.plugin", "--benchmark-disable", "-k", "not weave")
    assert outcome.code == 0, outcome.out


def test_without_gpu_a_gpu_benchmark_is_skipped(benchmarks: Suite) -> None:
    outcome = benchmarks.run("-p", "pytest_benchmark.plugin", "--benchmark-disable")
    assert [name for name, kind in outcome.junit.items() if kind == "passed"] == ["test_host"]


@pytest.mark.gpu
def test_a_kernel_on_the_device(benchmark: Any) -> None:
    import torch

    big = torch.ones(2**26, device="cuda")
    total = benchmark(torch.add, big, 1)
    assert total.sum().item() == 2**27
    if benchmark.stats is not None:  # None where pytest-benchmark is disabled, as under xdist
        # 512 MiB cross the memory: at least 50 us on any card, where the launch takes the host 5 us or so.
        assert benchmark.stats.stats.median > 50e-6
