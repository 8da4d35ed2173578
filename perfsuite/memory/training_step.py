"""Trains a small Transformer as the memory model counts it: 16-bit weights and gradients, AdamW in FP32."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch

Kept = Literal["standard", "flash", "checkpointed"]
"""The activations that a layer keeps for its backward pass: see `model.Activations`."""
DROPPED = 0.1
BETAS = (0.9, 0.999)
EPSILON = 1e-8


@dataclass(frozen=True)
class Shape:
    """Sizes of the layer stack and of a batch. Raises ValueError for sizes that do not fit."""

    layers: int
    hidden: int
    heads: int
    seq: int
    batch: int

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "seq", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.hidden % self.heads:
            raise ValueError(f"heads is {self.heads}; it must divide hidden, which is {self.hidden}")

    @property
    def parameters(self) -> int:
        """Parameters of all layers: weights of 3, 1, 4 and 4 times hidden x hidden, biases, two norms; no embedding."""
        return self.layers * (12 * self.hidden**2 + 13 * self.hidden)


class Layer:
    """A pre-norm Transformer layer with dropout, of the published model (Korthikanti et al. 2022, figure 2)."""

    def __init__(self, shape: Shape, kept: Kept, **where: Any) -> None:
        import torch

        size = shape.hidden
        self.shape, self.kept = shape, kept
        self.qkv, self.projection = torch.nn.Linear(size, 3 * size, **where), torch.nn.Linear(size, size, **where)
        self.up, self.down = torch.nn.Linear(size, 4 * size, **where), torch.nn.Linear(4 * size, size, **where)
        self.norms = [torch.nn.LayerNorm(size, **where) for _ in range(2)]

    def parameters(self) -> Iterator[torch.nn.Parameter]:
        """Every parameter, in a fixed order."""
        for module in (self.qkv, self.projection, self.up, self.down, *self.norms):
            yield from module.parameters()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch, seq, hidden), as is the result."""
        import torch

        x = x + torch.native_dropout(self.projection(self._attention(self.norms[0](x))), DROPPED, True)[0]
        wide = torch.nn.functional.gelu(self.up(self.norms[1](x)))
        return x + torch.native_dropout(self.down(wide), DROPPED, True)[0]

    def _attention(self, x: torch.Tensor) -> torch.Tensor:
        import torch

        batch, seq, hidden = x.shape
        width = hidden // self.shape.heads
        q, k, v = self.qkv(x).view(batch, seq, 3, self.shape.heads, width).permute(2, 0, 3, 1, 4).unbind(0)
        if self.kept == "standard":
            scores = (q @ k.mT).mul_(width**-0.5)
            mixed = torch.native_dropout(scores.softmax(-1), DROPPED, True)[0] @ v
        else:
            mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        return mixed.transpose(1, 2).reshape(batch, seq, hidden)


class MixedAdamW:
    """AdamW (Loshchilov and Hutter 2019) on 16-bit parameters: FP32 master weights and moments, one parameter a time.

    torch.optim.AdamW on FP32 copies would need all FP32 gradients at once, 4 bytes a parameter more.
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter], *, rate: float = 1e-3, decay: float = 1e-2) -> None:
        import torch

        self.parameters = list(parameters)
        self.masters = [one.detach().float().clone() for one in self.parameters]
        self.first, self.second = ([torch.zeros_like(one) for one in self.masters] for _ in range(2))
        self.rate, self.decay = rate, decay
        self.steps = 0

    def step(self) -> None:
        """Update masters and parameters from the gradients."""
        self.steps += 1
        corrections = [1.0 - beta**self.steps for beta in BETAS]
        for parameter, master, first, second in zip(
            self.parameters, self.masters, self.first, self.second, strict=True
        ):
            assert parameter.grad is not None
            gradient = parameter.grad.float()
            first.lerp_(gradient, 1.0 - BETAS[0])
            second.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1.0 - BETAS[1])
            scale = second.sqrt().div_(corrections[1] ** 0.5).add_(EPSILON)
            master.mul_(1.0 - self.rate * self.decay).addcdiv_(first, scale, value=-self.rate / corrections[0])
            parameter.data.copy_(master)


def training(shape: Shape, kept: Kept, device: str) -> Callable[[], None]:
    """Build a stack, its batch and its optimizer; return the function that does one step.

    Gradients stay allocated from step to step, as they do when they are accumulated.
    """
    import torch
    from torch.utils.checkpoint import checkpoint

    layers = [Layer(shape, kept, device=device, dtype=torch.bfloat16) for _ in range(shape.layers)]
    optimizer = MixedAdamW(parameter for layer in layers for parameter in layer.parameters())
    for parameter in optimizer.parameters:
        parameter.grad = torch.zeros_like(parameter)
    batch = torch.randn(shape.batch, shape.seq, shape.hidden, device=device, dtype=torch.bfloat16)

    def step() -> None:
        x = batch
        for layer in layers:
            x = checkpoint(layer, x, use_reentrant=False) if kept == "checkpointed" else layer(x)
        x.mean().backward()
        optimizer.step()
        for parameter in optimizer.parameters:
            assert parameter.grad is not None
            parameter.grad.zero_()

    return step
