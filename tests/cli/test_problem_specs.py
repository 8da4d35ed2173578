"""Problems named on the command line: the forms that are read, and the error for each that is not."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perfsuite.cli.callables import load_callable
from perfsuite.cli.main import main
from perfsuite.cli.problem_specs import problem_if_named, problem_of
from perfsuite.outcome import UserError
from perfsuite.problems import Attention, Decode, Fp8Gemm, Gemm, GroupedGemm, WeightOnlyGemm
from perfsuite.problems.listing import families

KERNELS = '''
from __future__ import annotations

from dataclasses import dataclass

import beside
from perfsuite import Problem

MARK = "evaluated"


@dataclass(frozen=True)
class Scale(Problem):
    """A vector times two."""

    family = "scale"
    length: int
    dtype: str = "float32"

    def __post_init__(self):
        if self.length < 1:
            raise ValueError(f"length is {self.length}; it must be at least 1")

    @property
    def flops(self):
        return float(self.length)

    @property
    def bytes(self):
        return 8.0 * self.length

    def inputs(self, generator, *, distribution="normal"):
        import torch
        from perfsuite.problems.base import Inputs

        return Inputs((torch.randn(1, self.length, generator=generator, device=generator.device),))

    def reference(self, inputs, *, rows=None):
        return 2.0 * inputs.args[0].double()

    def own_rivals(self):
        return {"doubled": lambda x: x + x}


def scale(x):
    return x * 2.0


def helper():
    return beside.VALUE
'''


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with a family of somebody's own in a file."""
    (tmp_path / "spec_kernels.py").write_text(KERNELS)
    (tmp_path / "beside.py").write_text("VALUE = 7\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("spec_kernels", "beside"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("gemm:64x32x16", Gemm(64, 32, 16)),
        ("gemm 64x32x16 float32", Gemm(64, 32, 16, dtype="float32")),
        ("attention:2x8x512x64:bf16:causal", Attention(2, 8, 512, 64, dtype="bfloat16", causal=True)),
        ("attention:2x8x512x64:window:16,-1:scale:0.5", Attention(2, 8, 512, 64, window=(16, -1), scale=0.5)),
        ("weight-only-gemm:2x64x256:bits:8", WeightOnlyGemm(2, 64, 256, bits=8)),
        ("perfsuite:Gemm(64, 32, 16, dtype='bfloat16')", Gemm(64, 32, 16, dtype="bfloat16")),
        ("perfsuite.problems:Attention(2, 8, 512, 64, window=(-1, 3))", Attention(2, 8, 512, 64, window=(-1, 3))),
    ],
)
def test_families_and_calls_name_problems(text: str, problem: Any) -> None:
    assert problem_of(text) == problem


@pytest.mark.parametrize("place", ["spec_kernels.py", "spec_kernels", "./spec_kernels.py"])
def test_a_class_in_a_file_or_a_module_is_a_problem(place: str, here: Path) -> None:
    found: Any = problem_of(f'{place}:Scale(8, dtype="float32")')
    assert (found.family, found.name, found.length) == ("scale", "8 float32", 8)


def test_another_module_of_the_same_name_is_not_replaced(here: Path) -> None:
    (here / "json.py").write_text(KERNELS)
    with pytest.raises(UserError, match=r"another module named json is imported already \(.*__init__\.py\)"):
        problem_of("json.py:Scale(8)")


def test_a_file_is_imported_once_and_may_import_its_neighbours(here: Path) -> None:
    assert load_callable("spec_kernels.py:helper")() == 7
    assert type(problem_of("spec_kernels.py:Scale(8)")) is type(problem_of("spec_kernels.py:Scale(9)"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nothing", "'nothing' names no problem; write FAMILY:SHAPE"),
        ("torch.nn.functional:gelu", "names no problem"),
        ("rmsnrm:8x8", "there is no family rmsnrm; known are attention"),
        ("gemm:64x64", "the shape is '64x64'"),
        ("gemm:64x64x64:few", "'few' is not known; after the shape there may be fp32, fp16"),
        ("gemm:64x64x64:few", "trans-a, trans-b, batch, forward-backward, backward"),
        ("gemm:64x64x0", "k is 0"),
        ("gemm:64x64x64:batch:few", "batch is 'few'; it must be a whole number"),
        ("gemm:64x64x64:batch", "batch has no value; behind it there must be a whole number"),
        ("attention:2x8x512x64:window:16", "window is '16'; it must be two whole numbers with a comma between"),
        ("attention:2x8x512x64:window:-2,0", "window is (-2, 0); it must be a pair of whole numbers"),
        ("no-such-family:8x8", "there is no family no-such-family; known are attention"),
        ("absent.py:Scale(8)", "there is no file absent.py"),
        ("no_such_module:Scale(8)", "module no_such_module cannot be imported: No module named"),
        ("broken.py:Scale(8)", "broken.py cannot be imported: ZeroDivisionError"),
        (
            "spec_kernels.py:Sacle(8)",
            "has no class Sacle; subclasses of perfsuite.Problem there: Scale",
        ),
        ("spec_kernels.py:scale(8)", "has no subclass of Problem called scale"),
        ("spec_kernels.py:Problem(8)", "subclasses of perfsuite.Problem there: Scale"),
        ("spec_kernels.py:Scale(0)", "length is 0; it must be at least 1"),
        ("spec_kernels.py:Scale(8, width=3)", "unexpected keyword argument 'width'"),
        ("spec_kernels.py:Scale(MARK)", "MARK is not a literal"),
        ("spec_kernels.py:Scale(__import__('os').getpid())", "is not a literal"),
        ("spec_kernels.py:Scale(2 ** 3)", "2 ** 3 is not a literal"),
        ("spec_kernels.py:Scale(*[8])", "is not a literal"),
        ("spec_kernels.py:Scale(**{'length': 8})", "** is not allowed"),
        ("spec_kernels.py:Scale(8)(9)", "is not a call of one class"),
        ("spec_kernels.py:Scale(8", "names no problem"),
        ("spec_kernels.py:Scale(8,,)", "is not a call"),
    ],
)
def test_anything_else_is_one_sentence(text: str, words: str, here: Path) -> None:
    (here / "broken.py").write_text("1 / 0\n")
    with pytest.raises(UserError) as caught:
        problem_of(text)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


