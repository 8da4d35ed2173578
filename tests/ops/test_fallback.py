"""The fastest attention kernel, and the way out where memory runs short."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from cuda_llm_ops import fallback

RECORD = Path(__file__).resolve().parents[2] / "records" / "h200" / "gates.jsonl"
sdpa = torch.nn.functional.scaled_dot_product_attention


def test_optimal_attention_is_the_fastest_kernel_on_record(ops: ModuleType) -> None:
    assert ops.optimal_attention is ops.flash_attention
    seconds: dict[tuple[str, str], dict[str, float]] = {}
    for line in RECORD.read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        if case["family"] == "attention" and case["candidate_seconds"]:
            kernel = case["candidate"].rpartition(".")[2]
            seconds.setdefault((case["gpu"], case["name"]), {})[kernel] = case["candidate_seconds"]
    # The naive and the tiled kernel are on record at several lengths; what counts is where flash is as well.
    several = [times for times in seconds.values() if "flash_attention" in times and len(times) > 1]
    assert several
    assert all(min(times, key=times.__getitem__) == "flash_attention" for times in several)


def out_of_memory(*args: Any, **kwargs: Any) -> torch.Tensor:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 64 GiB\nand more words")


def test_without_trouble_nothing_is_said(ops: ModuleType, device: str) -> None:
    q, k, v = (torch.randn(1, 2, 16, 16, device=device) for _ in range(3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = ops.safe_flash_attention(q, k, v)
    assert torch.equal(found, ops.flash_attention(q, k, v))


def test_out_of_memory_falls_back_and_says_so_every_time(ops: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fallback, "flash_attention", out_of_memory)
    q = torch.randn(1, 4, 20, 16)
    k, v = (torch.randn(1, 2, 20, 16) for _ in range(2))
    with pytest.warns(ops.FlashFallbackWarning) as said:
        found = [ops.safe_flash_attention(q, k, v, True, scale=0.5) for _ in range(3)]
    assert len(said) == 3
    assert str(said[0].message).startswith(
        "flash_attention of q (1, 4, 20, 16) and k (1, 2, 20, 16) ran out of memory "
        "(CUDA out of memory. Tried to allocate 64 GiB); "
    )
    assert said[0].filename == __file__
    torch.testing.assert_close(found[0], sdpa(q, k, v, is_causal=True, scale=0.5, enable_gqa=True))


def test_the_warning_is_given_every_time_by_python_s_own_filters(ops: ModuleType) -> None:
    import subprocess
    import sys

    program = (
        "import torch, cuda_llm_ops as ops\n"
        "from cuda_llm_ops import fallback\n"
        "def fail(*a, **k): raise torch.OutOfMemoryError('full')\n"
        "fallback.flash_attention = fail\n"
        "q = torch.ones(1, 1, 4, 8)\n"
        "for _ in range(3): ops.safe_flash_attention(q, q, q)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stderr.count("FlashFallbackWarning") == 3


def test_other_errors_do_not_fall_back(ops: ModuleType) -> None:
    q = torch.ones(1, 1, 4, 8)
    with pytest.raises(ValueError, match="flash_attention: "):
        ops.safe_flash_attention(q, torch.ones(1, 1, 4, 9), q)


def test_a_fallback_that_fails_as_well_is_raised(ops: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fallback, "flash_attention", out_of_memory)
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", out_of_memory)
    q = torch.ones(1, 1, 4, 8)
    with pytest.warns(ops.FlashFallbackWarning), pytest.raises(torch.OutOfMemoryError):
        ops.safe_flash_attention(q, q, q)
