"""Buffers that are allocated once, and the planning helpers beside them."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch


def test_views_are_contiguous_and_of_the_size_asked(ops: ModuleType, device: str) -> None:
    pool = ops.AttentionMemoryPool(4, 2, 128, 32, dtype=torch.float32, device=device)
    assert pool.nbytes == 4 * 4 * 2 * 128 * 32 * 4
    assert pool.device.type == device
    buffers = pool.buffers(3, 77)
    for name in ("q", "k", "v", "output"):
        tensor = getattr(buffers, name)
        assert tensor.shape == (3, 2, 77, 32)
        assert tensor.is_contiguous()
        assert tensor.dtype == torch.float32


def test_buffers_of_one_request_do_not_overlap_and_later_ones_use_the_same_memory(ops: ModuleType) -> None:
    pool = ops.AttentionMemoryPool(2, 2, 16, 8, dtype=torch.float32, device="cpu")
    first = pool.buffers(2, 16)
    for number, tensor in enumerate(first):
        tensor.fill_(float(number))
    assert (
        [float(tensor.min()) for tensor in first] == [float(tensor.max()) for tensor in first] == [0.0, 1.0, 2.0, 3.0]
    )
    second = pool.buffers(1, 5)
    assert [tensor.data_ptr() for tensor in first] == [tensor.data_ptr() for tensor in second]
    assert float(second.v.max()) == 2.0, "nothing is cleared"


def test_the_kernels_take_the_views(ops: ModuleType, device: str) -> None:
    pool = ops.AttentionMemoryPool(2, 4, 64, 32, dtype=torch.float32, device=device)
    for batch, seq in ((2, 64), (1, 33)):
        q, k, v, output = pool.buffers(batch, seq)
        for tensor in (q, k, v):
            tensor.normal_()
        output.copy_(ops.flash_attention(q, k, v))
        expected = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        torch.testing.assert_close(output, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("batch", "seq", "words"), [(3, 1, "batch is 3"), (0, 1, "batch is 0"), (1, 17, "seq is 17")])
def test_what_the_pool_cannot_hold_is_refused(batch: int, seq: int, words: str, ops: ModuleType) -> None:
    pool = ops.AttentionMemoryPool(2, 2, 16, 8, device="cpu")
    with pytest.raises(ValueError, match=f"{words}; the pool was made for 1 to"):
        pool.buffers(batch, seq)


@pytest.mark.parametrize("sizes", [(0, 1, 1, 1), (1, -1, 1, 1), (1, 1, 1.5, 1), (1, 1, 1, True)])
def test_a_pool_without_a_size_is_refused(sizes: tuple[int, int, int, int], ops: ModuleType) -> None:
    with pytest.raises(ValueError, match="it must be a whole number of at least 1"):
        ops.AttentionMemoryPool(*sizes, device="cpu")


def test_estimate_of_the_guides_example(ops: ModuleType) -> None:
    assert ops.estimate_attention_memory(2, 16, 8192, 64) / 2**20 == pytest.approx(131.2)
    assert ops.estimate_attention_memory(2, 16, 8192, 64, torch.float32) / 2**20 == pytest.approx(262.4)
    with pytest.raises(ValueError, match=r"dtype is 'torch\.int64'"):
        ops.estimate_attention_memory(2, 16, 8192, 64, torch.int64)


def test_the_batch_that_fits(ops: ModuleType) -> None:
    one = ops.estimate_attention_memory(1, 16, 8192, 64)
    assert ops.find_optimal_batch_size(16, 8192, 64, 8 * 1.2 * one) == 8
    assert ops.find_optimal_batch_size(16, 8192, 64, 8 * 1.2 * one - 1) == 4
    assert ops.find_optimal_batch_size(16, 8192, 64, one) == 0, "no room for the fifth that is spared"


def test_padding_keeps_values_and_products(ops: ModuleType, device: str) -> None:
    a, b = torch.randn(2, 5, 129, device=device), torch.randn(2, 129, 7, device=device)
    wide, tall = ops.pad_to_alignment(a), ops.pad_to_alignment(b)
    assert wide.shape == (2, 16, 144)
    assert tall.shape == (2, 144, 16)
    torch.testing.assert_close(ops.gemm(wide, tall)[:, :5, :7], a @ b, atol=1e-3, rtol=1e-3)
    assert float(wide[:, 5:].abs().max()) == float(wide[:, :, 129:].abs().max()) == 0.0


def test_what_is_aligned_or_empty_is_left_alone(ops: ModuleType) -> None:
    for shape in ((16, 32), (3, 48, 16), (0, 16)):
        tensor = torch.ones(shape)
        assert ops.pad_to_alignment(tensor) is tensor
    assert ops.pad_to_alignment(torch.ones(5, 9), multiple=8).shape == (8, 16)
    with pytest.raises(ValueError, match="must have at least 2"):
        ops.pad_to_alignment(torch.ones(5))
    with pytest.raises(ValueError, match="multiple is 0"):
        ops.pad_to_alignment(torch.ones(5, 5), multiple=0)
