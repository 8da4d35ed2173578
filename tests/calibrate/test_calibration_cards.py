"""The cards on which a calibration's processes run."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from perfsuite.calibrate import running
from perfsuite.calibrate.running import Calibration


@pytest.mark.parametrize("given", [{}, {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}])
def test_a_calibration_s_cards_have_nvml_s_numbers(given: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Mapping[str, str]] = []
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(running.subprocess, "Popen", lambda *_, env, **__: seen.append(env))
    made = object.__new__(Calibration)
    made.order = SimpleNamespace(isolated=False, device="cuda")  # type: ignore[assignment]
    made._prepared("3")
    made._prepared(None)
    assert seen[0]["CUDA_VISIBLE_DEVICES"] == "3"
    assert seen[0]["CUDA_DEVICE_ORDER"] == given.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert seen[1].get("CUDA_DEVICE_ORDER") == given.get("CUDA_DEVICE_ORDER")


def test_processes_of_isolated_gates_start_before_there_is_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[list[str]] = []
    monkeypatch.setattr(running.subprocess, "Popen", lambda line, **_: lines.append(line))
    made: Any = object.__new__(Calibration)
    made.facts = {"capability": "9.0"}
    for isolated, device in ((True, "cuda"), (True, "cpu"), (False, "cuda")):
        made.order = SimpleNamespace(isolated=isolated, device=device)
        made._prepared(None)
    assert [line[3:] for line in lines] == [["90"], [], []]
