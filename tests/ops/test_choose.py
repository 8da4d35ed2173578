"""The choice of the attention kernel, and the way out where memory runs short."""

from __future__ import annotations

import json
import runpy
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from cuda_llm_ops import choose

ROOT = Path(__file__).resolve().parents[2]
sdpa = torch.nn.functional.scaled_dot_product_attention


@pytest.mark.parametrize(
    ("length", "kernel"), [(1, "naive"), (100, "naive"), (101, "tiled"), (500, "flash"), (10**6, "flash")]
)
def test_the_shortest_measured_length_that_is_not_below_decides(length: int, kernel: str) -> None:
    rows = {
        "cpu": (
            choose.Measured(100, naive=1.0, tiled=2.0, flash=3.0),
            choose.Measured(400, naive=3.0, tiled=1.0, flash=2.0),
            choose.Measured(800, naive=3.0, tiled=2.0, flash=1.0),
        )
    }
    assert choose.fastest_kernel("cpu", length, rows) == kernel


def test_where_nothing_was_measured_memory_decides() -> None:
    assert choose.fastest_kernel("meta", 12) == "flash"


def test_measurements_are_in_order_of_length() -> None:
    for rows in choose.MEASURED.values():
        lengths = [row.length for row in rows]
        assert lengths == sorted(set(lengths))


def test_the_choice_is_what_the_committed_record_says() -> None:
    tool = runpy.run_path(str(ROOT / "records" / "choice.py"), run_name="choice")
    _, found = tool["times"](map(json.loads, tool["record"]().read_text(encoding="utf-8").splitlines()))
    assert [row.length for row in choose.MEASURED["cuda"]] == sorted(found)
    for row in choose.MEASURED["cuda"]:
        times = found[row.length]
        assert row.fastest == min(times, key=times.__getitem__)
        # A record made anew may differ a little; one that differs much calls for `python records/choice.py`.
        assert [row.naive, row.tiled, row.flash] == pytest.approx([times[k] for k in tool["KERNELS"]], rel=0.3)


@pytest.mark.parametrize("causal", [False, True])
def test_optimal_attention_is_attention(causal: bool, ops: ModuleType, device: str) -> None:
    q = torch.randn(1, 4, 33, 16, device=device)
    k, v = (torch.randn(1, 2, 33, 16, device=device) for _ in range(2))
    found = ops.optimal_attention(q, k, v, causal, scale=0.3)
    expected = sdpa(q, k, v, is_causal=causal, scale=0.3, enable_gqa=True)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_optimal_attention_calls_the_kernel_chosen(ops: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []
    monkeypatch.setitem(choose._KERNELS, "tiled", lambda *args, **kwargs: called.append((args[3], kwargs)))
    monkeypatch.setattr(choose, "fastest_kernel", lambda device, length: "tiled" if length == 12 else "naive")
    q, k = torch.ones(1, 1, 5, 8), torch.ones(1, 1, 12, 8)
    ops.optimal_attention(q, k, k, True, scale=2.0)
    assert called == [(True, {"scale": 2.0})], "the length of the keys counts"


def test_optimal_attention_names_bad_arguments(ops: ModuleType) -> None:
    with pytest.raises(TypeError, match="flash_attention: q is of type int"):
        ops.optimal_attention(1, 2, 3)


def out_of_memory(*args: Any, **kwargs: Any) -> torch.Tensor:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 64 GiB\nand more words")


def test_without_trouble_nothing_is_said(ops: ModuleType, device: str) -> None:
    q, k, v = (torch.randn(1, 2, 16, 16, device=device) for _ in range(3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = ops.safe_flash_attention(q, k, v)
    assert torch.equal(found, ops.flash_attention(q, k, v))


def test_out_of_memory_falls_back_and_says_so_every_time(ops: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "flash_attention", out_of_memory)
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
        "from cuda_llm_ops import choose\n"
        "def fail(*a, **k): raise torch.OutOfMemoryError('full')\n"
        "choose.flash_attention = fail\n"
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
    monkeypatch.setattr(choose, "flash_attention", out_of_memory)
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", out_of_memory)
    q = torch.ones(1, 1, 4, 8)
    with pytest.warns(ops.FlashFallbackWarning), pytest.raises(torch.OutOfMemoryError):
        ops.safe_flash_attention(q, q, q)
