"""Telemetry says what it saw, and what it could not see."""

from __future__ import annotations

import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from perfsuite.device.telemetry import Watch


class NVMLError(Exception):
    """Stands for pynvml's."""


@pytest.fixture
def pynvml(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A driver whose answers the test sets."""
    module: Any = ModuleType("pynvml")
    module.NVMLError = NVMLError
    module.NVML_CLOCK_SM, module.NVML_CLOCK_MEM, module.NVML_TEMPERATURE_GPU = 1, 2, 0
    module.nvmlInit = lambda: None
    module.asked = []
    module.nvmlDeviceGetHandleByUUID = lambda name: module.asked.append(name) or "card"
    module.nvmlDeviceGetClockInfo = lambda card, which: {1: 1980, 2: 3201}[which]
    module.nvmlDeviceGetMaxClockInfo = lambda card, which: {1: 1980, 2: 3201}[which]
    module.bits = 0
    module.nvmlDeviceGetCurrentClocksEventReasons = lambda card: module.bits
    module.nvmlDeviceGetPowerUsage = lambda card: 412_000
    module.nvmlDeviceGetEnforcedPowerLimit = lambda card: 700_000
    module.nvmlDeviceGetTemperature = lambda card, sensor: 41
    module.nvmlDeviceGetMigMode = lambda card: [0, 0]
    module.pids = [os.getpid()]
    module.nvmlDeviceGetComputeRunningProcesses = lambda card: [SimpleNamespace(pid=pid) for pid in module.pids]
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return module


def everything(watch: Watch) -> Any:
    watch.sample_slow()
    return watch.telemetry(l2_persistence_reset=True, clock_settled=True)


def test_readings_become_plain_units(pynvml: Any) -> None:
    watch = Watch("aaaa-bbbb")
    assert watch.sample() == (1.98e9, None)
    seen = everything(watch)
    assert pynvml.asked == ["GPU-aaaa-bbbb"]
    assert (seen.sm_clock_hz, seen.memory_clock_hz) == (1.98e9, 3.201e9)
    assert (seen.power_watts, seen.power_limit_watts, seen.temperature_celsius) == (412.0, 700.0, 41.0)
    assert (seen.other_processes, seen.mig, seen.unknown) == (0, False, ())


@pytest.mark.parametrize(
    ("bits", "invalid", "recorded"),
    [
        (0x1, None, ()),
        (0x4, None, ("sw-power-cap",)),
        (0x20, "sw-thermal-slowdown", ("sw-thermal-slowdown",)),
        (0x4 | 0x80, "hw-power-brake-slowdown", ("hw-power-brake-slowdown", "sw-power-cap")),
    ],
)
def test_thermal_and_hardware_reasons_invalidate_a_power_cap_does_not(
    pynvml: Any, bits: int, invalid: str | None, recorded: tuple[str, ...]
) -> None:
    pynvml.bits = bits
    watch = Watch("GPU-a")
    assert watch.sample()[1] == invalid
    assert everything(watch).reasons == recorded


@pytest.mark.parametrize(("pids", "others"), [([], 0), (["own", 17], 1), ([17], 0), ([17, 18], 1)])
def test_other_processes_also_in_a_container_that_hides_our_number(pynvml: Any, pids: list[Any], others: int) -> None:
    pynvml.pids = [os.getpid() if pid == "own" else pid for pid in pids]
    assert everything(Watch("GPU-a")).other_processes == others


def test_what_may_not_be_read_is_unknown(pynvml: Any) -> None:
    def refuse(*_: Any) -> None:
        raise NVMLError("Insufficient Permissions")

    pynvml.nvmlDeviceGetComputeRunningProcesses = refuse
    pynvml.nvmlDeviceGetCurrentClocksEventReasons = refuse
    watch = Watch("GPU-a")
    assert watch.sample() == (1.98e9, None)
    seen = everything(watch)
    assert seen.other_processes is None
    assert seen.unknown == (
        "clock-event reasons: Insufficient Permissions",
        "other processes: Insufficient Permissions",
    )


def test_a_clock_that_the_card_showed_itself_counts_before_nvmls(pynvml: Any) -> None:
    watch = Watch("GPU-a")
    assert (watch.full_clock_hz(), watch.note_clock(1.5e9), watch.note_clock(None)) == (1.98e9, 1.5e9, 1.98e9)
    watch.note_clock(1.4e9)
    seen = everything(watch)
    assert (seen.sm_clock_hz, seen.sm_clock_low_hz, seen.sm_clock_high_hz) == (1.5e9, 1.4e9, 1.98e9)


def test_no_clock_is_faster_than_the_cards_highest(pynvml: Any) -> None:
    watch = Watch("GPU-a")
    assert (watch.note_clock(1.99e9), watch.note_clock(2.42e9)) == (1.99e9, 1.98e9)


def test_an_older_driver_knows_the_older_name(pynvml: Any) -> None:
    del pynvml.nvmlDeviceGetCurrentClocksEventReasons
    pynvml.nvmlDeviceGetCurrentClocksThrottleReasons = lambda card: 0x40
    assert Watch("GPU-a").sample()[1] == "hw-thermal-slowdown"


def test_no_driver_at_all(pynvml: Any) -> None:
    def absent() -> None:
        raise NVMLError("Driver Not Loaded")

    pynvml.nvmlInit = absent
    watch = Watch("GPU-a")
    assert watch.sample() == (None, None)
    seen = everything(watch)
    assert seen.unknown == ("everything: Driver Not Loaded",)
    assert seen.sm_clock_hz is None
    assert everything(Watch(None)).unknown == ("everything: no card",)
