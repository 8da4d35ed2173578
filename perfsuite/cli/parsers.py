"""Parsers of commands whose first word chooses a module: `perfsuite COMMAND`, `perfsuite export NAME`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from types import ModuleType
from typing import NoReturn

from perfsuite.cli.help_text import HelpFormatter
from perfsuite.outcome import one_line

EXIT_CODES = "exit codes: 0 done, 2 bad input, 130 interrupted"


class Parser(argparse.ArgumentParser):
    """A parser whose complaint is one line that ends, whatever it was given."""

    def error(self, message: str) -> NoReturn:
        super().error(one_line(message))


def parser_of(prog: str, module: ModuleType) -> Parser:
    """A parser described by a module's docstring, and by its EXAMPLE if it has one, with the exit codes."""
    said = "\n\n".join(filter(None, (getattr(module, "EXAMPLE", None), _codes(module))))
    description = (module.__doc__ or module.HELP).strip()
    return Parser(prog=prog, description=description, epilog=said or None, formatter_class=HelpFormatter)


def _codes(module: ModuleType) -> str | None:
    """The exit codes of most commands, unless the module names its own."""
    if re.search("exit codes?:", getattr(module, "EXAMPLE", ""), re.IGNORECASE):
        return None
    return EXIT_CODES


def add_choice(
    parser: argparse.ArgumentParser, name: str, known: Mapping[str, str], *, metavar: str = "", what: str = ""
) -> None:
    """Add the first word, and `rest` for all words after it. The end of the help lists `known`, each with its help.

    what: the help of a first word that need not be one of `known`; without it, only they are allowed.
    """
    plural = f"{name.removesuffix('y')}ies" if name.endswith("y") else f"{name}s"
    parser.add_argument(
        name,
        metavar=metavar or name.upper(),
        choices=None if what else list(known),
        help=what or f"one of the {plural} below",
    )
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    width = max(map(len, known)) + 2
    listed = "\n".join(f"  {each:<{width}}{text}" for each, text in known.items())
    parser.epilog = "\n\n".join(filter(None, (f"{plural}:\n{listed}", parser.epilog)))
