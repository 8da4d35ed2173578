"""Calls of the rounds, drawn in secret and copied with their inputs, for the checks that follow the timing."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from perfsuite.clock.base import TimedCall
from perfsuite.clock.room import MOST_KEPT_CALLS
from perfsuite.guards.fingerprint import fingerprint, same_fingerprint
from perfsuite.problems.base import Inputs
from perfsuite.problems.tensors import keep, tensors_in

if TYPE_CHECKING:
    import torch

_Marks = tuple[list["torch.Tensor"], list["torch.Tensor"]]
"""Fingerprints of a call's inputs before it and after it."""

CALLS_A_HALF = 6
"""Calls that are kept of a half that is drawn."""


class Watched:
    """A call that will be kept, before it runs."""

    def __init__(
        self, call: int, inputs: Inputs, live: Inputs, written: Sequence[torch.Tensor], distribution: str | None
    ) -> None:
        """inputs: copies of `live`, or `live` itself. written: tensors of `live` that the call may write."""
        self.call, self.inputs, self.live, self.distribution = call, inputs, live, distribution
        self._written = {id(tensor) for tensor in written}
        self.before = self.marks()

    def marks(self) -> list[torch.Tensor]:
        """The fingerprint of what a call must not write."""
        kept = tuple(tensor for tensor in tensors_in(self.live) if id(tensor) not in self._written)
        return fingerprint([Inputs(kept)])


class KeptCalls:
    """The store of kept calls. All copies are made on the current stream, outside of what is timed."""

    def __init__(self) -> None:
        self._secret = random.SystemRandom()
        self._calls: list[tuple[TimedCall, _Marks]] = []
        self._hard: list[tuple[TimedCall, _Marks]] = []
        self._seen = 0
        self.most = MOST_KEPT_CALLS
        """Calls that are kept. Later ones then take the places of earlier ones, so that all are equally likely."""

    def draw(self, calls: Sequence[int]) -> list[int]:
        """Some of `calls`, drawn anew."""
        return self._secret.sample(list(calls), min(CALLS_A_HALF, self.most, len(calls)))

    def keep(self, watched: Watched, call: TimedCall) -> None:
        """Keep a call that has just run; its output is copied here."""
        kept = replace(call, candidate_output=keep(call.candidate_output)), (watched.before, watched.marks())
        if watched.inputs is watched.live:  # of those, only the last is still as it was
            self._calls = [kept]
            return
        if call.distribution is not None:
            self._hard.append(kept)
            return
        self._seen += 1
        place = len(self._calls) if len(self._calls) < self.most else self._secret.randrange(self._seen)
        if place < self.most:
            self._calls[place : place + 1] = [kept]

    def ordinary(self) -> list[TimedCall]:
        """The kept calls on ordinary inputs, in the order in which they are judged: that of a shuffle."""
        return [_finished(one) for one in self._calls]

    def hard(self) -> list[TimedCall]:
        """The kept calls on hard inputs."""
        return [_finished(one) for one in self._hard]

    def shuffle(self) -> None:
        """Draw which calls are judged first."""
        self._secret.shuffle(self._calls)

    def looked_at(self, skip: int, count: int, rival: Callable[[Inputs], Any], look: Callable[[Any, Any], Any]) -> Any:
        """`look(candidate's output, rival's result)` for `count` calls after the first `skip`, or for all there are."""
        calls = [call for call, _ in self._calls]
        return [look(call.candidate_output, rival(call.inputs)) for call in (calls[skip:] or calls)[:count]]

    def clear(self) -> None:
        """Free the copies."""
        self._calls, self._hard = [], []


def _finished(kept: tuple[TimedCall, _Marks]) -> TimedCall:
    """The call, once it is known whether its inputs have changed; waits for the device."""
    call, marks = kept
    return replace(call, inputs_changed=not same_fingerprint(*marks))
