"""The search for the first bad commit: every place it can be, commits that cannot be judged, and the command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfsuite.history.bisect import search

from .conftest import Repository, case

Command = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize("count", [1, 2, 3, 20])
def test_the_first_bad_commit_is_found_wherever_it_is(count: int) -> None:
    commits = [f"c{number}" for number in range(count)]
    for first in range(count):
        found = search(commits, lambda commit, first=first: int(commit[1:]) < first)
        assert found.suspects == (f"c{first}",)
        assert found.judged <= 5


def test_commits_that_cannot_be_judged_stay_suspects_only_beside_the_step() -> None:
    commits = [f"c{number}" for number in range(9)]
    broken = {"c3", "c4", "c7"}
    found = search(commits, lambda commit: None if commit in broken else int(commit[1:]) < 5)
    assert found.suspects == ("c3", "c4", "c5")
    found = search(commits, lambda commit: None if commit in broken else int(commit[1:]) < 2)
    assert found.suspects == ("c2",)


@pytest.fixture
def measured(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """Eight commits, the fifth 30 % slower than those before it, the third of them without a build."""
    from perfsuite.history import builds, runs

    for number in range(5):
        repository.commit(f"later {number}")
    order = {commit: number for number, commit in enumerate(repository.commits)}
    drawn = iter(range(1000))

    def build(source: builds.Source, store: Path) -> Path:
        if order[source.commit] == 2:
            raise builds.BuildError(f"{source.short} does not build: made up")
        return Path(source.commit)

    def run(self: Any, build: Path, commit: str, tests: Any = ()) -> list[dict[str, Any]]:
        ratio = 1.25 * (1.3 if order[commit] >= 4 else 1.0)
        return [
            case("gemm 64", commit=commit, ratio=ratio, seed=next(drawn)),
            case("gemm 128", commit=commit, seed=next(drawn)),
        ]

    monkeypatch.setattr(builds, "build", build)
    monkeypatch.setattr(runs.Runner, "run", run)
    monkeypatch.chdir(repository.path)
    return repository


def test_the_command_names_the_commit(measured: Repository, perfsuite: Command) -> None:
    first, *_, last = measured.commits
    code, out, _ = perfsuite("bisect", "*gemm 64*", first, last)
    assert code == 0, out
    assert out.splitlines()[-1].startswith(f"{measured.commits[4]} is the first commit")


def test_ends_that_do_not_differ_are_told(measured: Repository, perfsuite: Command) -> None:
    code, out, _ = perfsuite("bisect", "*gemm 128*", measured.commits[0], measured.commits[-1])
    assert code == 1
    assert "no difference" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["*gemm 64*", "nowhere", "HEAD"], "'nowhere' names no commit"),
        (["*gemm 64*", "HEAD", "HEAD~1"], "is no ancestor of"),
        (["*gemm 64*", "HEAD", "HEAD"], "are the same commit"),
        (["no such case", "HEAD~1", "HEAD"], "no case is called 'no such case'"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], said: str, measured: Repository, perfsuite: Command) -> None:
    code, _, err = perfsuite("bisect", *arguments)
    assert code == 2
    assert said in err
    assert len(err.strip().splitlines()) == 1
