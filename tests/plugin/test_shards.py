"""A suite in parts, and the record that `perfsuite merge` makes of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfsuite.cli.main import main
from perfsuite.pytest_plugin.shards import key_of, partition
from perfsuite.record.store import read_run

from .conftest import Outcome, Suite

CARD = """
def pytest_perfsuite_fingerprint(fingerprint):
    fingerprint.update(gpu=os.environ.get("CARD", "Fake H200"), commit=os.environ.get("COMMIT", "c" * 40), dirty=False)
"""
TESTS = """
@pytest.mark.parametrize("n", [8, 16, 24, 32, 40])
@TARGET
def test_met(n, perf): perf(Gemm(n, 8, 8), met)

@TARGET
def test_missed(perf): perf(Gemm(8, 8, 8), missed)

@TARGET
def test_undecided(perf): perf(Gemm(8, 8, 8), undecided)

def test_checked(perf): perf(Gemm(8, 8, 8), met)

@pytest.mark.parametrize("n", range(4))
def test_ordinary(n): pass
"""
SHUFFLED = """
import random
def pytest_collection_modifyitems(items):
    random.SystemRandom().shuffle(items)
"""
MET = "@pytest.mark.parametrize('n', [8, 16, 24])\n@TARGET\ndef test_met(n, perf): perf(Gemm(n, 8, 8), met)\n"


@pytest.fixture
def parts(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> Suite:
    """A suite on a made-up card, at a commit that a variable names."""
    monkeypatch.setenv("PERFSUITE_COMMIT", "c" * 40)
    monkeypatch.chdir(suite.path)
    suite.add_hooks(CARD)
    suite.write(TESTS)
    return suite


def run_part(suite: Suite, which: str, *words: str, name: str | None = None) -> Outcome:
    path = suite.path / (name or f"part-{which.replace('/', '-')}.jsonl")
    return suite.run("--gpu", f"--perf-shard={which}", f"--perf-record={path}", *words)


def merged(suite: Suite, *names: str, output: str = "all.jsonl") -> int:
    return main(["merge", *names, "--output", output])


def names_in(path: Path) -> list[str]:
    return sorted({str(case.test) for case in read_run(path, empty=True).cases})


def verdicts(path: Path) -> dict[tuple[str | None, str], str]:
    return {(case.test, case.case): str(case.verdict) for case in read_run(path).cases}


def divided_by(path: Path) -> set[str]:
    """The number of cases that the made-up comparison writes into its sentence."""
    return {case.sentence.rpartition(", ")[2] for case in read_run(path, empty=True).cases}


@pytest.mark.parametrize("mode", [[], ["-p", "xdist", "-n2"], ["-p", "shuffled"]], ids=["plain", "xdist", "any-order"])
def test_the_parts_are_the_whole(parts: Suite, mode: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    (parts.path / "shuffled.py").write_text(SHUFFLED)
    whole = parts.run("--gpu", f"--perf-record={parts.path / 'whole.jsonl'}")
    names = [f"part-{number}-3.jsonl" for number in (1, 2, 3)]
    codes = []
    for number, name in enumerate(names, start=1):
        words = (f"--perf-shard={number}/3", f"--perf-record={parts.path / name}")
        codes.append(parts.run("--gpu", *mode, *words, subprocess=True).code)
    assert whole.code == 1
    assert sorted(codes) == [0, 1, 20]
    assert merged(parts, *names) == whole.code
    assert verdicts(parts.path / "all.jsonl") == verdicts(parts.path / "whole.jsonl")
    for name in ("all.jsonl", "whole.jsonl"):
        assert divided_by(parts.path / name) == {"7 cases)"}
    run = [names_in(parts.path / name) for name in names]
    assert sum(map(len, run)) == len({test for tests in run for test in tests}) == 8
    ends = [read_run(parts.path / name, empty=True).end for name in names]
    assert len({end.part.partition for end in ends if end and end.part}) == 1
    assert "1 undecided" in capsys.readouterr().out


def test_tests_that_are_left_out_are_not_divided(parts: Suite) -> None:
    for number in (1, 2):
        run_part(parts, f"{number}/2", "-k", "test_met")
    ends = [read_run(parts.path / f"part-{number}-2.jsonl").end for number in (1, 2)]
    assert [end.part.divided_by for end in ends if end and end.part] == [5, 5]
    assert [end.part.tests for end in ends if end and end.part] == [5, 5]
    assert merged(parts, "part-1-2.jsonl", "part-2-2.jsonl") == 0


def test_an_empty_part_is_green_and_closed(parts: Suite, capsys: pytest.CaptureFixture[str]) -> None:
    parts.write(MET)
    done = [run_part(parts, f"{number}/5") for number in range(1, 6)]
    assert [one.code for one in done] == [0] * 5
    done[4].has("part 5 of 5 has no gate to run; record: part-5-5.jsonl")
    found = read_run(parts.path / "part-5-5.jsonl", empty=True)
    assert found.cases == []
    assert found.unfinished is None
    assert merged(parts, *(f"part-{number}-5.jsonl" for number in range(1, 6))) == 0
    assert main(["verify", "part-5-5.jsonl", "--any-commit"]) == 0
    assert "green: an empty part of a suite" in capsys.readouterr().out
    assert main(["report", "part-5-5.jsonl"]) == 2
    assert "holds no case: it is part 5 of 5 of a suite, and empty" in capsys.readouterr().err


@pytest.mark.parametrize("mode", [[], ["-p", "xdist", "-n2"]], ids=["plain", "xdist"])
def test_an_empty_part_with_xdist(parts: Suite, mode: list[str]) -> None:
    parts.write(MET)
    found = parts.run(
        "--gpu", *mode, "--perf-shard=5/5", f"--perf-record={parts.path / 'empty.jsonl'}", subprocess=True
    )
    assert found.code == 0
    end = read_run(parts.path / "empty.jsonl", empty=True).end
    assert end is not None
    assert end.part is not None
    assert (end.exit, end.part.number) == (0, 5)


def test_nothing_collected_anywhere_measures_nothing(parts: Suite) -> None:
    assert run_part(parts, "1/2", "-k", "no_such_test").code == 21
    assert run_part(parts, "2/2", "-k", "no_such_test").code == 21


def test_a_part_without_a_card_fails_the_whole(parts: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    parts.write(MET)
    run_part(parts, "1/2")
    monkeypatch.setenv("FAKE_CARDS", "0")
    done = run_part(parts, "2/2")
    assert done.code == 21
    done.has("nothing was measured (no-device)")
    assert not (parts.path / "all.jsonl").exists()
    assert merged(parts, "part-1-2.jsonl", "part-2-2.jsonl") == 2  # that part knows no card, so it is another run's


def test_recorded_times_balance_the_parts(parts: Suite) -> None:
    parts.write(MET)
    cases = parts.run("--gpu").cases
    lines = [case | {"wall_seconds": 9.0 if "[24]" in case["test"] else 1.0} for case in cases]
    (parts.path / "times.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for number in (1, 2):
        run_part(parts, f"{number}/2", "--perf-shard-times=times.jsonl")
    assert names_in(parts.path / "part-1-2.jsonl") == ["test_kernels.py::test_met[24]"]
    assert len(names_in(parts.path / "part-2-2.jsonl")) == 2
    bad = run_part(parts, "1/2", "--perf-shard-times=conftest.py")
    assert bad.code == 4
    bad.has("--perf-shard-times is no record with cases")


def test_a_suspect_is_measured_again_although_its_part_is_in_addopts(parts: Suite) -> None:
    (parts.path / "pytest.ini").write_text("[pytest]\naddopts = --perf-shard=1/1\n")
    assert parts.run("--gpu", "-k", "test_met").code == 0


PORTABLE = """
import kernels
import pytest
from perfsuite import Gemm

