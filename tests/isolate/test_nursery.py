"""The process that forks workers: what it loads before it forks the first one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from perfsuite.isolate import nursery, sandbox
from perfsuite.isolate.nursery import Nursery

TRITON = "import os, pathlib\npathlib.Path({!r}).write_text(str(os.getpid()))\n"


@contextlib.contextmanager
def up(device: str) -> Iterator[Nursery]:
    """A nursery that has loaded all that it loads: it answers."""
    made = Nursery(device=device)
    try:
        made.ended(0, 0.0)
        yield made
    finally:
        made.close()


def triton(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "triton").mkdir()
    (folder / "triton" / "__init__.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder))


@pytest.mark.parametrize(("device", "loads"), [("cuda", True), ("cpu", False)])
def test_triton_is_loaded_once_for_all_workers_of_a_card(
    device: str, loads: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tmp_path / "loaded"
    triton(tmp_path, TRITON.format(str(said)), monkeypatch)
    with up(device):
        assert said.exists() is loads


def test_what_a_first_launch_finds_out_is_known_to_all_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton reads its library of 400 MB for the key of its cache, in each process once."""
    said = tmp_path / "said"
    triton(tmp_path, "", monkeypatch)
    for module, name in (("runtime.cache", "triton_key"), ("backends.nvidia.compiler", "get_ptxas_version")):
        place = tmp_path / "triton" / Path(*module.split(".")).with_suffix(".py")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"def {name}(*given):\n    open({str(said)!r}, 'a').write(f'{name} {{given}}\\n')\n")
    with up("cuda"):
        found = said.read_text().splitlines()
    major, minor = torch.cuda.get_device_capability() if torch.cuda.is_available() else (8, 0)
    assert found == ["triton_key ()", f"get_ptxas_version ({10 * major + minor},)"]


def test_those_that_start_before_torch_is_loaded_are_taken_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that judges is ready in half the time if they load torch at the same time as it does."""
    monkeypatch.setattr(nursery, "_started", started := {})
    monkeypatch.setattr(nursery, "_prepared", prepared := {})
    monkeypatch.setattr(nursery, "_probed", {"itself": None, "all": None})
    nursery.prepare(90)
    there = [*prepared[True], *prepared[False]]
    try:
        assert [one.boxed for one in there] == [sandbox.why_not() is None] * 2 + [False]
        there[0].close()  # one that has died is none
        assert nursery.nursery(sandboxed=True, device="cuda") is there[1]
        assert nursery.free_nursery(device="cuda") is there[2]
        assert prepared == {True: [], False: []}
        there[1].workers.add(1)  # it has its candidate
        there.append(nursery.free_nursery(sandboxed=True, device="cuda"))
        assert (there[3] in there[:3]) is (sandbox.why_not() is not None)
    finally:
        for one in [*there, *(made for kind in started.values() for made in kind)]:
            one.workers.clear()
            one.close()


def test_a_broken_triton_stops_no_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    triton(tmp_path, "raise RuntimeError('the driver is too old')\n", monkeypatch)
    with up("cuda") as made:
        assert made.alive
