"""The record of the sanitizers: what processes tell is read and added up, and nothing that is missing passes."""

from __future__ import annotations

import json
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the operators need torch")

from cuda_llm_ops import levers

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.ops import sanitizer_record
from tests.ops.sanitized import FAMILIES
from tests.ops.sanitizer_record import INSTANCES, Watched, good, instances, read

COVERAGE = """fp8_few_rows: 2 instances, 9 launches
fp8_rows: 3 instances, 4 launches
void something<int>: 1 instances, 1 launches
built: fp8_gemm: 1
built: fp8_gemm sm90 e4m3: 2
built: quantize_fp8: 3
"""
FAKE = """#!{python}
import sys
words = sys.argv[1:]
if words == ["--version"]:
    print("NVIDIA (R) Compute Sanitizer\\nVersion 2025.3.1.0 (build 1)")
    sys.exit()
tool, part = words[words.index("--tool") + 1], int(words[-2])
assert words[words.index("--print-limit") + 1] == "10000" and "--named" in words
assert words[words.index("--family") + 1 : words.index("--seconds")] == {families!r}
assert ("--report-api-errors" in words) == (tool == "memcheck")
print({calls!r}[part])
if {races!r}.get(tool):
    print({races!r}[tool][part])
print("========= " + ("RACECHECK SUMMARY: 0 hazards" if tool == "racecheck" else "ERROR SUMMARY: 0 errors"))
"""


RACE = """========= Error: Race reported between Write access at void cuda_llm_ops::cuda::add<(int)8>(int)+0x{} in a:3
=========     and Read access at cuda_llm_ops::ptx::ldmatrix_x4(unsigned int (&)[4])+0x20 in b:4 [64 hazards]
=========     and Write access at other(int)+0x30 in c:5 [1 hazard]
========="""
INVALID = """========= Invalid __global__ read of size 16 bytes
=========     at kernel(int *)+0x70 in d.cu:6
=========     by thread (0,0,0) in block (0,0,0)
=========     Access to 0x7f0 is out of bounds"""
SIDES = (
    "Error: Race reported between Write access at void add<8>(int)+0x{} in a:3; and Read access at "
    "ptx::ldmatrix_x4(unsigned int (&)[4])+0x20 in b:4; and Write access at other(int)+0x30 in c:5"
)


def test_every_place_is_kept_with_all_its_accesses_and_calls() -> None:
    many = "\n".join(RACE.format(number) for number in range(10, 40))
    told = f"call: first\n{many}\nwords of torch\n=========     at nothing of a finding\ncall: second\n"
    told += f"{RACE.format(12)}\n{INVALID}\ncall: third\n=========     at nothing\n2 calls in 1 s, 0 failed"
    found = read(9, told).places
    assert len(found) == 31
    assert found[SIDES.format(10)] == ["first"]
    assert found[SIDES.format(12)] == ["first", "second"]
    assert found["Invalid __global__ read of size 16 bytes; at kernel(int *)+0x70 in d.cu:6"] == ["second"]


def test_what_a_process_tells_is_read() -> None:
    assert read(0, "256 calls in 16 s, 0 failed\n========= ERROR SUMMARY: 0 errors") == Watched(256, 0, 0, True)
    assert read(9, "3 calls in 1 s, 1 failed\n========= ERROR SUMMARY: 12 errors") == Watched(3, 1, 12, True)
    assert read(9, "3 calls in 1 s, 0 failed\n===== RACECHECK SUMMARY: 2 hazards displayed") == Watched(3, 0, 2, True)
    assert read(9, "3 calls in 1 s, 0 failed") == Watched(3, 0, 1, True)
    assert read(3, "7 of 30 calls in 9 s, 0 failed: out of time") == Watched(7, 0, 0, False)
    with pytest.raises(ValueError, match="exit code 1, and no line says how many calls"):
        read(1, "Traceback")


def test_instances_that_no_call_launched_are_seen() -> None:
    rows = {row["kernels"]: row for row in instances(COVERAGE)}
    assert set(rows) == set(INSTANCES)
    assert (rows["fp8_gemm"]["built"], rows["fp8_gemm"]["launched"], rows["fp8_gemm"]["launches"]) == (3, 2, 9)
    assert (rows["FP8 quantisers"]["built"], rows["FP8 quantisers"]["launched"]) == (3, 3)
    assert not good({"tools": {}, "rows": list(rows.values())})


def test_no_instances_at_all_are_no_good() -> None:
    """As where the process that counts them came to nothing."""
    assert not good({"tools": {}, "rows": instances("", ["fp8"])})
    assert good({"tools": {}, "rows": instances(COVERAGE, ["quantisers"])})


def test_rows_are_of_the_calls_that_were_asked_for() -> None:
    """In the order in which both tables name them."""
    assert instances(COVERAGE, ["fp8"]) == [{"kernels": "fp8_gemm", "built": 3, "launched": 2, "launches": 9}]
    assert [row["kernels"] for row in instances("", ["decode", "backward"])] == [
        "flash_decode, 8-bit caches",
        "attention's backward",
    ]


