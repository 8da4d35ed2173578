"""Candidates as source text: imported in a worker alone, with a clear sentence for each way in which they fail."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from perfsuite import Source
from perfsuite.case.ask import Ask
from perfsuite.case.comparison import Comparison
from perfsuite.isolate import IsolationError, compare_isolated
from perfsuite.outcome import Reason, UnjudgeableError, UserError, Verdict
from perfsuite.problems import Gemm
from perfsuite.settings import Settings

PRODUCT = "def product(a, b):\n    return a @ b\n"


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def judged(candidate: Any, **options: Any) -> Comparison:
    problem = options.pop("problem", Gemm(32, 32, 32, "float32"))
    settings = Settings(device="cpu", seconds=0.05)
    return compare_isolated(Ask(problem, problem.called(candidate), settings=settings, **options), seconds=60.0)


def test_text_is_checked_and_timed_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = set(sys.modules)
    one = judged(Source(f"import os\n{PRODUCT}", "product"), at_least=1e-3)
    assert (one.verdict, one.candidate) == (Verdict.MET, "candidate.product"), one.sentence
    assert one.rounds
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("perfsuite-source-")]
    assert "candidate" not in set(sys.modules) - before


def test_a_file_imports_its_neighbours_and_is_taken_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_kernel.py").write_text(PRODUCT)
    (tmp_path / "kernel.py").write_text(
        "import neighbour_of_kernel\nclass A:\n    gemm = neighbour_of_kernel.product\n"
    )
    source = Source.file(tmp_path / "kernel.py", "A.gemm")
    (tmp_path / "kernel.py").write_text("syntax error")
    one = judged(source)
    assert (one.verdict, one.candidate) == (Verdict.MET, "kernel.A.gemm"), one.sentence


def test_further_files_come_with_it_and_code_can_read_its_own_source() -> None:
    text = "import inspect\nfrom inner.parts import product as inside\n"
    text += "def product(a, b):\n    assert 'inside(a, b)' in inspect.getsource(product)\n    return inside(a, b)\n"
    one = judged(Source(text, "product", files={"inner/parts.py": PRODUCT, "inner/__init__.py": ""}))
    assert one.verdict is Verdict.MET, one.sentence


@pytest.mark.parametrize(
    ("source", "reason", "words"),
    [
        (
            Source("def product(a, b)\n", "product"),
            "does-not-parse",
            "candidate.py, line 1 does not parse: expected ':'",
        ),
        (Source("a\0b", "product"), "does-not-parse", "candidate.py does not parse: "),
        (Source("x = '\ud800'", "product"), "does-not-parse", "candidate.py does not parse: "),
        (Source("(" * 100_000, "product"), "does-not-parse", "candidate.py, line 1 does not parse"),
        (Source(PRODUCT, "gemm"), "does-not-parse", "candidate.py has no gemm; it has product"),
        (Source("", "gemm"), "does-not-parse", "candidate.py has no gemm; it has no function"),
        (Source("gemm = 3", "gemm"), "does-not-parse", "gemm of candidate.py is a int; it must be callable"),
        (
            Source("import torch\ntorch.zeros(2).view(3)\n" + PRODUCT, "product"),
            "candidate-failed",
            "candidate.py raised RuntimeError when it was imported: ",
        ),
        (Source("raise SystemExit(0)", "f"), "candidate-failed", "raised SystemExit when it was imported"),
        (Source("import os\nos._exit(3)", "f"), "candidate-failed", "its process ended with exit code 3"),
        (Source("def f(a, b):\n    return a.view(7)", "f"), "candidate-failed", "(candidate.py:2 in f)"),
    ],
)
def test_each_failure_has_its_sentence(source: Source, reason: str, words: str) -> None:
    one = judged(source)
    assert (one.verdict, one.reason) == (Verdict.WRONG, reason), one.sentence
    assert words in one.sentence


def test_memory_is_limited_while_it_is_imported() -> None:
    text = "import torch\nkept = [torch.ones(1 << 28) for _ in range(1 << 20)]\n" + PRODUCT
    one = judged(Source(text, "product"))
    assert (one.verdict, one.reason) == (Verdict.WRONG, Reason.CANDIDATE_FAILED), one.sentence


def test_a_name_of_the_library_replaces_nothing() -> None:
    one = judged(Source(f"import torch\nassert torch.nn\n{PRODUCT}", "product", name="torch.py"))
    assert one.verdict is Verdict.MET, one.sentence


def test_source_inside_of_other_calls() -> None:
    text = "def product(a, b, *, more):\n    return a @ b * more\n"
    one = judged(functools.partial(Source(text, "product"), more=1))
    assert one.verdict is Verdict.MET, one.sentence
    both = judged(Source(PRODUCT, "product"), problem=Gemm(24, 24, 24, "float32", backward=True))
    assert both.verdict is Verdict.MET, both.sentence


def test_this_process_never_runs_it(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    source = Source(f"open({str(mark)!r}, 'w').write(str(__import__('os').getpid()))\n{PRODUCT}", "product")
    with pytest.raises(UnjudgeableError, match="product is source text, which this process never runs"):
        source(torch.ones(2, 2), torch.ones(2, 2))
    judged(source)  # a sandbox refuses the file; without one another process writes it
    assert not mark.exists() or int(mark.read_text()) != os.getpid()


def test_a_closure_is_refused_with_its_remedy() -> None:
    more = 2
    with pytest.raises(IsolationError, match=r"or its source: perfsuite.Source\(text, 'name'\)"):
        judged(lambda a, b: a @ b * more)


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((b"text", "f"), {}, "the source is a bytes; it must be text"),
        (("", "f()"), {}, "the function is 'f()'; it must be the name of a function"),
        (("", "f"), {"name": "../a.py"}, "the file is '../a.py'; it must be the name of a module"),
        (("", "f"), {"files": {"../a.py": ""}}, "named '../a.py'; it must be a path inside its folder"),
        (("", "f"), {"files": {"a.bin": b""}}, "'a.bin' is a bytes; it must be text"),
        (("#" * (1 << 24), "f"), {"files": {"a": "#"}}, "at most 16777216 are taken"),
    ],
)
def test_bad_arguments_are_named(arguments: tuple[Any, ...], options: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as raised:
        Source(*arguments, **options)
    assert words in str(raised.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.py' cannot be read: No such file"):
        Source.file(tmp_path / "none.py", "f")


def test_perf_takes_it_without_the_option(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    pytester.makepyfile(
        kernel_in_file=PRODUCT,
        test_source=f"""
        import pytest
        from perfsuite import Gemm, Source

        @pytest.mark.perf_target(against="cublas", at_least=1e-4)
        def test_text(perf):
            found = perf(Gemm(32, 32, 32, "float32"), Source({PRODUCT!r}, "product"))
            assert "isolated" in found.clock_note

        def test_file(perf):
            perf(Gemm(32, 32, 32, "float32"), Source.file("kernel_in_file.py", "product"))
        """,
    )
    result = pytester.runpytest_subprocess("--perf-portable", "--perf-seconds=0.05", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=2)
