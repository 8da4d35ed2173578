"""A Transformer layer of torch's, to be traced: `perfsuite trace docs.examples.layer:layer`."""

from __future__ import annotations

from collections.abc import Callable

import torch


def layer() -> Callable[[], torch.Tensor]:
    """Make the layer and its input, and give the call."""
    one = torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, device="cuda", dtype=torch.float16)
    x = torch.randn(8, 512, 1024, device="cuda", dtype=torch.float16)
    return lambda: one(x)
