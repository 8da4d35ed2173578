"""Compares the facts of a machine with the minimum and the recommended versions. Pure functions of the facts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from perfsuite.device.data_sheets import Architecture, architecture_of
from perfsuite.report.units import text_of

State = Literal["ok", "advised", "below minimum", "missing", "unknown"]
Version = tuple[int, ...]

REQUIREMENTS: Mapping[str, tuple[Version, Version]] = {
    "compute capability": ((8, 0), (8, 0)),
    "CUDA": ((11, 0), (12, 0)),
    "driver": ((450, 80), (525,)),
}
"""Minimum and recommended. Tensor cores begin at 7.0; the kernels built here need 8.0."""
MEMORY_BYTES = (8e9, 16e9)
"""Least and recommended memory of a card."""


@dataclass(frozen=True)
class Card:
    """A card as NVML reports it. Sizes in bytes."""

    index: int
    name: str
    capability: Version
    memory_bytes: float
    processes: int | None = None
    """Processes with a compute context on the card; None if NVML does not count them."""
    unreadable: tuple[str, ...] = ()
    """The readings that NVML refused, each with its reason."""


@dataclass(frozen=True)
class Machine:
    """The facts. None means unknown or missing."""

    cards: tuple[Card, ...] = ()
    no_card: str | None = None
    """The reason why no card can be used."""
    driver: str | None = None
    driver_cuda: str | None = None
    """Newest CUDA that the driver runs."""
    plugin_install: str | None = None
    """The command that tells pytest of the plugin; None if pytest knows it."""
    torch: str | None = None
    torch_cuda: str | None = None
    nvcc: str | None = None
    ncu: str | None = None
    counters_for_root_only: bool | None = None
    """True if only root may read performance counters."""
    root: bool = False
    build: Mapping[str, str] = field(default_factory=dict)
    """Facts of the extension's build, as it prints them."""
    no_build: str | None = None
    """The reason why there are no such facts."""


@dataclass(frozen=True)
class Check:
    """One line of the report."""

    what: str
    found: str
    state: State
    advice: str = ""

    @property
    def fails(self) -> bool:
        """True if gates cannot run because of it."""
        return self.state == "below minimum"


def version(text: str | None) -> Version | None:
    """(535, 104, 5) from "535.104.05"; None without a number."""
    found = re.search(r"\d+(?:\.\d+)*", text or "")
    return tuple(int(part) for part in found[0].split(".")) if found else None


def examine(machine: Machine) -> list[Check]:
    """All checks, in the order in which problems are best solved."""
    checks = _driver(machine)
    for card in machine.cards:
        checks += _card(card, machine)
    return checks + _software(machine)


def _against(what: str, found: str, known: Version | None, advice: str) -> Check:
    least, better = REQUIREMENTS[what]
    if known is None:
        return Check(what, found, "unknown")
    if known < least:
        return Check(what, found, "below minimum", f"at least {_dotted(least)} is needed: {advice}")
    if known < better:
        return Check(what, found, "advised", f"{_dotted(better)} or newer is recommended: {advice}")
    return Check(what, found, "ok")


def _driver(machine: Machine) -> list[Check]:
    if machine.no_card and not machine.cards:
        words = "pytest -p perfsuite.plugin" if machine.plugin_install else "pytest"
        advice = f"gates on a GPU cannot run here; `{words} --perf-portable` measures on the CPU"
        return [Check("GPU", machine.no_card, "missing", advice)]
    cuda = f"{machine.driver_cuda or 'unknown'} (the driver's newest)"
    checks = [
        _against("driver", machine.driver or "unknown", version(machine.driver), "update the NVIDIA driver"),
        _against("CUDA", cuda, version(machine.driver_cuda), "update the driver"),
    ]
    if machine.no_card:
        checks.append(Check("torch sees the GPU", machine.no_card, "below minimum", "install a torch built for CUDA"))
    return checks


