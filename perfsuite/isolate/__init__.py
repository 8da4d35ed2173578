"""Runs a candidate in a separate process: the worker gets inputs and returns outputs, the parent checks and times."""

from .compare import compare_isolated
from .remote import IsolationError
from .source import Source, source_in

__all__ = ["IsolationError", "Source", "compare_isolated", "source_in"]
