"""The program that launches attention's backward again and again: a few launches on the CPU, and one that differs."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the operators need torch")

import repeated  # noqa: E402

from perfsuite.report.rows import rows_table  # noqa: E402

COVERAGE = repeated.coverage
FEW = ["--device", "cpu", "--launches", "2"]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated, "LENGTH", 7)
    monkeypatch.setattr(repeated, "coverage", lambda: {"deterministic instances": (3, 3)})


def test_the_same_bits_everywhere(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "repeated.json"
    assert repeated.main([*FEW, "--out", str(file)]) == 0
    record = json.loads(file.read_text())
    assert sum(row["cases"] for row in record["rows"]) == len(repeated.repeats())
    assert "| float32 | all | 12 | 2 | 0 |" in rows_table(file, {})


def test_a_launch_with_other_bits_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    right, numbers = repeated.Repeat.call, count()

    def wrong(one: repeated.Repeat, device: str) -> Any:
        call, operands = right(one, device)
        if one.name != "192/128 packed bfloat16":
            return call, operands
        return lambda *given: [tensor + (next(numbers) == 5) for tensor in call(*given)], operands

    monkeypatch.setattr(repeated.Repeat, "call", wrong)
    assert repeated.main(FEW) == 1
    assert "OTHER BITS 192/128 packed bfloat16: 1 of 2 launches" in capsys.readouterr().out


def test_too_little_time_is_told_and_parts_join(tmp_path: Path) -> None:
    files = [str(tmp_path / f"{part}.json") for part in range(3)]
    assert repeated.main([*FEW, "--seconds", "-1", "--part", "1", "2", "--out", files[2]]) == 1
    half = len(repeated.repeats()[1::2])
    assert json.loads(Path(files[2]).read_text())["environment"]["cut at"] == f"0 of {half} cases"
    for part in range(2):
        assert repeated.main([*FEW, "--part", str(part), "2", "--out", files[part]]) == 1
        assert "cut at" not in json.loads(Path(files[part]).read_text())["environment"]
    assert repeated.main([*FEW, "--seconds", "0", "--join", *files[:2], "--out", files[2]]) == 0
    assert len(json.loads(Path(files[2]).read_text())["cases"]) == len(repeated.repeats())


def test_instances_in_free_order_promise_nothing() -> None:
    free = ["d64_float16", "d128_bfloat16_window", "d64_float16_packed", "d192_of_128_float16"]
    held = ["sm90_backward_d64_float16_deterministic", "sm90_backward_d64_float16_packed_deterministic"]
    held += ["mma_backward_keys_float16_64", "simt_backward_keys_64"]
    assert all(repeated.FREE_ORDER.fullmatch(f"sm90_backward_{name}") for name in free)
    assert not any(repeated.FREE_ORDER.fullmatch(name) for name in held)


def test_instances_that_no_case_launches_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those in free order too."""
    kernels = [
        {"family": "flash_attention_backward", "name": f"sm90_backward_d64_float16{end}", "dynamic_shared": 0}
        for end in ("", "_deterministic", "_window", "_other")
    ]
    cuda = type("Properties", (), {"shared_memory_per_block_optin": 232448})
    monkeypatch.setattr(repeated.torch.cuda, "get_device_properties", lambda device: cuda)
    monkeypatch.setattr("cuda_llm_ops.kernel_attributes", lambda: kernels)
    monkeypatch.setattr(repeated.Repeat, "call", lambda one, device: (list, []))
    monkeypatch.setattr(
        repeated.sanitized, "launched", lambda chosen: dict.fromkeys("free order" in n for n, _ in chosen)
    )
    assert COVERAGE() == {"deterministic instances": (1, 2), "instances in free order": (1, 2)}


@pytest.mark.parametrize("name", ["deterministic instances", "instances in free order"])
def test_an_instance_that_was_not_launched_is_a_failure(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated.Repeat, "call", lambda one, device: (lambda: [torch.zeros(1, dtype=torch.half)], []))
    monkeypatch.setattr(repeated, "differing", lambda call, operands, launches: 0)
    monkeypatch.setattr(repeated, "origin", lambda device: {"card": "a card"})
    assert repeated.main(["--device", "cuda"]) == 0
    monkeypatch.setattr(repeated, "coverage", lambda: {"others": (3, 3), name: (2, 3)})
    assert repeated.main(["--device", "cuda"]) == 1
