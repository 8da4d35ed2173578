"""The backward at head_dim 128: variants as shared libraries, beside cuDNN's backward and FlashAttention-4's.

    python3 lab.py [--libraries DIR] [--seconds 80] [--output FILE]

Checks every library against float64 at small shapes and against the library's gradients at the gates' shapes; then
times them in alternation, CUDA graphs, medians. PERFSUITE_FLASH_ATTN_OBJECTS names the folder of FlashAttention-4's
kernels (plans.json, flash_attn.so); perfsuite and tvm_ffi must be importable for it. Nothing else of the repository.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import sys
import time
from pathlib import Path

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

BEGUN = time.monotonic()
EVERY_KEY = 1 << 29
TYPES = {torch.float16: 0, torch.bfloat16: 1}
MAIN = ["before", "now", "A", "B", "C", "BC"]
# batch, heads, key heads, length, and the masks
SHAPES = [
    (2, 64, 8, 8192, (False, True)), (2, 16, 16, 16384, (False, True)), (4, 16, 16, 1024, (False, True)),
    (4, 16, 16, 512, (False, True)), (4, 64, 8, 4096, (True,)), (4, 64, 8, 2048, (True,)), (4, 64, 8, 1024, (True,)),
]  # fmt: skip
PARTS = [(2, 64, 8, 8192, False), (2, 16, 16, 16384, True)]
IN_TURN = [(2, 64, 8, 8192, True), (2, 64, 8, 8192, False)]
failed = []


class Strides(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("batch", "head", "seq")]


class Options(ctypes.Structure):
    _fields_ = [
        ("left", ctypes.c_int32), ("right", ctypes.c_int32), ("bottom_right", ctypes.c_bool), ("lse", ctypes.c_void_p),
        ("lse_stride_batch", ctypes.c_int64), ("lse_stride_head", ctypes.c_int64), ("cu_seqlens_q", ctypes.c_void_p),
        ("cu_seqlens_kv", ctypes.c_void_p), ("total_q", ctypes.c_int32), ("total_kv", ctypes.c_int32),
    ]  # fmt: skip


class Arguments(ctypes.Structure):
    """BackwardArguments of backward.h."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("q", "k", "v", "out", "d_out", "lse", "d_lse", "dq", "dk", "dv")),
        *((name, ctypes.c_int32) for name in ("batch", "heads", "kv_heads", "seq_q", "seq_kv")),
        *((name, ctypes.c_int32) for name in ("head_dim", "value_dim")),
        *((f"{name}_stride", Strides) for name in ("q", "k", "v", "out", "d_out", "dq", "dk", "dv")),
        ("scale", ctypes.c_double), ("options", Options), ("deterministic", ctypes.c_bool), ("type", ctypes.c_int32),
        ("workspace", ctypes.c_void_p),
    ]  # fmt: skip


def load(path):
    library = ctypes.CDLL(str(path))
    library.launch.restype = ctypes.c_char_p
    library.launch.argtypes = [ctypes.POINTER(Arguments), ctypes.c_void_p]
    library.workspace_bytes.restype = ctypes.c_longlong
    library.workspace_bytes.argtypes = [ctypes.POINTER(Arguments)]
    assert library.bytes_of_arguments() == ctypes.sizeof(Arguments)
    return library


class Ours:
    """One library's backward of given tensors; a call writes the gradients `found`."""

    def __init__(self, library, q, k, v, out, d_out, lse, causal=False, window=None, in_turn=False, scale=None):
        self.library = library
        self.found = [torch.full_like(one, float("nan")) for one in (q, k, v)]
        a = self.arguments = Arguments(type=TYPES[q.dtype], scale=q.shape[-1] ** -0.5 if scale is None else scale)
        named = {"q": q, "k": k, "v": v, "out": out, "d_out": d_out}
        named |= dict(zip(("dq", "dk", "dv"), self.found, strict=True))
        for name, tensor in named.items():
            setattr(a, name, tensor.data_ptr())
            setattr(a, f"{name}_stride", Strides(*tensor.stride()[:3]))
        a.lse, a.d_lse, a.deterministic = lse.data_ptr(), None, in_turn
        a.batch, a.heads, a.seq_q, a.head_dim = q.shape
        a.kv_heads, a.seq_kv, a.value_dim = k.shape[1], k.shape[2], v.shape[3]
        left, right = window or (-1, 0 if causal else -1)
        a.options.left = EVERY_KEY if left < 0 else left
        a.options.right = EVERY_KEY if right < 0 else right
        count = library.workspace_bytes(ctypes.byref(a))
        if count < 0:
            raise RuntimeError("these kernels do not take it")
        self.workspace = torch.full((count + 256,), 255, dtype=torch.uint8, device=q.device)
        a.workspace = (self.workspace.data_ptr() + 255) // 256 * 256
        self.kept = named, lse

    def __call__(self):
        stream = torch.cuda.current_stream().cuda_stream if torch.cuda.is_available() else None
        why = self.library.launch(ctypes.byref(self.arguments), stream)
        if why is not None:
            raise RuntimeError(why.decode())
        return self.found


