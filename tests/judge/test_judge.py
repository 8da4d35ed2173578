"""The answer's form is published, and every answer fits it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest

import perfsuite
from perfsuite.cli.main import main
from perfsuite.judge import calls, engine
from perfsuite.judge.answer import MOST_OUTPUT, answer_schema, bounded
from perfsuite.judge.engine import NoSandboxError, Terms
from perfsuite.judge.pool import Job, Pool

PUBLISHED = Path(__file__).resolve().parents[2] / "docs" / "judge.schema.json"
GEMM = {"family": "gemm", "m": 32, "n": 24, "k": 16, "dtype": "float32"}
RIGHT = "def run(a, b):\n    return a @ b\n"


def test_the_published_schema_is_that_of_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    told = "run: perfsuite judge --schema --output docs/judge.schema.json"
    assert json.loads(PUBLISHED.read_text()) == answer_schema(), told
    assert main(["judge", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out) == answer_schema()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (RIGHT, ("MET", "checked", "right")),
        ("def run(a, b):\n    return (a @ b) * 1.01\n", ("WRONG", "inaccurate", "right")),
        ("def run(a, b:\n    return a @ b\n", ("WRONG", "does-not-parse", "parse")),
        ("def go(a, b):\n    return a @ b\n", ("WRONG", "does-not-parse", "parse")),
        ("import nothing_like_it\ndef run(a, b):\n    return a @ b\n", ("WRONG", "candidate-failed", "run")),
        ("def run(a, b):\n    raise ValueError(a.shape)\n", ("WRONG", "candidate-failed", "run")),
        ("import os\ndef run(a, b):\n    os.abort()\n", ("WRONG", "candidate-failed", "run")),
        ("def run(a, b):\n    while True:\n        pass\n", ("WRONG", "timed-out", "run")),
        ("while True:\n    pass\ndef run(a, b):\n    return a @ b\n", ("WRONG", "timed-out", "run")),
    ],
)
def test_verdict_reason_and_stage(text: str, expected: tuple[str, str, str]) -> None:
    answer = perfsuite.judge(text, GEMM, timed=False, run_seconds=2.0 if expected[1] == "timed-out" else 60.0)
    assert (answer.verdict, answer.reason, answer.stage) == expected, answer.sentence
    jsonschema.validate(answer.as_json(), answer_schema())


def test_a_timed_answer_has_an_interval_and_a_promise() -> None:
    answer = perfsuite.judge(RIGHT, GEMM, at_least=1e-4, seconds=2.0)
    assert answer.verdict == "MET", answer.sentence
    assert answer.stage == "fast"
    assert answer.speed_low is not None
    assert answer.speed is not None
    assert answer.speed_low <= answer.speed
    assert answer.promise is not None
    assert answer.promise.alpha == 1 / 20
    assert {"parse", "run", "right", "fast", "whole"} == set(answer.seconds)
    jsonschema.validate(answer.as_json(), answer_schema())


def test_several_workloads_give_the_worst_verdict_and_the_mean_speed() -> None:
    rows = [{**GEMM, "weight": 3.0}, {**GEMM, "m": 64}]
    answer = perfsuite.judge(RIGHT, rows, at_least=1e-4, seconds=2.0)
    speeds = [one.speed for one in answer.workloads]
    assert len(speeds) == 2
    assert speeds[0]
    assert speeds[1]
    assert answer.speed == pytest.approx((speeds[0] ** 3 * speeds[1]) ** 0.25)
    assert answer.slowest == min(answer.workloads, key=lambda one: one.speed or 0).name
    only_first = "def run(a, b):\n    return (a @ b) * (1 if a.shape[0] == 32 else 2)\n"
    wrong = perfsuite.judge(only_first, [GEMM, {**GEMM, "m": 300}], timed=False)
    assert wrong.verdict == "WRONG"


@pytest.mark.parametrize(
    ("candidate", "problem", "said"),
    [
        (RIGHT, {"family": "gem"}, "family is 'gem'; allowed are"),
        (RIGHT, {"family": "gemm", "m": -1, "n": 1, "k": 1}, "m"),
        (RIGHT, {**GEMM, "weight": 0}, "weight is 0"),
        (RIGHT, "nowhere.py", "'nowhere.py' cannot be read"),
        ("nowhere.py", GEMM, "'nowhere.py' cannot be read"),
        ({"files": {}}, GEMM, "at least one file"),
        ({"files": {"../a.py": RIGHT}}, GEMM, "'../a.py'"),
        ({"files": {"torch.py": RIGHT}}, GEMM, "the name of another module"),
        ({"files": {"a.py": RIGHT, "b.py": RIGHT}}, GEMM, "main is None"),
        ({"files": {"a.py": RIGHT}, "grids": 1}, GEMM, "'grids'"),
        ({"files": {"a.cu": "__global__ void run(float* a) {}"}}, GEMM, "needs grid and block"),
        (7, GEMM, "the candidate is a int"),
    ],
)
def test_bad_input_is_an_error_that_names_it(candidate: object, problem: object, said: str) -> None:
    with pytest.raises(perfsuite.outcome.UserError, match=said.replace("(", r"\(")):
        perfsuite.judge(candidate, problem, timed=False)


def test_a_pool_answers_each_job_once_and_names_a_form_that_it_cannot_judge() -> None:
    bad = {"family": "gemm", "m": 8}
    jobs = [
        Job.of(RIGHT, GEMM),
        Job.of("def run(a, b):\n    return b\n", GEMM),
        Job.of(RIGHT, bad),
        Job.of(RIGHT, GEMM),
    ]
    with Pool(Terms(timed=False, run_seconds=60.0), jobs=2) as pool:
        found = {one["id"]: one for one in pool.answers(jobs)}
    assert len(found) == 3
    assert [found[job.id]["verdict"] for job in jobs] == ["MET", "WRONG", "UNDECIDED", "MET"]
    assert found[jobs[2].id]["reason"] == "unsupported"


def test_a_pool_whose_process_dies_begins_the_job_again_and_gives_up_after_three(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill = "import os\nfrom pathlib import Path\ndeaths = Path({!r})\ncount = len(deaths.read_text())\n"
    kill += "if count < {}:\n    deaths.write_text('x' * (count + 1))\n    os._exit(3)\n"
    model = "import torch\nModel = torch.nn.ReLU\ndef get_inputs():\n    return [torch.randn(64, 64)]\n"
    candidate = "import torch\nModelNew = torch.nn.ReLU\n"
    answers = []
    for least in (2, 3):
        deaths, problem = tmp_path / f"deaths{least}", tmp_path / f"problem{least}.py"
        deaths.write_text("")
        problem.write_text(kill.format(str(deaths), least) + model)
        with Pool(Terms(timed=False)) as pool:
            answers += list(pool.answers([Job.of(candidate, str(problem))]))
    assert [(one["verdict"], one["reason"]) for one in answers] == [("MET", "checked"), ("UNDECIDED", "worker-lost")]
    assert "exit code 3" in answers[1]["sentence"]


def test_the_command_prints_answers_and_its_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / "right.py", tmp_path / "wrong.py"]
    files[0].write_text(RIGHT)
    files[1].write_text("def run(a, b):\n    return a @ b + 1\n")
    words = ["--problem", json.dumps(GEMM), "--no-timing", "--json", "--device", "cpu"]
    assert main(["judge", *map(str, files), *words]) == 1
    found = {one["id"]: one for one in map(json.loads, capsys.readouterr().out.splitlines())}
    assert [found[str(file)]["verdict"] for file in files] == ["MET", "WRONG"]
    assert main(["judge", str(files[0]), *words]) == 0
    assert main(["judge", str(files[0]), "--problem", "{", "--no-timing"]) == 2
    assert main(["judge"]) == 2


def test_long_output_lacks_its_middle() -> None:
    assert bounded("short") == "short"
    shown = bounded("a" * 9000 + "end")
    assert len(shown) < MOST_OUTPUT + 60
    assert shown.endswith("end")


def test_the_candidate_runs_on_a_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    devices: list[str] = []

    def judge_one(candidate: Any, task: Any, terms: Terms, *, id: str | None) -> Any:
        devices.append(terms.device)

    monkeypatch.setattr(calls, "judge_one", judge_one)
    monkeypatch.setattr(calls, "task_of", lambda problem, device: None)
    perfsuite.judge(RIGHT, GEMM)
    monkeypatch.setattr(calls, "usable_devices", lambda environ: SimpleNamespace(cards=("a card",)))
    perfsuite.judge(RIGHT, GEMM)
    perfsuite.judge(RIGHT, GEMM, device="cpu")
    assert devices == ["cpu", "cuda", "cpu"]


def test_source_text_that_is_not_trusted_is_judged_in_a_sandbox_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    there = SimpleNamespace(boxed=False, sandbox="no sandbox: a worker does not open the card's memory")
    monkeypatch.setattr(engine, "nursery", lambda **kind: there)
    with pytest.raises(NoSandboxError, match="does not open the card's memory"):
        perfsuite.judge(RIGHT, GEMM, timed=False, sandboxed=True)
    assert perfsuite.judge(RIGHT, GEMM, timed=False).verdict == "MET"
