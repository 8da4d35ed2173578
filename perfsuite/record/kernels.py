"""One case for all compiled kernels of a module: their registers and local memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfsuite.case.comparison import Comparison

ASPECT = "kernels"
"""The case's aspect in a record."""
FIELDS = {"registers": "registers", "spilled_bytes": "local"}
"""Measure -> its name among a kernel's attributes. Local memory holds spilled registers and stack frames."""
_BETWEEN = "/"


def measured_of(kernels: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """{"registers/family name": ..., "spilled_bytes/family name": ...} of kernels as `Perf.kernels` takes them.

    Kernels of one name get numbers. Raises ValueError without a kernel, and for a kernel that lacks a field.
    """
    found: dict[str, float] = {}
    for kernel in kernels:
        if lacking := [field for field in ("family", "name", *FIELDS.values()) if field not in kernel]:
            raise ValueError(f"a kernel is given as {dict(kernel)!r}, without {', '.join(lacking)}")
        plain = name = f"{kernel['family']} {kernel['name']}"
        number = 1
        while f"{next(iter(FIELDS))}{_BETWEEN}{name}" in found:
            number += 1
            name = f"{plain} #{number}"
        found |= {f"{measure}{_BETWEEN}{name}": float(kernel[field]) for measure, field in FIELDS.items()}
    if not found:
        raise ValueError("no kernels were given; a build without CUDA has none, so skip the test there")
    return found


def by_kernel(measured: Mapping[str, float]) -> Iterator[tuple[str, dict[str, float]]]:
    """(kernel, measure -> value), from the result of `measured_of`."""
    found: dict[str, dict[str, float]] = {}
    for key, value in measured.items():
        measure, _, kernel = key.partition(_BETWEEN)
        found.setdefault(kernel, {})[measure] = value
    yield from found.items()


def comparison_of(measured: Mapping[str, float], module: str) -> Comparison:
    """The case. It is met, since it has no target."""
    from perfsuite.case.comparison import Comparison
    from perfsuite.outcome import Reason, Verdict

    kernels = dict(by_kernel(measured))
    spilling = [name for name, values in kernels.items() if values["spilled_bytes"]]
    spills = f", local memory in {len(spilling)} of them: {', '.join(spilling[:3])}" if spilling else ", none spills"
    most = max(kernels, key=lambda name: kernels[name]["registers"])
    sentence = f"{len(kernels)} kernels{spills}; most registers: {kernels[most]['registers']:.0f} in {most}"
    return Comparison(
        family="compiled",
        name="kernels",
        params={},
        candidate=module,
        rival=None,
        verdict=Verdict.MET,
        reason=Reason.CHECKED,
        sentence=sentence,
    )
