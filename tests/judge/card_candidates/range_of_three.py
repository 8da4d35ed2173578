# gemm: WRONG does-not-compile compile
import torch
import triton
import triton.language as tl


@triton.jit
def multiply(a, b, c, count, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, 3)  # a power of two is needed
    tl.store(c + at, 0.0, mask=at < count)


def run(a, b):
    c = torch.empty(a.shape[0], b.shape[1], device=a.device, dtype=a.dtype)
    multiply[(triton.cdiv(c.numel(), 3),)](a, b, c, c.numel(), TILE=3)
    return c