RECORDS = Path(__file__).parents[2] / "records"


def test_the_name_in_a_record_names_the_problem() -> None:
    named: dict[tuple[str, str], dict[str, Any]] = {}
    for file in RECORDS.glob("*/*.jsonl"):
        for case in map(json.loads, file.read_text().splitlines()):
            # A name behind which the distribution stands is of no problem.
            if case.get("params") and case.get("distribution") == "normal" and case["family"] != "custom":
                named[case["family"], case["name"]] = case["params"]
    assert {family for family, _ in named} == set(families()) - {"custom"}
    for (family, name), params in named.items():
        assert dict(problem_of(f"{family} {name}").params) == params


@pytest.mark.parametrize(
    "problem",
    [
        Gemm(8, 16, 24, dtype="bfloat16"),
        Gemm(8, 16, 24, batch=3, trans_a=True, trans_b=True, out_dtype="float32", backward=True),
        Attention(1, 8, 1, 64, kv_heads=2, seq_kv=128, causal=True),
        Attention(1, 8, 64, 64, window=(8, 0), bottom_right=True, value_dim=32, scale=0.5, backward="only"),
        Decode(2, 8, 1024, 64, kv_heads=2, page_size=16, cache_dtype="int8", cache_scales="token", scale=0.25),
        Decode(2, 8, 1024, 64, seq_q=4, cache_dtype="float8_e4m3fn"),
        Fp8Gemm(256, 512, 1024, scales="row", a_dtype="float8_e5m2", out_dtype="float32", fast_sums=True),
        GroupedGemm(4, 128, 256, 512, masked=True, scales="tensor"),
        WeightOnlyGemm(2, 64, 256, zeros=True, group=64),
        WeightOnlyGemm(2, 64, 256, bits=8, dtype="float16"),
    ],
    ids=lambda problem: problem.name.replace(" ", "-"),
)
def test_a_name_names_its_problem(problem: Any) -> None:
    assert problem_if_named(f"{problem.family} {problem.name}") == problem
    assert problem_if_named(f"{problem.family}:{problem.name}".replace(" ", ":")) == problem


def test_bench_measures_a_problem_of_the_user_s(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    command = ["bench", "spec_kernels.py:Scale(64)", "spec_kernels.py:Scale(128)", "--candidate"]
    command += ["spec_kernels.py:scale", "--device", "cpu", "--seconds", "0.05"]
    assert main(command) == 0
    table = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in table[1:3]] == [["64", "doubled"], ["128", "doubled"]]
    assert table[0].split()[-2:] == ["TFLOPS", "verdict"]


def test_bench_without_a_kernel_or_a_rival_names_the_option(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "spec_kernels.py:Scale(64)", "--device", "cpu"]) == 2
    assert "scale names no kernel: give one by --candidate" in capsys.readouterr().err
    command = ["bench", "spec_kernels.py:Scale(64)", "--candidate", "spec_kernels.py:scale", "--against", "halved"]
    assert main([*command, "--device", "cpu"]) == 2
    said = capsys.readouterr().err
    assert "--against 'halved' names no function; write module:function" in said
    assert "the libraries for scale are doubled" in said


def test_roofline_places_problems_that_nobody_has_timed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    roof = ["--flops", "1e12", "--bandwidth", "1e12"]
    assert main(["roofline", "spec_kernels.py:Scale(64)", "gemm:64x64x64:fp32", *roof]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert [line.split()[:1] for line in rows[-2:]] == [["scale"], ["gemm"]]
    assert rows[-2].split()[3:5] == ["0.12", "memory"]
    assert main(["roofline", "spec_kernels.py:Scale(64)", "--svg", "x.svg", *roof]) == 2
    assert "--svg draws measured cases" in capsys.readouterr().err
    assert main(["roofline", "spec_kernels.py:Scale(64)", "record.jsonl", *roof]) == 2
    assert "give one record, or problems" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["regime", "trace", "counters", "diagnose"])
def test_an_analysis_reads_the_same_problems(
    command: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("PATH", f"{here}:/usr/bin:/bin")
    (here / "ncu").write_text("#!/bin/sh\n")
    (here / "ncu").chmod(0o755)
    assert main([command, "spec_kernels.py:Scale(0)", "--candidate", "spec_kernels.py:scale"]) == 2
    assert "length is 0" in capsys.readouterr().err
    assert main([command, "spec_kernels.py:Scale(64)", "--candidate", "spec_kernels.py:scale"]) == 2
    assert "a GPU is needed, and " in capsys.readouterr().err
