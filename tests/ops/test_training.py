"""The command that trains with `flash_attention` and with SDPA: a tiny model on the CPU, and wrong gradients."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="cuda_llm_ops needs torch")

from cuda_llm_ops import training  # noqa: E402
from cuda_llm_ops.small_gpt import Repeated, Sizes, SmallGPT  # noqa: E402


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


WITHOUT_KEYS = """
from cuda_llm_ops import training
without_keys = lambda q, k, v: training.ours(q, k.detach(), v)
ways = training.ways("cpu") | {training.WRONG: without_keys}
runs = training.trained(ways, training.TINY, "cpu", 0, 110, lambda line: None)
found, losses = training.gaps([runs]), runs[training.OURS].losses
print(found.wrong, found.allowed, found.verdicts()[training.WRONG], losses[0] - losses[-1])
"""


def test_the_record_of_a_tiny_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "folder" / "training.json"
    words = ["--tiny", "--steps", "12", "--seeds", "2", "--tokens", "40", "--batch", "2", "--layers", "1"]
    code = training.main([*words, "--output", str(file)])
    found = json.loads(file.read_text())
    assert code == int({row["verdict"] for row in found["rows"]} != {"-", "met", "found"})
    assert found["environment"]["card"] == "cpu"
    assert (found["environment"]["layers"], found["environment"]["steps"]) == (1, 12)
    assert [row["attention"] for row in found["rows"]] == list(training.ways("cpu"))
    for losses in found["losses"]:
        assert {len(run) for run in losses.values()} == {12}
        assert max(run[0] for run in losses.values()) - min(run[0] for run in losses.values()) < 1e-3
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 4
    assert "seed 1, step 12 of 12: SDPA, flash" in said.err


def test_a_backward_that_leaves_keys_out_is_farther_than_a_backend_of_sdpa_may_be() -> None:
    # In a process of its own, since what other tests leave in torch may change how fast a model learns.
    # Two threads for so small products spend most of their time waiting for each other.
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_KEYS], capture_output=True, text=True, check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    told = done.stdout
    wrong, allowed, verdict, learned = told.split()
    assert verdict == "found"
    assert float(wrong) > 100 * float(allowed)
    assert float(learned) > 1.0, "attention has learned nothing, so that no gradient is tried"


def test_the_scaled_gradient_is_that_of_the_keys_alone() -> None:
    q, k, v = (torch.randn(1, 2, 8, 16, requires_grad=True) for _ in range(3))
    d_out = torch.randn(1, 2, 8, 16)
    right = torch.autograd.grad(training.ours(q, k, v), (q, k, v), d_out)
    wrong = torch.autograd.grad(training.ours_with_wrong_keys(q, k, v), (q, k, v), d_out)
    for a, b, scale in zip(right, wrong, (1.0, training.WRONG_SCALE, 1.0), strict=True):
        torch.testing.assert_close(b, a * scale)


def test_verdicts_follow_the_allowed_gap() -> None:
    assert training.Gaps(1.0, 1.5, 1.6).verdicts() == {training.OURS: "met", training.WRONG: "found"}
    assert training.Gaps(1.0, 1.6, 1.5).verdicts() == {training.OURS: "MISSED", training.WRONG: "NOT FOUND"}


def test_texts_repeat_and_differ() -> None:
    sizes = Sizes(tokens=40, batch=3)
    texts = Repeated(sizes, 0, "cpu")
    one, other = texts.batch(), texts.batch()
    assert one.shape == (3, 41)
    assert torch.equal(one[:, :25], one[:, 16:])
    assert not torch.equal(one, other)
    assert torch.equal(one, Repeated(sizes, 0, "cpu").batch())


def test_an_untrained_model_guesses() -> None:
    torch.manual_seed(0)
    loss = SmallGPT(training.TINY, training.ours)(Repeated(training.TINY, 0, "cpu").batch())
    assert loss.item() == pytest.approx(torch.tensor(training.TINY.vocabulary).log().item(), rel=0.05)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tokens", "31"], "tokens is 31; it must be at least 32"),
        (["--heads", "3"], "heads is 3; it must divide hidden, which is 128"),
        (["--steps", "0"], "'0' must be a whole number of at least 1"),
    ],
)
def test_sizes_that_do_not_fit_are_named(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        training.main(["--tiny", *words])
    assert said in capsys.readouterr().err


def test_without_a_gpu_the_command_says_how_to_try_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        training.main([])
    assert "--tiny has sizes to try the command" in capsys.readouterr().err
