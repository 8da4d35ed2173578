"""Kernels that flash-attn-4 compiled beforehand: a package of its form is exported, and its calls are made again."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from perfsuite.problems import Attention, RivalUnavailableError, flash_export, flash_objects
from perfsuite.problems.rivals import flash_attn as flash_rival

PROBLEMS = [
    Attention(2, 4, 8, 16, dtype="float32", kv_heads=2, causal=True, scale=0.5, backward="only"),
    Attention(1, 2, 12, 16, dtype="float32", window=(2, 1), backward="only"),
    Attention(1, 2, 12, 16, value_dim=8, dtype="float32", causal=True, backward="only"),
]


class Compiled:
    def export_to_c(self, *, object_file_path: str, function_name: str) -> None:
        Path(object_file_path).write_text(function_name)


def package() -> ModuleType:
    """A package that allocates, and leaves the rest to two kernels that it keeps by their keys."""
    made = ModuleType("flash_attn.cute.interface")

    def compiled(function: Any, of: Any) -> Callable[..., None]:
        if of not in function.compile_cache:
            function.compile_cache[of] = Compiled()
        found: Callable[..., None] = function.compile_cache[of]
        return found

    def forward(
        q: Any, k: Any, v: Any, *, softmax_scale: Any, causal: bool, window_size_left: Any, window_size_right: Any,
        return_lse: bool = False,
    ) -> Any:  # fmt: skip
        out = torch.empty((*q.shape[:3], v.shape[3]), dtype=q.dtype, device=q.device)
        lse = torch.empty(q.shape[0], q.shape[2], q.shape[1], device=q.device) if return_lse else None
        mask = causal, (window_size_left, window_size_right)
        compiled(forward, (q.dtype, return_lse))(q, k, v, out, lse, softmax_scale, *mask)
        return out, lse, None

    def backward(
        q: Any, k: Any, v: Any, out: Any, d_out: Any, lse: Any, *, softmax_scale: Any, causal: bool,
        window_size_left: Any, window_size_right: Any,
    ) -> Any:  # fmt: skip
        sums = torch.zeros(q.shape, device=q.device)
        gradients = [torch.empty_like(one) for one in (q, k, v)]
        mask = causal, (window_size_left, window_size_right)
        compiled(backward, q.dtype)(q, k, v, out, d_out, lse, sums, *gradients, softmax_scale, *mask)
        return tuple(gradients)

    for name, function in (("_flash_attn_fwd", forward), ("_flash_attn_bwd", backward)):
        setattr(made, name, function)
    for name in ("_bwd_preprocess", "_bwd_postprocess_convert"):
        setattr(made, name, lambda: None)
    return made


def attended(q: Any, k: Any, v: Any, scale: Any, causal: bool, window: Any) -> Any:
    q, k, v = (one.transpose(1, 2) for one in (q, k, v))
    k, v = (one.repeat_interleave(q.shape[1] // k.shape[1], 1) for one in (k, v))
    behind = torch.arange(k.shape[2]) - torch.arange(q.shape[2])[:, None]
    left, right = (None, 0) if causal else window
    seen = (behind >= (-99 if left is None else -left)) & (behind <= (99 if right is None else right))
    scores = ((q @ k.mT) * (q.shape[-1] ** -0.5 if scale is None else scale)).masked_fill(~seen, float("-inf"))
    return (scores.softmax(-1) @ v).transpose(1, 2), scores.logsumexp(-1)


def run_forward(q: Any, k: Any, v: Any, out: Any, lse: Any, scale: Any, causal: bool, window: Any) -> None:
    found, logarithms = attended(q, k, v, scale, causal, window)
    out.copy_(found)
    if lse is not None:
        lse.copy_(logarithms)


def run_backward(q: Any, k: Any, v: Any, out: Any, d_out: Any, lse: Any, sums: Any, *rest: Any) -> None:
    *gradients, scale, causal, window = rest
    assert not sums.any()
    assert torch.equal(attended(q, k, v, scale, causal, window)[1], lse)
    with torch.enable_grad():
        leaves = [one.detach().requires_grad_() for one in (q, k, v)]
        found = torch.autograd.grad(attended(*leaves, scale, causal, window)[0], leaves, d_out)
    for mine, one in zip(gradients, found, strict=True):
        mine.copy_(one)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the exporter writes; its kernels are the functions above."""
    monkeypatch.setitem(sys.modules, "flash_attn.cute.interface", package())
    monkeypatch.setitem(sys.modules, "tvm_ffi", ModuleType("tvm_ffi"))
    sys.modules["tvm_ffi"].__spec__ = object()  # type: ignore[assignment]
    monkeypatch.setattr(flash_export, "version", lambda name: "1.2")
    monkeypatch.setattr(flash_export, "TARGET", {})
    monkeypatch.setenv("CUTE_DSL_ARCH", "sm_90a")
    objects: list[str] = []

    def link(objects_folder: Path, target: Path, compiler: str) -> None:
        objects.extend(sorted(one.read_text() for one in objects_folder.glob("*.o")))
        target.touch()

    monkeypatch.setattr(flash_export, "link", link)
    assert flash_export.export(PROBLEMS, tmp_path, "cc") == 3
    assert objects == ["flash_flash_attn_bwd_0", "flash_flash_attn_fwd_0", "flash_flash_attn_fwd_1"]
    kernels = dict.fromkeys(objects[1:], run_forward) | {objects[0]: run_backward}
    monkeypatch.setattr(flash_objects, "library", lambda folder: kernels)
    monkeypatch.setenv(flash_objects.VARIABLE, str(tmp_path))
    monkeypatch.setattr(flash_rival, "PACKAGE", "no_such_package.cute")
    monkeypatch.setattr(flash_rival, "_runs_on", lambda device: True)
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_gradients_are_those_of_sdpa(problem: Attention) -> None:
    assert flash_rival.missing() is None
    assert flash_rival.version() == "1.2"
    given = problem.inputs(torch.Generator().manual_seed(0))
    found, right = (given.call(problem.rival(name)) for name in ("flash-attn", "sdpa:math"))
    torch.testing.assert_close(found, right)


