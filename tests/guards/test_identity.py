"""Names that libraries fill in as they go are no tampering; names that somebody else fills in are."""

from __future__ import annotations

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
