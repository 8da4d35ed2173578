"""FlashAttention's package as a rival: how it is called, with a package of that name that computes on the CPU."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import torch

from perfsuite.problems import Attention, RivalUnavailableError
from perfsuite.problems.rivals import flash_attn as flash_rival

PROBLEMS = [
    Attention(2, 4, 8, 16),
    Attention(2, 4, 8, 16, kv_heads=2, causal=True, scale=0.5),
    Attention(1, 2, 4, 16, seq_kv=12, causal=True, bottom_right=True),
    Attention(1, 2, 12, 16, window=(2, -1)),
    Attention(1, 2, 12, 16, causal=True, window=(3, 3)),
]


def computed(
    q: Any, k: Any, v: Any, *, softmax_scale: Any, causal: bool = False, window_size: Any = (None, None)
) -> Any:
    """What flash_attn_func returns, by its documentation: (batch, length, heads, dim), masked from the bottom right."""
    assert q.shape[-1] % 8 == 0, "head_dim must be a multiple of 8"
    groups = q.shape[2] // k.shape[2]
    q, k, v = q.transpose(1, 2), *(one.transpose(1, 2).repeat_interleave(groups, 1) for one in (k, v))
    behind = torch.arange(k.shape[2]) - torch.arange(q.shape[2])[:, None] - (k.shape[2] - q.shape[2])
    left, right = (None, 0) if causal else window_size
    seen = behind >= -(len(behind.T) + 1 if left is None else left)
    seen &= behind <= (len(behind.T) + 1 if right is None else right)
    scores = (q @ k.mT) * (q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale)
    return (scores.masked_fill(~seen, float("-inf")).softmax(-1) @ v).transpose(1, 2), None


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ModuleType("flash_attn.cute")
    made.flash_attn_func = computed  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "flash_attn", ModuleType("flash_attn"))
    monkeypatch.setitem(sys.modules, "flash_attn.cute", made)
    monkeypatch.setattr(flash_rival, "missing", lambda: None)
    monkeypatch.setattr(flash_rival, "_runs_on", lambda device: True)


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_it_computes_what_sdpa_does(problem: Attention) -> None:
    problem = Attention(**{**problem.__dict__, "dtype": "float32"})
    given = problem.inputs(torch.Generator().manual_seed(0))
    torch.testing.assert_close(given.call(problem.rival("flash-attn")), given.call(problem.rival("sdpa:math")))


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("problem", "why"),
    [
        (Attention(1, 1, 4, 16, seq_kv=8, causal=True), "the diagonal from the bottom right alone"),
        (Attention(1, 1, 4, 12), "head_dim must be a multiple of 8"),
    ],
)
def test_what_it_refuses(problem: Attention, why: str) -> None:
    given = problem.inputs(torch.Generator().manual_seed(0))
    with pytest.raises(RivalUnavailableError, match=f"flash-attn cannot run this problem: .*{why}"):
        given.call(problem.rival("flash-attn"))


def test_where_there_is_no_gpu_or_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Attention(1, 1, 8, 8)
    given = problem.inputs(torch.Generator().manual_seed(0))
    with pytest.raises(RivalUnavailableError, match="on a GPU only"):
        given.call(problem.rival("flash-attn"))
    monkeypatch.setattr(flash_rival, "_runs_on", lambda device: True)
    monkeypatch.setattr(flash_rival, "PACKAGE", "no_such_package.cute")
    assert flash_rival.missing() == "there is no no_such_package.cute here (pip install flash-attn-4)"
    with pytest.raises(RivalUnavailableError, match="pip install flash-attn-4"):
        given.call(problem.rival("flash-attn"))


@pytest.mark.gpu(min_capability=(9, 0))
@pytest.mark.skipif(flash_rival.missing() is not None, reason=str(flash_rival.missing()))
@pytest.mark.parametrize("causal", [False, True])
def test_the_package_computes_what_sdpa_does(causal: bool, gpu: Any) -> None:
    problem = Attention(2, 4, 512, 128, causal=causal)
    given = problem.inputs(torch.Generator(device="cuda").manual_seed(0))
    torch.testing.assert_close(
        given.call(problem.rival("flash-attn")), given.call(problem.rival("sdpa")), atol=2e-3, rtol=2e-2
    )
