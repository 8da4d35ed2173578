"""Stored series under today's names: of this repository's own history, of renamed tests, and of unknown names."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("asv", reason="asv is not installed")

from perfsuite.history import series
from perfsuite.history.asv_export import export
from perfsuite.history.asv_files import check_results
from perfsuite.history.carried import Plan, carry, names_of
from perfsuite.history.series_names import name_of, older_name_of
from perfsuite.record.store import read_record

from .conftest import Repository, case, write

ROOT = Path(__file__).resolve().parents[2]
RATIO = "gates.kernels.track_time_ratio"
Stored = dict[tuple[str, str, str], str]
Command = Callable[..., tuple[int, str, str]]


def stored_in(results: Path) -> Stored:
    """(File, title, name) -> result and samples, of everything that was measured."""
    found: Stored = {}
    for path in sorted(results.glob("*/*-*.json")):
        document = json.loads(path.read_text())
        for title, row in document["results"].items():
            cells = dict(zip(document["result_columns"], row, strict=False))
            for index, name in enumerate(cells["params"][0]):
                result = cells["result"][index]
                if not (isinstance(result, float) and math.isnan(result)):
                    samples = (cells.get("samples") or {index: None})[index]
                    found[path.name, title, name] = json.dumps([result, samples])
    return found


def by_older_names(monkeypatch: pytest.MonkeyPatch, *arguments: Any) -> None:
    with monkeypatch.context() as changed:
        changed.setattr(series, "name_of", lambda case, order: older_name_of(case))
        export(*arguments)


def test_the_gates_of_this_repository_have_the_same_values_under_todays_names(
    tmp_path: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = read_record(ROOT / "records" / "h200" / "gates.jsonl")
    cases = [one.changed(commit=repository.commits[0], dirty=False) for one in recorded]
    by_older_names(monkeypatch, cases, tmp_path / "old", repository.path)
    export(cases, tmp_path / "new", repository.path)
    before, expected = stored_in(tmp_path / "old"), stored_in(tmp_path / "new")
    assert not before.keys() & {key for key in expected if "track_registers" not in key[1] and "spill" not in key[1]}
    done = carry(tmp_path / "old", Plan(names_of([cases]), {}))
    after = stored_in(tmp_path / "old")
    assert after.keys() == expected.keys()
    tests_of = Counter((series.group_of(one), older_name_of(one)) for one in cases)
    shared = {repr(name_of(one)) for one in cases if tests_of[series.group_of(one), older_name_of(one)] > 1}
    assert {key for key in expected if after[key] != expected[key]} <= {key for key in expected if key[2] in shared}
    assert len(shared) < 5  # the older name pooled the samples of these tests
    assert (done.moved, done.kept) == (len(before), 0)


def test_no_value_of_the_committed_history_is_lost(tmp_path: Path) -> None:
    results = tmp_path / "benchmarks_asv" / "results"
    shutil.copytree(ROOT / "benchmarks_asv" / "results", results)
    before = stored_in(results)
    names = names_of([read_record(ROOT / "records" / "h200" / "gates.jsonl")])
    renamed = {"test_squares": "test_square_matrices"}
    done = carry(results, Plan(names, renamed))
    after = stored_in(results)
    assert done.moved + done.kept == len(before) > 30_000
    assert Counter(after.values()) == Counter(before.values())
    assert after.keys() == {
        (file, title, name.replace("'test_squares[", "'test_square_matrices[")) for file, title, name in before
    }
    assert check_results(results) == len({file for file, _, _ in before})
    known = json.loads((results / "benchmarks.json").read_text())
    assert all(name in known[title]["params"][0] for _, title, name in after)


def test_a_renamed_test_is_known_by_its_case_and_unknown_series_stay(
    tmp_path: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, commits = tmp_path / "results", repository.commits
    old, gone = case(commit=commits[0]), case("gone", commit=commits[0], ratio=3.0)
    now = old.changed(test="tests/perf/test_kernels.py::test_other_name")
    by_older_names(monkeypatch, [old, gone], results, repository.path)
    export([case(commit=commits[1])], results, repository.path)
    before = stored_in(results)
    done = carry(results, Plan(names_of([[now], [old]]), {}))
    after = stored_in(results)
    assert (done.moved, done.kept) == (8, 4)  # four series each
    assert Counter(after.values()) == Counter(before.values())
    names = {(file[:8], name) for file, title, name in after if title == RATIO}
    assert names == {
        (commits[0][:8], "'test_other_name vs library'"),
        (commits[0][:8], "'kernels.gone vs library'"),
        (commits[1][:8], "'test_other_name vs library'"),
    }
    assert carry(results, Plan(names_of([[now], [old]]), {})).kept == 4
    assert stored_in(results) == after


def test_tests_that_shared_a_series_each_have_its_values(
    tmp_path: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, one = tmp_path / "results", case(commit=repository.commits[0])
    by_older_names(monkeypatch, [one], results, repository.path)
    twice = [one, one.changed(test="tests/perf/test_kernels.py::test_too")]
    carry(results, Plan(names_of([twice]), {}))
    ratios = {name: value for (_, title, name), value in stored_in(results).items() if title == RATIO}
    assert set(ratios) == {"'test_it[gemm 64] vs library'", "'test_too vs library'"}
    assert len(set(ratios.values())) == 1


def test_two_stored_series_of_one_name_both_keep_their_values(
    tmp_path: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, one = tmp_path / "results", case(commit=repository.commits[0])
    other = one.changed(case="kernels.second vs library", samples=case("x", commit="y", ratio=2.0).line["samples"])
    by_older_names(monkeypatch, [one, other], results, repository.path)
    before = stored_in(results)
    carry(results, Plan(names_of([[one], [other]]), {}))
    after = stored_in(results)
    assert Counter(after.values()) == Counter(before.values())
    assert {name for _, title, name in after if title == RATIO} == {
        "'test_it[gemm 64] vs library'",
        "'kernels.second vs library'",
    }


def test_the_command_carries_results_and_declared_cases(
    tmp_path: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch, perfsuite: Command
) -> None:
    results, one = tmp_path / "results", case(commit=repository.commits[0])
    by_older_names(monkeypatch, [one], results, repository.path)
    listed = {"groups": {"kernels": {"time_ratio": [one.case, "kernels.never vs library"]}}, "problems": []}
    (tmp_path / "cases.json").write_text(json.dumps(listed))
    record = write(tmp_path / "record.jsonl", [one])
    line = ["asv", "carry", record, "--tests", "--results", results]
    code, out, _ = perfsuite(*line, "--renamed", "test_it=test_product")
    assert (code, "values have today's names" in out) == (0, True)
    assert {name for _, _, name in stored_in(results)} == {"'test_product[gemm 64] vs library'"}
    declared = json.loads((tmp_path / "cases.json").read_text())
    names = ["test_product[gemm 64] vs library", "kernels.never vs library"]
    assert declared == {"groups": {"kernels": {"time_ratio": names}}, "problems": []}
    code, _, err = perfsuite(*line, "--renamed", "test_it")
    assert code == 2
    assert "--renamed is 'test_it'; it must be OLD=NEW" in err


def test_a_broken_result_file_leaves_all_as_it_was(
    tmp_path: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch, perfsuite: Command
) -> None:
    results, one = tmp_path / "results", case(commit=repository.commits[0])
    by_older_names(monkeypatch, [one], results, repository.path)
    before = stored_in(results)
    broken = results / "nvidia-h200" / "deadbeef-broken.json"
    broken.write_text("{")
    code, _, err = perfsuite("asv", "carry", write(tmp_path / "r.jsonl", [one]), "--tests", "--results", results)
    assert code == 2
    assert broken.name in err
    broken.unlink()
    assert stored_in(results) == before
