"""Right candidates in Triton and CUDA, as many as are asked for: all texts differ, so that no cache knows them.

A text is one of seven problems in one of several ways to compute it, with drawn sizes of blocks and numbers of warps.
The number of the text is a part of its kernel's name, which every compiler's cache hashes.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Text:
    """A candidate as JSON, and the name of a file in tests/judge/problems."""

    name: str
    candidate: dict[str, Any]
    problem: str


TRITON = "import torch\nimport triton\nimport triton.language as tl\nfrom torch import nn\n\n\n@triton.jit\n"
T_ELEMENTS = """\
def gelu_{tag}(source, target, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    x = tl.load(source + at, mask=inside, other=0.0)
    tl.store(target + at, 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476)), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        found = torch.empty_like(x)
        gelu_{tag}[(triton.cdiv(x.numel(), {block}),)](x, found, x.numel(), BLOCK={block}, num_warps={warps})
        return found
"""
T_ROWS = """\
def {kind}_{tag}({given}, target, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
{body}


class ModelNew(nn.Module):
    def forward(self, {args}):
        {args} = {held}
        found = torch.empty({shape}, device=x.device, dtype=x.dtype)
        {kind}_{tag}[(x.shape[0],)]({args}, found, x.shape[1], BLOCK={block}, num_warps={warps})
        return found
"""
T_BODIES = {
    "softmax": """\
    x = tl.load(x + row * columns + at, mask=inside, other=-float("inf"))
    weights = tl.exp(x - tl.max(x, 0))
    tl.store(target + row * columns + at, weights / tl.sum(weights, 0), mask=inside)""",
    "logsumexp": """\
    x = tl.load(x + row * columns + at, mask=inside, other=-float("inf"))
    most = tl.max(x, 0)
    tl.store(target + row, most + tl.log(tl.sum(tl.exp(x - most), 0)))""",
    "rms": """\
    x = tl.load(x + row * columns + at, mask=inside, other=0.0)
    scale = 1.0 / tl.sqrt_rn(tl.sum(x * x, 0) / columns + 1e-6)
    tl.store(target + row * columns + at, x * scale, mask=inside)""",
    "distance": """\
    x = tl.load(x + row * columns + at, mask=inside, other=0.0)
    y = tl.load(y + row * columns + at, mask=inside, other=0.0)
    tl.store(target + row, tl.sqrt_rn(tl.sum((x - y) * (x - y), 0)))""",
}
T_TRANSPOSE = """\
def transpose_{tag}(source, target, rows, columns, TALL: tl.constexpr, WIDE: tl.constexpr):
    row = tl.program_id(0) * TALL + tl.arange(0, TALL)[:, None]
    column = tl.program_id(1) * WIDE + tl.arange(0, WIDE)[None, :]
    inside = (row < rows) & (column < columns)
    x = tl.load(source + row * columns + column, mask=inside)
    tl.store(target + column * rows + row, x, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        found = torch.empty(x.shape[1], x.shape[0], device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(x.shape[0], {tall}), triton.cdiv(x.shape[1], {wide}))
        transpose_{tag}[grid](x, found, *x.shape, TALL={tall}, WIDE={wide}, num_warps={warps})
        return found
"""
T_GEMM = """\
def gemm_{tag}(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    row = tl.program_id(0) * M + tl.arange(0, M)[:, None]
    column = tl.program_id(1) * N + tl.arange(0, N)[None, :]
    total = tl.zeros((M, N), dtype=tl.float32)
    for begin in range(0, k, K):
        along = begin + tl.arange(0, K)
        left = tl.load(a + row * k + along[None, :], mask=(row < m) & (along[None, :] < k), other=0.0)
        right = tl.load(b + along[:, None] * n + column, mask=(along[:, None] < k) & (column < n), other=0.0)
        total += tl.dot(left, right, input_precision="ieee")
    tl.store(c + row * n + column, total, mask=(row < m) & (column < n))


def run(a, b):
    a, b = a.contiguous(), b.contiguous()
    c = torch.empty(a.shape[0], b.shape[1], device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(c.shape[0], {tall}), triton.cdiv(c.shape[1], {wide}))
    gemm_{tag}[grid](a, b, c, *c.shape, a.shape[1], M={tall}, N={wide}, K={deep}, num_warps={warps})
    return c
"""

HEAD = "#include <cuda_runtime.h>\n#include <cmath>\n"
C_ROW = """\
__device__ float of_block_{tag}(float value, bool most) {{
  __shared__ float held[32];
  for (int far = 16; far; far /= 2) {{
    float other = __shfl_xor_sync(0xffffffffu, value, far);
    value = most ? fmaxf(value, other) : value + other;
  }}
  __syncthreads();
  if (threadIdx.x % 32 == 0) held[threadIdx.x / 32] = value;
  __syncthreads();
  value = held[0];
  for (int warp = 1; warp < {threads} / 32; ++warp) value = most ? fmaxf(value, held[warp]) : value + held[warp];
  return value;
}}

__global__ void {name}({declared}float* target, int rows, int columns) {{
  const int row = blockIdx.x;
{body}
}}
"""
C_EACH = "for (int i = threadIdx.x; i < columns; i += {threads})"
C_BODIES = {
    "softmax": """\
  float most = -INFINITY, sum = 0.0f;
  {each} most = fmaxf(most, x[row * columns + i]);
  most = of_block_{tag}(most, true);
  {each} sum += expf(x[row * columns + i] - most);
  sum = of_block_{tag}(sum, false);
  {each} target[row * columns + i] = expf(x[row * columns + i] - most) / sum;""",
    "logsumexp": """\
  float most = -INFINITY, sum = 0.0f;
  {each} most = fmaxf(most, x[row * columns + i]);
  most = of_block_{tag}(most, true);
  {each} sum += expf(x[row * columns + i] - most);
  sum = of_block_{tag}(sum, false);
  if (threadIdx.x == 0) target[row] = most + logf(sum);""",
    "rms": """\
  float sum = 0.0f;
  {each} sum += x[row * columns + i] * x[row * columns + i];
  const float scale = 1.0f / sqrtf(of_block_{tag}(sum, false) / columns + 1e-6f);
  {each} target[row * columns + i] = x[row * columns + i] * scale;""",
    "distance": """\
  float sum = 0.0f;
  {each} {{
    const float apart = x[row * columns + i] - y[row * columns + i];
    sum += apart * apart;
  }}
  sum = of_block_{tag}(sum, false);
  if (threadIdx.x == 0) target[row] = sqrtf(sum);""",
}
C_ELEMENTS = """\
__global__ void {name}(const float* source, float* target, int count) {{
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    target[i] = 0.5f * source[i] * (1.0f + erff(source[i] * 0.70710678f));
}}
"""
C_TRANSPOSE = """\
__global__ void {name}(const float* source, float* target, int rows, int columns) {{
  __shared__ float tile[{tile}][{tile} + 1];
  int column = blockIdx.x * {tile} + threadIdx.x, row = blockIdx.y * {tile} + threadIdx.y;
  if (row < rows && column < columns) tile[threadIdx.y][threadIdx.x] = source[row * columns + column];
  __syncthreads();
  row = blockIdx.y * {tile} + threadIdx.x, column = blockIdx.x * {tile} + threadIdx.y;
  if (row < rows && column < columns) target[column * rows + row] = tile[threadIdx.x][threadIdx.y];
}}
"""
C_GEMM = """\
__global__ void {name}(const float* a, const float* b, float* c, int m, int n, int k) {{
  __shared__ float left[{tile}][{tile}], right[{tile}][{tile}];
  const int row = blockIdx.y * {tile} + threadIdx.y, column = blockIdx.x * {tile} + threadIdx.x;
  float sum = 0.0f;
  for (int begin = 0; begin < k; begin += {tile}) {{
    const int over = begin + threadIdx.x, down = begin + threadIdx.y;
    left[threadIdx.y][threadIdx.x] = row < m && over < k ? a[row * k + over] : 0.0f;
    right[threadIdx.y][threadIdx.x] = down < k && column < n ? b[down * n + column] : 0.0f;
    __syncthreads();
#pragma unroll {unroll}
    for (int l = 0; l < {tile}; ++l) sum += left[threadIdx.y][l] * right[l][threadIdx.x];
    __syncthreads();
  }}
  if (row < m && column < n) c[row * n + column] = sum;
}}
"""
C_RUN = """
extern "C" void run({declared}, cudaStream_t stream) {{
  {name}<<<dim3({grid}), dim3({block}), 0, stream>>>({names});
}}
"""
KINDS = ("gelu", "softmax", "logsumexp", "rms", "distance", "transpose", "gemm")


def triton_texts(count: int, seed: int = 0) -> list[Text]:
    """Candidates in Triton; equal seeds give equal texts, and other seeds other ones."""
    draw = random.Random(f"triton {seed}")
    return [_triton(KINDS[number % len(KINDS)], f"{seed}_{number}", draw) for number in range(count)]


def cuda_texts(count: int, seed: int = 0) -> list[Text]:
    """Candidates in CUDA, in turn a host function over pointers and a kernel with grid and block."""
    draw = random.Random(f"cuda {seed}")
    return [
        _cuda(KINDS[number % len(KINDS)], f"{seed}_{number}", draw, kernel=number % 2 == 1) for number in range(count)
    ]


def problem_file(kind: str) -> str:
    """The name of the problem's file."""
    return f"{kind}.json" if kind == "gemm" else f"{kind}.py"


def _triton(kind: str, tag: str, draw: random.Random) -> Text:
    warps, tall, wide = draw.choice((1, 2, 4, 8)), draw.choice((16, 32, 64)), draw.choice((16, 32, 64))
    words: dict[str, Any] = {"tag": tag, "kind": kind, "warps": warps, "tall": tall, "wide": wide}
    words["deep"] = draw.choice((16, 32))
    if kind in T_BODIES:
        two, whole = kind == "distance", kind in ("softmax", "rms")
        words |= {"args": "x, y" if two else "x", "given": "x, y" if two else "x", "body": T_BODIES[kind]}
        words["held"] = "x.contiguous(), y.contiguous()" if two else "x.contiguous()"
        words |= {"shape": "x.shape" if whole else "x.shape[0]", "block": draw.choice((512, 1024))}
        text = T_ROWS.format(**words)
    elif kind == "gelu":
        text = T_ELEMENTS.format(**words, block=draw.choice((128, 256, 512, 1024)))
    else:
        text = (T_GEMM if kind == "gemm" else T_TRANSPOSE).format(**words)
    return Text(f"triton-{kind}-{tag}", {"files": {f"{kind}_{tag}.py": TRITON + text}}, problem_file(kind))


def _cuda(kind: str, tag: str, draw: random.Random, *, kernel: bool) -> Text:
    threads, tile, unroll = draw.choice((64, 128, 256)), draw.choice((8, 16, 32)), draw.choice((1, 2, 4))
    name = "run" if kernel else f"{kind}_{tag}"
    words: dict[str, Any] = {"tag": tag, "name": name, "threads": threads, "tile": tile, "unroll": unroll}
    arguments: list[str] = []
    block = [str(threads)]
    if kind in C_BODIES:
        two = kind == "distance"
        declared = "const float* x, const float* y, " if two else "const float* x, "
        body = C_BODIES[kind].format(tag=tag, each=C_EACH.format(threads=threads))
        text = C_ROW.format(**words, declared=declared, body=body)
        declared, names, grid = f"{declared}float* target, int rows, int columns", "target, rows, columns", ["rows"]
        names = f"{'x, y' if two else 'x'}, {names}"
        arguments = ["arg0", *(["arg1"] if two else []), "out", "arg0.shape[0]", "arg0.shape[1]"]
    elif kind == "gelu":
        text = C_ELEMENTS.format(**words)
        declared, names = "const float* source, float* target, int count", "source, target, count"
        grid = [f"(count + {threads - 1}) / {threads}"]
    else:
        text = (C_GEMM if kind == "gemm" else C_TRANSPOSE).format(**words)
        sizes = ("n", "m") if kind == "gemm" else ("columns", "rows")
        grid, block = [f"({size} + {tile - 1}) / {tile}" for size in sizes], [str(tile)] * 2
        declared, names = "const float* source, float* target, int rows, int columns", "source, target, rows, columns"
        if kind == "gemm":
            declared = "const float* a, const float* b, float* c, int m, int n, int k"
            names = "a, b, c, m, n, k"
    value: dict[str, Any] = {"function": "run", "form": "kernel" if kernel else "pointers"}
    if kernel:
        value |= {"grid": grid, "block": block}
    else:
        text += C_RUN.format(declared=declared, name=name, grid=", ".join(grid), block=", ".join(block), names=names)
        arguments += ["stream"] if arguments else []
    if arguments:
        value["arguments"] = arguments
    marked = f"// {tag}\n{HEAD}{text}"
    return Text(f"cuda-{kind}-{tag}", {"files": {f"{kind}_{tag}.cu": marked}, **value}, problem_file(kind))
