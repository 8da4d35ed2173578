"""The activation model against what torch keeps for the backward pass of a layer, counted byte by byte on the CPU."""

from __future__ import annotations

from typing import Any

import pytest

from perfsuite.memory.model import activation_bytes

BATCH, SEQ, HEADS, HIDDEN = 2, 128, 8, 256


def kept_bytes(*, flash: bool) -> int:
    """Bytes of the storages, parameters aside, that one layer of the published model saves, in bfloat16."""
    import torch
    from torch.nn import functional

    torch.manual_seed(0)
    wide = [torch.nn.Linear(HIDDEN, size, dtype=torch.bfloat16) for size in (3 * HIDDEN, HIDDEN, 4 * HIDDEN)]
    qkv, projection, up = wide
    down = torch.nn.Linear(4 * HIDDEN, HIDDEN, dtype=torch.bfloat16)
    norms = [torch.nn.LayerNorm(HIDDEN, dtype=torch.bfloat16) for _ in range(2)]
    modules = torch.nn.ModuleList([*wide, down, *norms])

    def dropped(x: Any) -> Any:
        # With a mask of a byte an element, as on a GPU; functional.dropout on a CPU takes one of the input's dtype.
        return torch.native_dropout(x, 0.1, True)[0]

    def layer(x: Any) -> Any:
        heads = qkv(norms[0](x)).view(BATCH, SEQ, 3, HEADS, HIDDEN // HEADS).permute(2, 0, 3, 1, 4)
        q, k, v = heads.unbind(0)
        if flash:
            mixed = functional.scaled_dot_product_attention(q, k, v)
        else:
            scores = (q @ k.mT).mul_((HIDDEN // HEADS) ** -0.5)
            mixed = dropped(scores.softmax(-1)) @ v
        mixed = mixed.transpose(1, 2).reshape(BATCH, SEQ, HIDDEN)
        x = x + dropped(projection(mixed))
        return x + dropped(down(functional.gelu(up(norms[1](x)))))

    own = {parameter.untyped_storage().data_ptr() for parameter in modules.parameters()}
    kept: dict[int, int] = {}
    alive = []

    def keep(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)  # no later tensor may get its address
        return tensor

    x = torch.randn(BATCH, SEQ, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        layer(x)
    return sum(kept.values())


def test_a_layer_keeps_what_the_model_says() -> None:
    predicted = activation_bytes(1, HIDDEN, HEADS, SEQ, BATCH)
    assert kept_bytes(flash=False) == pytest.approx(predicted.standard, rel=0.01)


def test_a_layer_with_flash_attention_keeps_what_the_model_says() -> None:
    """The model's 34 sbh; torch keeps the attention's output for its own backward, in the storage counted already."""
    predicted = activation_bytes(1, HIDDEN, HEADS, SEQ, BATCH)
    assert kept_bytes(flash=True) == pytest.approx(predicted.flash, rel=0.01)
