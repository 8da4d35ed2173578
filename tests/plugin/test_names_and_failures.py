"""Names of cases, and what a run shows of a candidate that raises; with the portable clock."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest

from perfsuite.problems.naming import name_of_callable, short_name

torch = pytest.importorskip("torch")

KERNELS = """
import functools, torch
from perfsuite import Gemm
import pytest

x = torch.randn(64, 64)

def helper(x):
    return x.view(7, 9)

def broken(x):
    return helper(x)

def gelu(x):
    return torch.nn.functional.gelu(x)

class Unknown:
    def __init__(self, x):
        self.x = x
"""


def run(pytester: pytest.Pytester, tests: str, *arguments: str) -> tuple[int, str, list[dict[str, Any]]]:
    (pytester.path / "test_kernels.py").write_text(KERNELS + tests)
    common = ("-p", "perfsuite.plugin", "-p", "no:cacheprovider", "--perf-portable", "--perf-seconds=0.02")
    record = pytester.path / "record.jsonl"
    found = pytester.runpytest_inprocess(*common, f"--perf-record={record}", *arguments)
    lines = record.read_text().splitlines() if record.exists() else []
    parsed = [json.loads(line) for line in lines]
    return int(found.ret), "\n".join(found.outlines), [line for line in parsed if "case" in line]


def test_a_candidate_that_raises_shows_the_frames_of_its_code(pytester: pytest.Pytester) -> None:
    junit = pytester.path / "junit.xml"
    code, out, (case,) = run(
        pytester, "def test_it(perf):\n    perf(broken, args=(x,), against=gelu)\n", f"--junitxml={junit}"
    )
    line = 1 + KERNELS[: KERNELS.index("x.view")].count("\n")
    said = f"(test_kernels.py:{line} in helper)"
    assert code == 1
    assert (case["verdict"], case["reason"]) == ("WRONG", "candidate-failed")
    assert said in case["sentence"]
    assert case["frames"][-1] == said.strip("()")
    assert case["frames"][-2].endswith("in broken")
    assert not any("perfsuite/" in frame for frame in case["frames"])
    assert said in out
    assert said in junit.read_text()
    assert "in broken" in junit.read_text()


def test_the_debugger_lands_in_the_candidate(pytester: pytest.Pytester) -> None:
    debugger = """
        import pdb

        class Quiet(pdb.Pdb):
            def interaction(self, frame, trace):
                trace = getattr(trace, "__traceback__", trace)
                while trace.tb_next is not None:
                    trace = trace.tb_next
                print("stopped in", trace.tb_frame.f_code.co_name)
    """
    pytester.syspathinsert()
    pytester.makepyfile(quiet_debugger=debugger)
    tests = "def test_it(perf):\n    perf(broken, args=(x,), against=gelu)\n"
    _, out, _ = run(pytester, tests, "--pdb", "--pdbcls=quiet_debugger:Quiet")
    assert "stopped in helper" in out


def test_arguments_that_the_rival_does_not_take_are_a_usage_error(pytester: pytest.Pytester) -> None:
    code, out, cases = run(pytester, "def test_it(perf):\n    perf(broken, args=(x,), against=broken)\n")
    assert code == 1
    assert cases == []
    assert "UnjudgeableError: both sides raise on these arguments: the candidate RuntimeError" in out
    assert "give args= and kwargs= with which the rival runs" in out
    gradients = "def grad(x):\n    y = gelu(x)\n    return torch.autograd.grad(y.sum(), x)\n"
    _, out, cases = run(pytester, gradients + "def test_it(perf):\n    perf(grad, args=(x,), against=grad)\n")
    assert cases == []
    assert "write perf(..., backward=True), or enter torch.enable_grad() in both" in out


def test_a_form_that_cannot_be_judged_is_a_usage_error(pytester: pytest.Pytester) -> None:
    code, out, cases = run(pytester, "def test_it(perf):\n    perf(Unknown, args=(x,), against=Unknown)\n")
    assert (code, cases) == (1, [])
    assert "its result is a test_kernels.Unknown" in out
    assert "register_pytree_node" in out
    assert "oracle/form.py" not in out


def test_a_lambda_is_never_a_name(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    tests = """
def test_softmax(perf):
    perf(lambda x: gelu(x), args=(x,), against=lambda x: gelu(x))
    perf(lambda x: gelu(x), args=(x,), against=gelu, label="mine")
    perf(functools.partial(gelu), args=(x,), against=functools.partial(lambda x: gelu(x)))
@pytest.mark.perf_target(against="cublas", at_least=0.001)
def test_product(perf):
    perf(Gemm(8, 8, 8), lambda a, b: a @ b)
    perf(Gemm(8, 8, 8), lambda a, b: a @ b, label="ours")
"""
    _, out, cases = run(pytester, tests, "-v")
    assert "<lambda>" not in out
    named = [(case["candidate"], case["name"], case["rival"], case["label"]) for case in cases]
    assert named == [
        ("test_softmax", "test_softmax float32[64x64]", "rival", None),
        ("mine", "mine float32[64x64]", "gelu", "mine"),
        ("test_kernels.gelu", "gelu float32[64x64]", "rival", None),
        ("test_product", "8x8x8 float16", "cublas", None),
        ("ours", "8x8x8 float16", "cublas", "ours"),
    ]
    for shown in ("test_softmax fp32[64x64]", "mine fp32[64x64]", "gelu fp32[64x64]", "ours 8x8x8 fp16"):
        assert shown in out
    assert "gelu gelu" not in out


class Square(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Any) -> Any:
        return x * x


class Kernel:
    def __call__(self, x: Any) -> Any:
        return x

    def launch(self, x: Any) -> Any:
        return x


class Launcher:
    """As Triton's: an object without a name around a function."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn

    def __call__(self, x: Any) -> Any:
        return self.fn(x)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (torch.nn.functional.softmax, "softmax"),
        (lambda x: x, None),
        (functools.partial(torch.nn.functional.softmax, dim=-1), "softmax"),
        (functools.partial(lambda x: x), None),
        (torch.nn.Linear(2, 2), "Linear"),
        (torch.nn.Linear(2, 2).forward, "Linear.forward"),
        (torch.compile(torch.nn.Linear(2, 2)), "Linear"),
        (torch.compile(torch.nn.functional.softmax), "softmax"),
        (torch.compile(lambda x: x), None),
        (Square.apply, "Square.apply"),
        (Kernel(), "Kernel"),
        (Kernel().launch, "launch"),
        (Launcher(torch.nn.functional.softmax), "softmax"),
        (torch.ops.aten.mm, "mm"),
        (torch.ops.aten.mm.default, "mm"),
    ],
)
def test_the_name_of_a_callable(function: Any, name: str | None) -> None:
    assert short_name(function) == name
    assert (name_of_callable(function) is None) == (name is None)
