"""The peer that measures in a process of its own: what becomes of the file it writes. NVBench itself needs a GPU."""

from __future__ import annotations

import io
import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from perfsuite.calibrate import cuda_bench as bench
from perfsuite.calibrate.plan import Plan


def state(number: int, seconds: float, noise: float = 0.001, **more: object) -> dict[str, object]:
    """A state as NVBench's JSON writer has it, with what its compare scripts read."""

    def summary(tag: str, value: float) -> dict[str, object]:
        return {"tag": tag, "name": tag, "data": [{"name": "value", "type": "float64", "value": repr(value)}]}

    return {
        "name": f"Device=0 sample={number}",
        "device": 0,
        "type_config_index": 0,
        "axis_values": [{"name": "sample", "type": "int64", "value": str(number)}],
        "summaries": [
            summary("nv/cold/time/gpu/mean", seconds),
            summary("nv/cold/time/gpu/stdev/relative", noise),
        ],
        "is_skipped": False,
    } | more


def root(*states: dict[str, object]) -> dict[str, object]:
    """A results file of one benchmark."""
    axis = {"name": "sample", "type": "int64", "flags": "", "values": [{"input_string": "0", "value": 0}]}
    return {
        "meta": {"version": {"json": {"major": 1, "minor": 0, "patch": 0, "string": "1.0.0"}}},
        "devices": [{"id": 0, "name": "a card"}],
        "benchmarks": [{"name": "one", "index": 0, "devices": [0], "axes": [axis], "states": list(states)}],
    }


def plan(seconds: float = 5.0) -> Plan:
    return Plan(process=3, device="cpu", output="", seconds=seconds, gates=[])


def names(one: dict[str, object]) -> list[str]:
    return [state["name"] for state in one["benchmarks"][0]["states"]]  # type: ignore[index]


def test_pairs_are_split_and_lone_or_skipped_samples_left_out() -> None:
    whole = root(
        state(0, 1e-4), state(1, 1.1e-4), state(2, 2e-4), state(3, 2e-4, is_skipped=True, summaries=None), state(4, 1.0)
    )
    rivals, candidates = bench.split(whole)
    assert names(rivals) == names(candidates) == ["Device=0 sample=0"]
    means = [one["benchmarks"][0]["states"][0]["summaries"][0]["data"][0]["value"] for one in (rivals, candidates)]
    assert means == ["0.0001", "0.00011"]
    assert len(names(whole)) == 5, "the file as it was is left alone"


def test_a_later_pair_has_one_number_on_both_sides() -> None:
    rivals, candidates = bench.split(root(state(6, 1e-4), state(7, 1e-4)))
    for one in (rivals, candidates):
        (only,) = one["benchmarks"][0]["states"]
        assert only["name"] == "Device=0 sample=3"
        assert only["axis_values"][0]["value"] == "3"


def test_a_foreign_file_is_named() -> None:
    foreign = root(state(0, 1e-4) | {"axis_values": [{"name": "other", "value": "1"}]})
    with pytest.raises(ValueError, match="has no axis 'sample'"):
        bench.split(foreign)


def test_statuses_are_read_off_the_table_and_off_nothing_else() -> None:
    printed = """['a.json', 'b.json']
# one

## [0] a card

|  sample  |   Ref Time |   Ref Noise |   Status   |
|----------|------------|-------------|------------|
|    0     | 100.000 us |       0.10% |  🔴 SLOW   |
|    1     | 100.000 us |       0.10% |  🔵 SAME   |
|    12    | 100.000 us |       inf   |  🟡 ????   |

# Summary

- Total Matches: 3
"""
    assert bench.statuses(printed) == {0: "SLOW", 1: "SAME", 12: "????"}
    assert bench.statuses("usage: nvbench_compare") == {}


def test_each_cycle_of_pairs_has_every_case_plain_and_planted_once() -> None:
    found = [bench.gate_of(plan(), number) for number in range(12)]
    for cycle in (found[:6], found[6:]):
        assert len({(case.name, slowdown) for case, slowdown in cycle}) == 6
        assert {slowdown for _, slowdown in cycle} == {0.0, 0.01}


def test_a_child_that_fails_is_told_of_and_writes_no_row(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = io.StringIO()
    monkeypatch.setattr(bench.sys, "executable", "/bin/false")
    bench.run_cuda_bench(plan(), rows, 0.1)
    assert rows.getvalue() == ""
    assert "cuda-bench ended with exit code" in capsys.readouterr().err


@pytest.mark.parametrize("left", ["{", json.dumps({"benchmarks": [{"states": [{"name": "x", "summaries": [1]}]}]})])
def test_a_file_that_cannot_be_read_is_told_of_and_writes_no_row(
    left: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    child = tmp_path / "child"
    child.write_text(f"#!/bin/sh\ncat > \"$4\" <<'END'\n{left}\nEND\n")
    child.chmod(0o755)
    monkeypatch.setattr(bench.sys, "executable", str(child))
    rows = io.StringIO()
    bench.run_cuda_bench(plan(), rows, 0.1)
    assert rows.getvalue() == ""
    assert "cuda-bench left a file that cannot be read" in capsys.readouterr().err


def test_a_comparison_that_does_not_end_is_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "COMPARE_SECONDS", 0.01)
    assert bench.compare("cuda.bench.scripts.nvbench_compare", tmp_path) == {}
    assert "took more than 0.01 s" in capsys.readouterr().err


@pytest.mark.skipif(
    any(find_spec(name) is None for name in ("colorama", "jsondiff", "tabulate")) or not bench.installed(),
    reason="cuda-bench, whose compare scripts these are, is not installed",
)
@pytest.mark.parametrize("rule", bench.RULES.values(), ids=list(bench.RULES))
def test_its_own_scripts_judge_the_pairs(rule: str, tmp_path: Path) -> None:
    rivals, candidates = bench.split(
        root(state(0, 1e-4), state(1, 1e-4), state(2, 1e-4), state(3, 1.1e-4), state(4, 1e-4), state(5, 0.9e-4))
    )
    (tmp_path / "rival.json").write_text(json.dumps(rivals))
    (tmp_path / "candidate.json").write_text(json.dumps(candidates))
    found = bench.compare(rule, tmp_path)
    assert set(found) == {0, 1, 2}
    if rule.endswith("nvbench_compare"):
        assert found == {0: "SAME", 1: "SLOW", 2: "FAST"}
