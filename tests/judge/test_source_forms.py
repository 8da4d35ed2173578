"""Forms of problems and of candidates: module files, FlashInfer-Bench's, and the three of C++ and CUDA."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import perfsuite
from perfsuite.judge import build
from perfsuite.judge.candidates import candidate_of
from perfsuite.judge.engine import Terms
from perfsuite.judge.parameters import axes_of, expressions, parameters_of
from perfsuite.judge.pool import Job, Pool
from perfsuite.judge.problem_forms import task_of
from perfsuite.outcome import UserError
from perfsuite.problems import Gemm

GEMM = {"family": "gemm", "m": 32, "n": 24, "k": 16, "dtype": "float32"}
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
DEFINITION = {
    "name": "scale_h64",
    "op_type": "norm",
    "axes": {"rows": {"type": "var"}, "h": {"type": "const", "value": 64}},
    "inputs": {
        "x": {"shape": ["rows", "h"], "dtype": "float32"},
        "weight": {"shape": ["h"], "dtype": "float32"},
        "eps": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"y": {"shape": ["rows", "h"], "dtype": "float32"}},
    "reference": "import torch\n\n\ndef run(x, weight, eps):\n"
    "    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight\n",
}
WORKLOADS = [
    {
        "uuid": str(rows),
        "axes": {"rows": rows},
        "inputs": {"x": {"type": "random"}, "eps": {"type": "scalar", "value": 1e-5}},
    }
    for rows in (48, 160)
]
RETURNS = "import torch\ndef run(x, weight, eps):\n    return torch.rms_norm(x, (x.shape[-1],), weight, eps)\n"
WRITES = "def run(x, weight, eps, y):\n    y.copy_(x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * weight)\n"
NAMED = "def run(x, weight, eps):\n    return {'y': x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * weight}\n"
POINTERS = """#include <cmath>
#include <cstdint>
extern "C" void run(const float* x, const float* weight, float* y, int64_t rows, int64_t h, double eps) {
  for (int64_t i = 0; i < rows; ++i) {
    double sum = 0;
    for (int64_t j = 0; j < h; ++j) sum += double(x[i * h + j]) * x[i * h + j];
    for (int64_t j = 0; j < h; ++j) y[i * h + j] = x[i * h + j] / std::sqrt(sum / h + eps) * weight[j];
  }
}
"""


def solution(text: str, *, language: str = "python", path: str = "main.py", **spec: Any) -> dict[str, Any]:
    return {
        "name": "tried",
        "definition": "scale_h64",
        "author": "nobody",
        "spec": {"language": language, "target_hardware": ["cpu"], "entry_point": f"{path}::run", **spec},
        "sources": [{"path": path, "content": text}],
    }


@pytest.mark.parametrize(
    ("candidate", "verdict"),
    [
        (solution(RETURNS, destination_passing_style=False), "MET"),
        (solution(WRITES), "MET"),
        (solution(NAMED, destination_passing_style=False), "MET"),
        (solution(WRITES.replace("* weight", "+ weight")), "WRONG"),
        (solution("def run(x, weight, eps, y):\n    pass\n"), "WRONG"),
    ],
    ids=["returns", "writes", "dictionary", "wrong", "writes nothing"],
)
def test_a_definition_of_flashinfer_judges_its_solutions(candidate: dict[str, Any], verdict: str) -> None:
    answer = perfsuite.judge(candidate, {"definition": DEFINITION, "workloads": WORKLOADS}, timed=False)
    assert answer.verdict == verdict, answer.sentence
    assert answer.problem == "scale_h64"
    if verdict == "MET":
        assert [one.name for one in answer.workloads] == ["rows=48", "rows=160"]


def test_a_definition_and_its_workloads_may_lie_in_files(tmp_path: Path) -> None:
    (tmp_path / "definition.json").write_text(json.dumps(DEFINITION))
    lines = [json.dumps({"definition": "scale_h64", "workload": one, "solution": None}) for one in WORKLOADS]
    (tmp_path / "workloads.jsonl").write_text("\n".join(lines))
    place = tmp_path / "problem.json"
    place.write_text(json.dumps({"definition": "definition.json", "workloads": "workloads.jsonl", "at_least": 0.5}))
    task = task_of(place)
    assert (task.at_least, len(task.workloads), task.results) == (0.5, 2, ("y",))


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"entry_point": "run"}, "entry_point is 'run'"),
        ({"language": "rust"}, "language is 'rust'"),
        ({"build_commands": ["make"]}, "build_commands"),
    ],
)
def test_a_solution_that_is_not_supported_is_an_error(spec: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        candidate_of({**solution(RETURNS), "spec": {**solution(RETURNS)["spec"], **spec}})


def test_a_module_file_gives_its_parameters_to_the_candidate(tmp_path: Path) -> None:
    head = "import torch\nfrom torch import nn\n\n\nclass {}(nn.Module):\n    def __init__(self, d, bias=True):\n"
    body = "        super().__init__()\n        self.a = nn.Linear(d, d, bias=bias)\n\n"
    body += "    def forward(self, x):\n        return {}\n"
    rest = "\n\ndef get_inputs():\n    return [torch.randn(16, 32)]\n\n\ndef get_init_inputs():\n"
    rest += "    return [[32], {'bias': False}]\n"
    problem = tmp_path / "linear.py"
    problem.write_text(head.format("Model") + body.format("self.a(x)") + rest)
    # Its own random numbers would differ: the class draws some before it makes the layer.
    drawn = head.format("ModelNew") + "        torch.randn(3)\n" + body.format("x @ self.a.weight.t()")
    assert perfsuite.judge(drawn, problem, timed=False).verdict == "MET"
    (tmp_path / "none.py").write_text("x = 1\n")
    with pytest.raises(UserError, match="has no Model"):
        perfsuite.judge(drawn, tmp_path / "none.py", timed=False)


def test_a_test_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # where pytest does not know the plugin
    test = tmp_path / "test_product.py"
    test.write_text(
        "import pytest\nfrom perfsuite import Gemm\nimport torch\n\n\ndef mine(a, b):\n    raise ValueError\n\n\n"
        "@pytest.mark.perf_target(against='cublas', at_least=0.01)\n@pytest.mark.parametrize('n', [32, 64])\n"
        "def test_it(n, perf):\n    perf(Gemm(n, n, n, dtype='float32'), mine)\n\n\ndef test_none():\n    pass\n"
    )
    right, wrong = ("def mine(a, b):\n    return a @ b\n", "def mine(a, b):\n    return a + b\n")
    jobs = [Job.of(text, f"{test}::test_it[64]") for text in (right, wrong)]
    jobs.append(Job.of(right, f"{test}::test_none"))
    with Pool(Terms(seconds=2.0)) as pool:
        found = {one["id"]: one for one in pool.answers(jobs)}
    answers = [found[job.id] for job in jobs]
    assert [one["verdict"] for one in answers] == ["MET", "WRONG", "UNDECIDED"], [one["sentence"] for one in answers]
    assert (answers[0]["target"], answers[0]["workloads"][0]["rival"]) == (0.01, "cublas")
    assert answers[0]["problem"] == "test_it[64]"
    assert "calls perf nowhere" in answers[2]["sentence"]


def test_several_files_import_each_other() -> None:
    files = {
        "main.py": "from parts.inner import product\nrun = product\n",
        "parts/inner.py": "def product(a, b):\n    return a @ b\n",
    }
    assert perfsuite.judge({"files": files, "main": "main.py"}, GEMM, timed=False).verdict == "MET"


@needs_compiler
def test_pointers_of_cpp_are_judged_on_a_processor_and_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    given = {"definition": DEFINITION, "workloads": WORKLOADS}
    made = {"files": {"norm.cpp": POINTERS}}
    first = perfsuite.judge(made, given, timed=False)
    assert (first.verdict, first.compiled) == ("MET", "ahead"), first.sentence
    again = perfsuite.judge(made, given, timed=False)
    assert (again.verdict, again.compiled) == ("MET", "cached")
    assert build.cache() == tmp_path / "perfsuite" / "judge"
    wrong = perfsuite.judge({"files": {"norm.cpp": POINTERS.replace("* weight[j]", "")}}, given, timed=False)
    assert (wrong.verdict, wrong.reason) == ("WRONG", "inaccurate")
    late = perfsuite.judge({"files": {"norm.cpp": f"// slow\n{POINTERS}"}}, given, timed=False, compile_seconds=0.001)
    assert (late.verdict, late.reason, str(late.stage)) == ("WRONG", "timed-out", "compile")


@needs_compiler
def test_named_arguments_take_the_place_of_the_order() -> None:
    text = 'extern "C" void run(int m, float* c, const float* b, const float* a, int n, int k) {\n'
    text += "  for (int i = 0; i < m; ++i)\n    for (int j = 0; j < n; ++j) {\n      float sum = 0;\n"
    text += (
        "      for (int l = 0; l < k; ++l) sum += a[i * k + l] * b[l * n + j];\n      c[i * n + j] = sum;\n    }\n}\n"
    )
    order = ["arg0.shape[0]", "out", "arg1", "arg0", "arg1.shape[1]", "arg0.shape[1]"]
    turned = {**GEMM, "trans_a": True}  # its first operand is a view, which no pointer can describe
    answer = perfsuite.judge({"files": {"gemm.cpp": text}, "arguments": order}, [GEMM, turned], timed=False)
    assert answer.verdict == "MET", answer.sentence


@needs_nvcc
def test_a_kernel_compiles_without_a_card_and_shows_its_registers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    text = "__global__ void run(const float* a, const float* b, float* c, int m, int n, int k) {\n"
    text += "  int at = blockIdx.x * blockDim.x + threadIdx.x;\n  float sum = 0;\n  if (at >= m * n) return;\n"
    text += "  for (int l = 0; l < k; ++l) sum += a[at / n * k + l] * b[l * n + at % n];\n  c[at] = sum;\n}\n"
    kernel = {"files": {"gemm.cu": text}, "grid": ["(m * n + 255) / 256"], "block": [256]}
    answer = perfsuite.judge(kernel, GEMM, timed=False, device="cpu")
    assert (answer.verdict, answer.reason, str(answer.stage)) == ("UNDECIDED", "no-device", "compile"), answer.sentence
    assert {one.name for one in answer.kernels} == {"run"}
    assert all(one.registers > 0 and one.arch.startswith("sm_") for one in answer.kernels)
    bad = {**kernel, "files": {"gemm.cu": text.replace("sum = 0", "sum = zero")}}
    refused = perfsuite.judge(bad, GEMM, timed=False, device="cpu")
    assert (refused.verdict, refused.reason) == ("WRONG", "does-not-compile")
    assert "zero" in (refused.compiler_output or "")
    with pytest.raises(UserError, match="no expression"):
        perfsuite.judge({**kernel, "grid": ["system(1); 1"]}, GEMM, timed=False, device="cpu")


def test_parameters_get_tensors_results_sizes_and_the_stream() -> None:
    problem = Gemm(32, 24, 16, "float32")
    assert axes_of(problem) == {"m": (0, 0), "k": (0, 1), "n": (1, 1)}
    text = (
        'extern "C" void run(const float *a, float const* b, /* out */ float* c, int n, int k, int m, void* stream) {'
    )
    found = parameters_of(text, "run", kernel=False)
    assert found is not None
    workload = task_of(problem).workloads[0]
    values = expressions(found, (), workload)
    assert values[:3] == ["given[0].data_ptr()", "given[1].data_ptr()", "results[0].data_ptr()"]
    assert values[3:6] == ["args[1].shape[1]", "args[0].shape[1]", "args[0].shape[0]"]
    assert "current_stream" in values[6]
    given = expressions(found, ("arg1", "arg0", "out", "7", "arg0.shape[1]", "arg0.shape[0]", "stream"), workload)
    assert given[2:5] == ["results[0].data_ptr()", "7", "args[0].shape[1]"]
    unknown = parameters_of('extern "C" void run(float* a, int rows, int columns) {', "run", kernel=False)
    assert unknown is not None
    with pytest.raises(UserError, match="'rows' has no known value"):
        expressions(unknown, (), workload)


@needs_compiler
@pytest.mark.skipif(not os.environ.get("PERFSUITE_WHOLE"), reason="torch's headers take half a minute")
def test_a_cpp_function_over_tensors_is_judged_on_a_processor() -> None:
    text = "#include <torch/extension.h>\n"
    text += "torch::Tensor run(torch::Tensor a, torch::Tensor b) { return torch::matmul(a, b); }\n"
    answer = perfsuite.judge({"files": {"gemm.cpp": text}}, GEMM, timed=False)
    assert answer.verdict == "MET", answer.sentence
