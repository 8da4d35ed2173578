"""Root mean square normalisation in torch, without a temporary of the squares."""

import torch

EPSILON = 1e-6


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """x, divided by the root of the mean square of its row, times weight."""
    squares = torch.linalg.vecdot(x, x).unsqueeze(-1)
    return (x * torch.rsqrt(squares / x.shape[-1] + EPSILON)).mul_(weight)
