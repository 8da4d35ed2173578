"""Completes words in a shell, by argcomplete: `eval "$(register-python-argcomplete perfsuite)"`."""

from __future__ import annotations

import argparse
from importlib import import_module

from perfsuite.exporters.listing import exporters, load

VARIABLE = "_ARGCOMPLETE"
"""The shell's function sets it when it asks for words."""


def whole_parser(commands: dict[str, str]) -> argparse.ArgumentParser:
    """All commands with all their options. The command itself imports only the one that it runs."""
    whole = argparse.ArgumentParser(prog="perfsuite")
    below = whole.add_subparsers()
    for name, text in commands.items():
        parser = below.add_parser(name, help=text)
        if name != "export":
            import_module(f"perfsuite.cli.commands.{name.replace('-', '_')}").add_arguments(parser)
            continue
        kinds = parser.add_subparsers()
        for kind, what in exporters().items():
            exporter = load(kind)
            one = kinds.add_parser(kind, help=what)
            one.add_argument("record", nargs="?")
            if hasattr(exporter, "add_arguments"):
                exporter.add_arguments(one)
    return whole


def answer(commands: dict[str, str]) -> None:
    """Print the words that fit what was typed, and end; return if argcomplete is not installed."""
    try:
        import argcomplete
    except ImportError:
        return
    argcomplete.autocomplete(whole_parser(commands))
