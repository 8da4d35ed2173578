# gemm: WRONG candidate-failed run
import torch
import triton
import triton.language as tl


@triton.jit
def write(c, far):
    at = tl.arange(0, 128)
    tl.store(c + far + at, 1.0)


def run(a, b):
    c = torch.zeros(a.shape[0], b.shape[1], device=a.device, dtype=a.dtype)
    write[(4,)](c, 1 << 42)
    return c
