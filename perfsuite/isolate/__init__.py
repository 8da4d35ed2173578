"""A candidate in a process of its own: it gets its inputs and returns its outputs; the parent checks and times."""

from .compare import compare_isolated
from .remote import IsolationError

__all__ = ["IsolationError", "compare_isolated"]
