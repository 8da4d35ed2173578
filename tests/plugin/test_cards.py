"""One card a worker, one run a card."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import filelock
import pytest

from perfsuite.device import locks
from perfsuite.device.cards import Device, find_devices, select
from perfsuite.pytest_plugin import xdist

from .conftest import ROOT, Suite

CARDS = [
    Device(index, f"card {index}", f"GPU-{letter * 8}-0000", (9, 0), 2**30, str(index))
    for index, letter in enumerate("abc")
]


@pytest.mark.parametrize(
    ("visible", "uuids", "selectors"),
    [
        ("0,1,2", "abc", ["0", "1", "2"]),
        ("2,0", "ca", ["2", "0"]),
        (" 1 ", "b", ["1"]),
        ("GPU-b", "b", ["GPU-b"]),
        ("GPU-cccccccc-0000,1", "cb", ["GPU-cccccccc-0000", "1"]),
        ("MIG-1234", "a", ["MIG-1234"]),
        ("0,9,1", "a", ["0"]),  # as in CUDA: the first bad entry hides all that follow
        ("0,-1,1", "a", ["0"]),
        ("GPU-", "", []),  # fits every card
        ("", "", []),
    ],
)
def test_an_outer_cuda_visible_devices_is_honoured(visible: str, uuids: str, selectors: list[str]) -> None:
    chosen = select(CARDS, visible)
    assert [card.uuid[4] for card in chosen] == list(uuids)
    assert [card.selector for card in chosen] == selectors
    assert [card.index for card in chosen] == list(range(len(chosen)))


@pytest.mark.parametrize(("index", "selector"), [(0, "3"), (1, "GPU-x"), (2, "3"), (3, "GPU-x")])
def test_a_worker_indexes_into_the_cards_and_extra_workers_take_turns(index: int, selector: str) -> None:
    environ = {"CUDA_VISIBLE_DEVICES": "3,GPU-x"}
    xdist.take_card(index, environ, ["3", "GPU-x"])
    assert environ == {"CUDA_VISIBLE_DEVICES": selector}


def test_without_cards_a_worker_changes_nothing() -> None:
    environ: dict[str, str] = {}
    xdist.take_card(0, environ, [])
    assert environ == {}


@pytest.mark.parametrize(
    ("environ", "index"),
    [({}, None), ({"PYTEST_XDIST_WORKER": "gw3"}, 3), ({"PYTEST_XDIST_WORKER": "master"}, None)],
)
def test_worker_index(environ: dict[str, str], index: int | None) -> None:
    assert xdist.worker_index(environ) == index


def test_a_driver_that_does_not_answer_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    import pynvml

    def refuse() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", refuse)
    found = find_devices({})
    assert found.cards == ()
    assert found.missing is not None
    assert found.missing.startswith("no NVIDIA driver answers (NVML: ")


def test_auto_means_one_worker_a_card_and_each_sees_its_own(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_CARDS", "2")
    suite.write(
        "import os, time\n"
        "from perfsuite.device import turns\n"
        "@TARGET\n"
        "@pytest.mark.parametrize('n', range(4))\n"
        "def test_it(n, perf):\n"
        "    assert turns.shared() is None\n"  # nobody else is on the card
        "    time.sleep(0.2)\n"
        "    open(f'{n}.card', 'w').write(os.environ['CUDA_VISIBLE_DEVICES'] + os.environ['PYTEST_XDIST_WORKER'])\n"
        "    perf(Gemm(n + 1, 8, 8), met)\n"
    )
    outcome = suite.run("--gpu", "-p", "xdist", "-n", "auto", subprocess=True)
    assert outcome.code == 0, outcome.out
    assert {path.read_text() for path in suite.path.glob("*.card")} == {"0gw0", "1gw1"}
    assert [case["workers"] for case in outcome.cases] == [2] * 4
    outcome.has("4 met, 2 workers")


@contextmanager
def another_run(uuid: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds a card's lock until its input ends."""
    script = (
        "import sys\n"
        "from perfsuite.device.locks import hold\n"
        "with hold([sys.argv[1]], 'run'):\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    environ = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(folder)}
    command = [sys.executable, "-c", script, uuid]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True, env=environ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[str]]:
    """Processes of `another_run` that let go of their lock when somebody begins to wait for it."""
    there: list[subprocess.Popen[str]] = []
    genuine = filelock.FileLock.acquire

    def acquire(self: Any, *arguments: Any, **options: Any) -> Any:
        if "timeout" in options:
            for one in there:
                assert one.poll() is None
                assert one.stdin is not None
                one.stdin.close()
        return genuine(self, *arguments, **options)

    monkeypatch.setattr(filelock.FileLock, "acquire", acquire)
    return there


@pytest.fixture
def uuid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A card whose lock nobody else takes."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return "GPU-test"


def test_a_card_in_use_is_waited_for(uuid: str, tmp_path: Path, waited: list[subprocess.Popen[str]]) -> None:
    with another_run(uuid, tmp_path) as other:
        sentence = rf"GPU-test is kept by another run \(process {other.pid}, lock .*waited 0 s"
        with pytest.raises(locks.CardBusy, match=sentence), locks.hold([uuid], "run", wait_seconds=0):
            pass
    with another_run(uuid, tmp_path) as other:
        waited.append(other)
        with locks.hold([uuid], "run", wait_seconds=60):
            assert other.stdin is not None
            assert other.stdin.closed


def test_a_dead_holder_keeps_nothing(uuid: str, tmp_path: Path) -> None:
    with another_run(uuid, tmp_path) as other:
        other.kill()
        other.wait()
        with locks.hold([uuid], "run", wait_seconds=60):
            assert locks.lock_path(uuid, "run").read_text() == f"{os.getpid()}\n"


def test_a_run_that_waits_says_for_whom(
    suite: Suite, tmp_path: Path, uuid: str, waited: list[subprocess.Popen[str]]
) -> None:
    suite.write("@TARGET\ndef test_it(perf): perf(Gemm(8, 8, 8), met)")
    with another_run(f"GPU-{os.getppid()}-0", tmp_path) as other:
        waited.append(other)
        outcome = suite.run("--gpu")
    assert outcome.code == 0
    outcome.has(f"is kept by another run (process {other.pid}, lock ", "waiting for it, 900 s at most")


def test_a_lock_that_cannot_be_opened_is_told(suite: Suite, tmp_path: Path, uuid: str) -> None:
    suite.write("@TARGET\ndef test_it(perf): perf(Gemm(8, 8, 8), met)")
    locks.lock_path(f"GPU-{os.getppid()}-0", "run").mkdir(parents=True)
    outcome = suite.run("--gpu")
    assert outcome.code == 4
    outcome.has("run.lock is no file of this user's own; remove it")


def test_another_run_on_the_card_stops_this_one_with_a_sentence(
    suite: Suite, uuid: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfsuite.device.locks.MOST_WAIT_SECONDS", 0.0)
    suite.write("@TARGET\ndef test_it(perf): perf(Gemm(8, 8, 8), met)")
    with another_run(f"GPU-{os.getppid()}-0", tmp_path):
        outcome = suite.run("--gpu")
    assert outcome.code == 4
    outcome.has("is kept by another run")
