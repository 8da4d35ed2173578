"""The plain call judges an honest copy of each module of the corpus. `python -m tests.corpus` does so on a card."""

from __future__ import annotations

import os
from typing import Any

import pytest

from perfsuite.outcome import Verdict
from perfsuite.settings import Settings

pytest.importorskip("torch")

import torch

from . import liger, plain
from .calls import CALLS
from .faults import FAULTS, FEWEST, chosen, planted
from .written import Call, Given, Module, all_modules

MODULES = list(all_modules())
FIRST = {module.kind: module for module in reversed(MODULES)}
"""One module of each kind."""


def test_there_are_enough_modules_and_calls_of_different_names() -> None:
    assert len({module.name for module in MODULES}) == len(MODULES) >= 120
    assert len({(call.kind, call.name) for call in CALLS}) == len(CALLS) >= 40


@pytest.mark.parametrize("module", MODULES, ids=lambda module: f"{module.kind}-{module.name}".replace(" ", "_"))
def test_an_honest_copy_is_right(module: Module) -> None:
    found = module.given("cpu").gate(module.name, Settings(device="cpu", seed=0))
    assert found.verdict is Verdict.MET, found.sentence


@pytest.mark.parametrize("module", FIRST.values(), ids=FIRST)
def test_an_honest_copy_is_timed(module: Module) -> None:
    found = module.given("cpu").gate(module.name, Settings(device="cpu", seed=0, seconds=0.02), at_least=0.001)
    assert found.verdict is not Verdict.WRONG, found.sentence
    assert found.rounds


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.kind}-{call.name}".replace(" ", "_"))
def test_an_honest_call_is_right(call: Call) -> None:
    found = call.given("cpu").gate(call.name, Settings(device="cpu", seed=0))
    assert found.verdict is Verdict.MET, found.sentence


KEPT = ("buffer kept between calls", "cache with a reset", "nested argument and result", "compiled module")
"""Calls whose form matters to the clock. `python -m tests.corpus` times all."""


@pytest.mark.parametrize("call", [call for call in CALLS if call.name in KEPT], ids=lambda call: call.name)
def test_an_honest_call_is_timed(call: Call) -> None:
    found = call.given("cpu").gate(call.name, Settings(device="cpu", seed=0, seconds=0.02), at_least=0.001)
    assert found.verdict is not Verdict.WRONG, found.sentence
    assert found.rounds


def test_plain_torch_repeats_what_was_missed_or_wrong() -> None:
    x = torch.randn(64, 512)
    slow = Given(lambda x: torch.stack([x] * 20).softmax(-1)[0], lambda x: x.softmax(-1), (x,))
    assert plain.repeated(slow, {"verdict": "MISSED"}, 0.8)["confirmed"] is True
    wrong = Given(lambda x: x.softmax(-1) * 1.001, lambda x: x.softmax(-1), (x,))
    assert plain.repeated(wrong, {"verdict": "WRONG"}, None)["confirmed"] is True
    right = Given(lambda x: x.softmax(-1), lambda x: x.softmax(-1), (x,))
    assert plain.repeated(right, {"verdict": "WRONG"}, None)["confirmed"] is False


@pytest.mark.parametrize(
    ("candidate", "rival", "reason", "confirmed"),
    [
        (lambda x: x.softmax(-1) + 1e-6 * torch.rand(()), lambda x: x.softmax(-1), "not-deterministic", True),
        (lambda x: x.exp() / x.exp().sum(-1, keepdim=True), lambda x: x.softmax(-1), "not-deterministic", False),
        (lambda x: x.mul_(2), lambda x: x * 2, "inputs-changed", True),
        (lambda x: x + x, lambda x: x * 2, "inputs-changed", False),
        (lambda x: 0.99 * torch.dropout(x, 0.5, True), lambda x: torch.dropout(x, 0.5, True), "inaccurate", True),
        (lambda x: torch.dropout(x * 1, 0.5, True), lambda x: torch.dropout(x, 0.5, True), "inaccurate", False),
    ],
)
def test_plain_torch_repeats_each_kind_of_wrong(candidate: Any, rival: Any, reason: str, confirmed: bool) -> None:
    x = torch.randn(512, 4096, generator=torch.Generator().manual_seed(0)).abs()
    found = plain.repeated(Given(candidate, rival, (x,)), {"verdict": "WRONG", "reason": reason}, None)
    assert found["confirmed"] is confirmed, found["said"]


LIGER = list(liger.calls())


EVERY = 2 if os.environ.get("PERFSUITE_WHOLE") else 8
"""Each backward of an operator at night, every fourth in CI."""


@pytest.mark.parametrize("call", LIGER[1::EVERY], ids=lambda call: call.name.split()[0])
def test_what_liger_is_compared_with_is_right(call: Call) -> None:
    # Forward and backward; Liger's own kernels need a card.
    found = call.given("cpu").gate(call.name, Settings(device="cpu", seed=0))
    assert found.verdict is Verdict.MET, found.sentence


def test_every_operator_of_liger_is_judged_or_has_a_reason() -> None:
    if not liger.public():
        pytest.skip(liger.missing())
    assert liger.public() == set(liger.OPERATORS) | set(liger.LACKING)


COMPILED = {
    *("linear", "perceptron", "convolution and batch norm", "layer norm", "RMS norm of bfloat16", "SwiGLU", "softmax"),
    *("maximum and its place", "running sum", "smoothed cross entropy", "self-attention", "low rank"),
}
"""A fixed dozen; on a card `python -m tests.corpus --what compiled` compiles all."""


def test_the_compiled_dozen_is_in_the_corpus() -> None:
    assert len(COMPILED) == 12
    assert {module.name for module in MODULES} >= COMPILED


@pytest.mark.parametrize("module", [module for module in MODULES if module.name in COMPILED], ids=lambda one: one.name)
def test_a_compiled_copy_is_right(module: Module) -> None:
    # This backend traces forward as inductor does, and compiles nothing: a compiler takes ten seconds a module.
    found = module.given("cpu", compiled="aot_eager").gate(module.name, Settings(device="cpu", seed=0))
    assert found.verdict is Verdict.MET, found.sentence


def test_there_are_enough_faults_and_modules() -> None:
    assert len(FAULTS) >= 12
    assert len(chosen()) == 30
    assert len({module.kind for module in chosen()}) >= 7


FEW = [module for module in chosen()[::2] if module.kind != "recurrent"]
"""Modules whose faults are quickly judged. `python -m tests.corpus.faults` plants them in all."""


@pytest.mark.parametrize("module", FEW, ids=lambda module: f"{module.kind}-{module.name}".replace(" ", "_"))
def test_planted_faults_are_wrong(module: Module) -> None:
    lines = list(planted(module, Settings(device="cpu", seed=0), module.small))
    counted = [line for line in lines if line.counts]
    assert len(counted) >= FEWEST
    assert [(line.fault, line.reason) for line in counted if not line.caught] == []


def test_a_drawn_dozen_is_timed_on_a_processor(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from .__main__ import drawn, main

    assert drawn([*"abcdef"], 3, 1) == drawn([*"abcdef"], 3, 1) != drawn([*"abcdef"], 3, 2)
    assert drawn([*"abc"], 12, 0) == [*"abc"]
    monkeypatch.setattr(
        "sys.argv",
        ["corpus", "--drawn", "2", "--seed", "3", "--seconds", "0.05", "--at-least", "0.001", "--what", "modules"],
    )
    assert main() == 0
    assert "2 modules: 2 MET" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["corpus", "--drawn", "0"])
    with pytest.raises(SystemExit, match="--drawn is 0; it must be at least 1"):
        main()
