"""A suspect's second opinion comes from a process of its own: a fork of a template, or a new interpreter."""

from __future__ import annotations

import json
import os
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfsuite.pytest_plugin import fresh, fresh_process
from perfsuite.pytest_plugin.fresh import rounds_elsewhere, rounds_in
from perfsuite.pytest_plugin.fresh_process import Processes, WayError
from perfsuite.pytest_plugin.run import RUN

CASE = """
import os
import pytest
import torch
from perfsuite import Gemm

@pytest.mark.perf_target(against="cublas", at_least=0.1)
def test_mm(perf):
    with open("pids", "a") as pids:
        print(os.getpid(), os.getppid(), os.environ["PERFSUITE_FRESH"], file=pids)
    perf(Gemm(16, 16, 16, dtype="float32"), torch.mm)
"""
SAYS = "import json, os, sys\ndef test_it():\n    with open('said', 'a') as file: print(json.dumps({}), file=file)\n"


@pytest.fixture
def processes(tmp_path: Path, pytestconfig: pytest.Config) -> Iterator[Processes]:
    made = Processes(tmp_path, fresh_process.plugin_modules(pytestconfig))
    yield made
    made.close()


def said(folder: Path) -> list[object]:
    return [json.loads(line) for line in (folder / "said").read_text().splitlines()]


def words(folder: Path, *more: str) -> list[str]:
    return ["-q", "-p", "no:cacheprovider", *more, str(folder / "test_it.py")]


def test_forks_of_one_template_measure_a_case_each(tmp_path: Path, processes: Processes) -> None:
    (tmp_path / "test_case.py").write_text(textwrap.dedent(CASE))
    for _ in range(2):
        rounds = rounds_elsewhere(
            "test_case.py::test_mm", 0, 0, root=tmp_path, options=["--perf-portable"], processes=processes
        )
        assert len(rounds) >= 4
        assert all(one.candidate_seconds > 0.0 for one in rounds)
    first, second = (line.split() for line in (tmp_path / "pids").read_text().splitlines())
    assert first[0] != second[0]
    assert first[1:] == second[1:]
    assert int(first[1]) != os.getpid()
    assert first[2] == "0"


def test_a_case_that_no_way_measures_has_no_rounds(tmp_path: Path, processes: Processes) -> None:
    options = ["--perf-portable"]
    assert rounds_elsewhere("test_none.py::test_mm", 0, 0, root=tmp_path, options=options, processes=processes) == []
    assert len(processes.ways) == 2


@pytest.mark.parametrize("way", ["fork", "start"])
def test_a_process_has_the_surroundings_of_the_run(
    way: str, tmp_path: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "test_it.py").write_text(SAYS.format("[os.getcwd(), {**os.environ}, sys.path, 'torch' in sys.modules]"))
    monkeypatch.setenv("A_VARIABLE", "of the run")
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    monkeypatch.setattr(fresh_process, "START_PATH", ("/a/folder", *fresh_process.START_PATH))
    monkeypatch.syspath_prepend(tmp_path / "of another test")
    getattr(processes, way)(words(tmp_path))
    ((folder, environment, path, has_torch),) = said(tmp_path)  # type: ignore[misc]
    assert folder == str(tmp_path)
    hidden = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    assert environment == hidden | {
        "PERFSUITE_FRESH": "0",
        **{name: value for name, value in environment.items() if name.startswith("PYTEST_")},
    }
    assert "PYTEST_XDIST_WORKER" not in environment
    assert path == [str(tmp_path), *fresh_process.START_PATH]  # pytest has put the test's folder there
    assert has_torch is (way == "fork")


