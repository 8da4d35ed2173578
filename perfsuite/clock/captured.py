"""The captures of a sample's calls, and the memory of their results."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from perfsuite.clock.memory import Span
from perfsuite.clock.rounds import Side
from perfsuite.problems.tensors import map_tensors


@dataclass
class Captured:
    """One capture of all calls of a sample of one side, for one of the two places of results."""

    graphs: list[Any]
    """One a piece, in order."""
    form: Any
    """The first call's result; it shows the form of the others."""
    memory: list[list[Span]]
    """The tensors of each call's result."""
    whole: list[int]
    """The calls whose results no later call overwrites."""

    @classmethod
    def of(cls, graphs: list[Any], form: Any, memory: list[list[Span]]) -> Captured:
        """The capture of these graphs, whose calls leave their results in that memory."""
        last_use = {span.address: call for call, spans in enumerate(memory) for span in spans}
        whole = [call for call, spans in enumerate(memory) if all(last_use[one.address] == call for one in spans)]
        return cls(graphs, form, memory, whole)

    def result(self, call: int) -> Any:
        """The result of that call, as tensors that do not own their memory."""
        spans = iter(self.memory[call])
        return map_tensors(self.form, lambda _: next(spans).tensor())


@dataclass
class Track:
    """The calls of a sample, over a part of the rotation or all of it."""

    pieces: list[list[int]]
    """The sets of inputs of each graph, in order."""
    captures: dict[tuple[Side, int], list[Captured]] = field(default_factory=dict)
    """Captures of each side for each place of results."""

    def captured(self, side: Side) -> Captured:
        """The first capture of that side."""
        return next(found[0] for (whose, _), found in self.captures.items() if whose == side)

    def every(self) -> Iterator[Captured]:
        """All captures."""
        return itertools.chain(*self.captures.values())


def spans_of(output: Any) -> list[Span]:
    """The memory of each tensor of a result; a tensor that is in two places counts once, as in `map_tensors`."""
    import torch

    if type(output) is torch.Tensor:  # most results, of thousands of calls
        return [Span.of(output)]
    spans: list[Span] = []

    def note(tensor: Any) -> Any:
        spans.append(Span.of(tensor))
        return tensor

    map_tensors(output, note)
    return spans
