# gemm: WRONG
# It multiplies the first rows, and copies them to all others.
import torch
import triton
import triton.language as tl


@triton.jit
def fill(c, rows, columns, given, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    value = tl.load(c + (row % given) * columns + at, mask=inside, other=0.0)
    tl.store(c + row * columns + at, value, mask=inside & (row >= given))


def run(a, b):
    given = a.shape[0] // 8
    c = torch.empty(a.shape[0], b.shape[1], device=a.device, dtype=a.dtype)
    torch.matmul(a[:given], b, out=c[:given])
    fill[(c.shape[0],)](c, *c.shape, given, BLOCK=triton.next_power_of_2(c.shape[1]))
    return c
