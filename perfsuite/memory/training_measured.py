"""Compares the memory model of training with torch's allocator: the peak of a step of a small Transformer."""

from __future__ import annotations

from dataclasses import dataclass

from perfsuite.memory.measured import Prediction
from perfsuite.memory.model import activation_bytes, training_bytes
from perfsuite.memory.training_step import Kept, Shape, training

STEPS = 2
"""The first step also allocates workspaces of the library, which stay."""


@dataclass(frozen=True)
class TrainingPeak(Prediction):
    """The peak of a training step. Its prediction is the sum of `state` and `activations`, in bytes."""

    kept: Kept
    state: float
    activations: float


def predict(shape: Shape, kept: Kept, measured: float) -> TrainingPeak:
    """The model's figures beside a measured peak."""
    state = sum(training_bytes(shape.parameters).values())
    all_activations = activation_bytes(shape.layers, shape.hidden, shape.heads, shape.seq, shape.batch)
    activations = getattr(all_activations, kept)
    return TrainingPeak(state + activations, measured, kept, state, activations)


def measure(shape: Shape, kept: Kept) -> TrainingPeak:
    """Train on the current GPU for STEPS steps. Raises torch.OutOfMemoryError if they do not fit."""
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
