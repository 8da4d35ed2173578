# gemm: WRONG does-not-compile compile
import torch
import triton
import triton.language as tl


@triton.jit
def multiply(a, b, c, m, n, k, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    tl.store(c + at, tl.matrix_product(a, b, m, n, k), mask=at < m * n)


def run(a, b):
    c = torch.empty(a.shape[0], b.shape[1], device=a.device, dtype=a.dtype)
    multiply[(triton.cdiv(c.numel(), 256),)](a, b, c, *c.shape, a.shape[1], TILE=256)
    return c
