"""The memory model of training held against torch's allocator: a step of a small Transformer, measured at its peak."""

from __future__ import annotations

from dataclasses import dataclass

from perfsuite.memory.measured import WITHIN
from perfsuite.memory.model import activation_bytes, training_bytes
from perfsuite.memory.training_step import Kept, Shape, training

STEPS = 2
"""The first one also allocates for good what later ones find: workspaces of the library."""


@dataclass(frozen=True)
class TrainingPeak:
    """What the model says of a step, and what the allocator held at once. Bytes."""

    kept: Kept
    state: float
    activations: float
    measured: float

    @property
    def predicted(self) -> float:
        """State and activations together."""
        return self.state + self.activations

    @property
    def off(self) -> float:
        """(measured - predicted) / measured."""
        return (self.measured - self.predicted) / self.measured

    @property
    def holds(self) -> bool:
        """Whether it is off by no more than WITHIN."""
        return abs(self.off) <= WITHIN


def predict(shape: Shape, kept: Kept, measured: float) -> TrainingPeak:
    """The model's figures beside a measured one."""
    activations = activation_bytes(shape.layers, shape.hidden, shape.heads, shape.seq, shape.batch)
    return TrainingPeak(kept, sum(training_bytes(shape.parameters).values()), getattr(activations, kept), measured)


def measure(shape: Shape, kept: Kept) -> TrainingPeak:
    """Train on the current GPU for STEPS steps. torch.OutOfMemoryError comes through."""
    import gc

    import torch

    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    step = training(shape, kept, "cuda")
    for _ in range(STEPS):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        step()
    torch.cuda.synchronize()
    return predict(shape, kept, float(torch.cuda.max_memory_allocated() - before))
