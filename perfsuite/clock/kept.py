"""Calls of the rounds, drawn in secret and copied with their inputs, for the checks that follow the timing."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from perfsuite.clock.base import TimedCall
from perfsuite.clock.deck import put
from perfsuite.clock.room import MOST_KEPT_CALLS
from perfsuite.guards.fingerprint import fingerprint, same_fingerprint
from perfsuite.problems.base import Inputs
from perfsuite.problems.tensors import keep, tensors_in

if TYPE_CHECKING:
    import torch

CALLS_A_HALF = 6
"""Calls that are kept of a half that is drawn."""


@dataclass(frozen=True)
class Watched:
    """A call that will be kept, before it runs."""

    call: int
    inputs: Inputs
    """Copies of `live`, or `live` itself."""
    live: Inputs
    written: Sequence[torch.Tensor] = ()
    """Tensors of `live` that the call may write."""
    distribution: str | None = None


class WatchedHalf:
    """The calls of one half that will be kept, with one fingerprint of all their inputs before and one after."""

    def __init__(self, watched: Sequence[Watched]) -> None:
        self.watched = watched
        self._before = self._marks()
        self._after: list[bytes | torch.Tensor] = []

    def put_again(self) -> None:
        """Overwrite the written inputs of the calls with the copies of what they were."""
        for one in self.watched:
            if one.written:
                put(one.live, one.inputs)

    def ended(self) -> None:
        """Note what the inputs are now, when the calls have run."""
        self._after, self.watched = self._marks(), ()

    @cached_property
    def changed(self) -> bool:
        """True if a call has written an input that it must not; waits for the device."""
        return not same_fingerprint(self._before, self._after)

    def _marks(self) -> list[bytes | torch.Tensor]:
        written = {id(tensor) for one in self.watched for tensor in one.written}
        lives = {id(tensor): tensor for one in self.watched for tensor in tensors_in(one.live)}
        return fingerprint([Inputs(tuple(tensor for key, tensor in lives.items() if key not in written))])


class KeptCalls:
    """The store of kept calls. All copies are made on the current stream, outside of what is timed."""

    def __init__(self, copy: Callable[[Any], Any] = keep) -> None:
        """copy: makes the copies of results."""
        self._secret, self._copy = random.SystemRandom(), copy
        self._calls: list[tuple[TimedCall, WatchedHalf]] = []
        self._hard: list[tuple[TimedCall, WatchedHalf]] = []
        self._seen = 0
        self.most = MOST_KEPT_CALLS
        """Calls that are kept. Later ones then take the places of earlier ones, so that all are equally likely."""

    def draw(self, calls: Sequence[int]) -> list[int]:
        """Some of `calls`, drawn anew."""
        return self._secret.sample(list(calls), min(CALLS_A_HALF, self.most, len(calls)))

    def keep(self, watched: Watched, half: WatchedHalf, call: TimedCall) -> None:
        """Keep a call of `half` that has just run; its output is copied here."""
        kept = replace(call, candidate_output=self._copy(call.candidate_output)), half
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

    def drop(self, half: WatchedHalf) -> None:
        """Forget the calls of `half`."""
        self._calls = [one for one in self._calls if one[1] is not half]
        self._hard = [one for one in self._hard if one[1] is not half]

    def ordinary(self, count: int | None = None) -> list[TimedCall]:
        """At most `count` kept calls on ordinary inputs, in the order in which they are judged: that of a shuffle."""
        return [_finished(one) for one in self._calls[:count]]

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


def _finished(kept: tuple[TimedCall, WatchedHalf]) -> TimedCall:
    """The call, once it is known whether its inputs have changed; waits for the device."""
    call, half = kept
    return replace(call, inputs_changed=True) if half.changed else call
