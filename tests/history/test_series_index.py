"""The index of series: the answers with it are those without it, and deleting or breaking it loses nothing."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("asv", reason="asv is not installed")

from perfsuite.history import series_index
from perfsuite.history.asv_export import export
from perfsuite.history.commits import HistoryError
from perfsuite.history.stored_results import points_of
from perfsuite.record import index_db
from perfsuite.record.index_db import Index, open_index
from perfsuite.verdict.noise import Noise

from .conftest import Repository, case, make_repository

NOISE = Noise(setup=0.001, process=0.001, source="made up")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A repository with three measured commits of two cases."""
    monkeypatch.setattr(series_index, "_CHECKED", {})
    index_db._opened.cache_clear()
    made = make_repository(tmp_path / "repository", 3)
    for commit in made.commits:
        export([case(name, commit=commit) for name in ("a", "b")], made.path / "results", made.path)
    return made


def points(repository: Repository, name: str = "a", index: Index | None = None) -> list[object]:
    one = case(name, commit=repository.commits[-1])
    results = repository.path / "results"
    return list(points_of(results, repository.commits, one, NOISE, repository=repository.path, index=index))


def anew(repository: Repository) -> list[object]:
    """The points without any index."""
    return points(repository, index=Index(index_db._connected(None), None))


def test_answers_are_those_of_the_files_whatever_changed(stored: Repository) -> None:
    folder = stored.path / "results" / "nvidia-h200"
    index = open_index(stored.path)
    assert index.trouble is None
    assert points(stored) == anew(stored)
    assert len(points(stored)) == 3
    assert series_index.update(index, folder) == 0
    # A new commit, a changed file, a removed one.
    export([case("a", commit=stored.commit("more"))], stored.path / "results", stored.path)
    assert points(stored) == anew(stored)
    assert len(points(stored)) == 4
    first, second, *_ = sorted(folder.glob("*-virtualenv*.json"))
    changed = json.loads(first.read_text()) | {"commit_hash": stored.commits[0][::-1]}
    (folder / "beside").write_text(json.dumps(changed))
    os.replace(folder / "beside", first)
    assert points(stored) == anew(stored)
    second.unlink()
    assert points(stored) == anew(stored)
    assert len(points(stored)) == 2


def test_a_file_that_was_only_touched_is_not_read_again(stored: Repository) -> None:
    folder = stored.path / "results" / "nvidia-h200"
    index = open_index(stored.path)
    assert series_index.update(index, folder) == 3
    for file in folder.glob("*-virtualenv*.json"):
        os.utime(file)
    os.utime(folder)
    assert series_index.update(index, folder) == 0


@pytest.mark.parametrize("rows", [1, 20_000])
def test_files_before_a_broken_one_are_in_the_index(
    rows: int, stored: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series_index, "ROWS_AT_ONCE", rows)
    folder = stored.path / "results" / "nvidia-h200"
    last = max(folder.glob("*-virtualenv*.json"))
    whole = last.read_text()
    last.write_text(whole[: len(whole) // 2])
    index = open_index(stored.path)
    with pytest.raises(HistoryError, match=last.name):
        series_index.update(index, folder)
    assert index.connection.execute("SELECT count(*) FROM result_files").fetchone() == (2,)
    last.write_text(whole)
    assert series_index.update(index, folder) == 1
    assert points(stored) == anew(stored)


@pytest.mark.parametrize("harm", ["deleted", "broken", "another version", "a folder"])
def test_an_index_that_is_lost_is_made_anew_or_done_without(stored: Repository, harm: str) -> None:
    before = points(stored)
    path = stored.path / ".perfsuite" / "index.db"
    index_db._opened.cache_clear()
    if harm == "another version":
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA user_version = 99")
    else:
        path.unlink()
        if harm == "broken":
            path.write_bytes(b"not a database at all" * 1000)
        if harm == "a folder":
            path.mkdir()
    assert points(stored) == before
    trouble = open_index(stored.path).trouble
    if harm == "a folder":
        assert trouble is not None
        assert trouble.endswith(": the files are read instead")
    else:
        assert trouble is None


def test_processes_that_fill_one_index_at_once_agree(stored: Repository) -> None:
    shutil.rmtree(stored.path / ".perfsuite", ignore_errors=True)
    script = (
        "import pathlib, sys\nfrom perfsuite.history import series_index\n"
        "from perfsuite.record.index_db import open_index\n"
        "index = open_index(pathlib.Path('.'))\nassert index.trouble is None, index.trouble\n"
        "series_index.update(index, pathlib.Path('results/nvidia-h200'))\n"
        "print(index.connection.execute('SELECT count(*) FROM series').fetchone()[0])\n"
    )
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-c", script]
    running = [subprocess.Popen(line, cwd=stored.path, env=environ, stdout=subprocess.PIPE) for _ in range(4)]
    assert [process.communicate()[0] for process in running] == [b"6\n"] * 4
