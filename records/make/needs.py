"""Checks for what jobs need beside a card."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence

from perfsuite.cli.programs import find_ncu
from perfsuite.outcome import UserError

SANITIZER = "compute-sanitizer"
OLDEST_SANITIZER = 2026
"""Older versions report races in the wide decode kernels, in which there are none."""


def lacking(names: Sequence[str], sanitizer: str) -> list[str]:
    """One sentence for each of these needs that this machine does not meet."""
    return [why for name in names if (why := NEEDS[name](sanitizer))]


def _bubblewrap(_: str) -> str | None:
    return None if shutil.which("bwrap") else "bubblewrap is not on PATH"


def _ncu(_: str) -> str | None:
    try:
        find_ncu()
    except UserError as error:
        return str(error)
    return None


def _flash_attn(_: str) -> str | None:
    from perfsuite.problems.rivals.flash_attn import missing

    return missing()


def _module(name: str) -> Callable[[str], str | None]:
    return lambda _: None if importlib.util.find_spec(name) else f"{name} is not installed"


def find_sanitizer(sanitizer: str) -> str | None:
    """The program, on PATH or in the toolkit."""
    return shutil.which(sanitizer) or shutil.which(sanitizer, path="/usr/local/cuda/bin")


def _sanitizer(sanitizer: str) -> str | None:
    program = find_sanitizer(sanitizer)
    if program is None:
        return f"there is no {sanitizer} (--sanitizer FILE)"
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"^Version (\d+)\S*", told, re.MULTILINE)
    if version is None or int(version[1]) < OLDEST_SANITIZER:
        has = version[0] if version else "no version"
        return f"{program} says {has}; it must be {OLDEST_SANITIZER} or newer (--sanitizer FILE)"
    return None


NEEDS: dict[str, Callable[[str], str | None]] = {
    "bubblewrap": _bubblewrap,
    "flash-attn": _flash_attn,
    "ncu": _ncu,
    "sanitizer": _sanitizer,
    **{name: _module(name) for name in ("ray", "fastapi", "uvicorn", "liger_kernel", "triton")},
}
"""Name -> check, which gives the reason why it is not met, or None."""
