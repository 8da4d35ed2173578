"""Which regime a workload is in: bound by arithmetic, by memory, by communication, or by what surrounds the kernels.

The test is what the time does when the work changes. With T the time of a call, F its FLOPs and B its bytes, the
elasticities a and b of  d log T = a · d log F + b · d log B  are measured by changing one with the other held: a is
near 1 where arithmetic bounds, b where memory does, and both are near 0 where neither costs anything (He, "Making deep
learning go brrrr from first principles", 2022). Before that, the profiler says for how much of T the device stood idle,
and for how much of it only collectives ran.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from perfsuite.analyze.roofline import Ceiling, Cost

Regime = Literal["compute", "memory", "communication", "overhead", "unknown"]
FREE = 0.25
"""An elasticity below it says that the work costs next to nothing."""
APART = 0.10
"""Elasticities closer than this do not tell which of the two bounds."""
COLLINEAR = 1e-4
"""Variations that change both costs in the same proportion say nothing of either."""
LEVERS: dict[Regime, tuple[str, ...]] = {
    "compute": (
        "lower precision: FP16 or BF16 on tensor cores, FP8 where the card has it",
        "sizes that are multiples of 16, so that tensor cores are used and tiles are full",
        "less arithmetic: skip what a causal mask hides, cache what is computed twice",
    ),
    "memory": (
        "fusion: keep what passes between kernels in registers (torch.compile, flash attention)",
        "quantisation: weights and KV cache in FP8 or INT8 move half the bytes",
        "larger batch: the weights are read once for all of it",
    ),
    "communication": (
        "overlap: start the collective while the next layer computes",
        "fewer bytes: 16-bit gradients, accumulation over steps, sharding that gathers less",
        "placement: ranks that talk most on GPUs joined by NVLink",
    ),
    "overhead": (
        "CUDA graphs: the host launches once what it launched kernel by kernel",
        "compilation (torch.compile, mode 'reduce-overhead') and fusion: fewer and larger kernels",
        "batching: more work in a launch",
    ),
    "unknown": (),
}


@dataclass(frozen=True)
class Variation:
    """A workload with other costs: natural logarithms of the changes of arithmetic, bytes and time."""

    arithmetic: float
    bytes: float
    time: float


@dataclass(frozen=True)
class Evidence:
    """What was measured of a workload. Seconds a call."""

    seconds: float
    """Host time of a call in a loop that waits at its end: what a user sees."""
    host_seconds: float
    """Host time until a call returns."""
    busy_seconds: float
    """Time in which anything ran on the device."""
    communication_seconds: float
    """Time in which nothing but collectives ran on it."""
    kernels: float
    variations: tuple[Variation, ...] = ()

    @property
    def communication_share(self) -> float:
        """Of the time, that in which nothing but collectives ran."""
        return min(1.0, self.communication_seconds / self.seconds)

    @property
    def idle_share(self) -> float:
        """Of the time, that in which the device had nothing to do."""
        return max(0.0, 1.0 - self.busy_seconds / self.seconds)


@dataclass(frozen=True)
class Finding:
    """The regime, and why."""

    regime: Regime
    sentence: str
    arithmetic: float | None = None
    """Elasticity of the time in FLOPs; None where it was not measured."""
    bytes: float | None = None


def elasticities(variations: Sequence[Variation]) -> tuple[float | None, float | None]:
    """(a, b) of time = a · arithmetic + b · bytes over the variations, by least squares; None where they do not say.

    One variation of arithmetic alone, or of bytes alone, gives one of the two.
    """
    ff = sum(one.arithmetic**2 for one in variations)
    bb = sum(one.bytes**2 for one in variations)
    fb = sum(one.arithmetic * one.bytes for one in variations)
    ft = sum(one.arithmetic * one.time for one in variations)
    bt = sum(one.bytes * one.time for one in variations)
    determinant = ff * bb - fb * fb
    if determinant > COLLINEAR * ff * bb:
        return (ft * bb - bt * fb) / determinant, (bt * ff - ft * fb) / determinant
    if fb == 0.0:
        return (ft / ff if ff else None), (bt / bb if bb else None)
    return None, None


def judge(evidence: Evidence, *, cost: Cost | None = None, ceiling: Ceiling | None = None) -> Finding:
    """The regime of a workload. `cost` and `ceiling` stand in where its work was not varied."""
    shares = (
        f"of the time the device idles for {evidence.idle_share:.0%} and runs only collectives for "
        f"{evidence.communication_share:.0%}; {evidence.kernels:.3g} kernels a call"
    )
    computing = 1.0 - evidence.idle_share - evidence.communication_share
    largest = max(evidence.communication_share, evidence.idle_share, computing)
    arithmetic, bytes_ = elasticities(evidence.variations)
    known = ", ".join(
        f"{name} x2 costs {2.0**value - 1.0:+.0%} time"
        for name, value in (("arithmetic", arithmetic), ("bytes", bytes_))
        if value is not None
    )
    told = f"{known}; {shares}" if known else shares
    if largest == evidence.communication_share:
        return Finding("communication", told, arithmetic, bytes_)
    if largest == evidence.idle_share:
        return Finding("overhead", told, arithmetic, bytes_)
    if arithmetic is not None and bytes_ is not None:
        if max(arithmetic, bytes_) < FREE:
            return Finding("overhead", f"{told}; neither costs much, so launches and latency do", arithmetic, bytes_)
        if abs(arithmetic - bytes_) < APART:
            return Finding("unknown", f"{told}; too close to tell arithmetic from memory", arithmetic, bytes_)
        return Finding("compute" if arithmetic > bytes_ else "memory", told, arithmetic, bytes_)
    if cost is not None and ceiling is not None:
        bound: Regime = "memory" if ceiling.bound(cost.intensity) == "memory" else "compute"
        sentence = f"{told}; {cost.intensity:.3g} FLOPs a byte against a ridge at {ceiling.ridge:.3g}"
        return Finding(bound, sentence, arithmetic, bytes_)
    ask = "give it the parameters arithmetic=1 and bytes=1, so that its work can be varied"
    return Finding("unknown", f"{told}; compute and memory cannot be told apart: {ask}", arithmetic, bytes_)
