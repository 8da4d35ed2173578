"""Watches a case: after calls of each side, what both share is compared with what it was, named and put back."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any

from perfsuite.guards.ground import Look
from perfsuite.guards.identity import Standing
from perfsuite.guards.origin import late, strangers
from perfsuite.guards.settings import modes
from perfsuite.guards.surroundings import Change, Surroundings
from perfsuite.guards.unchanged import Seal, of_table, seal

_right: list[Standing] = []
"""The names among which no function from elsewhere was found, when last it was looked for."""


class TamperedError(RuntimeError):
    """A case need not go on: a side has tampered with it."""


class Watch:
    """Looks at the surroundings after calls of both sides, and puts back what they changed.

    A first call may set up what it needs. Of that, the rival is spared what slows it.
    """

    def __init__(self, look: Look, *objects: Any) -> None:
        """look: puts back what this class itself calls, and names it.

        objects: the problem, the rival and others whose methods, functions and hooks no side may change.
        """
        self._look = look
        self.before = Surroundings.now()
        self._standing = (Standing.of_modules(), Standing.of_case(*objects))
        self._compared = frozenset(name for name, _ in self._standing[0].modules)
        self._late: list[str] = []
        self._loaded: Seal | None = None
        self.replaced = self._strangers()
        """Full names that stand for something else than at the start."""
        self.changed: list[str] = []
        """Changes by the candidate, after its first call, that can slow the rival or widen a limit."""
        self.told: list[str] = []
        """Sentences for the record: changes that are put back, or that do no harm."""
        self._first = True
        self._modes = modes()

    def modes(self) -> None:
        """Put modes back that a call left on, before anything looks at its result. This takes half a microsecond."""
        if self._modes != (now := modes()):
            self._modes = now
            self.after("candidate")
            self._modes = modes()

    def after(self, side: str) -> None:
        """Look at the surroundings behind a call, or behind a sample, of that side."""
        changes = self.before.changes()
        first, self._first = self._first, self._first and side != "candidate"
        if changes:
            self._weigh(changes, side, first=first)

    def names(self) -> None:
        """Look at all names. What was replaced is named and put back."""
        self.replaced += self._look()
        gone = [one for standing in self._standing for one in standing.replaced()]
        self.replaced += [*strangers(self._compared, self._late_modules()), *(one.name for one in gone)]
        for one in gone:
            with suppress(Exception):  # an owner that refuses to be written
                one.put_back()

    def _strangers(self) -> list[str]:
        """Functions from elsewhere at the case's start. As long as no name has changed, there are no others."""
        if not (_right and _right[0] is self._standing[0]):
            if gone := strangers():
                return gone
            _right[:] = [self._standing[0]]
        return []

    def _late_modules(self) -> list[str]:
        """The modules of perfsuite that were loaded since the start. Most looks find no module new."""
        if self._loaded is None or self._loaded.differing(self._loaded.read()):
            self._loaded = seal(lambda layout: [of_table(sys.modules, layout)])
            self._late = late(self._compared)
        return self._late

    def batch(self) -> None:
        """Look at all names behind a batch of rounds. TamperedError if a side has tampered with anything so far."""
        self.names()
        if self.replaced or self.changed:
            raise TamperedError(", ".join([*self.replaced, *self.changed]))

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, a call of the candidate in whatever modes the checks are, with a look behind each call."""

        @wraps(function, updated=())
        def call(*args: Any, **kwargs: Any) -> Any:
            case, self.before = self.before, Surroundings.now()
            now = list(self.before.values)
            try:
                return function(*args, **kwargs)
            finally:
                self.after("candidate")
                for place, (old, new) in enumerate(zip(now, self.before.values, strict=True)):
                    if old is not new:  # it was adopted
                        case.values[place] = new
                self.before = case

        return call

    def end(self) -> None:
        """Put back what is changed still."""
        self.before.restore()

    def _weigh(self, changes: list[Change], side: str, *, first: bool) -> None:
        for change in changes:
            if first and not change.matters:
                self.before.adopt(change)
                continue
            back = change.undo()
            if not back:
                self.before.adopt(change)
            if side == "candidate" and change.matters and not (first and back):
                self.changed.append(str(change))
                continue
            when = f"the first call of the {side}" if first else f"a call of the {side}"
            self.told.append(f"{when} changed what both sides share: {change}" + ("; it is put back" if back else ""))