def attend(q, k, v, seen, scale):
    """In float64, by the definition."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = (q @ k.mT * scale).masked_fill(~seen, float("-inf"))
    lse = scores.logsumexp(-1)
    weights = (scores - torch.where(lse == float("-inf"), 0.0, lse)[..., None]).exp()
    return weights @ v, lse


def small_case(dtype, batch, heads, kv_heads, seq_q, seq_kv, causal, window, device, seed):
    generator = torch.Generator(device).manual_seed(seed)
    shapes = [(heads, seq_q), (kv_heads, seq_kv), (kv_heads, seq_kv), (heads, seq_q)]
    q, k, v, d_out = (
        torch.randn(batch, *s, 128, generator=generator, device=device).to(dtype) for s in shapes
    )
    i, j = torch.arange(seq_q, device=device)[:, None], torch.arange(seq_kv, device=device)
    left, right = window or (-1, 0 if causal else -1)
    seen = torch.ones(seq_q, seq_kv, dtype=torch.bool, device=device)
    if left >= 0:
        seen &= j >= i - left
    if right >= 0:
        seen &= j <= i + right
    leaves = [one.double().requires_grad_() for one in (q, k, v)]
    out, lse = attend(*leaves, seen, 128**-0.5)
    exact = torch.autograd.grad((out * d_out.double()).sum(), leaves)
    return (q, k, v, out.detach().to(dtype), d_out, lse.detach().float()), exact


def check_small(libraries, device="cuda", run_twice=True):
    """Full, causal, windowed; in free order and in turn; partial tiles, grouped heads, several sections."""
    cases = [
        (torch.bfloat16, 1, 2, 1, 150, 133, False, None), (torch.float16, 2, 3, 3, 70, 300, False, None),
        (torch.bfloat16, 1, 8, 1, 260, 260, True, None), (torch.float16, 1, 2, 2, 1, 1, True, None),
        (torch.bfloat16, 1, 2, 2, 300, 200, False, (40, 20)), (torch.bfloat16, 2, 8, 2, 640, 640, True, None),
    ]  # fmt: skip
    if device == "cuda":
        cases += [(torch.bfloat16, 1, 24, 3, 1500, 1500, True, None), (torch.float16, 1, 4, 4, 1000, 1111, False, None)]
    for seed, case in enumerate(cases):
        given, exact = small_case(*case, device, seed)
        limit = 0.02 if case[0] == torch.bfloat16 else 0.003
        for name, library in libraries.items():
            for in_turn in (False, True):
                if in_turn and case[7] is not None:
                    continue
                call = Ours(library, *given, causal=case[6], window=case[7], in_turn=in_turn)
                first = [one.clone() for one in call()]
                errors = [
                    ((a.double() - b).norm() / (b.norm() + 1e-3 * b.numel() ** 0.5)).item()
                    for a, b in zip(first, exact, strict=True)
                ]
                if not max(errors) < limit:
                    failed.append(f"{name} {case} in_turn={in_turn}")
                    print("WRONG", name, case, in_turn, [f"{e:.1e}" for e in errors])
                if in_turn and run_twice and not all(torch.equal(a, b) for a, b in zip(first, call(), strict=True)):
                    failed.append(f"{name} {case} other bits")
                    print("OTHER BITS", name, case)
    print(f"{len(cases)} small cases, {len(libraries)} libraries: {len(failed)} wrong, {spent():.0f} s", flush=True)


def spent():
    return time.monotonic() - BEGUN


def made(batch, heads, kv_heads, length, causal):
    generator = torch.Generator("cuda").manual_seed(length + heads)
    q, k, v, d_out = (
        torch.randn(batch, h, length, 128, generator=generator, device="cuda", dtype=torch.bfloat16)
        for h in (heads, kv_heads, kv_heads, heads)
    )
    group = heads // kv_heads
    wide = (k, v) if group == 1 else (k.repeat_interleave(group, 1), v.repeat_interleave(group, 1))
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention(q, *wide, 0.0, causal, False)[:2]
    return q, k, v, out, d_out, lse.contiguous()


def side():
    """The stream on which everything is captured: a backward runs on its forward's stream."""
    if not hasattr(side, "stream"):
        side.stream = torch.cuda.Stream()
    return side.stream


def cudnn(q, k, v, d_out, causal):
    leaves = [one.detach().requires_grad_() for one in (q, k, v)]
    torch.cuda.synchronize()
    with torch.cuda.stream(side()), sdpa_kernel([SDPBackend.CUDNN_ATTENTION]):
        out = scaled_dot_product_attention(*leaves, is_causal=causal, enable_gqa=q.shape[1] > k.shape[1])
    torch.cuda.synchronize()
    return lambda: torch.autograd.grad(out, leaves, d_out, retain_graph=True)


