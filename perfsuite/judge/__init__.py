"""Judges source text: a candidate and a problem in, a verdict out. The package itself can be called: see `judge`."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfsuite.judge.answer import Answer


class _Callable(ModuleType):
    """A package that is a function too: `perfsuite.judge(...)` beside `perfsuite.judge.pool`."""

    def __call__(self, candidate: Any, problem: Any, *, id: str | None = None, **terms: Any) -> Answer:
        from perfsuite.judge.calls import judge

        return judge(candidate, problem, id=id, **terms)


sys.modules[__name__].__class__ = _Callable
