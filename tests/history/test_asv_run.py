"""asv's runs: what goes wrong is one sentence, and the results are then what they were."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("asv")

from perfsuite.history import asv_run as module
from perfsuite.history.asv_export import export
from perfsuite.history.asv_files import read_benchmarks
from perfsuite.history.commits import HistoryError

from .conftest import Repository, case
from .test_export import everything

MACHINE = {"machine": "nvidia-h200", "gpu": "NVIDIA H200", "cuda": "13", "flavour": "cuda"}
Asv = Callable[[Sequence[str], Path, Mapping[str, str]], tuple[int, str]]


@pytest.fixture
def folder(tmp_path: Path, repository: Repository) -> Path:
    """benchmarks_asv with a result of the first commit in it."""
    made = tmp_path / "benchmarks_asv"
    export([case("gemm 64", commit=repository.commits[0])], made / "results", repository.path)
    (made / "asv.conf.json").write_text('{"version": 1, "project": "kernels", "repo": "..", "results_dir": "results"}')
    return made


def run(folder: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch, asv: Asv, *commits: str) -> None:
    monkeypatch.setattr(module, "_asv", asv)
    module.asv_run(repository.path, folder / "asv.conf.json", commits, MACHINE)


def never(*_: object) -> tuple[int, str]:
    pytest.fail("asv was started")


def leaves(folder: Path, repository: Repository, value: float | None, code: int = 0, said: str = "") -> Asv:
    """An asv that enters the last commit, and writes benchmarks.json anew, without what it did not run."""

    def asv(line: Sequence[str], root: Path, environment: Mapping[str, str], *_: Any) -> tuple[int, str]:
        results = folder / "results"
        export([case("gemm 64", commit=repository.commits[-1])], results, repository.path)
        (path,) = results.glob(f"nvidia-h200/{repository.commits[-1][:8]}-*.json")
        made = json.loads(path.read_text())
        if value is None:
            made["results"] = {name: [[None] * len(row[1][0]), *row[1:3]] for name, row in made["results"].items()}
        path.write_text(json.dumps(made))
        benchmarks = json.loads((results / "benchmarks.json").read_text())
        kept = {name: one for name, one in benchmarks.items() if name == "version" or "time_ratio" in name}
        (results / "benchmarks.json").write_text(json.dumps(kept))
        return code, said

    return asv


def test_an_unknown_commit_starts_nothing(
    folder: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(HistoryError, match="'nowhere' names no commit"):
        run(folder, repository, monkeypatch, never, "HEAD", "nowhere")


def test_a_corrupt_result_starts_nothing(folder: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = (folder / "results" / "nvidia-h200").glob("*-*.json")
    path.write_text(path.read_text()[:100])
    with pytest.raises(HistoryError, match=f"{path.name} is not a result file of asv"):
        run(folder, repository, monkeypatch, never, "HEAD")


def test_another_cards_history_starts_nothing(
    folder: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MACHINE, "gpu", "NVIDIA A100")
    with pytest.raises(HistoryError, match="is of another card: gpu 'NVIDIA H200' there, 'NVIDIA A100' here"):
        run(folder, repository, monkeypatch, never, "HEAD")


@pytest.mark.parametrize(("code", "said"), [(1, "asv.util.UserError: no such thing\n"), (3, "")])
def test_a_run_that_fails_leaves_the_history_as_it_was(
    code: int, said: str, folder: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = everything(folder)
    with pytest.raises(HistoryError, match=f"asv could not measure HEAD: {said.strip() or 'it printed nothing'}"):
        run(folder, repository, monkeypatch, leaves(folder, repository, 1.0, code, said), "HEAD")
    assert everything(folder) == before


def test_a_commit_that_does_not_build_leaves_the_history_as_it_was(
    folder: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = everything(folder)
    asv = leaves(folder, repository, None, 2, "kernel.cu:7:1: error: made up\n")
    with pytest.raises(HistoryError, match=r"HEAD does not build, or .*: kernel\.cu:7:1: error: made up"):
        run(folder, repository, monkeypatch, asv, "HEAD")
    assert everything(folder) == before


def test_a_run_that_leaves_nothing_is_told(
    folder: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(HistoryError, match="asv left no results of HEAD"):
        run(folder, repository, monkeypatch, lambda *_: (0, ""), "HEAD")


def test_series_that_asv_did_not_run_stay(
    folder: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read_benchmarks(folder / "results")
    run(folder, repository, monkeypatch, leaves(folder, repository, 1.0), "HEAD")
    assert read_benchmarks(folder / "results") == before
    assert len(list((folder / "results" / "nvidia-h200").glob("*-*.json"))) == 2


def test_nothing_new_is_no_failure(folder: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def asv(line: Sequence[str], root: Path, environment: Mapping[str, str], *_: Any) -> tuple[int, str]:
        asked.append(line[-2:])
        return 1, "No commit hashes selected\n"

    run(folder, repository, monkeypatch, asv)
    assert asked == [["NEW", "--steps=10"]]


def test_asv_gets_a_file_of_machines_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    mine = tmp_path / ".asv-machine.json"
    mine.write_text('{"mine": {"machine": "mine"}, "version": 1}')
    folder = tmp_path / "folder"
    folder.mkdir()
    show = "import asv.machine as m; print(m.MachineCollection.load('card')['gpu'])"
    monkeypatch.setattr(module, "RUN_ASV", module.RUN_ASV.replace("from asv.main import main\nmain()", show))
    code, said = module._asv([], tmp_path, {}, {"machine": "card", "gpu": "made up"}, folder)
    assert (code, said.strip()) == (0, "made up")
    assert mine.read_text() == '{"mine": {"machine": "mine"}, "version": 1}'


def test_a_killed_run_is_put_right_by_the_next(
    folder: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = everything(folder)

    def killed(*_: Any) -> tuple[int, str]:
        for path in (folder / "results").rglob("*.json"):
            path.write_text("junk")
        os.kill(os.getpid(), signal.SIGKILL)
        return 0, ""

    if (child := os.fork()) == 0:
        run(folder, repository, monkeypatch, killed)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    with contextlib.suppress(HistoryError):
        run(folder, repository, monkeypatch, lambda *_: (1, "No commit hashes selected"))
    assert everything(folder) == before


def test_a_refused_run_leaves_the_users_file_of_machines(
    folder: Path,
    repository: Repository,
    perfsuite: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(repository.path)
    words = ["--asv", "--portable", "--machine", "nvidia-h200", "--config", folder / "asv.conf.json", "HEAD"]
    code, _, said = perfsuite("history", *words)
    assert (code, "is of another card" in said) == (2, True)
    assert not (tmp_path / ".asv-machine.json").exists()
