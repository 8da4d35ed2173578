"""The decoder layer in float64, on the values that its weights, its cache and its FP8 activations stand for.

Each stage takes what the layer itself stored before it, so that an error shows in the stage that makes it.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from .decoder_layer import DTYPE, EPSILON, FP8_SCALES, Layer, fp8_values, narrowed
from .fp8 import quantize_fp8


class ExactLayer:
    """The stages of a layer whose weights have values in float64; all take and return float64."""

    def __init__(self, layer: Layer) -> None:
        self.layer, self.sizes, self.cache = layer, layer.sizes, layer.cache

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What attention adds to x, and what the gated products do; results are rounded where the layer stores them."""
        added = self.output(_stored(self.attended(_stored(self.projected(x)))))
        return added, self.down(_stored(self.gate_and_up(x)))

    def distances(self, x: Tensor) -> Iterator[tuple[str, float]]:
        """Stage -> how far the layer's result is from the stage's, as a share of its norm."""
        layer, values = self.layer, x
        for names in (("projected", "attended", "output"), ("gate_and_up", "down")):
            values = x
            for name in names:
                right = getattr(self, name)(values.double())
                values = getattr(layer, name)(values)
                yield name, float((values.double() - right).norm() / right.norm())

    def projected(self, x: Tensor) -> Tensor:
        return self._product(self._norm(x, 0), "qkv")

    def attended(self, qkv: Tensor) -> Tensor:
        q, k, v = self.layer.heads(qkv)
        group = self.sizes.heads // self.sizes.kv_heads
        if self.cache is None:
            sides = (q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1))
            return _attention(*(side.transpose(0, 1) for side in sides), causal=True).transpose(0, 1).flatten(1)
        out = torch.empty_like(q)
        for sequence in range(len(q)):
            keys, values = self.cache.values(sequence)
            for side, own in ((0, k), (1, v)):
                (keys, values)[side][:, -1] = self._in_cache(own[sequence], side)
            queries = q[sequence].view(self.sizes.kv_heads, group, -1)
            out[sequence] = _attention(queries, keys, values).flatten(0, 1)
        return out.flatten(1)

    def output(self, attended: Tensor) -> Tensor:
        return self._product(attended, "out")

    def gate_and_up(self, x: Tensor) -> Tensor:
        return self._product(self._norm(x, 1), "gate_up")

    def down(self, gate_and_up: Tensor) -> Tensor:
        gate, up = gate_and_up.chunk(2, -1)
        made = gate * gate.sigmoid() * up
        return self._product(made if self.layer.form in FP8_SCALES else _stored(made), "down")

    def _in_cache(self, newest: Tensor, side: int) -> Tensor:
        """The value that the cache keeps of a new key (side 0) or value (1), (kv_heads, head_dim)."""
        assert self.cache is not None
        if self.cache.scales is None:
            return newest
        scales = self.cache.scales[side][:, None]
        return narrowed(newest, scales, self.cache.numbers.dtype).float().double() * scales.double()

    def _norm(self, x: Tensor, norm: int) -> Tensor:
        made = x * (x.square().mean(-1, keepdim=True) + EPSILON).rsqrt() * self.layer.norms[norm].double()
        return made if self.layer.form in FP8_SCALES else _stored(made)

    def _product(self, x: Tensor, name: str) -> Tensor:
        values = self.layer.weights[name].values
        assert values is not None, "weights without values in float64"
        if self.layer.form in FP8_SCALES:
            x = fp8_values(*quantize_fp8(x.float(), FP8_SCALES[self.layer.form][0]))
        return x @ values.T


def _stored(wide: Tensor) -> Tensor:
    return wide.to(DTYPE).double()


def _attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False) -> Tensor:
    """In float64, of (heads, rows, head_dim); one head after the other where there is a mask."""
    scale = q.shape[-1] ** -0.5
    if not causal:
        return (q @ k.mT * scale).softmax(-1) @ v
    hidden = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool, device=q.device).triu_(1)
    return torch.stack(
        [
            (queries @ keys.T * scale).masked_fill_(hidden, -torch.inf).softmax(-1) @ values
            for queries, keys, values in zip(q, k, v, strict=True)
        ]
    )
