"""Whole records of one commit are copied into the checkout; others are refused by name."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from made_up import job

from records.make import kept as folders
from records.make.__main__ import main
from records.make.findings import commits
from records.make.job import Job
from records.make.kept import Kept, State
from records.make.taken import take


def git(root: Path, *words: str) -> str:
    line = ["git", "-C", str(root), "-c", "user.name=one", "-c", "user.email=one@example.org", *words]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    root.mkdir()
    git(root, "init", "-q")
    git(root, "commit", "-q", "--allow-empty", "-m", "one")
    return root


def run_of(root: Path, commit: str, jobs: dict[str, object], *, dirty: bool = False) -> Kept:
    """A folder with whole records of these jobs, each with this content."""
    kept = folders.begin(root.parent / f"run {commit[:7]}", commit, dirty, "NVIDIA H200")
    for name, content in jobs.items():
        file = kept.folder / "h200" / f"{name}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(content))
        kept.jobs[name] = State("whole", record=f"h200/{name}.json")
    kept.write()
    return kept


def taken(kept: Kept, root: Path, *jobs: Job) -> dict[str, str]:
    return dict(take(kept, jobs, root / "records" / "h200", root))


def test_whole_records_are_taken_and_partial_ones_refused_by_name(checkout: Path) -> None:
    head = git(checkout, "rev-parse", "HEAD")
    kept = run_of(checkout, head, {"one": {"environment": {"commit": head, "dirty": False}}})
    kept.jobs |= {"cut": State("partial", record="cut/record/cut.json"), "never": State(), "two": State("lacks a card")}
    told = taken(kept, checkout, job("one"), job("cut"), job("never"), job("two"), job("other"))
    assert told == {"one": "taken", "cut": "refused: it is partial"}
    assert json.loads((checkout / "records/h200/one.json").read_text())["environment"]["commit"] == head
    assert [one.name for one in (checkout / "records/h200").iterdir()] == ["one.json"]


def test_records_of_a_dirty_tree_or_of_a_foreign_commit_are_refused(checkout: Path) -> None:
    head = git(checkout, "rev-parse", "HEAD")
    dirty = run_of(checkout, head, {"one": {}}, dirty=True)
    assert taken(dirty, checkout, job("one")) == {"one": f"refused: the tree differed from commit {head[:10]}"}
    foreign = run_of(checkout, 40 * "a", {"one": {}})
    why = f"refused: commit {10 * 'a'} is not in the history of this checkout"
    assert taken(foreign, checkout, job("one")) == {"one": why}
    assert not (checkout / "records").exists()


def test_a_record_that_names_another_commit_is_refused(checkout: Path) -> None:
    head = git(checkout, "rev-parse", "HEAD")
    short, mixed = {"environment": {"commit": head[:10]}}, {"parts": [{"commit": head}, {"commit": "abc1234def"}]}
    changed = {"environment": {"commit": head, "dirty": True}}
    kept = run_of(checkout, head, {"short": short, "mixed": mixed, "changed": changed})
    assert taken(kept, checkout, job("short"), job("mixed"), job("changed")) == {
        "short": "taken",
        "mixed": f"refused: its commit is abc1234def, that of the run is {head[:10]}",
        "changed": f"refused: its commit is {head}-dirty, that of the run is {head[:10]}",
    }


def test_records_of_an_ancestor_are_taken(checkout: Path) -> None:
    before = git(checkout, "rev-parse", "HEAD")
    git(checkout, "commit", "-q", "--allow-empty", "-m", "two")
    kept = run_of(checkout, before, {"one": {"commit": before}})
    assert taken(kept, checkout, job("one")) == {"one": "taken"}


def test_objects_of_other_jobs_stay_in_a_record_with_the_commits_that_they_name(checkout: Path) -> None:
    head = git(checkout, "rev-parse", "HEAD")
    file = checkout / "records/h200/judge.json"
    file.parent.mkdir(parents=True)
    mine, old = {"environment": {"commit": head}}, {"environment": {"commit": "abc1234"}}
    file.write_text(json.dumps({"ray": mine, "http": old, "cards": old}))
    kept = run_of(checkout, head, {"http": {"http": mine}})
    assert taken(kept, checkout, job("http", record="judge.json", sections=True)) == {"http": "taken"}
    assert json.loads(file.read_text()) == {"ray": mine, "http": mine, "cards": old}


def test_the_command_says_what_it_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = folders.begin(tmp_path / "run", 40 * "a", False, "NVIDIA H200")
    kept.jobs["one"] = State("whole", record="h200/one.json")
    kept.write()
    assert main(["--take", str(kept.folder), "--records", str(tmp_path / "records")], [job("one")]) == 1
    assert capsys.readouterr().out == "one: refused: commit aaaaaaaaaa is not in the history of this checkout\n"
    assert main(["--take", str(tmp_path)], [job("one")]) == 2


def test_commits_are_found_anywhere_in_a_record() -> None:
    told = [{"commit": "a", "dirty": True}, {"of": {"commit": "b", "dirty": False}}, {"commit": None}]
    assert list(commits(told)) == ["a-dirty", "b"]
