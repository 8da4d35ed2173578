"""Watches a case: after calls of each side, what both share is compared with what it was, named and put back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import wraps
from typing import Any

from perfsuite.guards.allocator import fetches_anew, put_back
from perfsuite.guards.company import Company
from perfsuite.guards.ground import Look
from perfsuite.guards.identity import Standing
from perfsuite.guards.origin import late, strangers
from perfsuite.guards.settings import modes
from perfsuite.guards.surroundings import Change, Surroundings
from perfsuite.guards.unchanged import of_table, seal

LOOKS_AT_LIBRARY = 8
"""Samples of a library behind which the surroundings are looked at."""


class _Late:
    """The modules of perfsuite that were loaded since names were noted."""

    def __init__(self, known: Iterable[str]) -> None:
        self.known = frozenset(known)
        self._none_loaded: Callable[[], bool] | None = None
        self._found: list[str] = []

    def modules(self) -> list[str]:
        """Their names. As long as nothing is loaded, they are the same."""
        if self._none_loaded is None or not self._none_loaded():
            table = seal(lambda layout: [of_table(sys.modules, layout)])
            self._none_loaded = None if table is None else table.same()
            self._found = late(self.known)
        return self._found


_right: list[tuple[Standing, _Late]] = []
"""The names among which no function from elsewhere was found, when last it was looked for."""


class TamperedError(RuntimeError):
    """A case need not go on: a side has tampered with it."""


class Watch:
    """Looks at the surroundings after calls of both sides, and puts back what they changed.

    A first call may set up what it needs. Of that, the rival is spared what slows it.
    """

    def __init__(self, look: Look, *objects: Any, library: bool = False, device: str = "cuda") -> None:
        """look: puts back what this class itself calls, and names it.

        objects: the problem, the rival and others whose methods, functions and hooks no side may change.
        library: the rival is one that perfsuite calls by name, not a function of the user's.
        device: where both sides compute. On a processor, threads are watched as well.
        """
        self._look = look
        self._looks_at_rival = LOOKS_AT_LIBRARY if library else -1
        self.before = Surroundings.now()
        self.company = Company(library=library, on_host=device == "cpu")
        self._standing = (Standing.of_modules(), Standing.of_case(*objects))
        self._late, self.replaced = self._noted()
        """Full names that stand for something else than at the start."""
        self.changed: list[str] = []
        """Changes by the candidate, after its first call, that can slow the rival or widen a limit."""
        self.told: list[str] = []
        """Sentences for the record: changes that are put back, or that do no harm."""
        self._first = True
        self._fetched = fetches_anew()
        self._modes = modes()

    def modes(self) -> None:
        """Put modes back that a call left on, before anything looks at its result. This takes half a microsecond."""
        if self._modes != (now := modes()):
            self._modes = now
            self.after("candidate")
            self._modes = modes()

    def after(self, side: str) -> None:
        """Look at the surroundings behind a call, or behind a sample, of that side.

        Every sample of the candidate has its look: a change that lasts for one sample of the rival slows it. A library
        sets what it needs in its first calls. From then on, a change is the candidate's, whenever it is made.
        """
        if side == "rival" and self._looks_at_rival >= 0:
            if not self._looks_at_rival:
                return
            self._looks_at_rival -= 1
        if side == "case":  # not between rounds, since the heap does not stay as it was
            self._look_at_the_allocator()
        changes = self.before.changes()
        first, self._first = self._first, self._first and side != "candidate"
        if changes:
            self._weigh(changes, side, first=first)

    def names(self) -> None:
        """Look at all names. What was replaced is named and put back."""
        self.replaced += self._look()
        gone = [one for standing in self._standing for one in standing.replaced()]
        self.replaced += [*strangers(self._late.known, self._late.modules()), *(one.name for one in gone)]
        for one in gone:
            with suppress(Exception):  # an owner that refuses to be written
                one.put_back()

    def _look_at_the_allocator(self) -> None:
        if not self._fetched and fetches_anew():
            put_back()
            self.changed.append("thresholds of the C library's allocator, which fetches all memory anew")

    def _noted(self) -> tuple[_Late, list[str]]:
        """(the modules that may be loaded yet, functions from elsewhere at the case's start).

        As long as no name has changed since there were none of these, there are none.
        """
        standing = self._standing[0]
        if not (_right and _right[0][0] is standing):
            found, gone = _Late(name for name, _ in standing.modules), strangers()
            if gone:
                return found, gone
            _right[:] = [(standing, found)]
        return _right[0][1], []

    def batch(self) -> None:
        """Look at all names behind a batch of rounds. TamperedError if a side has tampered with anything so far."""
        self.names()
        if (said := self.company.accusation()) is not None:
            self.changed.append(said)
        if self.replaced or self.changed:
            raise TamperedError(", ".join([*self.replaced, *self.changed]))

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, a call of the candidate in whatever modes the checks are, with a look behind each call."""

        @wraps(function, updated=())
        def call(*args: Any, **kwargs: Any) -> Any:
            case, self.before = self.before, Surroundings.now()
            now = list(self.before.values)
            self.company.began("")
            try:
                return function(*args, **kwargs)
            finally:
                self.company.began("candidate")
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
