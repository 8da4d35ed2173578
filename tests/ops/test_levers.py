"""The command that measures levers of lower precision: a tiny model on the CPU, and layers that are wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="cuda_llm_ops needs torch")

import cuda_llm_ops  # noqa: E402
from cuda_llm_ops import decoder_layer, levers  # noqa: E402
from torch import Tensor  # noqa: E402

DECODE = levers.Step("decode", 3, 1, 40, levers.DECODE)
PREFILL = levers.Step("prefill", 1, 50, 40, levers.PREFILL)
steps = pytest.mark.parametrize("step", [DECODE, PREFILL], ids=lambda step: step.stage)


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def errors(step: levers.Step) -> dict[str, tuple[float, float]]:
    stack = levers.Stack(levers.TINY, 1, "cpu")
    stack.draw_caches(step)
    return stack.checked(step)


def test_the_record_of_a_tiny_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "folder" / "levers.json"
    words = ["--tiny", "--batch", "1", "2", "--context", "33", "--prefill", "20", "--layers", "2", "--rounds", "3"]
    assert levers.main([*words, "--output", str(file)]) == 0
    found = json.loads(file.read_text())
    assert found["environment"]["card"] == "cpu"
    assert found["environment"]["context"] == 33
    rows = found["rows"]
    assert len(rows) == len(capsys.readouterr().out.splitlines()) == 2 * len(levers.DECODE) + len(levers.PREFILL)
    assert len({tuple(row) for row in rows}) == 1
    bytes_of = {row["lever"]: row["MB"] for row in rows if row["sequences"] == 2}
    assert bytes_of["int4 weights"] < bytes_of["int8 weights"] < bytes_of["FP8 cache"] < bytes_of["16 bits"]
    assert all(row["gain"] == 1.0 and row["signal to noise"] == "-" for row in rows if row["lever"] == levers.WIDE)
    assert all(row["microseconds"] > 0 for row in rows)


@steps
def test_every_lever_is_near_float64_and_costs_what_its_bits_cost(step: levers.Step) -> None:
    found = errors(step)
    assert set(found) == {lever.name for lever in step.levers}
    assert all(error <= levers.NEAR for error, _ in found.values())
    assert found[levers.WIDE][1] == 0.0
    if step is DECODE:
        eight, four, both = (found[name][1] for name in ("int8 weights", "int4 weights", "int4 weights and FP8 cache"))
        assert eight < 0.03 < four < 0.5
        assert found["int8 cache"][1] < found["FP8 cache"][1] < four <= both * 1.05


def halved(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: function(*args, **kwargs) / 2


def without_the_newest(place: Tensor, newest: Tensor, scales: Tensor) -> None:
    """The last place of the cache keeps what was there."""


def another_scale(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, **options: Any) -> Tensor:
    return cuda_llm_ops.fp8_gemm(a, b, scale_a.roll(1, 0), scale_b, **options)


@pytest.mark.parametrize(
    ("step", "name", "fault", "wrong"),
    [
        (DECODE, "weight_only_gemm", halved(decoder_layer.weight_only_gemm), ["int8 weights", "int4 weights"]),
        (DECODE, "flash_decode", halved(decoder_layer.flash_decode), [lever.name for lever in levers.DECODE]),
        (DECODE, "write_newest", without_the_newest, ["FP8 cache", "int8 cache"]),
        (PREFILL, "fp8_gemm", another_scale, [lever.name for lever in levers.PREFILL[1:]]),
    ],
)
def test_a_layer_that_is_wrong_is_named_and_not_timed(
    step: levers.Step,
    name: str,
    fault: Callable[..., Any],
    wrong: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(decoder_layer, name, fault)
    found, count = levers.record("cpu", levers.TINY, [step], 1, 1)
    timed = [row["lever"] for row in found["rows"]]
    told = capsys.readouterr().out
    assert all(f", {lever}: " in told and lever not in timed for lever in wrong)
    assert count + len(timed) == len(step.levers)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "there is no GPU"),
        (["--tiny", "--batch", "--prefill", "0"], "nothing to measure"),
        (["--tiny", "--batch", "0"], "'0' must be a whole number of at least 1"),
        (["--tiny", "--context", "1"], "'1' must be a whole number of at least 2"),
    ],
)
def test_what_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        levers.main(words)
    assert said in capsys.readouterr().err


def test_weights_that_stay_in_the_cache_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(SystemExit):
        levers.main(["--layers", "2"])
    assert "--layers is 2; it must be at least 3" in capsys.readouterr().err
