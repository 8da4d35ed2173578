"""Random calls beside plain kernels: a few on the CPU, and kernels that are wrong or less exact are told."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the operators need torch")

import cuda_llm_ops  # noqa: E402

from perfsuite.report.rows import rows_table  # noqa: E402
from tests.ops import random_backward, random_decode, random_errors  # noqa: E402
from tests.ops.random_calls import Found, ratio_of  # noqa: E402

FEW = ["--device", "cpu", "--configurations", "12", "--most", "48"]


@pytest.mark.parametrize("family", random_errors.FAMILIES)
def test_no_call_is_wrong_here(family: str, tmp_path: Path) -> None:
    """Of ratios a CPU's say little: its library sums in another order."""
    file = tmp_path / "folder" / "errors.json"
    random_errors.main([*FEW, "--family", family, "--out", str(file)])
    found = json.loads(file.read_text())
    assert sum(row["calls"] for row in found["rows"]) == 12
    assert [one for one in found["told"] if not one["right"]] == []
    assert "| wrong |" in rows_table(file, {"family": family})


def changed(name: str, change: Callable[[Any], Any]) -> Callable[..., Any]:
    right = getattr(cuda_llm_ops, name)
    return lambda *args, **options: change(right(*args, **options))


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("weight-only-gemm", "weight_only_gemm"),
        ("decode", "flash_decode"),
        ("decode-16", "flash_decode"),
        ("fp8-gemm", "fp8_gemm"),
        ("grouped-gemm", "fp8_grouped_gemm"),
    ],
)
def test_a_wrong_kernel_is_told(
    family: str, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cuda_llm_ops, name, changed(name, lambda out: out * 1.03))
    assert random_errors.main([*FEW, "--family", family]) == 1
    assert capsys.readouterr().out.count(f"WRONG {family}") >= 9  # zeros stay right


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_16_bit_cache_is_beside_sdpa(dtype: torch.dtype) -> None:
    """A query sees the keys up to its own; one that sees none has zeros."""
    sides = [random_decode.Side(torch.randn(2, 1, 6, 32).to(dtype), torch.ones(2, 1, 6), None) for _ in range(2)]
    q = torch.randn(2, 3, 4, 32).to(dtype)
    lens = torch.tensor([6, 2])
    exact = random_decode._attention(q, sides, lens, 0.2, torch.float64)
    found = random_decode._library(q, sides, lens, 0.2)
    torch.testing.assert_close(found.double(), exact, atol=3e-2, rtol=1e-2)
    assert not found[1, :, :2].any()
    assert found[1, :, 2].any()


@pytest.mark.parametrize("which", range(3))
def test_a_wrong_gradient_is_told(
    which: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = random_backward.cases.gradients

    def wrong(*given: Any) -> Any:
        found = right(*given)
        found[which] = found[which] * 0.96
        return found

    monkeypatch.setattr(random_backward.cases, "gradients", wrong)
    assert random_errors.main([*FEW, "--family", "backward"]) == 1
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("WRONG backward")]
    assert len(told) >= 9  # a gradient that is zero stays right


@pytest.mark.parametrize("with_lse", [False, True])
def test_the_gradients_of_the_library_are_of_the_dtype(with_lse: bool) -> None:
    """Those of a key head are sums over the query heads that share it."""
    case = random_backward.cases.Case(torch.float16, 1, 4, 2, [9, 1], [7, 1], 16, 16, with_lse=with_lse, packed=True)
    made = random_backward.cases.make(case)
    for found, exact in zip(random_backward.library(case, made), made.exact, strict=True):
        assert torch.equal(found, found.half().double())
        assert (found - exact).norm() < 2e-3 * exact.norm()


