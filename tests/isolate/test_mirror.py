"""The rival's sets get the values of the candidate's, whether or not they lie behind one another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from perfsuite.isolate.mirror import Mirror
from perfsuite.problems.base import Inputs
from perfsuite.problems.tensors import same_bits, tensors_in


def in_rows(count: int) -> list[Inputs]:
    memory = torch.randn(count, 2, 64)
    return [Inputs((memory[n, 0, :12].view(3, 4),), {"b": memory[n, 1, :50]}) for n in range(count)]


def apart(count: int) -> list[Inputs]:
    return [Inputs((torch.randn(3, 4),), {"b": torch.randn(50)}) for _ in range(count)]


def backwards(count: int) -> list[Inputs]:
    return in_rows(count)[::-1]


def others(count: int) -> list[Inputs]:
    """Tensors of other layouts: turned, expanded, of whole numbers, one twice, and one with a gradient."""
    made = []
    for n in range(count):
        twice = torch.arange(5) + n
        made.append(
            Inputs(
                (
                    torch.randn(4, 3).t(),
                    torch.randn(6, 1).expand(6, 7),
                    twice,
                    twice,
                    torch.nn.Parameter(torch.randn(2)),
                )
            )
        )
    return made


@pytest.mark.parametrize(
    ("make", "into"), [(in_rows, in_rows), (in_rows, apart), (apart, in_rows), (backwards, in_rows), (others, others)]
)
def test_values_of_these_sets_alone_are_copied(
    make: Callable[[int], Any], into: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    sets, there = make(7), into(7)
    mirror = Mirror(sets, there)
    called: list[int] = []
    genuine = torch._foreach_copy_
    monkeypatch.setattr(torch, "_foreach_copy_", lambda a, b: (called.append(len(a)), genuine(a, b)))
    mirror.copy([(5, 2), (0, 1)])
    alike = [same_bits(list(tensors_in(one)), list(tensors_in(other))) for one, other in zip(sets, there, strict=True)]
    assert alike == [True, False, False, False, False, True, True]
    assert bool(called) == (make is not in_rows or into is not in_rows)
    Mirror().copy([(0, 7)])  # nothing, before there are sets