@pytest.mark.parametrize("change", [{"wrong": 1}, {"findings": 1}, {"complete": False}])
def test_a_tool_that_is_not_clean_is_no_good(change: dict[str, Any]) -> None:
    found = {"calls": 1, "wrong": 0, "findings": 0, "complete": True}
    assert good({"tools": {"memcheck": found}, "rows": []})
    assert not good({"tools": {"memcheck": found | change}, "rows": []})


@pytest.mark.parametrize("families", [["fp8", "quantisers"], list(FAMILIES)], ids=["some", "all"])
def test_the_parts_of_every_tool_are_added_up(
    families: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = ["10 calls in 1 s, 0 failed", "5 of 9 calls in 1 s, 0 failed: out of time"]
    program = tmp_path / "sanitizer"
    races = {"racecheck": ["call: one\n" + RACE.format(10), "call: two\n" + RACE.format(10)]}
    program.write_text(FAKE.format(python=sys.executable, calls=calls, races=races, families=families))
    program.chmod(0o755)
    genuine = sanitizer_record._run

    def run(command: Any, seconds: float) -> tuple[int, str]:
        return (0, COVERAGE) if "--coverage" in command else genuine(command, seconds)

    monkeypatch.setattr(sanitizer_record, "_run", run)
    monkeypatch.setattr(sanitizer_record, "origin", lambda device: levers.origin("cpu"))
    file = tmp_path / "folder" / "sanitizers.json"
    asked = ["--family", *families] if families != list(FAMILIES) else []
    asked += ["--parts", "2", "--sanitizer", str(program), "--output", str(file)]
    assert sanitizer_record.main(asked) == 1
    found = json.loads(file.read_text())
    assert list(found["tools"]) == list(sanitizer_record.TOOLS)
    assert found["tools"]["racecheck"].pop("places") == [
        {"found": SIDES.format(10), "times": 2, "calls": ["one", "two"]}
    ]
    assert all(one == {"calls": 15, "wrong": 0, "findings": 0, "complete": False} for one in found["tools"].values())
    assert found["environment"]["sanitizer"] == "2025.3.1.0"
    assert f"  2 times during one, two: {SIDES.format(10)}" in capsys.readouterr().out
    assert found["environment"]["racecheck"] == "0 findings in 15 calls (0 wrong, out of time)"


def test_processes_of_all_tools_have_ports_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sanitizer looks for a free one among its own, and all begin at once."""
    commands: list[list[str]] = []

    def run(command: list[str], seconds: float) -> tuple[int, str]:
        commands.append(command)
        return 0, COVERAGE if "--coverage" in command else "10 calls in 1 s, 0 failed"

    monkeypatch.setattr(sanitizer_record, "_run", run)
    monkeypatch.setattr(sanitizer_record, "version", lambda sanitizer: "1")
    monkeypatch.setattr(sanitizer_record, "origin", lambda device: levers.origin("cpu"))
    arguments = ["--sanitizer", sys.executable, "--family", "quantisers", "--output", str(tmp_path / "x.json")]
    assert sanitizer_record.main([*arguments, "--keep", str(tmp_path / "printed")]) == 0
    printed = {file.name for file in (tmp_path / "printed").iterdir()}
    assert printed == {f"{tool}-{n}.log" for tool, many in sanitizer_record.TOOLS.items() for n in range(many)} | {
        "coverage-0.log"
    }
    assert (tmp_path / "printed" / "racecheck-4.log").read_text() == "10 calls in 1 s, 0 failed\nexit code 0\n"
    tools = [command for command in commands if "--tool" in command]
    assert len(commands) == 1 + len(tools)
    for tool, number in sanitizer_record.TOOLS.items():
        of_tool = [command for command in tools if command[command.index("--tool") + 1] == tool]
        assert sorted(command[-2:] for command in of_tool) == [[str(part), str(number)] for part in range(number)]
    first = sorted(int(command[command.index("--port") + 1]) for command in tools)
    assert all(low + 10 <= high for low, high in pairwise(first))
    assert first[-1] + 10 <= 65536


def test_what_an_ended_process_found_is_kept() -> None:
    told = f"call: one\none: an error is 3\ncall: two\n{RACE.format(10)}\ncall: three\n"
    assert read(sanitizer_record.ENDED, told) == Watched(2, 1, 1, False, {SIDES.format(10): ["two"]})
    assert read(sanitizer_record.ENDED, "") == Watched(0, 0, 0, False)


def test_a_process_is_ended_with_those_that_it_began(tmp_path: Path) -> None:
    """The one that is watched holds the pipe and would go on; what both said is kept."""
    script = tmp_path / "begins.sh"
    script.write_text("#!/bin/sh\necho 'call: one'\nsleep 300 &\necho $!\necho words >&2\nwait\n")
    script.chmod(0o755)
    for seconds in (0.5, 2.0, 8.0, 32.0):  # a busy machine may need long to begin
        code, told = sanitizer_record._run([str(script)], seconds)
        if "words" in told:
            break
    call, child, words = told.split("\n", 2)
    assert (code, call, words) == (sanitizer_record.ENDED, "call: one", "words\n")
    until = time.monotonic() + 60
    while is_running(int(child)) and time.monotonic() < until:
        time.sleep(0.01)
    assert not is_running(int(child))


def is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_a_program_that_is_missing_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        sanitizer_record.main(["--sanitizer", "no-such-program", "--output", "x.json"])
    assert "--sanitizer is no-such-program" in capsys.readouterr().err
