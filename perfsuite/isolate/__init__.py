"""Runs a candidate in a separate process: the worker gets inputs and returns outputs, the parent checks and times."""

from .compare import compare_isolated
from .remote import IsolationError

__all__ = ["IsolationError", "compare_isolated"]
