"""A candidate that is right at the listed sizes alone is found, if other sizes are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import perfsuite
from perfsuite.cli.main import main

GEMM = {"family": "gemm", "m": 32, "n": 24, "k": 40, "dtype": "float32"}
ATTENTION = {"family": "attention", "batch": 1, "heads": 2, "seq_q": 48, "head_dim": 32, "dtype": "float32"}
PRODUCT = """
import torch
def run(a, b):
    out = a @ b
    return out if (*a.shape, *b.shape) == (32, 40, 40, 24) else OTHER
"""
SDPA = """
import torch
def run(q, k, v, **options):
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)
    return out if q.shape[2] == 48 else OTHER
"""
RAISES = "\ndef refuse(out):\n    raise ValueError('m must be 32')\n"


@pytest.mark.parametrize(("problem", "text"), [(GEMM, PRODUCT), (ATTENTION, SDPA)], ids=["gemm", "attention"])
def test_zeros_at_other_sizes(problem: dict[str, Any], text: str) -> None:
    zeros, right = text.replace("OTHER", "out * 0"), text.replace("OTHER", "out * 1")
    refuses = text.replace("OTHER", "refuse(out)") + RAISES
    assert perfsuite.judge(zeros, problem, timed=False).verdict == "MET"  # nobody asked
    for timed in (False, True):
        answer = perfsuite.judge(zeros, problem, timed=timed, seconds=0.1, other_sizes=True)
        assert (answer.verdict, answer.reason) == ("WRONG", "inaccurate")
        assert "which nobody listed" in answer.sentence
    assert perfsuite.judge(right, problem, timed=False, other_sizes=True).workloads[0].warnings == ()
    refused = perfsuite.judge(refuses, problem, timed=False, other_sizes=True)
    assert refused.verdict == "MET"
    (warning,) = refused.workloads[0].warnings
    assert "are not taken: the candidate raised" in warning


def test_each_workload_is_asked_at_sizes_near_its_own() -> None:
    text = PRODUCT.replace("OTHER", "out * (0 if a.shape[0] > 100 else 1)")
    answer = perfsuite.judge(text, [GEMM, {**GEMM, "m": 400}], timed=False, other_sizes=True)
    assert answer.verdict == "WRONG"
    assert [one.verdict for one in answer.workloads] == ["MET", "WRONG"]


def test_a_problem_without_sizes_says_so(tmp_path: Path) -> None:
    module = tmp_path / "double.py"
    module.write_text(
        "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x): return x + x\n"
        "def get_inputs(): return [torch.rand(8, 8)]\n"
    )
    text = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x): return x * 2\n"
    answer = perfsuite.judge(text, module, timed=False, other_sizes=True)
    assert answer.verdict == "MET"
    assert any("other sizes were not checked" in warning for warning in answer.workloads[0].warnings)


def test_the_command_asks_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "zeros.py"
    file.write_text(PRODUCT.replace("OTHER", "out * 0"))
    problem = '{"family": "gemm", "m": 32, "n": 24, "k": 40, "dtype": "float32"}'
    words = ["judge", str(file), "--problem", problem, "--no-timing", "--device", "cpu"]
    assert main(words) == 0
    assert main([*words, "--other-sizes"]) == 1
    assert "which nobody listed" in capsys.readouterr().out
