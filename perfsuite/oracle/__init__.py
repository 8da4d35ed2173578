"""Judges answers against an FP64 reference, with a tolerance that the library's own error sets."""

from perfsuite.guards.poison import poison, poison_free_memory
from perfsuite.problems.base import ReferenceUnavailableError

from .check import check
from .examine import examine
from .judgement import Judgement
from .worth import WeakProblemError
from .yardstick import LibraryWrongError

__all__ = [
    "Judgement",
    "LibraryWrongError",
    "ReferenceUnavailableError",
    "WeakProblemError",
    "check",
    "examine",
    "poison",
    "poison_free_memory",
]
