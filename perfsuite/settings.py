"""The settings of a run: one frozen value, made once from the options and handed down."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast, get_args

if TYPE_CHECKING:
    import torch

HARNESS = "7"
"""Version of the measuring and deciding code. It changes with every change that can affect a measured number. Records
and calibrations carry it."""
_TIMES_OF = {"5": "4", "7": "6"}
"""Versions that take times in one process as an earlier one does. 5 changed the ceilings of a roofline, and what is
taken off an isolated sample for its own cost. 6 deals other values, so its times are its own. 7 measures what is taken
off an isolated sample."""

_SPREAD = 0x9E3779B97F4A7C15
"""An odd number with mixed bits: other seeds give generators that have nothing in common."""
DeviceKind = Literal["cuda", "cpu"]
CacheMode = Literal["cold", "hot"]
CacheAsked = Literal["cold", "hot", "both"]
"""A test may ask for both states: the call is then measured twice."""
ClockChoice = Literal["auto", "graph", "events", "host"]


def timing_version(harness: str) -> str:
    """The earliest version of the harness that takes times in one process as this one does."""
    return _TIMES_OF.get(harness, harness)


def cache_modes(asked: str) -> tuple[CacheMode, ...]:
    """The states of the cache that a user asked for. Raises ValueError for another word."""
    _check_allowed("cache", asked, get_args(CacheAsked))
    return ("cold", "hot") if asked == "both" else (cast(CacheMode, asked),)


def _check_allowed(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        *others, last = map(repr, allowed)
        raise ValueError(f"{name} is {value!r}; allowed are {', '.join(others)} and {last}")


@dataclass(frozen=True)
class Settings:
    """The settings by which the cases of one run are measured and decided. Raises ValueError for other values."""

    device: DeviceKind = "cuda"
    """Kind of device that is gated: "cuda", or "cpu" for the portable kernels and the host clock."""
    seconds: float = 1.0
    """Device time (host time on the CPU) that the timed rounds of one case may take, re-measurements included."""
    cache: CacheMode = "cold"
    """"cold": inputs rotate past three times the last-level cache; "hot": one set of inputs, again and again."""
    seed: int = 0
    """Seeds the inputs and the random order of the rounds."""
    distribution: str = "normal"
    """The distribution of the inputs: a name that the problem's `inputs` knows. Never all zeros."""
    alpha: float = 0.05
    """Probability, over the whole run, that any case gets a wrong MET or MISSED."""
    cases: int = 1
    """Timed cases in this run, over which `alpha` is divided (Bonferroni)."""
    clock: ClockChoice = "auto"
    """"auto" takes the graph clock on a GPU (events if a side cannot be captured) and the host clock on a CPU."""
    remeasure: int = 2
    """Times that a suspect (about to be MISSED) is set up and measured afresh before it fails."""
    allow_shared: bool = False
    """True tolerates other processes on the card. Otherwise they make the case UNDECIDED (shared-device)."""
    calibration: Path | None = None
    """calibration.json of this card, whose noise between set-ups widens the intervals; None: built-in figures."""
    portable_max_flops: float = 1.5e9
    """The plugin skips cases on the CPU that cost more FLOPs a call."""

    def __post_init__(self) -> None:
        for name, kinds in {"device": DeviceKind, "cache": CacheMode, "clock": ClockChoice}.items():
            _check_allowed(name, getattr(self, name), get_args(kinds))
        if not 0.0 < self.seconds <= 3600.0:
            raise ValueError(f"seconds is {self.seconds!r}; it must be a number of seconds over 0 and at most 3600")
        if not 0.0 < self.alpha < 0.5:
            raise ValueError(f"alpha is {self.alpha!r}; it must lie between 0 and 0.5, both excluded")
        if self.cases < 1:
            raise ValueError(f"cases is {self.cases!r}; it must be at least 1")
        if self.remeasure < 0:
            raise ValueError(f"remeasure is {self.remeasure!r}; it must be 0 or more")

    def generator(self) -> torch.Generator:
        """A generator of inputs, at its start.

        Its own seed is another number than `seed`. A test may seed torch's generators with the same number, and a
        kernel's random numbers must not be those that its inputs are made of.
        """
        import torch

        return torch.Generator(device=self.device).manual_seed((self.seed + 1) * _SPREAD % 2**63)

    @property
    def alpha_a_case(self) -> float:
        """The error that one case may spend: `alpha` over the number of cases."""
        return self.alpha / self.cases
