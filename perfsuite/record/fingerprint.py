"""Finds the environment of a measurement: card, driver, libraries, clocks, commit."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from perfsuite import __version__
from perfsuite.problems.rivals import flash_attn
from perfsuite.record.environment import Environment
from perfsuite.record.schema import plain, reader_of
from perfsuite.settings import HARNESS

COMMIT_VARIABLE = "PERFSUITE_COMMIT"
"""Gives the commit of a tree without a repository; "-dirty" at its end marks changes."""
GIT_SECONDS = 20.0


def fingerprint(root: Path, *, device: str, environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """The fields of `record.environment.Environment`, by name. `device` is "cuda" or "cpu".

    environ: the variables that count; the plugin gives those that the run found at its start.
    """
    commit, dirty = commit_of(root, environ)
    facts: dict[str, Any] = {
        "harness": HARNESS,
        "perfsuite": __version__,
        "commit": commit,
        "dirty": dirty,
        "python": platform.python_version(),
        "cpu": _cpu_model(),
    }
    return facts | _torch_facts(device) | (_card_facts() if device == "cuda" else {})


def environment(root: Path, *, device: str) -> Environment:
    """The environment of this process."""
    found: Environment = reader_of(Environment)(plain(fingerprint(root, device=device)))
    return found


def commit_of(root: Path, environ: Mapping[str, str] = os.environ) -> tuple[str | None, bool | None]:
    """(commit checked out at `root`, True if the tree differs from it), or (None, None) outside a repository."""
    given = environ.get(COMMIT_VARIABLE)
    if given:
        return given.removesuffix("-dirty"), given.endswith("-dirty")
    commit = _git(root, "rev-parse", "HEAD")
    if commit is None:
        return None, None
    status = _git(root, "status", "--porcelain")
    return commit, None if status is None else bool(status)


def _git(root: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(root), *arguments]
    environ = os.environ | {"GIT_OPTIONAL_LOCKS": "0"}  # a commit that runs at the same time needs the lock
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_SECONDS, env=environ, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _torch_facts(device: str) -> dict[str, Any]:
    # A measurement with torch has imported it. Other measurements do not wait for the import.
    facts: dict[str, Any] = dict.fromkeys(("gpu", "torch", "cuda", "cublas", "cudnn"))
    if "torch" not in sys.modules:
        return facts
    import torch

    facts |= {"torch": torch.__version__, "cuda": torch.version.cuda}
    if device != "cuda" or not torch.cuda.is_available():
        return facts
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    facts |= {
        "gpu": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "cublas": _cublas_version(),
        "cudnn": _cudnn_version(torch.backends.cudnn.version()),
    }
    if (found := flash_attn.version()) is not None:
        facts["flash_attn"] = found
    return facts


def _cudnn_version(number: int | None) -> str | None:
    """ "9.10.2" from 91002, and "8.9.7" from 8907, as cudnn_version.h composes them."""
    if number is None:
        return None
    unit = 10000 if number >= 90000 else 1000
    return f"{number // unit}.{number % unit // 100}.{number % 100}"


def _cublas_version() -> str | None:
    """The version of the libcublas that this process has loaded, by cublasGetProperty; None without one."""
    try:
        found = re.search(r"(/\S*/libcublas\.so\S*)", Path("/proc/self/maps").read_text())
        if found is None:
            return None
        ask = ctypes.CDLL(found[1]).cublasGetProperty
    except (OSError, AttributeError):
        return None
    parts = []
    for which in range(3):  # libraryPropertyType: major, minor, patch level
        value = ctypes.c_int()
        if ask(which, ctypes.byref(value)) != 0:
            return None
        parts.append(value.value)
    return ".".join(map(str, parts))


def _card_facts() -> dict[str, Any]:
    """Driver, highest clocks, power limit and modes of the card in use; empty if NVML does not answer."""
    if "torch" not in sys.modules:
        return {}
    import torch

    if not torch.cuda.is_available():
        return {}
    try:
        import pynvml  # type: ignore[import-untyped]
    except ImportError:
        return {}
    uuid = str(getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "uuid", ""))
    try:
        pynvml.nvmlInit()
        card = pynvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}")
    except pynvml.NVMLError:
        return {}
    readings = {
        "driver": lambda: str(pynvml.nvmlSystemGetDriverVersion()),
        "sm_clock_max_hz": lambda: pynvml.nvmlDeviceGetMaxClockInfo(card, pynvml.NVML_CLOCK_SM) * 1e6,
        "memory_clock_max_hz": lambda: pynvml.nvmlDeviceGetMaxClockInfo(card, pynvml.NVML_CLOCK_MEM) * 1e6,
        "power_limit_watts": lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(card) / 1e3,
    }
    modes = {
        "mig": lambda: bool(pynvml.nvmlDeviceGetMigMode(card)[0]),
        "mps": lambda: bool(pynvml.nvmlDeviceGetMPSComputeRunningProcesses(card)),
        "ecc": lambda: bool(pynvml.nvmlDeviceGetEccMode(card)[0]),
        "persistence": lambda: bool(pynvml.nvmlDeviceGetPersistenceMode(card)),
    }

    def value(read: Callable[[], Any]) -> Any:
        try:
            return read()
        except (pynvml.NVMLError, AttributeError):  # the card has no such mode, or the library no such function
            return None

    return {name: value(read) for name, read in readings.items()} | {
        "mode": {name: value(read) for name, read in modes.items()}
    }


def _cpu_model() -> str | None:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or None
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.machine()