@pytest.mark.perf_target(against="cublas", at_least=0.02)
@pytest.mark.parametrize("n", [48, 64])
def test_fast(n, perf): perf(Gemm(n, n, n, dtype="float32"), kernels.once)

@pytest.mark.perf_target(against="cublas", at_least=100.0)
def test_slow(perf): perf(Gemm(64, 64, 64, dtype="float32"), kernels.forty_times)

def test_wrong(perf): perf(Gemm(32, 32, 32, dtype="float32"), kernels.off)
"""
CANDIDATES = """
import torch
def once(a, b): return torch.mm(a, b)
def off(a, b): return torch.mm(a, b) * 1.01
def forty_times(a, b):
    for _ in range(40): c = torch.mm(a, b)
    return c
"""


@pytest.mark.parametrize("isolate", [[], ["--perf-isolate"]], ids=["in-process", "isolated"])
def test_measured_parts_give_the_verdicts_of_the_whole(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, isolate: list[str]
) -> None:
    """Of cases whose target lies far from the speed. The interval of any other may hold its target in either run."""
    monkeypatch.setenv("PERFSUITE_COMMIT", "c" * 40)
    monkeypatch.chdir(pytester.path)
    pytester.makepyfile(kernels=CANDIDATES, test_it=PORTABLE)
    codes = []
    for words in ([], ["--perf-shard=1/2"], ["--perf-shard=2/2"]):
        path = pytester.path / f"{len(codes)}.jsonl"
        line = ["-p", "perfsuite.plugin", "--perf-portable", f"--perf-record={path}", *words, *isolate]
        codes.append(int(pytester.runpytest_subprocess(*line).ret))
    assert codes[0] == 1
    assert main(["merge", "1.jsonl", "2.jsonl", "--output", "all.jsonl"]) == 1
    whole, parts = verdicts(pytester.path / "0.jsonl"), verdicts(pytester.path / "all.jsonl")
    assert whole.keys() == parts.keys()
    undecided = {key for found in (whole, parts) for key, verdict in found.items() if verdict == "UNDECIDED"}
    assert {key: whole[key] for key in whole if key not in undecided} == {
        key: parts[key] for key in parts if key not in undecided
    }
    assert "WRONG" in whole.values()
    assert len(undecided) < len(whole)


REFUSED = {
    "no parts": ("--perf-shard=3", "it must be a part and the number of parts, such as 3/7"),
    "too high": ("--perf-shard=8/7", "--perf-shard is '8/7'; it must be"),
    "zero": ("--perf-shard=0/7", "--perf-shard is '0/7'; it must be"),
    "last failed": ("--perf-shard=1/2 --lf", "so it excludes --lf and --ff: leave it out"),
    "stepwise": ("--perf-shard=1/2 --stepwise", "so it excludes --stepwise: leave it out"),
    "times": ("--perf-shard=1/2 --perf-shard-times=none.jsonl", "there is no such file"),
}


@pytest.mark.parametrize("words", REFUSED.values(), ids=REFUSED)
def test_what_cannot_work_is_refused(suite: Suite, words: tuple[str, str]) -> None:
    suite.write(TESTS)
    found = suite.run("--gpu", *words[0].split())
    assert found.code == 4
    found.has(words[1])


def test_parts_need_gates(suite: Suite) -> None:
    suite.write(TESTS)
    found = suite.run("--perf-shard=1/2")
    assert found.code == 4
    found.has("--perf-shard divides a run of gates: add --gpu or --perf-portable")


def test_records_that_do_not_belong_together(
    parts: Suite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parts.write(MET)
    one, two = "part-1-2.jsonl", "part-2-2.jsonl"
    for which in ("1/2", "2/2", "1/3"):
        run_part(parts, which)
    run_part(parts, "2/2", "-k", "8 or 16", name="other-tests.jsonl")
    run_part(parts, "2/2", "--perf-cache=both", name="twice-as-many.jsonl")
    parts.run("--gpu", f"--perf-record={parts.path / 'whole.jsonl'}")
    run_part(parts, "1/2", "-x", name="stopped.jsonl")
    monkeypatch.setenv("PERFSUITE_COMMIT", "d" * 40)
    monkeypatch.setenv("COMMIT", "d" * 40)
    run_part(parts, "2/2", name="other-commit.jsonl")
    cases = json.loads((parts.path / one).read_text().splitlines()[1])
    (parts.path / "older.jsonl").write_text(json.dumps(cases) + "\n")
    expected = {
        (one,): "of 2 parts on Fake H200 these are missing: 2",
        (one, one): f"{one} is given twice",
        (one, "./" + one): "is given twice",
        (one, "part-1-3.jsonl"): f"differ in the number of parts: {one} has 2, part-1-3.jsonl has 3",
        (one, "other-tests.jsonl"): "the records differ in the partition",
        (one, "twice-as-many.jsonl"): "number of cases over which the error rate is divided",
        (one, two, "whole.jsonl"): "whole.jsonl is a whole run on Fake H200",
        (one, "other-commit.jsonl"): "the records differ in the commit",
        (one, "older.jsonl"): "older.jsonl is not closed",
        (one, "none.jsonl"): "none.jsonl: cannot be read as a record",
    }
    (parts.path / "copy.jsonl").write_bytes((parts.path / one).read_bytes())
    expected[one, "copy.jsonl", two] = f"{one} and copy.jsonl are both part 1 of 2 on Fake H200"
    for names, sentence in expected.items():
        assert merged(parts, *names) == 2
        assert sentence in capsys.readouterr().err
        assert not (parts.path / "all.jsonl").exists()
    assert merged(parts, one, two, output=one) == 2
    assert "one of the records" in capsys.readouterr().err


def test_a_partition_depends_on_names_and_work_alone() -> None:
    names, work = ["a", "b", "c", "d", "e"], [5.0, 4.0, 3.0, 3.0, 3.0]
    parts = partition(names, work, 2)
    turned = partition(names[::-1], work[::-1], 2)
    assert parts == turned[::-1]
    assert sorted(sum(one for one, part in zip(work, parts, strict=True) if part == k) for k in (1, 2)) == [8.0, 10.0]
    assert key_of(names, parts, 2) == key_of(names[::-1], turned, 2)
    assert key_of(names, parts, 2) != key_of(names, partition(names, work[::-1], 2), 2)
    equal = partition([str(n) for n in range(7)], [1.0] * 7, 3)
    assert sorted(map(equal.count, (1, 2, 3))) == [2, 2, 3]
    assert set(partition(["a"], [1.0], 3)) == {1}
