"""Reads the card that torch uses by NVML, and changes nothing. Readings that NVML refuses are unknown."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

# Bits of nvmlDeviceGetCurrentClocksEventReasons (nvml.h). Older headers call them throttle reasons.
REASONS = {
    0x0000000000000001: "gpu-idle",
    0x0000000000000002: "applications-clocks-setting",
    0x0000000000000004: "sw-power-cap",
    0x0000000000000008: "hw-slowdown",
    0x0000000000000010: "sync-boost",
    0x0000000000000020: "sw-thermal-slowdown",
    0x0000000000000040: "hw-thermal-slowdown",
    0x0000000000000080: "hw-power-brake-slowdown",
    0x0000000000000100: "display-clocks-setting",
}
BEYOND_FULL_CLOCK = 1.02
"""Share of the highest clock that only a false reading can exceed."""
INVALIDATING = ("hw-slowdown", "sw-thermal-slowdown", "hw-thermal-slowdown", "hw-power-brake-slowdown")
"""Reasons under which a round does not count. A power cap is normal under load, so it is only recorded."""


@dataclass(frozen=True)
class Telemetry:
    """NVML's readings over the rounds of one case. None means unknown, for the reason in `unknown`."""

    sm_clock_hz: float | None = None
    """Median SM clock over the rounds."""
    sm_clock_low_hz: float | None = None
    sm_clock_high_hz: float | None = None
    memory_clock_hz: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    temperature_celsius: float | None = None
    reasons: tuple[str, ...] = ()
    """Clock-event reasons seen in any round, such as "sw-power-cap"."""
    other_processes: int | None = None
    """Other processes that hold a context on the card."""
    mig: bool | None = None
    l2_persistence_reset: bool | None = None
    """True if persisting L2 lines were reset before timing; None without such a cache."""
    clock_settled: bool | None = None
    """True if the SM clock had settled when warm-up ended; False if the time was up before."""
    unknown: tuple[str, ...] = ()
    """The readings that failed, each with its reason."""


