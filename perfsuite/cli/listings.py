"""Tables of commands, exporters, families, markers, options and the like for documents, made from the code."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from perfsuite.cli.main import commands
from perfsuite.cli.reference import classes, fixtures, hooks, options, reasons, record_fields
from perfsuite.cli.tables_of_text import first_paragraph, table
from perfsuite.exporters.listing import exporters
from perfsuite.problems.listing import families
from perfsuite.problems.rivals import rivals_for
from perfsuite.pytest_plugin.marks import help_lines


def _commands() -> str:
    return table(("command", "does"), ((f"`perfsuite {name}`", text) for name, text in commands().items()))


def _exporters() -> str:
    return table(("exporter", "output"), ((f"`{name}`", text) for name, text in exporters().items()))


def _families() -> str:
    rows = ((f"`{cls.__name__}`", f"`{name}`", first_paragraph(cls)) for name, cls in families().items())
    return table(("problem", "family", "computes"), rows)


def _markers() -> str:
    rows = (line.split("): ", 1) for line in help_lines())
    return table(("marker", "requirement"), ((f"`{call})`".replace("()", ""), text) for call, text in rows))


def _rivals() -> str:
    served: dict[str, list[str]] = {}
    texts = {}
    for family in families():
        for name, module in rivals_for(family).items():
            served.setdefault(name, []).append(f"`{family}`")
            texts[name] = re.split(r"\.\s|\.$", first_paragraph(module), maxsplit=1)[0]
    return table(("rival", "families", "library"), ((f"`{n}`", ", ".join(served[n]), texts[n]) for n in served))


LISTINGS: Mapping[str, Callable[[], str]] = {
    "classes": classes,
    "commands": _commands,
    "exporters": _exporters,
    "families": _families,
    "fixtures": fixtures,
    "hooks": hooks,
    "markers": _markers,
    "options": options,
    "reasons": reasons,
    "record": record_fields,
    "rivals": _rivals,
}
"""Name of a `<!-- perfsuite:listing NAME -->` block in a document -> the function that makes its text."""
