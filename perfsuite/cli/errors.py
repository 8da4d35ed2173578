"""How a subcommand says that it was asked for something it cannot do."""

from __future__ import annotations

from perfsuite.outcome import UserError


class UsageError(UserError):
    """Bad input to a command: one sentence, exit 2."""