@dataclass
class Watch:
    """Reads one card, keeps every reading, and sums them up as a `Telemetry`."""

    uuid: str | None
    """UUID of the card as CUDA gives it, with or without the prefix "GPU-"; None without a card."""
    sm_clocks_hz: list[float] = field(default_factory=list)
    memory_clocks_hz: list[float] = field(default_factory=list)
    watts: list[float] = field(default_factory=list)
    celsius: list[float] = field(default_factory=list)
    reasons: set[str] = field(default_factory=set)
    most_others: int | None = None
    unknown: dict[str, str] = field(default_factory=dict)
    _nvml: Any = None
    _handle: Any = None
    _full_hz: float | None = None

    def __post_init__(self) -> None:
        if self.uuid is None:
            self.unknown["everything"] = "no card"
            return
        try:
            import pynvml  # type: ignore[import-untyped]
        except ImportError:
            self.unknown["everything"] = "nvidia-ml-py is not installed"
            return
        try:
            pynvml.nvmlInit()
            name = self.uuid if self.uuid.startswith(("GPU-", "MIG-")) else f"GPU-{self.uuid}"
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(name)
            self._nvml = pynvml
        except pynvml.NVMLError as error:
            self.unknown["everything"] = str(error)

    def _read(self, what: str, function: Callable[[Any, Any], Any]) -> Any:
        """The value of `function(pynvml, handle)`; None after a failure, whose reason goes to `unknown`."""
        if self._nvml is None or what in self.unknown:
            return None
        try:
            return function(self._nvml, self._handle)
        except (self._nvml.NVMLError, AttributeError) as error:
            self.unknown[what] = str(error)
            return None

    def _hertz(self, what: str, function: str, kind: str) -> float | None:
        """A clock of the card; `function` and `kind` are NVML's names, and NVML gives megahertz."""
        megahertz = self._read(what, lambda nvml, card: getattr(nvml, function)(card, getattr(nvml, kind)))
        return None if megahertz is None else megahertz * 1e6

    def sm_clock_hz(self) -> float | None:
        """The SM clock now, or None. NVML's value is up to 100 ms old."""
        return self._hertz("SM clock", "nvmlDeviceGetClockInfo", "NVML_CLOCK_SM")

    def full_clock_hz(self) -> float | None:
        """The highest SM clock of the card, or None."""
        if self._full_hz is None:  # it never changes, and every batch of rounds asks
            self._full_hz = self._hertz("highest SM clock", "nvmlDeviceGetMaxClockInfo", "NVML_CLOCK_SM")
        return self._full_hz

    def note_clock(self, hertz: float | None) -> float | None:
        """Keep a reading of the SM clock, or NVML's if it is None or beyond the card's highest; return the kept value.

        Work of another process between two events of a reading makes it too fast.
        """
        full = self.full_clock_hz()
        beyond = hertz is not None and full is not None and hertz > BEYOND_FULL_CLOCK * full
        clock = self.sm_clock_hz() if hertz is None or beyond else hertz
        if clock is not None:
            self.sm_clocks_hz.append(clock)
        return clock

    def reason_against(self) -> str | None:
        """Read the clock-event reasons; return the one that invalidates the latest work, if any."""
        bits = self._read("clock-event reasons", _event_reasons)
        seen = [name for bit, name in REASONS.items() if bits is not None and bits & bit]
        self.reasons.update(name for name in seen if name != "gpu-idle")
        return next((name for name in seen if name in INVALIDATING), None)

    def sample(self) -> tuple[float | None, str | None]:
        """NVML's SM clock in hertz, and the reason that invalidates the latest work, if any."""
        return self.note_clock(None), self.reason_against()

    def sample_slow(self) -> None:
        """Read memory clock, power, temperature and other processes: they change slowly or take long to read."""
        clock_hz = self._hertz("memory clock", "nvmlDeviceGetClockInfo", "NVML_CLOCK_MEM")
        if clock_hz is not None:
            self.memory_clocks_hz.append(clock_hz)
        milliwatts = self._read("power", lambda nvml, card: nvml.nvmlDeviceGetPowerUsage(card))
        if milliwatts is not None:
            self.watts.append(milliwatts / 1e3)
        celsius = self._read(
            "temperature", lambda nvml, card: nvml.nvmlDeviceGetTemperature(card, nvml.NVML_TEMPERATURE_GPU)
        )
        if celsius is not None:
            self.celsius.append(float(celsius))
        others = self._read("other processes", _others)
        if others is not None:
            self.most_others = max(others, self.most_others or 0)

    def telemetry(self, *, l2_persistence_reset: bool | None, clock_settled: bool | None) -> Telemetry:
        """Everything read so far, in one value."""
        limit = self._read("power limit", lambda nvml, card: nvml.nvmlDeviceGetEnforcedPowerLimit(card))
        mig = self._read("MIG mode", lambda nvml, card: nvml.nvmlDeviceGetMigMode(card)[0])
        return Telemetry(
            sm_clock_hz=_median(self.sm_clocks_hz),
            sm_clock_low_hz=min(self.sm_clocks_hz, default=None),
            sm_clock_high_hz=max(self.sm_clocks_hz, default=None),
            memory_clock_hz=_median(self.memory_clocks_hz),
            power_watts=_median(self.watts),
            power_limit_watts=None if limit is None else limit / 1e3,
            temperature_celsius=_median(self.celsius),
            reasons=tuple(sorted(self.reasons)),
            other_processes=self.most_others,
            mig=None if mig is None else bool(mig),
            l2_persistence_reset=l2_persistence_reset,
            clock_settled=clock_settled,
            unknown=tuple(f"{what}: {why}" for what, why in sorted(self.unknown.items())),
        )


def _event_reasons(nvml: Any, card: Any) -> int:
    """The reasons' bits. Drivers before CUDA 12.2 have only the older name."""
    read = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
    if read is None:
        read = nvml.nvmlDeviceGetCurrentClocksThrottleReasons
    return int(read(card))


def _others(nvml: Any, card: Any) -> int:
    """Other processes with a compute context on the card.

    In a container NVML gives the host's process numbers. One of them is this process, since it holds a context.
    """
    pids = {process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(card)}
    return len(pids - {os.getpid()}) if os.getpid() in pids else max(0, len(pids) - 1)


def _median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None
