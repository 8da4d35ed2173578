"""What these tests judge, they judge on processors, on a machine with a GPU too."""

from __future__ import annotations

import pytest

from perfsuite.device.cards import Devices
from perfsuite.judge import calls


@pytest.fixture(autouse=True)
def on_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "usable_devices", lambda environ: Devices(missing="these tests judge on processors"))
