"""Parsers of commands whose first word chooses a module: `perfsuite COMMAND`, `perfsuite export NAME`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from types import ModuleType
from typing import Any


def parser_of(prog: str, module: ModuleType) -> argparse.ArgumentParser:
    """A parser described by a module's docstring, and by its EXAMPLE where it has one."""
    return argparse.ArgumentParser(
        prog=prog,
        description=(module.__doc__ or module.HELP).strip(),
        epilog=getattr(module, "EXAMPLE", None),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_choice(parser: argparse.ArgumentParser, name: str, known: Mapping[str, str], **options: Any) -> None:
    """Add the first word, listed with its help at the end, and `rest`, all words after it."""
    parser.add_argument(name, metavar=name.upper(), help=f"one of the {name}s below", **options)
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    width = max(map(len, known)) + 2
    listed = "\n".join(f"  {each:<{width}}{text}" for each, text in known.items())
    parser.epilog = "\n\n".join(filter(None, (f"{name}s:\n{listed}", parser.epilog)))
