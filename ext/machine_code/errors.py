"""The error that the command prints as one sentence, with exit code 2."""

from __future__ import annotations


class UsageError(Exception):
    """Bad input, a missing tool, or a source that does not compile."""
