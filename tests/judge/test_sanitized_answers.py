"""--sanitize: the tools' command lines, what is read from their output, and what a finding does to the verdict.

A program of the same name takes the place of compute-sanitizer: it runs the candidate, and prints a recorded output.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import jsonschema
import pytest

import perfsuite
from perfsuite.cli.main import main
from perfsuite.judge.answer import Answer, answer_schema
from perfsuite.judge.candidates import candidate_of
from perfsuite.judge.engine import Terms, judge_one
from perfsuite.judge.problem_forms import task_of
from perfsuite.judge.sanitize import TOOLS, check_tool, command, finding_in, sanitized
from perfsuite.outcome import UserError
from perfsuite.problems.base import Inputs

RECORDED = Path(__file__).parent / "sanitizer"
GEMM = {"family": "gemm", "m": 32, "n": 24, "k": 16, "dtype": "float32"}
RIGHT = "def run(a, b):\n    return a @ b\n"
STAND_IN = """\
#!{python}
import os, subprocess, sys
words = sys.argv[1:]
tool = words[words.index("--tool") + 1]
with open({log!r}, "a") as log:
    print(*words[:words.index({python!r})], os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING"), file=log)
code = subprocess.run(words[words.index({python!r}):]).returncode
said = {folder!r} + "/" + tool + ".txt"
accused = os.environ.get("ACCUSED", "").split()
whose = open(words[-2] + "/candidate.pkl", "rb").read()
if tool in accused and (b"NamedRival" not in whose or os.environ.get("RIVAL_TOO")):
    print(open(said).read())
    code = 86
print("========= ERROR SUMMARY: 0 errors")
sys.exit(code)
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The command lines that the stand-in was started with."""
    program, lines = tmp_path / "bin" / "compute-sanitizer", tmp_path / "lines.txt"
    program.parent.mkdir()
    program.write_text(STAND_IN.format(python=sys.executable, log=str(lines), folder=str(RECORDED)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    # The stand-in writes its log outside of the folder that a sandbox leaves writable.
    monkeypatch.setattr("perfsuite.isolate.sandbox.why_not", lambda: "it is off in this test")
    return lines


def judged(text: str = RIGHT, *, tool_seconds: float = 60.0) -> Answer:
    """The answer of the engine, which leaves the question for a card to its callers."""
    terms = Terms(timed=False, sanitize=True, why=True, tool_seconds=tool_seconds)
    answer = judge_one(candidate_of(text), task_of(GEMM), terms)
    jsonschema.validate(answer.as_json(), answer_schema())
    return answer


EXPECTED = {
    "memcheck": "Invalid __global__ write of size 4 bytes\n"
    "at scale(float *, const float *, int)+0x90 in candidate.cu:7\n"
    "by thread (96,0,0) in block (3,0,0)\nAddress 0x7f8a5fa00200 is out of bounds",
    "racecheck": "Race reported between Write access at block_sum(float *)+0x120 in candidate.cu:11\n"
    "and Read access at block_sum(float *)+0x1f0 in candidate.cu:14 [508 hazards]",
    "synccheck": "Barrier error detected. Divergent thread(s) in block.\n"
    "at block_sum(float *)+0x240 in candidate.cu:12\n"
    "by thread (0,0,0) in block (0,0,0)",
    "initcheck": "Uninitialized __global__ memory read of size 4 bytes\n"
    "at scale(float *, const float *, int)+0x60 in candidate.cu:6\nby thread (0,0,0) in block (0,0,0)",
}


@pytest.mark.parametrize("tool", TOOLS)
def test_the_first_finding_of_each_form(tool: str) -> None:
    text = (RECORDED / f"{tool}.txt").read_text()
    assert finding_in(f"what the candidate prints\n{text}") == EXPECTED[tool]


def test_other_lines_are_no_finding() -> None:
    quiet = "========= COMPUTE-SANITIZER\n========= Warning: Race reported between\n=========     and Write access\n"
    assert finding_in(f"{quiet}========= ERROR SUMMARY: 0 errors\n") is None
    assert finding_in("========= Error: Target application terminated before first instrumented API call\n") is None


def test_a_finding_is_wrong(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCUSED", "racecheck initcheck")
    answer = judged()
    assert (answer.verdict, answer.reason, answer.stage) == ("WRONG", "sanitizer", "right")
    assert answer.sentence.startswith("racecheck: Race reported between Write access at block_sum")
    found = {one.tool: one.finding for one in answer.workloads[0].sanitizer}
    assert found == {tool: EXPECTED[tool] if tool in ("racecheck", "initcheck") else None for tool in TOOLS}
    assert answer.why is not None
    assert answer.why.startswith("racecheck names the place: Race reported")
    assert len(log.read_text().splitlines()) == 4 + 2  # the rival, by the two tools that accuse


def test_clean_tools_and_a_finding_that_the_rival_shares_decide_nothing(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCUSED", "initcheck")
    monkeypatch.setenv("RIVAL_TOO", "1")
    answer = judged()
    assert answer.verdict == "MET"
    assert [(one.tool, one.finding is None, one.trouble, one.rival) for one in answer.workloads[0].sanitizer] == [
        (tool, tool != "initcheck", None, tool == "initcheck") for tool in TOOLS
    ]
    begun = [line.split() for line in log.read_text().splitlines()]
    assert [line[1] for line in begun] == [*TOOLS, "initcheck"]
    assert all(line[-1] == "1" for line in begun)  # no caching: an access past the end leaves its allocation
    assert begun[1][:-1] == command("racecheck")[1:]
    assert command("racecheck")[-2:] == ["--racecheck-report", "analysis"]


def test_a_tool_that_does_not_end_leaves_it_undecided(log: Path) -> None:
    late = "import os, time\ndef run(a, b):\n    'perfsuite.judge.alone_call' in ' '.join(ARGS) and time.sleep(600)\n"
    late = late.replace("ARGS", "open('/proc/self/cmdline').read().split(chr(0))") + "    return a @ b\n"
    answer = judged(late, tool_seconds=2.0)
    assert (answer.verdict, answer.reason) == ("UNDECIDED", "service-failed")
    assert answer.sentence == "memcheck says nothing: it did not end within 2 s"
    import torch

    gone = perfsuite.Source(late.replace("time.sleep(600)", "os._exit(0)"), "run")
    operands = Inputs((torch.zeros(2, 2), torch.zeros(2, 2)))
    (found,) = sanitized(gone, operands, "cpu", seconds=60.0, tools=("memcheck",))
    assert found.trouble is not None
    assert "it ended with exit code 0 before the calls had ended" in found.trouble


def test_output_is_bounded(log: Path) -> None:
    import torch

    loud = perfsuite.Source("def run(x):\n    print('=' * 30_000_000)\n    return x\n", "run")
    (found,) = sanitized(loud, Inputs((torch.zeros(1),)), "cpu", seconds=60.0, tools=("memcheck",))
    assert (found.finding, found.trouble) == (None, None)


def test_what_it_needs_is_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    with pytest.raises(UserError, match="--sanitize needs a GPU: the tools of compute-sanitizer watch CUDA kernels"):
        perfsuite.judge(RIGHT, GEMM, sanitize=True)
    file = tmp_path / "mine.py"
    file.write_text(RIGHT)
    assert main(["judge", str(file), "--problem", json.dumps(GEMM), "--sanitize", "--device", "cpu"]) == 2
    assert "on processors leave it out" in capsys.readouterr().err
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="compute-sanitizer, which is not on PATH; it comes with the CUDA toolkit"):
        check_tool("cuda")
    with pytest.raises(UserError, match="tool_seconds is 0; it must be a number of seconds over 0"):
        perfsuite.judge(RIGHT, GEMM, tool_seconds=0)
