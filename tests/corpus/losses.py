"""Losses."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from .written import Collection, normal, positive, whole

MODULES = Collection("losses")


def pairs(batch: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    return normal(batch, width), normal(batch, width)


def classes(batch: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    return normal(batch, width), whole(width, batch)


def chances(batch: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    return normal(batch, width).log_softmax(-1), normal(batch, width).softmax(-1)


def signs(batch: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    return normal(batch, width), (whole(2, batch, width) * 2 - 1).float()


def triplet(batch: int, width: int) -> tuple[torch.Tensor, ...]:
    return normal(batch, width), normal(batch, width), normal(batch, width)


def smoothed(x: torch.Tensor, target: torch.Tensor) -> dict[str, torch.Tensor]:
    loss = F.cross_entropy(x, target, label_smoothing=0.1, reduction="none")
    return {"loss": loss.mean(), "each": loss, "right": (x.argmax(-1) == target)}


SMALL, CARD = (24, 40), (8192, 8192)
MODULES.function("mean squared error", F.mse_loss, pairs, SMALL, CARD)
MODULES.function("mean absolute error", F.l1_loss, pairs, SMALL, CARD)
MODULES.function("Huber loss", F.smooth_l1_loss, pairs, SMALL, CARD)
MODULES.function("cross entropy", F.cross_entropy, classes, SMALL, CARD)
MODULES.function("smoothed cross entropy", smoothed, classes, SMALL, CARD)
MODULES.function("divergence", lambda x, y: F.kl_div(x, y, reduction="batchmean"), chances, SMALL, CARD)
MODULES.function("hinge loss", lambda x, y: (1 - x * y).clamp(min=0).mean(), signs, SMALL, CARD)
MODULES.function("cosine loss", lambda x, y: 1 - F.cosine_similarity(x, y, dim=-1), pairs, SMALL, CARD)
MODULES.function("triplet loss", F.triplet_margin_loss, triplet, SMALL, CARD)
MODULES.function(
    "binary cross entropy",
    F.binary_cross_entropy_with_logits,
    lambda b, w: (normal(b, w), positive(b, w)),
    SMALL,
    CARD,
)
MODULES.function("loss as a number", lambda x, y: F.mse_loss(x, y).item(), pairs, SMALL, CARD)