def flash_4(q, k, v, out, d_out, lse, causal):
    from perfsuite.problems import flash_objects

    if (why := flash_objects.missing()) is not None:
        raise RuntimeError(why)
    folder = os.environ[flash_objects.VARIABLE]
    q, k, v, out, d_out = (one.transpose(1, 2) for one in (q, k, v, out, d_out))
    name = flash_objects.key(q, k, v, None, causal, (None, None))
    plan = json.loads(Path(folder, flash_objects.PLANS).read_text())["problems"].get(name)
    if plan is None:
        raise RuntimeError(f"no plan for {name}")
    kernels = flash_objects.library(folder)
    out, lse = flash_objects.run(plan["forward"], kernels, {"q": q, "k": k, "v": v})
    inputs = {"q": q, "k": k, "v": v, "out": out, "dout": d_out, "lse": lse}
    return lambda: [one.transpose(1, 2) for one in flash_objects.run(plan["backward"], kernels, inputs)]


def graph_of(call, times):
    torch.cuda.synchronize()
    with torch.cuda.stream(side()):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side()):
        for _ in range(times):
            call()
    return graph


def alternated(calls, seconds_of_one, rounds):
    times = max(1, min(20, round(0.004 / seconds_of_one)))
    graphs = {}
    for name, call in calls.items():
        try:
            graphs[name] = graph_of(call, times).replay
        except RuntimeError as error:
            print(f"  {name}: no graph ({str(error).splitlines()[0][:90]}), launched one by one")
            torch.cuda.synchronize()
            graphs[name] = lambda call=call: [call() for _ in range(times)]
    marks = {name: [] for name in graphs}
    for _ in range(rounds + 2):
        for name, replay in graphs.items():
            pair = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            pair[0].record()
            replay()
            pair[1].record()
            marks[name].append(pair)
    torch.cuda.synchronize()
    return {name: [a.elapsed_time(b) / 1e3 / times for a, b in pairs[2:]] for name, pairs in marks.items()}


def time_shape(libraries, names, shape, rivals=True, in_turn=False, rounds=9):
    batch, heads, kv_heads, length, causal = shape
    q, k, v, out, d_out, lse = made(*shape)
    calls = {
        name: Ours(libraries[name], q, k, v, out, d_out, lse, causal, in_turn=in_turn) for name in names if name in libraries
    }
    others = {}
    if rivals:
        for name, make in (
            ("cudnn", lambda: cudnn(q, k, v, d_out, causal)),
            ("FA-4", lambda: flash_4(q, k, v, out, d_out, lse, causal)),
        ):
            try:
                others[name] = make()
                others[name]()
            except Exception as error:  # noqa: BLE001
                others.pop(name, None)
                print(f"  {name} refused: {type(error).__name__} {str(error).splitlines()[0][:120]}")
    torch.cuda.synchronize()
    expected = next((others[name]() for name in ("cudnn", "FA-4") if name in others), None)
    for name, call in calls.items():
        found = call()
        if expected is not None:
            errors = [((a.float() - b.float()).norm() / b.float().norm()).item() for a, b in zip(found, expected, strict=True)]
            if not max(errors) < 0.02:
                failed.append(f"{name} {shape}")
                print("FAR FROM THE LIBRARY'S", name, shape, [f"{e:.1e}" for e in errors])
    del expected
    flops = 10 * 128 * batch * heads * length * length * (0.5 if causal else 1.0)
    found = alternated(calls | others, flops / 450e12, rounds)
    base = found["now"]
    row = {"shape": f"{batch}x{heads}/{kv_heads}x{length} {'causal' if causal else 'full'}{' in turn' * in_turn}"}
    print(f"{row['shape']:28}", end="")
    for name, mine in found.items():
        speed = statistics.median(b / a for a, b in zip(mine, base, strict=True))
        row[name] = {"tflops": flops / statistics.median(mine) / 1e12, "over now": speed, "seconds": mine}
        print(f"  {name} {row[name]['tflops']:.0f} ({speed:.3f})", end="")
    print(flush=True)
    return row


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--libraries", type=Path, default=Path(__file__).parent / "so")
    parser.add_argument("--seconds", type=float, default=80.0)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    print(torch.cuda.get_device_name(), torch.__version__)
    paths = {path.stem: path for path in sorted(given.libraries.glob("*.so"))}
    libraries = {name: load(paths[name]) for name in sorted(paths, key=lambda n: (n not in MAIN, MAIN.index(n) if n in MAIN else 0, n))}
    check_small(libraries)
    wrong = {one.split()[0] for one in failed}
    libraries = {name: one for name, one in libraries.items() if name not in wrong}
    parts = [name for name in libraries if name not in MAIN]
    rows = []
    print("\nTFLOPS of the backward, small kernels included; in brackets the speed over `now`")
    todo = [(MAIN, (*s[:4], causal), True, False) for s in SHAPES for causal in s[4]]
    todo += [(["now", "A", "B", *parts], shape, False, False) for shape in PARTS]
    todo += [(["now", "A", "C", "BC"], shape, False, True) for shape in IN_TURN]
    for names, shape, rivals, in_turn in todo:
        if spent() > given.seconds:
            print("time is spent")
            break
        rows.append(time_shape(libraries, names, shape, rivals, in_turn))
        torch.cuda.empty_cache()
    print(f"\n{'FAILED: ' + '; '.join(failed) if failed else 'all right'}; {spent():.0f} s")
    if given.output:
        given.output.write_text("".join(json.dumps(row) + "\n" for row in rows))
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