def test_a_template_is_replaced_if_the_environment_changes_or_it_dies(
    tmp_path: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "test_it.py").write_text(SAYS.format("[os.getppid(), os.environ.get('OMP_NUM_THREADS')]"))
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    processes.fork(words(tmp_path))
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "another one")
    processes.fork(words(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    processes.fork(words(tmp_path))
    assert processes._template is not None
    processes._template.nursery._process.kill()
    processes._template.nursery._process.wait()
    processes.fork(words(tmp_path))
    parents, threads = zip(*said(tmp_path), strict=True)  # type: ignore[arg-type]
    assert threads == ("2", "2", "1", "1")
    assert parents[0] == parents[1]
    assert len(set(parents)) == 3


def test_a_template_loads_what_torch_has_loaded_meanwhile(
    tmp_path: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "late.py").write_text("import os\nHERE = os.getpid()\n")
    asks = "[os.getppid(), getattr(sys.modules.get('late'), 'HERE', None)]"
    (tmp_path / "test_it.py").write_text(SAYS.format(asks))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(fresh_process, "LATE_IMPORTS", ("late", "no.such.module"))
    processes.fork(words(tmp_path))
    monkeypatch.setitem(sys.modules, "late", object())
    for _ in range(2):
        processes.fork(words(tmp_path))
    (template, _), *_ = found = said(tmp_path)  # type: ignore[misc]
    assert found == [[template, None], [template, template], [template, template]]


def test_where_forks_give_nothing_a_new_interpreter_does_and_forks_are_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a library that is loaded with torch has made a context: no fork of its process has a card then."""
    (tmp_path / "poison.py").write_text("import os\nHERE = os.getpid()\n")
    forked = "import os, sys\nif 'poison' in sys.modules: raise RuntimeError('a fork has no card')\n"
    (tmp_path / "test_case.py").write_text(forked + textwrap.dedent(CASE))
    monkeypatch.syspath_prepend(tmp_path)
    poisoned = Processes(tmp_path, ["poison"])
    try:
        for _ in range(2):
            rounds = rounds_elsewhere(
                "test_case.py::test_mm", 0, 0, root=tmp_path, options=["--perf-portable"], processes=poisoned
            )
            assert len(rounds) >= 4
            assert poisoned.ways == [poisoned.start]
            assert poisoned._template is None
    finally:
        poisoned.close()
    assert {line.split()[1] for line in (tmp_path / "pids").read_text().splitlines()} == {str(os.getpid())}


def test_a_template_that_does_not_start_is_an_error_of_its_way(
    tmp_path: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fresh_process, "PROGRAM", "no.such.module")
    with pytest.raises(WayError):
        processes.fork(words(tmp_path))


@pytest.mark.parametrize("way", ["fork", "start"])
def test_a_process_that_takes_too_long_is_ended(
    way: str, tmp_path: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "import os, time\ndef test_it():\n    open('pid', 'w').write(str(os.getpid()))\n    time.sleep(900)\n"
    (tmp_path / "test_it.py").write_text(text)
    monkeypatch.setattr(fresh_process, "LONGEST_SECONDS", 3.0)
    begin = time.monotonic()
    with pytest.raises(TimeoutError, match="longer than 3 s"):
        getattr(processes, way)(words(tmp_path))
    processes.close()
    assert time.monotonic() - begin < 300.0
    if (tmp_path / "pid").exists() and (number := (tmp_path / "pid").read_text()):
        with pytest.raises(ProcessLookupError):
            os.kill(int(number), 0)


def test_plugins_that_a_template_has_loaded_are_no_error_where_warnings_are(
    tmp_path: Path, processes: Processes
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    (tmp_path / "test_case.py").write_text(textwrap.dedent(CASE))
    options = ["--perf-portable", f"--config-file={tmp_path / 'pytest.ini'}"]
    assert rounds_elsewhere("test_case.py::test_mm", 0, 0, root=tmp_path, options=options, processes=processes)
    assert len(processes.ways) == 2


def test_a_record_that_is_none_gives_no_rounds(tmp_path: Path) -> None:
    assert rounds_in(tmp_path / "none.jsonl", "test", 0) == []
    (tmp_path / "cut.jsonl").write_text(json.dumps({"case": "x"})[:-3])
    assert rounds_in(tmp_path / "cut.jsonl", "test", 0) == []


def test_a_template_that_was_begun_ahead_serves_the_first_suspect(tmp_path: Path, processes: Processes) -> None:
    processes.prepare()
    begun = processes._template
    assert begun is not None
    (tmp_path / "test_it.py").write_text(SAYS.format("os.getppid()"))
    processes.fork(words(tmp_path))
    assert processes._template is begun
    assert said(tmp_path) == [begun.nursery._process.pid]


def test_a_template_that_cannot_begin_ahead_stops_nothing(
    tmp_path: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no")

    monkeypatch.setattr(fresh_process, "Nursery", refuse)
    processes.prepare()
    with pytest.raises(WayError, match="no"):
        processes.fork(words(tmp_path))


@pytest.mark.parametrize(
    ("on_card", "is_fresh", "planned", "begun"),
    [(True, False, 30, 1), (True, False, 29, 0), (True, True, 30, 0), (False, False, 30, 0)],
)
def test_a_template_is_begun_ahead_once_in_long_runs_on_a_card(
    monkeypatch: pytest.MonkeyPatch, on_card: bool, is_fresh: bool, planned: int, begun: int
) -> None:
    made: list[str] = []
    monkeypatch.setattr(fresh, "Processes", lambda *_: SimpleNamespace(prepare=lambda: made.append("begun"), close=int))
    monkeypatch.setattr(fresh, "plugin_modules", lambda config: [])
    config: Any = SimpleNamespace(stash=pytest.Stash(), invocation_params=SimpleNamespace(dir=Path()))
    run: Any = SimpleNamespace(options=SimpleNamespace(gpu=on_card), fresh=is_fresh, planned=planned, held=ExitStack())
    config.stash[RUN] = run
    for _ in range(2):
        fresh.prepare_ahead(config)
    assert made == ["begun"] * begun