@pytest.mark.usefixtures("folder")
def test_the_forward_alone_keeps_no_logarithms() -> None:
    problem = Attention(2, 4, 8, 16, dtype="float32", kv_heads=2, causal=True, scale=0.5)
    given = problem.inputs(torch.Generator().manual_seed(0))
    torch.testing.assert_close(given.call(problem.rival("flash-attn")), given.call(problem.rival("sdpa:math")))


def test_a_problem_without_a_plan_and_a_folder_without_a_library(folder: Path) -> None:
    problem = Attention(1, 4, 9, 16, dtype="float32")
    given = problem.inputs(torch.Generator().manual_seed(0))
    with pytest.raises(RivalUnavailableError, match=r"no plan for float32 1x9x4x16 .* export this problem too"):
        given.call(problem.rival("flash-attn"))
    (folder / flash_objects.LIBRARY).unlink()
    assert str(flash_rival.missing()).endswith(f"where there is no {flash_objects.LIBRARY}")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda out: out.mul_(2), "calls torch's mul_; a plan cannot hold that"),
        (lambda out: out.narrow(1, 1, 3), "calls torch's slice; a plan cannot hold that"),
        (lambda out: out.transpose(0, 1), "another view of .*; a plan cannot hold that"),
    ],
)
def test_what_a_plan_cannot_hold_is_refused(
    change: Callable[[Any], Any], said: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package that computes with torch, or hands on a part of a tensor: its calls alone would give wrong answers."""
    made = package()
    right = made._flash_attn_fwd
    monkeypatch.setattr(made, "_flash_attn_fwd", lambda *given, **options: (change(right(*given, **options)[0]), None))
    monkeypatch.setitem(sys.modules, "flash_attn.cute.interface", made)
    plans = flash_export.Plans(folder)
    right.compile_cache = made._flash_attn_fwd.compile_cache
    with pytest.raises(ValueError, match=said):
        plans.of(PROBLEMS[1])


def test_the_record_says_what_it_is(folder: Path) -> None:
    found = json.loads((folder / flash_objects.PLANS).read_text())
    assert (found["architecture"], len(found["problems"])) == ("sm_90a", 3)