def test_a_kernel_that_rounds_once_more_is_above_the_ratio(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def rounded(out: Any) -> Any:
        return (out.float() * 3).to(out.dtype) / 3

    monkeypatch.setattr(cuda_llm_ops, "weight_only_gemm", changed("weight_only_gemm", rounded))
    file = tmp_path / "errors.json"
    words = ["--device", "cpu", "--configurations", "40", "--most", "96", "--family", "weight-only-gemm"]
    assert random_errors.main([*words, "--out", str(file)]) == 1
    found = json.loads(file.read_text())
    assert sum(row["above 1.2"] for row in found["rows"]) == sum(row["ratios"] for row in found["rows"]) > 3


def test_records_join_and_too_little_time_is_told(tmp_path: Path) -> None:
    file = tmp_path / "errors.json"
    random_errors.main([*FEW, "--family", "fp8-gemm", "--out", str(file)])
    before = len(json.loads(file.read_text())["rows"])
    assert (
        random_errors.main([*FEW, "--family", "decode", "--seconds", "0", "--join", str(file), "--out", str(file)]) == 1
    )
    assert len(json.loads(file.read_text())["rows"]) == before


def test_parts_have_the_calls_of_the_whole(tmp_path: Path) -> None:
    whole, joined, parts = tmp_path / "whole.json", tmp_path / "joined.json", [tmp_path / f"{i}.json" for i in range(3)]
    words = [*FEW, "--family", "weight-only-gemm", "fp8-gemm"]
    random_errors.main([*words, "--out", str(whole)])
    for i, file in enumerate(parts):
        random_errors.main([*words, "--part", str(i), "3", "--out", str(file)])
    join = [*words, "--seconds", "0", "--join", *map(str, parts)]
    random_errors.main([*join, "--out", str(joined)])
    assert json.loads(joined.read_text())["rows"] == json.loads(whole.read_text())["rows"]
    assert "calls" not in json.loads(joined.read_text())
    older = json.loads(parts[0].read_text())
    older["environment"]["commit"] = "c0ffee" * 6
    (tmp_path / "older.json").write_text(json.dumps(older))
    random_errors.main([*words, "--seconds", "0", "--join", str(tmp_path / "older.json"), "--out", str(joined)])
    assert json.loads(joined.read_text())["environment"]["fp8-gemm of commit"] == "c0ffeec0ff"
    assert random_errors.main([*join[:-1], "--out", str(joined)]) == 1  # a part is missing
    assert json.loads(joined.read_text())["environment"]["fp8-gemm cut at"] == "8 of 12 calls"


def test_the_backwards_record_has_every_call_normal_and_cancelling(tmp_path: Path) -> None:
    file = tmp_path / "backward.json"
    words = ["--device", "cpu", "--configurations", "24", "--most", "24", "--family", "backward"]
    random_errors.main([*words, "--out", str(file)])
    found = json.loads(file.read_text())
    calls = {word: sum(row["calls"] for row in found["rows"] if word in row["kind"]) for word in ("normal", "cancel")}
    assert calls["normal"] + calls["cancel"] == 24
    assert min(calls.values()) >= 6
    assert all(row["above 1.2"] <= row["ratios"] <= row["calls"] for row in found["rows"])
    assert not any("cut" in name for name in found["environment"])


def drawn(*errors: tuple[float, float], right: bool = True) -> Found:
    return Found("kind", "what", right, "said", ratio_of(errors), errors)


def test_a_ratio_above_is_that_of_several_draws() -> None:
    assert random_errors.pooled([drawn((1.3, 1.0))]).ratio == 1.3
    several = random_errors.pooled([drawn((3.0, 1.0)), drawn((4.0, 5.0)), drawn((0.0, 2.0))])
    assert several.ratio == pytest.approx((25 / 30) ** 0.5)
    assert several.draws == 3
    assert several.sentence == "said; 3 draws, ratios 0.800 to 3.000"
    assert not random_errors.pooled([drawn((1.6, 1.0)), drawn((0.9, 1.0), right=False)]).right


def test_the_largest_of_several_results_is_taken_last() -> None:
    """Each of two equal gradients is above in every second draw; neither is above."""
    draws = [drawn((1.5, 1.0), (1.0, 1.5)), drawn((1.0, 1.5), (1.5, 1.0))]
    assert [one.ratio for one in draws] == [1.5, 1.5]
    assert random_errors.pooled(draws).ratio == pytest.approx(1.0)


@pytest.mark.parametrize(("error", "above"), [(1.0, False), (1.1, False), (1.3, True), (1.5, True)])
def test_chance_is_drawn_away(error: float, above: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors that scatter as those of four rows: of equal kernels some are above in one draw, and none after all."""
    generator = torch.Generator().manual_seed(7)

    def draw(*given: Any) -> Found:
        mine, plain = torch.randn(2, 4, generator=generator).norm(dim=1).tolist()
        return drawn((error * mine, plain))

    first = [draw().ratio or 0.0 for _ in range(200)]
    assert 10 < sum(one > random_errors.MOST_RATIO for one in first) < 190
    monkeypatch.setattr(random_errors, "DRAWS", 2000)
    monkeypatch.setattr(random_errors, "_draw", draw)
    found = list(random_errors.calls("backward", "cpu", range(12), 48, 0, math.inf))
    assert any((one.ratio or 0.0) > random_errors.MOST_RATIO for one in found) is above
    assert {one.draws for one in found} <= {1, 2000}


def test_a_draw_again_is_of_the_same_configuration() -> None:
    draws = [random_errors._draw("fp8-gemm", "cpu", 48, 0, 5, again) for again in range(3)]
    assert len({one.what for one in draws}) == 1
    assert len({one.sentence for one in draws}) == 3


def test_a_backward_that_is_drawn_again_has_other_values() -> None:
    draws = [random_errors._draw("backward", "cpu", 48, 0, 3, again) for again in range(2)]
    shapes = [one.what.split("seed=")[0] for one in draws]
    assert shapes[0] == shapes[1]
    assert draws[0].sentence != draws[1].sentence
