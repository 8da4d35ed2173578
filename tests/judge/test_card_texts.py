"""The candidates for cards: their texts differ, they parse, and CUDA's compile as their first lines say."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest
from card_texts import KINDS, Text, cuda_texts, triton_texts
from drawn import BAD, BAD_ON_CARDS, HERE, Drawn, drawn, of_file, of_text, problem_value

from perfsuite.judge.answer import Answer
from perfsuite.judge.candidates import candidate_of, parse_fault
from perfsuite.judge.engine import Terms, judge_one
from perfsuite.judge.problem_forms import task_of
from perfsuite.outcome import Reason

FILES = sorted(HERE.glob("card_candidates/*"))
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")


def judged(one: Drawn) -> Answer:
    """The answer without a card."""
    return judge_one(candidate_of(one.candidate), task_of(problem_value(one.problem)), Terms(timed=False))


def source(text: Text) -> str:
    (found,) = text.candidate["files"].values()
    return str(found)


def test_two_hundred_texts_differ_and_other_seeds_give_others() -> None:
    many = [source(one) for make in (triton_texts, cuda_texts) for seed in (0, 1) for one in make(100, seed)]
    assert len(set(many)) == 400
    assert triton_texts(20, 3) == triton_texts(20, 3)


def test_triton_parses_and_has_its_function() -> None:
    for one in triton_texts(2 * len(KINDS)):
        function = "run" if one.problem.endswith(".json") else "ModelNew"
        assert parse_fault(candidate_of(one.candidate), function) is None, one.name


def test_every_bad_file_is_drawn_and_says_what_is_expected() -> None:
    assert {file.name for file in FILES} == {name for names in BAD_ON_CARDS.values() for name in names}
    for kind, names in BAD_ON_CARDS.items():
        for name in names:
            one = of_file(name, kind, HERE / "card_candidates" / name)
            assert one.expected[0] == "WRONG"
            assert (HERE / "problems" / one.problem).exists()
            if name.endswith(".py"):
                ast.parse(one.candidate["files"][name])


def test_jobs_of_a_card_have_every_kind_and_language() -> None:
    jobs = drawn(400, device="cuda")
    assert {one.kind for one in jobs} == {*BAD, "plain"}
    ends = {Path(name).suffix for one in jobs for name in one.candidate["files"]}
    assert ends == {".py", ".cu"}
    assert len({one.id for one in jobs}) == len(jobs)
    assert sum("triton-" in one.id for one in jobs) == sum("cuda-" in one.id for one in jobs) == 90
    assert not [name for one in drawn(400) for name in one.candidate["files"] if name.endswith(".cu")]


@needs_nvcc
@pytest.mark.parametrize("one", cuda_texts(2 * len(KINDS), seed=1), ids=lambda one: one.name)
def test_cuda_compiles(one: Text) -> None:
    answer = judged(of_text(one.name, one))
    assert (answer.reason, bool(answer.kernels)) == (Reason.NO_DEVICE, True), answer.compiler_output


@needs_nvcc
@pytest.mark.parametrize("file", [one for one in FILES if one.suffix == ".cu"], ids=lambda file: file.stem)
def test_bad_cuda_compiles_unless_that_is_its_fault(file: Path) -> None:
    one = of_file(file.stem, "", file)
    refused = "does-not-compile" in one.expected
    answer = judged(one)
    assert answer.reason == (Reason.DOES_NOT_COMPILE if refused else Reason.NO_DEVICE), answer.sentence


REFUSED = """\
class CompilationError(Exception):
    pass


CompilationError.__module__ = "triton.compiler.errors"


def run(a, b):
    raise CompilationError('at 3:21:\\n    tl.store(c, d)\\n    ^\\nNameError("d is not defined")')
"""


def test_what_triton_refuses_does_not_compile() -> None:
    answer = judged(Drawn("refused", "", {"files": {"refused.py": REFUSED}}, "gemm.json", (), {}))
    assert (answer.verdict, answer.reason, answer.stage) == ("WRONG", "does-not-compile", "compile"), answer.sentence
    assert 'NameError("d is not defined")' in answer.sentence
