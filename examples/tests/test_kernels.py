"""Gates: each kernel must be right, and at least as fast as the target says."""

import pytest
import torch

HAS_GPU = torch.cuda.is_available()
DEVICE = "cuda" if HAS_GPU else "cpu"
ROWS = 4096 if HAS_GPU else 256


@pytest.mark.gpu
@pytest.mark.perf_target(at_least=0.6)
def test_rms_norm(perf):
    from fast_kernels.norms import EPSILON, rms_norm

    def library(x, weight):
        return torch.nn.functional.rms_norm(x, weight.shape, weight, EPSILON)

    x, weight = torch.randn(ROWS, 2048, device=DEVICE), torch.rand(2048, device=DEVICE)
    perf(rms_norm, args=(x, weight), against=library, bytes=2 * x.nbytes)


@pytest.mark.gpu
@pytest.mark.perf_target(at_least=1.0)
def test_gelu(perf):
    from fast_kernels.compiled import gelu, plain_gelu

    x = torch.randn(ROWS, 2048, device=DEVICE)
    perf(gelu, args=(x,), against=plain_gelu, bytes=2 * x.nbytes)


@pytest.mark.gpu
@pytest.mark.perf_target(at_least=0.9)
@pytest.mark.skipif(not HAS_GPU, reason="Triton compiles for a GPU")
def test_softmax(perf):
    from fast_kernels.triton_softmax import softmax

    x = torch.randn(ROWS, 2048, device=DEVICE)
    perf(softmax, args=(x,), against=lambda x: torch.softmax(x, -1), bytes=2 * x.nbytes)


@pytest.mark.gpu
@pytest.mark.perf_target(at_least=0.9)
@pytest.mark.skipif(not HAS_GPU, reason="nvcc compiles for a GPU")
def test_scale_add(perf):
    from fast_kernels.cuda_scale_add import scale_add

    x, y = torch.randn(2, ROWS, 2048, device=DEVICE)
    perf(scale_add, args=(x, y, 3.0), against=lambda x, y, a: torch.add(y, x, alpha=a), bytes=3 * x.nbytes)
