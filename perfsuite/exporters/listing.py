"""Finds exporters: each module of this folder that assigns HELP is one.

An exporter is imported only when it is used.

    HELP = "its output, in one line"
    def text(cases: Sequence[Case], *, title: str) -> str: ...    # the content of one file

An exporter that adds to existing files has these two functions in place of `text`:

    def add_arguments(parser: argparse.ArgumentParser) -> None: ...
    def add(cases: Sequence[Case], arguments: argparse.Namespace) -> str: ...    # a sentence for the user
"""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from types import ModuleType


def exporters() -> dict[str, str]:
    """Name and one-line help of each exporter."""
    return helps(Path(__file__).parent)


def helps(folder: Path) -> dict[str, str]:
    """Name and HELP of each module in `folder` that assigns HELP, read from its source.

    An underscore in a module's name is a hyphen in the name that users write.
    """
    found = {}
    for path in sorted(folder.glob("*.py")):
        for statement in ast.parse(path.read_text(encoding="utf-8")).body:
            match statement:
                case ast.Assign(targets=[ast.Name("HELP")], value=ast.Constant(str(text))):
                    found[path.stem.replace("_", "-")] = text
    return found


def load(name: str) -> ModuleType:
    """The module of an exporter; ValueError lists the known names."""
    known = exporters()
    if name not in known:
        raise ValueError(f"exporter is {name!r}; it must be one of {', '.join(known)}")
    return import_module(f"perfsuite.exporters.{name.replace('-', '_')}")
