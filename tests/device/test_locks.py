"""Locks of cards lie in a folder of the user's own and follow no link."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

import pytest

from perfsuite.device import locks


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    return tmp_path


def test_a_lock_lies_in_a_private_folder(temporary: Path) -> None:
    with locks.hold(["GPU-x"], "run"):
        path = locks.lock_path("GPU-x", "run")
        assert path.read_text() == f"{os.getpid()}\n"
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert path.parent.parent == temporary


def test_a_link_in_place_of_a_lock_is_not_followed(temporary: Path) -> None:
    victim, path = temporary / "victim", locks.lock_path("GPU-x", "run")
    victim.write_text("precious")
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.symlink_to(victim)
    with contextlib.suppress(locks.CardBusy), locks.hold(["GPU-x"], "run"):
        pass
    assert victim.read_text() == "precious"
    with pytest.raises(locks.CardBusy, match="is no file of this user's own"), locks.hold(["GPU-x"], "run"):
        pass


def test_a_link_in_place_of_the_folder_is_not_followed(temporary: Path) -> None:
    (temporary / "elsewhere").mkdir()
    locks.lock_path("GPU-x", "run").parent.symlink_to(temporary / "elsewhere")
    with pytest.raises(locks.CardBusy, match="is no folder of this user's own"), locks.hold(["GPU-x"], "run"):
        pass
    assert list((temporary / "elsewhere").iterdir()) == []


def test_a_fifo_in_place_of_a_lock_is_a_sentence(temporary: Path) -> None:
    path = locks.lock_path("GPU-x", "run")
    path.parent.mkdir(mode=0o700, exist_ok=True)
    os.mkfifo(path)
    with pytest.raises(locks.CardBusy, match="is no file of this user's own"), locks.hold(["GPU-x"], "run"):
        pass


def test_somebody_elses_folder_is_refused(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locks.lock_path("GPU-x", "run").parent.mkdir()
    owner = os.getuid()
    path = locks.lock_path("GPU-x", "run")
    monkeypatch.setattr(locks, "lock_path", lambda *_: path)
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    with pytest.raises(locks.CardBusy, match="is no folder of this user's own"), locks.hold(["GPU-x"], "run"):
        pass


def test_a_lock_is_held_together_or_by_one_alone(temporary: Path) -> None:
    with locks.hold_together(["GPU-x"], "run"):
        with locks.hold_together(["GPU-x"], "run", wait_seconds=0.0):
            pass
        with pytest.raises(locks.CardBusy, match="kept by another run"), locks.hold(["GPU-x"], "run", wait_seconds=0.0):
            pass
    with locks.hold(["GPU-x"], "run"):
        told = pytest.raises(locks.CardBusy, match=f"process {os.getpid()}")
        with told, locks.hold_together(["GPU-x"], "run", wait_seconds=0.1):
            pass
