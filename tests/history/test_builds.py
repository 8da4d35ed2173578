"""What is built for a comparison: commits and folders, objects kept from build to build, records of several commits."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfsuite.history import builds
from perfsuite.history.builds import Source, kept_objects, source_of
from perfsuite.history.commits import HistoryError
from perfsuite.record.case import Case

from .conftest import Repository, case, write

Command = Callable[..., tuple[int, str, str]]


def test_a_name_is_a_commit_before_it_is_a_folder(repository: Repository) -> None:
    (repository.path / "main").mkdir()
    (repository.path / "main" / "setup.py").write_text("")
    assert source_of(repository.path, "main") == Source(repository.path, repository.commits[-1])


def test_a_folder_needs_a_project(repository: Repository, tmp_path: Path) -> None:
    tree = tmp_path / "v1.0"
    tree.mkdir()
    with pytest.raises(HistoryError, match="nothing to build"):
        source_of(repository.path, str(tree))
    (tree / "pyproject.toml").write_text("")
    found = source_of(repository.path, str(tree))
    assert (found.commit, found.folder) == ("v1.0", tree)
    with pytest.raises(HistoryError, match="names no commit"):
        source_of(repository.path, str(tmp_path / "v1.1"))


def test_another_content_is_another_build(tmp_path: Path) -> None:
    tree, store = tmp_path / "tree", tmp_path / "store"
    (tree / "src").mkdir(parents=True)
    (tree / "src" / "kernel.cu").write_text("one")
    source = Source(tmp_path, "tree", tree)
    first = source.target(store)
    (tree / "build").mkdir()
    (tree / "build" / "kernel.o").write_text("what a build leaves does not count")
    assert source.target(store) == first
    (tree / "src" / "kernel.cu").write_text("two")
    assert source.target(store) != first


def test_objects_stay_and_only_what_changed_is_new(tmp_path: Path) -> None:
    tree, kept = tmp_path / "tree", tmp_path / "kept"

    def check_out(**files: str) -> None:
        tree.mkdir()
        for name, text in files.items():
            (tree / name).write_text(text)

    check_out(same="a", changed="b", gone="c")
    with kept_objects(tree, kept):
        (tree / "build" / "lib").mkdir(parents=True)
        (tree / "build" / "lib" / "gone").write_text("packed")
        (tree / "build" / "same.o").write_text("an object")
        times = {name: os.stat(tree / name).st_mtime_ns for name in ("same", "changed")}
    for path in tree.iterdir():
        path.unlink()
    tree.rmdir()

    check_out(same="a", changed="B")
    with kept_objects(tree, kept):
        assert (tree / "build" / "same.o").read_text() == "an object"
        assert not (tree / "build" / "lib").exists()
        assert os.stat(tree / "same").st_mtime_ns == times["same"]
        assert os.stat(tree / "changed").st_mtime_ns > times["changed"]


def test_a_build_that_fails_loses_no_objects(tmp_path: Path) -> None:
    tree, kept = tmp_path / "tree", tmp_path / "kept"
    (tree / "build").mkdir(parents=True)
    (tree / "build" / "first.o").write_text("an object")
    with pytest.raises(RuntimeError, match="a compiler"), kept_objects(tree, kept):
        raise RuntimeError("a compiler's error")
    assert (kept / "build" / "first.o").read_text() == "an object"


def test_a_record_of_each_commit(repository: Repository, perfsuite: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from perfsuite.history import runs

    def run(self: Any, build: Path, commit: str, tests: Any = (), keep: Path | None = None) -> list[Case]:
        assert keep is not None
        cases = [case(commit=commit)]
        write(keep, cases)
        return cases

    monkeypatch.setattr("perfsuite.cli.commands.history.build", lambda source, store: Path(source.commit))
    monkeypatch.setattr(runs.Runner, "run", run)
    monkeypatch.chdir(repository.path)
    code, out, _ = perfsuite("history", "HEAD~1", "HEAD", "--runs", 2, "--output", "records")
    assert code == 0
    short = [commit[:12] for commit in repository.commits[-2:]]
    assert {path.name for path in Path("records").iterdir()} == {
        f"{one}-{run}.jsonl" for one in short for run in (1, 2)
    }
    assert out.count("1 MET") == 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name a commit"),
        (("nowhere",), "'nowhere' names no commit"),
        (("HEAD", "--runs", "0"), "--runs is 0"),
        (("HEAD", "--seconds", "0"), "--seconds is 0"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: tuple[str, ...],
    said: str,
    repository: Repository,
    perfsuite: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(repository.path)
    code, _, err = perfsuite("history", *arguments)
    assert code == 2
    assert said in err
    assert len(err.strip().splitlines()) == 1


def test_a_worktree_that_is_not_mounted_survives_a_build(repository: Repository, tmp_path: Path) -> None:
    """`git worktree prune` deleted the administration of a worktree whose folder was away."""
    away = tmp_path / "away"
    repository.git("worktree", "add", "--quiet", "--detach", str(away))
    away.rename(tmp_path / "unmounted")
    before = repository.git("worktree", "list")
    place = tmp_path / "store" / ".tree"
    place.parent.mkdir()
    with builds.Source(repository.path, repository.commits[0]).tree(place):
        during = repository.git("worktree", "list")
    (tmp_path / "unmounted").rename(away)
    assert Repository(away).git("status", "--porcelain") == ""
    assert during == before, "a build is no worktree of the user's repository"
    assert not place.exists()


def test_a_shallow_clone_is_built_from(repository: Repository, tmp_path: Path) -> None:
    repository.git("tag", "v1")
    clone = tmp_path / "clone"
    repository.git("clone", "--quiet", "--depth=1", f"file://{repository.path}", str(clone))
    place = tmp_path / "store" / ".tree"
    place.parent.mkdir()
    head = Repository(clone).git("rev-parse", "HEAD")
    with builds.Source(clone, head).tree(place):
        assert Repository(place).git("rev-parse", "HEAD") == head
        assert Repository(place).git("describe", "--tags") == "v1"
