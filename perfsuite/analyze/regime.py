"""Judges the regime of a workload: bound by arithmetic, memory, communication, or the overhead around kernels.

The test changes the work and measures the time. T is the time of a call, F its FLOPs and B its bytes. The elasticities
in  d log T = a · d log F + b · d log B  are measured by changing F or B alone. a is near 1 if arithmetic bounds, b if
memory does; both are near 0 if neither costs time (He, "Making deep learning go brrrr from first principles", 2022).
The profiler adds the shares of T in which the device was idle or ran only collectives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from perfsuite.analyze.roofline import Ceiling, Cost

Regime = Literal["compute", "memory", "communication", "overhead", "unknown"]
FREE = 0.25
"""Elasticity below which the work costs next to nothing."""
APART = 0.10
"""Least difference of the elasticities that decides between arithmetic and memory."""
COLLINEAR = 1e-4
"""Relative determinant below which the variations cannot separate the two costs."""
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
    """Measurements of a workload. Seconds are those of one call."""

    seconds: float
    """Host time of a call in a loop that waits at its end, as a user sees it."""
    host_seconds: float
    """Host time until a call returns."""
    busy_seconds: float
    """Time in which anything ran on the device."""
    communication_seconds: float
    """Time in which only collectives ran on it."""
    kernels: float
    variations: tuple[Variation, ...] = ()

    @property
    def communication_share(self) -> float:
        return min(1.0, self.communication_seconds / self.seconds)

    @property
    def idle_share(self) -> float:
        return max(0.0, 1.0 - self.busy_seconds / self.seconds)


@dataclass(frozen=True)
class Finding:
    """The regime, and the sentence that explains it."""

    regime: Regime
    sentence: str
    arithmetic: float | None = None
    """Elasticity of the time in FLOPs, as `bytes` is in bytes; None if it was not measured."""
    bytes: float | None = None


def elasticities(variations: Sequence[Variation]) -> tuple[float | None, float | None]:
    """(a, b) of time = a · arithmetic + b · bytes over the variations, by least squares; None if undetermined.

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
    """The regime of a workload. `cost` and `ceiling` decide if its work was not varied."""
    shares = (
        f"of the time the device idles for {evidence.idle_share:.0%} and runs only collectives for "
        f"{evidence.communication_share:.0%}; {evidence.kernels:.3g} kernels a call"
    )
    computing = 1.0 - evidence.idle_share - evidence.communication_share
    largest = max(evidence.communication_share, evidence.idle_share, computing)
    arithmetic, bytes_ = elasticities(evidence.variations)
    named = (("arithmetic", arithmetic), ("bytes", bytes_))
    known = [f"{name} x2 costs {2.0**value - 1.0:+.0%} time" for name, value in named if value is not None]
    regime: Regime
    why = ""
    if largest == evidence.communication_share:
        regime = "communication"
    elif largest == evidence.idle_share:
        regime = "overhead"
    elif arithmetic is not None and bytes_ is not None:
        regime = "compute" if arithmetic > bytes_ else "memory"
        if max(arithmetic, bytes_) < FREE:
            regime, why = "overhead", "; neither costs much, so launches and latency do"
        elif abs(arithmetic - bytes_) < APART:
            regime, why = "unknown", "; too close to tell arithmetic from memory"
    elif cost is not None and ceiling is not None:
        regime = "memory" if ceiling.bound(cost.intensity) == "memory" else "compute"
        why = f"; {cost.intensity:.3g} FLOPs a byte against a ridge at {ceiling.ridge:.3g}"
    else:
        ask = "give it the parameters arithmetic=1 and bytes=1, so that its work can be varied"
        regime, why = "unknown", f"; compute and memory cannot be told apart: {ask}"
    return Finding(regime, "; ".join(filter(None, (", ".join(known), shares))) + why, arithmetic, bytes_)
