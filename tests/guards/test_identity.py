"""Names that libraries fill in as they go are no tampering; names that somebody else fills in are."""

from __future__ import annotations

import importlib
import sys

import pytest
import torch

from perfsuite.guards.identity import Standing


def test_generators_that_torch_fills_in_when_cuda_starts_are_its_own_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "default_generators", ())
    before = Standing.of_modules()
    torch.cuda.default_generators = (torch.Generator(),)
    assert [one.name for one in before.replaced()] == []

    after = Standing.of_modules()
    torch.cuda.default_generators = (torch.Generator(),)
    assert [one.name for one in after.replaced()] == ["torch.cuda.default_generators"]


def test_a_module_that_left_the_table_may_be_imported_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As behind a test that ran pytest inside: pytest then forgets what was imported there, and packages do not."""
    there = importlib.import_module("perfsuite.clock.host")
    monkeypatch.setattr("perfsuite.clock.host", there)  # puts it back in the end
    monkeypatch.delitem(sys.modules, "perfsuite.clock.host")
    before = Standing.of_modules()
    again = importlib.import_module("perfsuite.clock.host")
    assert again is not there
    assert [one.name for one in before.replaced()] == []

    after = Standing.of_modules()
    monkeypatch.setattr("perfsuite.clock.host", there)
    assert [one.name for one in after.replaced()] == ["perfsuite.clock.host"]
