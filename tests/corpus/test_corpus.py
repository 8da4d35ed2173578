"""The plain call judges an honest copy of each module of the corpus. `python -m tests.corpus` does so on a card."""

from __future__ import annotations

import pytest

from perfsuite.outcome import Verdict
from perfsuite.settings import Settings

pytest.importorskip("torch")

from .faults import FAULTS, FEWEST, chosen, planted
from .written import Module, all_modules

MODULES = list(all_modules())
FIRST = {module.kind: module for module in reversed(MODULES)}
"""One module of each kind."""


def test_the_names_of_the_modules_differ() -> None:
    assert len({module.name for module in MODULES}) == len(MODULES)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: f"{module.kind}-{module.name}".replace(" ", "_"))
def test_an_honest_copy_is_right(module: Module) -> None:
    found = module.gate(Settings(device="cpu", seed=0), size=module.small)
    assert found.verdict is Verdict.MET, found.sentence


@pytest.mark.parametrize("module", FIRST.values(), ids=FIRST)
def test_an_honest_copy_is_timed(module: Module) -> None:
    found = module.gate(Settings(device="cpu", seed=0, seconds=0.02), size=module.small, at_least=0.001)
    assert found.verdict is not Verdict.WRONG, found.sentence
    assert found.rounds


COMPILED = {
    *("linear", "perceptron", "convolution and batch norm", "layer norm", "RMS norm of bfloat16", "SwiGLU", "softmax"),
    *("maximum and its place", "running sum", "smoothed cross entropy", "self-attention", "low rank"),
}
"""A fixed dozen; on a card `python -m tests.corpus --compile inductor` compiles all."""


def test_the_compiled_dozen_is_in_the_corpus() -> None:
    assert len(COMPILED) == 12
    assert {module.name for module in MODULES} >= COMPILED


@pytest.mark.parametrize("module", [module for module in MODULES if module.name in COMPILED], ids=lambda one: one.name)
def test_a_compiled_copy_is_right(module: Module) -> None:
    # This backend traces forward as inductor does, and compiles nothing: a compiler takes ten seconds a module.
    found = module.gate(Settings(device="cpu", seed=0), size=module.small, compiled="aot_eager")
    assert found.verdict is Verdict.MET, found.sentence


def test_there_are_enough_faults_and_modules() -> None:
    assert len(FAULTS) >= 12
    assert len(chosen()) == 30
    assert len({module.kind for module in chosen()}) >= 7


# `python -m tests.corpus.faults` plants them in all modules.
@pytest.mark.parametrize("module", chosen()[::2], ids=lambda module: f"{module.kind}-{module.name}".replace(" ", "_"))
def test_planted_faults_are_wrong(module: Module) -> None:
    lines = list(planted(module, Settings(device="cpu", seed=0), module.small))
    counted = [line for line in lines if line.counts]
    assert len(counted) >= FEWEST
    assert [(line.fault, line.reason) for line in counted if not line.caught] == []
