"""Is this machine fit: facts of the machine against what is needed and what is recommended. Pure functions of facts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    """What NVML says of a card. Sizes in bytes."""

    index: int
    name: str
    capability: Version
    memory_bytes: float
    processes: int | None = None
    """Processes with a compute context on it; None where they may not be counted."""
    unreadable: tuple[str, ...] = ()
    """What NVML would not tell, each with its reason."""


@dataclass(frozen=True)
class Machine:
    """The facts, None where there is none."""

    cards: tuple[Card, ...] = ()
    no_card: str | None = None
    """Why there is no card that can be used."""
    driver: str | None = None
    driver_cuda: str | None = None
    """Newest CUDA that the driver runs."""
    torch: str | None = None
    torch_cuda: str | None = None
    nvcc: str | None = None
    ncu: str | None = None
    counters_for_root_only: bool | None = None
    """Whether the driver keeps performance counters from users other than root."""
    root: bool = False
    build: Mapping[str, str] = field(default_factory=dict)
    """Facts of the extension's build, as it prints them."""
    no_build: str | None = None


@dataclass(frozen=True)
class Check:
    """One line of the report."""

    what: str
    found: str
    state: State
    advice: str = ""

    @property
    def fails(self) -> bool:
        """Whether gates cannot run because of it."""
        return self.state == "below minimum"


def version(text: str | None) -> Version | None:
    """(535, 104, 5) from "535.104.05"; None where there is no number."""
    found = re.search(r"\d+(?:\.\d+)*", text or "")
    return tuple(int(part) for part in found[0].split(".")) if found else None


def examine(machine: Machine) -> list[Check]:
    """Every check, in the order in which trouble is best mended."""
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
        advice = "gates on a GPU cannot run here; `nox -s bench` gates the portable kernels on the CPU"
        return [Check("GPU", machine.no_card, "missing", advice)]
    checks = [_against("driver", machine.driver or "unknown", version(machine.driver), "update the NVIDIA driver")]
    cuda = version(machine.driver_cuda)
    checks.append(
        _against("CUDA", f"{machine.driver_cuda or 'unknown'} (the driver's newest)", cuda, "update the driver")
    )
    if machine.no_card:
        checks.append(Check("torch sees the GPU", machine.no_card, "below minimum", "install a torch built for CUDA"))
    return checks


def _card(card: Card, machine: Machine) -> list[Check]:
    known = architecture_of(card.capability)
    family = known.name if known else "unknown architecture"
    capability = _against(
        "compute capability", f"{_dotted(card.capability)} ({family})", card.capability, "another card is needed"
    )
    least, better = MEMORY_BYTES
    state: State = "ok" if card.memory_bytes >= better else "advised"
    if card.memory_bytes < least:
        state = "below minimum"
    needed = f"at least {text_of(least)} is needed, {text_of(better)} recommended"
    checks = [
        Check(f"card {card.index}", card.name, "ok"),
        capability,
        Check("memory", text_of(card.memory_bytes), state, "" if state == "ok" else needed),
    ]
    if known:
        checks.append(Check("the card can", f"{', '.join(known.tensor_types)} on tensor cores; {known.features}", "ok"))
        checks.append(_exposed(card, known, machine))
    if card.processes is None:
        checks.append(Check("other processes", "cannot be counted", "unknown"))
    elif card.processes:
        busy = "timings would be another's as well: gates come out UNDECIDED until they have ended"
        checks.append(Check("other processes", str(card.processes), "advised", busy))
    else:
        checks.append(Check("other processes", "none", "ok"))
    if card.unreadable:
        told = "verdicts stand without these readings, and say so"
        checks.append(Check("NVML rights", f"not readable: {'; '.join(card.unreadable)}", "advised", told))
    else:
        checks.append(Check("NVML rights", "clocks, power, temperature and their limits are readable", "ok"))
    return checks


def _exposed(card: Card, known: Architecture, machine: Machine) -> Check:
    """What of the card the installed extension uses."""
    what = "the build exposes"
    if machine.build.get("flavour") != "cuda":
        reason = machine.build.get("reason") or machine.no_build or "no extension"
        return Check(what, f"nothing of it: {reason}", "advised", "rebuild where nvcc and torch with CUDA are")
    built = machine.build.get("architectures", "").split()
    path = code_for(card.capability, built)
    if path is None:
        return Check(
            what, f"no code for this card: built for {' '.join(built) or 'nothing'}", "below minimum", "rebuild"
        )
    way = "wgmma and TMA" if path == "sm_90a" else "mma.sync and cp.async"
    unused = [kind for kind in known.tensor_types if kind not in ("FP16", "BF16")]
    rest = f"; {', '.join(unused)} are not used" if unused else ""
    return Check(what, f"FP16 and BF16 on tensor cores by {way} ({path}){rest}", "ok")


def code_for(capability: Version, built: Sequence[str]) -> str | None:
    """Which of a build's targets runs on a card: exact machine code, else of the same major, else PTX; None for none.

    CUDA C++ Programming Guide, "Application Compatibility": sm_XY runs on minors from Y on, sm_XYa on XY alone,
    compute_XY is compiled for any card from XY on.
    """
    known = [
        (found[1], (int(found[2]), int(found[3])), found[4], name) for name in built if (found := _TARGET.match(name))
    ]
    own = [name for kind, target, suffix, name in known if kind == "sm" and suffix and target == capability]
    same = [
        (target, name)
        for kind, target, suffix, name in known
        if kind == "sm" and not suffix and target[0] == capability[0] and target <= capability
    ]
    ptx = [
        (target, name)
        for kind, target, suffix, name in known
        if kind == "compute" and not suffix and target <= capability
    ]
    if own:
        return own[0]
    return max(same)[1] if same else max(ptx)[1] if ptx else None


_TARGET = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)$")


def _software(machine: Machine) -> list[Check]:
    missing: State = "missing"
    torch = f"{machine.torch} (CUDA {machine.torch_cuda or 'none'})" if machine.torch else "not installed"
    install = "pip install torch, built for your CUDA where there is a GPU"
    flavour = machine.build.get("flavour")
    build = (
        f"{flavour} build; {machine.build.get('architectures') or machine.build.get('reason', '')}" if flavour else ""
    )
    stale = machine.build.get("stale") == "True"
    checks = [
        Check("torch", torch, "ok" if machine.torch else missing, "" if machine.torch else install),
        Check(
            "extension",
            build or machine.no_build or "not asked for",
            "advised" if stale else "ok" if build else missing,
            "the sources have changed since it was built: rebuild" if stale else "",
        ),
        Check(
            "nvcc",
            machine.nvcc or "not found",
            "ok" if machine.nvcc else missing,
            "" if machine.nvcc else "needed to build the CUDA kernels: install the CUDA toolkit",
        ),
    ]
    if machine.ncu is None:
        checks.append(Check("ncu", "not found", missing, "needed for counters: install Nsight Compute"))
    elif machine.counters_for_root_only and not machine.root:
        advice = "load the driver with NVreg_RestrictProfilingToAdminUsers=0, or run as root"
        checks.append(Check("ncu", f"{machine.ncu}, but counters are for root only", "advised", advice))
    else:
        checks.append(Check("ncu", machine.ncu, "ok"))
    return checks


def _dotted(parts: Version) -> str:
    return ".".join(map(str, parts))
