"""--why: the first thing to look at, from regime, compiler and counters."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from beside import company

import perfsuite
from perfsuite import Attention, Gemm, Source
from perfsuite.cli.main import main
from perfsuite.judge.answer import Kernel, Stage, WorkloadAnswer, answer_schema
from perfsuite.judge.why import first_look, regime_of
from perfsuite.outcome import Verdict

GEMM = {"family": "gemm", "m": 256, "n": 256, "k": 256, "dtype": "float32"}
SLOW = "def run(a, b):\n    for _ in range(4):\n        c = a @ b\n    return c\n"
MADE = WorkloadAnswer(
    name="it", verdict=Verdict.MISSED, reason="too-slow", sentence="0.5 of cublas", stage=Stage.FAST, speed=0.5
)
SOURCE = Source(SLOW, "run")


def test_the_answer_has_it_if_it_was_asked_for() -> None:
    answer = perfsuite.judge(SLOW, GEMM, at_least=0.9, seconds=0.2, why=True)
    if answer.verdict == "MET" and (others := company()):
        pytest.skip(f"its time says nothing here, {others}: {answer.sentence}")
    assert answer.verdict in ("MISSED", "UNDECIDED"), answer.sentence  # of a busy machine
    assert answer.why is not None
    assert answer.why.startswith("bound by ")
    assert "arithmetic x2 costs" in answer.why
    assert answer.why == answer.workloads[0].why
    jsonschema.validate(answer.as_json(), answer_schema())
    assert perfsuite.judge(SLOW, GEMM, timed=False).why is None


def test_a_wrong_answer_names_its_remedy() -> None:
    answer = perfsuite.judge("def run(a, b):\n    raise ValueError('no')\n", GEMM, timed=False, why=True)
    assert answer.why == (
        "candidate.py:2 in run: the report shows the last frames of its code, and `pytest --pdb` stops there."
    )
    wrong = perfsuite.judge("def run(a, b):\n    return (a @ b) * 1.01\n", GEMM, timed=False, why=True)
    assert wrong.why is not None
    assert wrong.why.startswith("accumulate in float32")
    assert perfsuite.judge("def run(a, b:\n", GEMM, why=True).why is None  # the sentence says it


def test_a_spill_comes_before_all_else() -> None:
    kernels = (Kernel(name="small", arch="sm_90a", registers=32, spill_bytes=0),)
    kernels += (Kernel(name="tile", arch="sm_90a", registers=255, spill_bytes=512),)
    said = first_look(MADE, Gemm(8, 8, 8), SOURCE, kernels, device="cpu", seconds=60.0)
    assert said.startswith("tile spills 512 bytes a thread to local memory on sm_90a (255 registers)")


def test_registers_are_told_beside_the_regime() -> None:
    kernels = (Kernel(name="tile", arch="sm_90a", registers=200, spill_bytes=0),)
    said = first_look(MADE, Gemm(64, 64, 64, dtype="float32"), SOURCE, kernels, device="cpu", seconds=60.0)
    assert said.endswith("; tile takes 200 registers a thread, so that few warps fit")


def test_near_the_roofline_there_is_nothing() -> None:
    said = first_look(replace(MADE, roofline_share=0.93), Gemm(8, 8, 8), SOURCE, (), device="cuda", seconds=1.0)
    assert said == "nothing: it takes 93% of what the card's data sheet allows for the stated work"


GEMMS = (Gemm(64, 64, 64), *Gemm(64, 64, 64).variations())


def times(*seconds: float, **more: float) -> dict[str, Any]:
    return {"seconds": list(seconds), "host_seconds": seconds[0], **more}


def of_costs(arithmetic: float, moved: float) -> list[float]:
    """Times that grow with FLOPs and bytes by these elasticities."""
    base = GEMMS[0]
    return [
        ((one.flops or 1) / (base.flops or 1)) ** arithmetic * ((one.bytes or 1) / (base.bytes or 1)) ** moved
        for one in GEMMS
    ]


@pytest.mark.parametrize(
    ("arithmetic", "moved", "regime"), [(0.9, 0.1, "compute"), (0.1, 0.9, "memory"), (0.05, 0.1, "overhead")]
)
def test_regimes_on_processors(arithmetic: float, moved: float, regime: str) -> None:
    said = regime_of(times(*of_costs(arithmetic, moved)), GEMMS, device="cpu")
    assert said.startswith(f"bound by {regime}: arithmetic x2 costs {2**arithmetic - 1:+.0%} time, bytes x2")


def test_regimes_on_a_card() -> None:
    busy = {"busy": 1.0, "communication": 0.0, "kernels": 1.0}
    said = regime_of(times(*of_costs(0.9, 0.1), **busy), GEMMS, device="cuda")
    assert said.startswith("bound by compute: ")
    assert "lower precision" in said
    idle = {"busy": 0.2, "communication": 0.0, "kernels": 40.0}
    said = regime_of(times(*of_costs(0.9, 0.1), **idle), GEMMS, device="cuda")
    assert said.startswith("bound by overhead: ")
    assert "CUDA graphs" in said


def test_a_candidate_that_lies_about_its_times_only_loses_its_advice() -> None:
    lies = "import json, sys, pathlib, os\ndef run(a, b):\n    if 'alone_call' in ' '.join(sys.argv):\n        "
    lies += "pathlib.Path(sys.argv[1], 'result.json').write_text(json.dumps({'seconds': ['x']}))\n        os._exit(0)\n"
    lies += "    return a @ b\n"
    said = first_look(MADE, Gemm(8, 8, 8, dtype="float32"), Source(lies, "run"), (), device="cpu", seconds=60.0)
    assert said == "its regime is unknown: the run of the candidate alone did not end"


def test_problems_without_variations() -> None:
    one = Attention(1, 1, 16, 8, dtype="float32")
    assert regime_of(times(1.0), (one,), device="cpu").startswith(
        "its regime is unknown: the problem has no variations"
    )


def test_the_command_prints_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def run(a, b):\n    return (a @ b) * 1.01\n")
    words = ["judge", str(file), "--problem", json.dumps(GEMM), "--no-timing", "--device", "cpu", "--why"]
    assert main(words) == 1
    assert "look first: accumulate in float32" in capsys.readouterr().out
