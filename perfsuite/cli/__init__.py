"""The `perfsuite` command."""
