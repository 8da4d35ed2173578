"""Random calls of every operator end in a right answer or a named error, never in a crash or a wrong answer.

    CUDA_LLM_OPS_FUZZ_CALLS=10000 pytest tests/ops/test_fuzz.py          # 10,000 calls, on the CPU
    CUDA_LLM_OPS_FUZZ_CALLS=10000 pytest --gpu tests/ops/test_fuzz.py    # and 10,000 on the GPU

The calls are divided evenly over the operators. The few of a plain run are the same every time; a number that is asked
for explores new ones, and hypothesis prints how to repeat what fails.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the operators need torch")
hypothesis = pytest.importorskip("hypothesis", reason="the fuzz needs hypothesis")

import cuda_llm_ops  # noqa: E402
import ops_fuzz as fuzz  # noqa: E402
import ops_reference as reference  # noqa: E402
from hypothesis import HealthCheck, Phase, given, settings  # noqa: E402
from hypothesis.strategies import SearchStrategy  # noqa: E402
from torch import Tensor  # noqa: E402

ASKED = os.environ.get("CUDA_LLM_OPS_FUZZ_CALLS")
# flash_attention twice: as it is called most, and with everything it can be asked for.
NAMES = (*reference.ATTENTION, "flash_attention with options", "flash_attention_varlen", *reference.GEMM)
EXAMPLES = int(ASKED or 1000) // len(NAMES)
RIGHT = cuda_llm_ops.flash_attention
REFUSALS = (ValueError, TypeError, NotImplementedError)
fuzzing = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize=ASKED is None,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


def judge(name: str, call: fuzz.Call) -> None:
    """The call's outcome is right, or this fails."""
    name = name.removesuffix(" with options")
    refusal: Exception | None = None
    try:
        out = getattr(cuda_llm_ops, name)(**call.arguments)
    except REFUSALS as error:
        refusal = error
    if refusal is not None:
        assert_named(name, call, str(refusal))
        return
    assert not call.must_fail, f"the call must be refused ({call.spoiled}) and was not"
    options = {key: value for key, value in call.arguments.items() if key not in ("q", "k", "v", "a", "b")}
    if name == "flash_attention_varlen":
        judge_packed(out, call.arguments)
    elif name in reference.ATTENTION:
        judge_attention(name, out, *(call.arguments[key] for key in "qkv"), options)
    else:
        a, b = call.arguments["a"], call.arguments["b"]
        assert out.dtype == (a.dtype if name == "gemm" else torch.float32)
        reference.assert_right(out, reference.gemm(a, b, out.dtype, **options))


def judge_attention(name: str, result: Any, q: Tensor, k: Tensor, v: Tensor, options: dict[str, Any]) -> None:
    out, lse = result if options.get("return_lse") else (result, None)
    assert out.dtype == q.dtype
    mask = {key: options[key] for key in ("bottom_right", "window") if key in options}
    is_causal, scale = options.get("is_causal", False), options.get("scale")
    reference.assert_right(out, reference.attention(name, q, k, v, is_causal, scale, **mask))
    if lse is not None:
        assert lse.dtype == torch.float32
        reference.assert_right(lse, reference.log_sum_exp(q, k, is_causal, scale, **mask))


def judge_packed(result: Any, arguments: dict[str, Any]) -> None:
    """Each sequence as a call of its own."""
    q, k, v = (arguments[key] for key in "qkv")
    ends = [arguments[f"cu_seqlens_{name}"].tolist() for name in ("q", "k")]
    if ends[0][-1] > len(q) or ends[1][-1] > len(k):
        assert q.is_cuda, "offsets past the end, which the host can see"
        return
    for i in range(len(ends[0]) - 1):
        rows, keys = (slice(end[i], end[i + 1]) for end in ends)
        one = [t.transpose(0, 1)[None] for t in (q[rows], k[keys], v[keys])]
        if arguments.get("return_lse"):
            its: Any = (result[0][rows].transpose(0, 1)[None], result[1][None, :, rows])
        else:
            its = result[rows].transpose(0, 1)[None]
        judge_attention("flash_attention", its, *one, arguments)


def assert_named(name: str, call: fuzz.Call, refusal: str) -> None:
    assert call.spoiled, f"a valid call was refused: {refusal}"
    assert refusal.startswith((f"{name}: ", f"{name}()")), f"the error does not name the operator: {refusal}"
    words = set(re.findall(r"\w+", refusal))
    assert words & {*call.arguments, "output"}, f"the error names no argument: {refusal}"


def calls(name: str, device: str) -> SearchStrategy[fuzz.Call]:
    if name == "flash_attention_varlen":
        return fuzz.varlen_calls(device)
    if name.removesuffix(" with options") in reference.ATTENTION:
        return fuzz.attention_calls(device, name.endswith(" with options"), name.startswith("flash") or device == "cpu")
    return fuzz.gemm_calls(device, tensor_core=name == "tensor_core_gemm")


@pytest.mark.parametrize("name", NAMES)
def test_right_or_refused_by_name(name: str, device: str) -> None:
    @fuzzing
    @given(calls(name, device))
    def run(call: fuzz.Call) -> None:
        judge(name, call)

    run()


@functools.wraps(RIGHT)
def _without_mask(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False, *, scale: float | None = None) -> Tensor:
    return RIGHT(q, k, v, scale=scale)


@functools.wraps(RIGHT)
def _lenient(q: Any, k: Any, v: Any, is_causal: bool = False, *, scale: float | None = None) -> Tensor:
    return RIGHT(q, k, v, is_causal, scale=abs(scale) if isinstance(scale, float) else scale)


@functools.wraps(RIGHT)
def _misaligned(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False, *, scale: float | None = None) -> Tensor:
    out = RIGHT(q, k, v, is_causal, scale=scale)
    if q.shape[3] == 129:
        out[..., -1:] = 0
    return out


@functools.wraps(RIGHT)
def _crashing(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False, *, scale: float | None = None) -> Tensor:
    if k.shape[2] == 0:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    return RIGHT(q, k, v, is_causal, scale=scale)


@pytest.mark.parametrize(
    "broken", [_without_mask, _lenient, _misaligned, _crashing], ids=["no mask", "lenient", "head_dim 129", "crash"]
)
def test_the_fuzz_catches(broken: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    """The fuzz itself is tried, on operators that are wrong in one respect."""
    monkeypatch.setattr(cuda_llm_ops, "flash_attention", broken)
    quick = settings(fuzzing, max_examples=1000, derandomize=True, phases=[Phase.generate])
    run = quick(given(calls("flash_attention", "cpu"))(lambda call: judge("flash_attention", call)))
    with pytest.raises((AssertionError, RuntimeError), match=r"wrong|must be refused|illegal memory access"):
        run()
