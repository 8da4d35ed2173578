"""Tables of commands, exporters, families, markers and rivals for documents, each row from one file."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping

from perfsuite.cli.main import commands
from perfsuite.exporters.listing import exporters
from perfsuite.problems.listing import families
from perfsuite.problems.rivals import rivals_for
from perfsuite.pytest_plugin.marks import help_lines


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _first_paragraph(documented: object) -> str:
    return " ".join((inspect.getdoc(documented) or "").partition("\n\n")[0].split())


def _commands() -> str:
    return _table(("command", "does"), ((f"`perfsuite {name}`", text) for name, text in commands().items()))


def _exporters() -> str:
    return _table(("exporter", "output"), ((f"`{name}`", text) for name, text in exporters().items()))


def _families() -> str:
    rows = ((f"`{cls.__name__}`", f"`{name}`", _first_paragraph(cls)) for name, cls in families().items())
    return _table(("problem", "family", "computes"), rows)


def _markers() -> str:
    rows = (line.split("): ", 1) for line in help_lines())
    return _table(("marker", "requirement"), ((f"`{call})`".replace("()", ""), text) for call, text in rows))


def _rivals() -> str:
    served: dict[str, list[str]] = {}
    texts = {}
    for family in families():
        for name, module in rivals_for(family).items():
            served.setdefault(name, []).append(f"`{family}`")
            texts[name] = re.split(r"\.\s|\.$", _first_paragraph(module), maxsplit=1)[0]
    return _table(("rival", "families", "library"), ((f"`{n}`", ", ".join(served[n]), texts[n]) for n in served))


LISTINGS: Mapping[str, Callable[[], str]] = {
    "commands": _commands,
    "exporters": _exporters,
    "families": _families,
    "markers": _markers,
    "rivals": _rivals,
}
"""Name of a `<!-- perfsuite:listing NAME -->` block in a document -> the function that makes its table."""
