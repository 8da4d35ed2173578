"""Is it right: an FP64 reference, a tolerance set by the library's own error, and guards against being fooled."""

from perfsuite.guards.poison import poison, poison_free_memory
from perfsuite.problems.base import ReferenceUnavailableError

from .check import check
from .examine import examine
from .judgement import Judgement
from .reference import reference
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
    "reference",
]
