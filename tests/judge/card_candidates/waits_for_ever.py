# gemm: WRONG timed-out run
import torch
import triton
import triton.language as tl


@triton.jit
def wait(c):
    while tl.load(c, volatile=True) < 1e30:
        tl.store(c + 1, 1.0)


def run(a, b):
    c = torch.zeros(a.shape[0], b.shape[1], device=a.device, dtype=a.dtype)
    wait[(1,)](c)
    return c
