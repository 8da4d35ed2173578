"""Records in asv's files, as asv reads them: published, shown, compared, merged; or refused, nothing touched."""

from __future__ import annotations

import importlib
import json
import math
import os
import re
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import Repository, case, make_repository, write

pytest.importorskip("asv", reason="asv is not installed")

from perfsuite.history import series
from perfsuite.history.asv_export import export
from perfsuite.history.asv_files import check_results, load_results
from perfsuite.history.commits import HistoryError
from perfsuite.settings import HARNESS

ROOT = Path(__file__).resolve().parents[2]
RATIO = "gates.kernels.track_time_ratio"
Command = Callable[..., tuple[int, str, str]]


def asv(folder: Path, *arguments: str) -> str:
    """What asv prints; its exit code must be 0."""
    done = subprocess.run(
        [sys.executable, "-m", "asv", *arguments, "--config", str(folder / "asv.conf.json")],
        cwd=folder,
        env=os.environ | {"HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def configure(folder: Path, repository: Repository) -> None:
    (folder / "benchmarks").mkdir(parents=True)
    (folder / "benchmarks" / "__init__.py").touch()
    values = {
        "version": 1,
        "project": "kernels",
        "repo": str(repository.path),
        "branches": ["main"],
        "environment_type": "virtualenv",
        "results_dir": "results",
        "html_dir": "html",
        "regressions_thresholds": {".*": 0.02},
    }
    (folder / "asv.conf.json").write_text(json.dumps(values))


def values_in(path: Path, title: str = RATIO) -> list[float | None]:
    loaded = load_results(path)
    return loaded.get_result_value(title, loaded.get_result_params(title))


def samples_in(path: Path, title: str = RATIO) -> list[list[float] | None]:
    loaded = load_results(path)
    return loaded.get_result_samples(title, loaded.get_result_params(title))


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_asv_publishes_shows_and_compares_what_was_exported(tmp_path: Path, repository: Repository) -> None:
    folder = tmp_path / "benchmarks_asv"
    configure(folder, repository)
    for number, commit in enumerate(repository.commits):
        cases = [case("gemm 64", commit=commit, ratio=1.5 if number == 2 else 1.25), case("gemm 128", commit=commit)]
        export(cases, folder / "results", repository.path)
    first, _, last = repository.commits

    shown = asv(folder, "show", last[:8], "--machine", "nvidia-h200")
    assert RATIO in shown
    assert re.search(r"\b1\.(49|50)", shown)
    compared = asv(folder, "compare", first, last, "--machine", "nvidia-h200", "--factor", "1.05")
    worse = [line for line in compared.splitlines() if line.lstrip("| ").startswith("+") and "track_" in line]
    assert any("track_time_ratio" in line and "gemm 64" in line and re.search(r" 1\.20? ", line) for line in worse), (
        compared
    )
    assert not any("gemm 128" in line or "rival_seconds" in line for line in worse), compared

    asv(folder, "publish", "--no-pull")
    index = json.loads((folder / "html" / "index.json").read_text())
    assert RATIO in index["benchmarks"]
    assert index["params"]["gpu"] == ["NVIDIA H200"]
    assert "driver" not in index["params"]
    graphs = list((folder / "html" / "graphs").rglob(f"{RATIO}.json"))
    points = [path for path in graphs if "summary" not in path.parts]
    assert len(points) == 1, "one machine, one series"
    assert len(json.loads(points[0].read_text())) == 3


def test_a_second_run_of_a_commit_adds_samples_and_the_same_run_does_not(
    tmp_path: Path, repository: Repository
) -> None:
    commit, results = repository.commits[0], tmp_path / "results"
    one = [case(commit=commit)]
    done = export(one, results, repository.path)
    assert (done.added, done.known) == (1, 0)
    assert len(samples_in(done.file)[0] or []) == 12
    again = export(one, results, repository.path)
    assert (again.added, again.known) == (0, 1)
    assert len(samples_in(done.file)[0] or []) == 12
    export([case(commit=commit, seed=1)], results, repository.path)
    assert len(samples_in(done.file)[0] or []) == 24


def test_another_harness_has_a_line_of_its_own_and_a_file_of_its_own(tmp_path: Path, repository: Repository) -> None:
    folder = tmp_path / "benchmarks_asv"
    configure(folder, repository)
    # 4 and 5 take times alike, so their times are one line.
    for harness, ratio in (("0", 1.5), ("4", 1.25), ("5", 1.25)):
        for commit in repository.commits[:2]:
            export([case(commit=commit, ratio=ratio, harness=harness)], folder / "results", repository.path)
    assert check_results(folder / "results") == 4
    asv(folder, "publish", "--no-pull")
    index = json.loads((folder / "html" / "index.json").read_text())
    assert sorted(index["params"]["harness"]) == ["0", "4"]
    lines = list((folder / "html" / "graphs").glob(f"branch-main/**/{RATIO}.json"))
    assert sorted(len(json.loads(line.read_text())) for line in lines) == [2, 2]


def test_no_name_of_a_record_leaves_the_folder_of_the_results(tmp_path: Path, repository: Repository) -> None:
    folder = tmp_path / "benchmarks_asv"
    configure(folder, repository)
    evil = "y/../../../../package"
    (folder / "package.json").write_text("precious")
    for harness, python in ((HARNESS, "3.11.2"), (evil, "3.11.2"), (HARNESS, f"{evil}.{evil}")):
        made = case(commit=repository.commits[0], harness=harness, python=python, seed=harness)
        exported = export([made], folder / "results", repository.path)
        assert exported.file.resolve().is_relative_to((folder / "results").resolve())
    assert (folder / "package.json").read_text() == "precious"
    assert check_results(folder / "results") == 3


def test_another_case_of_the_same_commit_joins_and_leaves_the_first_alone(
    tmp_path: Path, repository: Repository
) -> None:
    commit, results = repository.commits[0], tmp_path / "results"
    done = export([case("gemm 64", commit=commit)], results, repository.path)
    before = values_in(done.file)[0]
    export([case("gemm 128", commit=commit, ratio=2.0)], results, repository.path)
    first, second = values_in(done.file)
    assert first == before
    assert second == pytest.approx(2.0, rel=0.01)
    described = json.loads((results / "benchmarks.json").read_text())[RATIO]
    assert described["params"] == [["'test_it[gemm 64] vs library'", "'test_it[gemm 128] vs library'"]]


def test_a_wrong_case_has_failed_and_one_that_was_not_timed_is_skipped(tmp_path: Path, repository: Repository) -> None:
    commit = repository.commits[0]
    cases = [
        case("right", commit=commit),
        case("wrong", commit=commit, verdict="WRONG"),
        case("untimed", commit=commit, verdict="UNDECIDED", samples={}),
    ]
    done = export(cases, tmp_path / "results", repository.path)
    right, wrong, untimed = values_in(done.file)
    assert right == pytest.approx(1.25, rel=0.01)
    assert wrong is None
    assert untimed is not None
    assert math.isnan(untimed)


def test_a_skip_does_not_displace_what_was_measured(tmp_path: Path, repository: Repository) -> None:
    commit, results = repository.commits[0], tmp_path / "results"
    done = export([case(commit=commit)], results, repository.path)
    before = values_in(done.file)
    export([case(commit=commit, verdict="UNDECIDED", samples={})], results, repository.path)
    assert values_in(done.file) == before


def test_declared_cases_that_a_run_did_not_measure_are_skipped_not_missing(
    tmp_path: Path, repository: Repository
) -> None:
    names = ["test_it[gemm 64] vs library", "test_it[never] vs library"]
    (tmp_path / "cases.json").write_text(json.dumps({"groups": {"kernels": {"time_ratio": names}}}))
    done = export([case(commit=repository.commits[0])], tmp_path / "results", repository.path)
    measured, skipped = values_in(done.file)
    assert measured == pytest.approx(1.25, rel=0.01)
    assert skipped is not None
    assert math.isnan(skipped)


def test_limits_other_than_time_are_series_of_their_own(tmp_path: Path, repository: Repository) -> None:
    limit = {"aspect": "growth", "measured": {"peak_bytes": 4096.0}, "target": None, "rival": None, "samples": {}}
    done = export([case(commit=repository.commits[0], **limit)], tmp_path / "results", repository.path)
    assert values_in(done.file, "gates.kernels.track_peak_bytes") == [4096.0]
    assert RATIO not in load_results(done.file).get_all_result_keys()


def test_two_machines_merge_by_copying_their_folders(tmp_path: Path, repository: Repository) -> None:
    merged = tmp_path / "benchmarks_asv"
    configure(merged, repository)
    for card, ratio in (("NVIDIA H200", 1.25), ("NVIDIA A100", 1.5)):
        own = tmp_path / card
        export([case(commit=commit, gpu=card, ratio=ratio) for commit in repository.commits[:1]], own, repository.path)
        subprocess.run(["cp", "-r", f"{own}/.", str(merged / "results")], check=True)
    asv(merged, "publish", "--no-pull")
    index = json.loads((merged / "html" / "index.json").read_text())
    assert sorted(index["machines"]) == ["nvidia-a100", "nvidia-h200"]
    assert len([g for g in (merged / "html" / "graphs").rglob(f"{RATIO}.json") if "summary" not in g.parts]) == 2


def test_a_new_version_of_the_mapping_starts_anew(
    tmp_path: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, results = repository.commits[0], tmp_path / "results"
    done = export([case(commit=commit)], results, repository.path)
    monkeypatch.setattr(series, "VERSION", "another")
    export([case(commit=commit, seed=1)], results, repository.path)
    assert len(samples_in(done.file)[0] or []) == 12
    assert load_results(done.file).benchmark_version[RATIO] == "another"


def test_the_command_adds_a_record(tmp_path: Path, repository: Repository, perfsuite: Command) -> None:
    record = write(tmp_path / "record.jsonl", [case(commit=repository.commits[0])])
    code, out, _ = perfsuite("export", "asv", record, "--results", tmp_path / "results", "--repo", repository.path)
    assert code == 0
    assert "samples of 1 cases added" in out


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("unknown commit", {"commit": "0" * 40}, "names no commit"),
    ("no commit", {"commit": None}, "of one commit is needed; this one was made outside a git repository"),
    ("uncommitted changes", {"dirty": True}, "changes that are not committed"),
    ("another card of the same name", {"gpu": "NVIDIA-H200"}, "of another card"),
]


@pytest.mark.parametrize(("changes", "said"), [bad[1:] for bad in BAD], ids=[bad[0] for bad in BAD])
def test_a_bad_record_is_refused_and_the_history_untouched(
    changes: dict[str, Any], said: str, tmp_path: Path, repository: Repository, perfsuite: Command
) -> None:
    results = tmp_path / "results"
    export([case(commit=repository.commits[1])], results, repository.path)
    before = everything(results)
    record = write(tmp_path / "record.jsonl", [{**case(commit=repository.commits[0]).as_json(), **changes}])
    code, _, err = perfsuite("export", "asv", record, "--results", results, "--repo", repository.path)
    assert code == 2
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert everything(results) == before


@pytest.mark.parametrize("file", ["benchmarks.json", "nvidia-h200/machine.json", "result"])
def test_a_corrupt_file_of_the_history_is_named_and_left(
    file: str, tmp_path: Path, repository: Repository, perfsuite: Command
) -> None:
    results = tmp_path / "results"
    done = export([case(commit=repository.commits[0])], results, repository.path)
    broken = done.file if file == "result" else results / file
    broken.write_text('{"version": 2, "cut off')
    before = everything(results)
    record = write(tmp_path / "record.jsonl", [case(commit=repository.commits[0], seed=1)])
    code, _, err = perfsuite("export", "asv", record, "--results", results, "--repo", repository.path)
    assert code == 2
    assert broken.name in err
    assert everything(results) == before


def test_an_uncommitted_tree_may_be_left_out_without_a_failure(
    tmp_path: Path, repository: Repository, perfsuite: Command
) -> None:
    record = write(tmp_path / "record.jsonl", [case(commit=repository.commits[0], dirty=True)])
    code, out, _ = perfsuite("export", "asv", record, "--results", tmp_path / "results", "--skip-dirty")
    assert code == 0
    assert "not exported" in out
    assert not (tmp_path / "results").exists()


def test_a_list_of_cases_that_is_none_is_refused(tmp_path: Path, repository: Repository) -> None:
    (tmp_path / "cases.json").write_text('{"groups": 3}')
    with pytest.raises(HistoryError, match=r"cases\.json is not a list of cases"):
        export([case(commit=repository.commits[0])], tmp_path / "results", repository.path)


def test_samples_are_thinned_evenly() -> None:
    kept = series.thin([float(number) for number in range(1000)])
    assert isinstance(kept, list)
    assert len(kept) == series.SAMPLES_KEPT
    assert kept[0] == 0.0
    assert kept[-1] > 950.0


def test_a_repository_without_commits_is_told(tmp_path: Path) -> None:
    empty = make_repository(tmp_path / "empty")
    with pytest.raises(HistoryError, match="names no commit"):
        export([case(commit="1" * 40)], tmp_path / "results", empty.path)


def test_a_check_reads_every_file(tmp_path: Path, repository: Repository, perfsuite: Command) -> None:
    results = tmp_path / "results"
    code, _, err = perfsuite("asv", "check", "--results", results)
    assert code == 2
    assert "holds no history" in err
    for commit in repository.commits:
        done = export([case(commit=commit)], results, repository.path)
    code, out, _ = perfsuite("asv", "check", "--results", results)
    assert (code, "3 results" in out) == (0, True)
    other = export([case(commit=repository.commits[0], gpu="NVIDIA A100")], results, repository.path)
    (results / "nvidia-h200" / other.file.name).write_bytes(other.file.read_bytes())
    code, _, err = perfsuite("asv", "check", "--results", results)
    assert code == 2
    assert "is of another card than its folder" in err
    done.file.write_text("{")
    code, _, err = perfsuite("asv", "check", "--results", results)
    assert code == 2


def test_the_declared_cases_are_those_of_the_suite() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    try:
        importlib.import_module("cuda_llm_ops")
    except ImportError as error:
        pytest.skip(str(error))
    line = ["-m", "perfsuite", "asv", "cases", "--check", "--output", "benchmarks_asv/cases.json"]
    done = subprocess.run([sys.executable, *line], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_shares_of_the_roofline_have_a_series_that_rises_as_they_fall(repository: Repository) -> None:
    share = {"aspect": "roofline", "rival": None, "target": None, "samples": {}}
    cases = [
        case("64: roofline", commit=repository.commits[0], measured={"share": 0.8, "seconds": 1e-5}, **share),
        case("65: roofline", commit=repository.commits[0], measured={"seconds": 1e-5}, **share),
    ]
    old = case("66: roofline", commit=repository.commits[0], measured={"share": 0.5}, harness="4", **share)
    ((_, found),) = series.values([*cases, old]).items()
    first, second, third = (f"test_it[{size}: roofline]: roofline" for size in (64, 65, 66))
    assert found == {
        "roofline_ratio": {first: 1.25, second: pytest.approx(math.nan, nan_ok=True)},
        "attainable_ratio": {third: 2.0},  # under another ceiling
    }


def test_an_export_takes_one_case_at_a_time(tmp_path: Path, repository: Repository) -> None:
    """A record of a million cases does not fit into memory."""
    made: list[weakref.ref[Any]] = []
    most = 0

    def cases() -> Iterator[Any]:
        nonlocal most
        for number in range(30):
            one = case(f"gemm {number}", commit=repository.commits[0], test=f"test_kernels.py::test_it[{number}]")
            made.append(weakref.ref(one))
            most = max(most, sum(reference() is not None for reference in made))
            yield one

    done = export(cases(), tmp_path / "results", repository.path)
    assert (done.added, done.known) == (30, 0)
    assert most <= 4
