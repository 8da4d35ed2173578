"""The spread between set-ups of one comparison: from calibration.json of this card, or built-in figures."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perfsuite.settings import HARNESS, DeviceKind, timing_version


@dataclass(frozen=True)
class Noise:
    """Standard deviations of the log of a paired ratio that more rounds do not average out."""

    setup: float
    """Between set-ups of one process: other addresses, other graphs."""
    process: float
    """Between processes, beyond what their set-ups explain."""
    source: str
    """The origin of the figures, for the record."""

    def of_mean(self, setups: int, processes: int) -> float:
        """Standard deviation of the mean over `setups` set-ups in total, in `processes` processes."""
        return math.sqrt(self.setup**2 / max(1, setups) + self.process**2 / max(1, processes))


@dataclass(frozen=True)
class CalibratedCase:
    """The result of a calibration for one case."""

    seconds: float
    setup_noise: float
    process_noise: float


@dataclass(frozen=True)
class Calibration:
    """The part of a calibration.json that the gate uses."""

    gpu: str
    harness: str
    cases: tuple[CalibratedCase, ...]

    @classmethod
    def load(cls, file: Path) -> Calibration:
        """Read a calibration.json. Raises ValueError, which names the file and the cause, for other files."""
        try:
            values: Any = json.loads(file.read_text())
            cases = tuple(
                CalibratedCase(float(one["seconds"]), float(one["setup_noise"]), float(one["process_noise"]))
                for one in values["cases"]
            )
            return cls(gpu=str(values["gpu"]), harness=str(values["harness"]), cases=cases)
        except OSError as error:
            raise ValueError(f"{file}: {error.strerror}") from error
        except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{file} is not a calibration of this suite: {type(error).__name__}: {error}") from error


# (time of a call, noise between set-ups and between processes of shorter calls), rounded up from one NVIDIA H200, 8
# processes of 4 repeats. Buffers' addresses affect short kernels most.
_BUILT_IN_CUDA = ((20e-6, 0.0040, 0.0020), (math.inf, 0.0015, 0.0010))
_BUILT_IN_CPU = (0.01, 0.01)
# The least noise between set-ups of unlike kernels, which respond differently to addresses. From cuDNN against
# FlashAttention-2 and cuBLAS's plain against its accumulating product: one NVIDIA H200, 3 processes, 10 to 12 set-ups.
_LEAST_UNLIKE_CUDA = ((20e-6, 0.007), (math.inf, 0.003))


def built_in_noise(device: DeviceKind, seconds: float) -> Noise:
    """The noise of a call of `seconds` without a calibration."""
    if device == "cpu":
        return Noise(*_BUILT_IN_CPU, source="built in")
    setup, process = next((setup, process) for below, setup, process in _BUILT_IN_CUDA if seconds < below)
    return Noise(setup, process, source="built in")


def calibrated_noise(calibration: Calibration, seconds: float) -> Noise:
    """The larger noise of the two calibrated cases whose times enclose `seconds` (one, beyond the ends)."""
    ordered = sorted(calibration.cases, key=lambda one: one.seconds)
    shorter = [one for one in ordered if one.seconds <= seconds][-1:]
    longer = [one for one in ordered if one.seconds > seconds][:1]
    near = shorter + longer
    return Noise(max(one.setup_noise for one in near), max(one.process_noise for one in near), "calibration")


def find_calibration(root: Path, gpu: str) -> Path | None:
    """The calibration of a card of that name: under .perfsuite/, else in records/, else None."""
    own = root / ".perfsuite" / "calibration.json"
    for file in (own, *sorted((root / "records").glob("*/calibration.json"))):
        try:
            if file.is_file() and Calibration.load(file).gpu == gpu:
                return file
        except ValueError:
            continue
    return None


def noise_for(
    device: DeviceKind, seconds: float, *, file: Path | None, gpu: str | None, alike: bool = False
) -> tuple[Noise, Sequence[str]]:
    """The noise of a call of `seconds`, and warnings about the calibration.

    alike: a kernel is compared with an earlier version of itself. A comparison with another kernel has more noise.
    """
    noise, warnings = _noise_alike(device, seconds, file=file, gpu=gpu)
    if not alike and device == "cuda":
        least = next(setup for below, setup in _LEAST_UNLIKE_CUDA if seconds < below)
        noise = replace(noise, setup=max(noise.setup, least))
    return noise, warnings


def _noise_alike(
    device: DeviceKind, seconds: float, *, file: Path | None, gpu: str | None
) -> tuple[Noise, Sequence[str]]:
    fallback, shown = built_in_noise(device, seconds), None if file is None else _shown(file)
    if device == "cpu":
        return fallback, () if file is None else (f"{shown} is not used: on a CPU built-in noise figures are",)
    if file is None:
        return fallback, ("no calibration of this card: built-in noise figures are used (run `perfsuite calibrate`)",)
    try:
        calibration = Calibration.load(file)
    except ValueError as error:
        return fallback, (f"{error}: built-in noise figures are used",)
    if gpu is not None and calibration.gpu != gpu:
        return fallback, (f"{shown} is of {calibration.gpu}, this card is {gpu}: built-in noise figures are used",)
    if not calibration.cases:
        return fallback, (f"{shown} holds no cases: built-in noise figures are used",)
    warnings = []
    if timing_version(calibration.harness) != timing_version(HARNESS):
        warnings.append(f"{shown} is of harness version {calibration.harness}, this is {HARNESS}: calibrate again")
    return calibrated_noise(calibration, seconds), tuple(warnings)


def _shown(file: Path) -> str:
    """The file's name in a warning. A record may be published, so it names no folder of this machine if it need not."""
    here = Path.cwd()
    return str(file.relative_to(here) if file.is_relative_to(here) else file)