def _card(card: Card, machine: Machine) -> list[Check]:
    known = architecture_of(card.capability)
    found = f"{_dotted(card.capability)} ({known.name if known else 'unknown architecture'})"
    least, better = MEMORY_BYTES
    needed = f"at least {text_of(least)} is needed, {text_of(better)} recommended"
    memory = Check("memory", text_of(card.memory_bytes), "ok")
    if card.memory_bytes < better:
        memory = replace(memory, state="below minimum" if card.memory_bytes < least else "advised", advice=needed)
    checks = [
        Check(f"card {card.index}", card.name, "ok"),
        _against("compute capability", found, card.capability, "another card is needed"),
        memory,
    ]
    if known:
        checks.append(Check("the card can", f"{', '.join(known.tensor_types)} on tensor cores; {known.features}", "ok"))
        checks.append(_exposed(card, known, machine))
    if card.processes is None:
        checks.append(Check("other processes", "cannot be counted", "unknown"))
    elif card.processes:
        busy = "they would change the timings: gates are UNDECIDED until these processes have ended"
        checks.append(Check("other processes", str(card.processes), "advised", busy))
    else:
        checks.append(Check("other processes", "none", "ok"))
    if card.unreadable:
        effect = "gates work without these readings; verdicts name them as unknown"
        checks.append(Check("NVML rights", f"not readable: {'; '.join(card.unreadable)}", "advised", effect))
    else:
        checks.append(Check("NVML rights", "clocks, power, temperature and their limits are readable", "ok"))
    return checks


def _exposed(card: Card, known: Architecture, machine: Machine) -> Check:
    """The check of the card's features that the installed extension uses."""
    what = "the build exposes"
    if machine.build.get("flavour") != "cuda":
        reason = machine.build.get("reason") or machine.no_build or "no extension"
        return Check(what, f"nothing of it: {reason}", "advised", "rebuild where nvcc and torch with CUDA are")
    built = machine.build.get("architectures", "").split()
    path = code_for(card.capability, built)
    if path is None:
        found = f"no code for this card: built for {' '.join(built) or 'nothing'}"
        return Check(what, found, "below minimum", "rebuild")
    way = "wgmma and TMA" if path == "sm_90a" else "mma.sync and cp.async"
    used = ("FP16", "BF16", "FP8") if path == "sm_90a" else ("FP16", "BF16")
    unused = [kind for kind in known.tensor_types if kind not in used]
    rest = f"; {', '.join(unused)} are not used" if unused else ""
    listed = f"{', '.join(used[:-1])} and {used[-1]}"
    return Check(what, f"{listed} on tensor cores by {way} ({path}){rest}", "ok")


def code_for(capability: Version, built: Sequence[str]) -> str | None:
    """The target of a build that runs on a card: sm_XYa, else sm_XY of the same major, else PTX; None without one.

    CUDA C++ Programming Guide, "Application Compatibility": sm_XY runs on minors from Y on, sm_XYa on XY alone.
    compute_XY is compiled for any card from XY on.
    """
    fitting: list[tuple[int, Version, str]] = []
    for name in built:
        found = _TARGET.match(name)
        if found is None:
            continue
        kind, target, suffix = found[1], (int(found[2]), int(found[3])), found[4]
        if suffix:
            if kind == "sm" and target == capability:
                fitting.append((3, target, name))
        elif target <= capability and (kind == "compute" or target[0] == capability[0]):
            fitting.append((2 if kind == "sm" else 1, target, name))
    return max(fitting)[2] if fitting else None


_TARGET = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)$")


def _software(machine: Machine) -> list[Check]:
    plugin = Check("pytest", "loads the plugin", "ok")
    if machine.plugin_install:
        advice = f"{machine.plugin_install}; without it, `pytest -p perfsuite.plugin` loads the plugin in one run"
        plugin = Check("pytest", "does not know the plugin", "missing", advice)
    torch = Check("torch", "not installed", "missing", "pip install torch, built for your CUDA if there is a GPU")
    if machine.torch:
        torch = Check("torch", f"{machine.torch} (CUDA {machine.torch_cuda or 'none'})", "ok")
    extension = Check("extension", machine.no_build or "not asked for", "missing")
    if flavour := machine.build.get("flavour"):
        found = f"{flavour} build; {machine.build.get('architectures') or machine.build.get('reason', '')}"
        extension = Check("extension", found, "ok")
    if machine.build.get("stale") == "True":
        changed = "the sources have changed since it was built: rebuild"
        extension = replace(extension, state="advised", advice=changed)
    nvcc = Check("nvcc", "not found", "missing", "needed to build the CUDA kernels: install the CUDA toolkit")
    if machine.nvcc:
        nvcc = Check("nvcc", machine.nvcc, "ok")
    ncu = Check("ncu", "not found", "missing", "needed for counters: install Nsight Compute")
    if machine.ncu and machine.counters_for_root_only and not machine.root:
        advice = "load the driver with NVreg_RestrictProfilingToAdminUsers=0, or run as root"
        ncu = Check("ncu", f"{machine.ncu}, but counters are for root only", "advised", advice)
    elif machine.ncu:
        ncu = Check("ncu", machine.ncu, "ok")
    return [plugin, torch, extension, nvcc, ncu]


def _dotted(parts: Version) -> str:
    return ".".join(map(str, parts))
