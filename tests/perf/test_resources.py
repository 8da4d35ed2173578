"""What the kernels take besides time: memory by the sequence length, launches, no waiting, registers and spills."""

from __future__ import annotations

from types import ModuleType

import pytest

from perfsuite import Attention, Gemm, Perf

LONG = Attention(2, 8, 2048, 64)


@pytest.mark.gpu(min_capability=(8, 0))
@pytest.mark.memory_target(growth="linear")
@pytest.mark.launches(at_most=1)
@pytest.mark.no_sync
def test_flash_attention_is_one_launch_and_linear_in_memory(perf: Perf, ops: ModuleType) -> None:
    perf(LONG, ops.flash_attention)


@pytest.mark.gpu(min_capability=(8, 0))
@pytest.mark.memory_target(growth="linear")
@pytest.mark.no_sync
def test_tiled_attention_keeps_no_scores(perf: Perf, ops: ModuleType) -> None:
    perf(LONG, ops.tiled_attention)


@pytest.mark.gpu(min_capability=(8, 0))
@pytest.mark.memory_target(growth="quadratic")
@pytest.mark.no_sync
def test_naive_attention_keeps_all_scores(perf: Perf, ops: ModuleType) -> None:
    perf(LONG, ops.naive_attention)


@pytest.mark.gpu(min_capability=(8, 0))
@pytest.mark.no_sync
@pytest.mark.parametrize("name", ["gemm", "tensor_core_gemm"])
def test_gemm_does_not_wait(name: str, perf: Perf, ops: ModuleType) -> None:
    out_dtype = "float32" if name == "tensor_core_gemm" else None
    perf(Gemm(2048, 2048, 2048, out_dtype=out_dtype), getattr(ops, name))


@pytest.mark.gpu(min_capability=(9, 0))
@pytest.mark.roofline_target(at_least=0.80)
def test_flash_attention_comes_near_the_roof(perf: Perf, ops: ModuleType) -> None:
    perf(Attention(4, 16, 4096, 128), ops.flash_attention)


# Rows of 129 elements begin anywhere, which TMA does not bear: a FLOP may cost a fifth more, not four times.
@pytest.mark.gpu(min_capability=(9, 0))
@pytest.mark.alignment(dim=129, max_drop=0.20)
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize(("batch", "length"), [(16, 2048), (4, 4096)])
def test_flash_attention_does_not_fall_into_the_alignment_trap(
    batch: int, length: int, causal: bool, perf: Perf, ops: ModuleType
) -> None:
    perf(Attention(batch, 16, length, 128, causal=causal), ops.flash_attention)


@pytest.mark.gpu(min_capability=(9, 0))
@pytest.mark.roofline_target(at_least=0.75)
def test_gemm_comes_near_the_roof(perf: Perf, ops: ModuleType) -> None:
    perf(Gemm(4096, 4096, 4096), ops.gemm)


@pytest.mark.gpu
def test_registers_and_spills(perf: Perf, ops: ModuleType) -> None:
    if kernels := ops.kernel_attributes():
        perf.kernels(kernels, of=ops.__name__)
    else:
        pytest.skip("a portable build has no CUDA kernels")
