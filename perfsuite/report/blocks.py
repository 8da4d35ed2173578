"""Generated tables in documents: between two comments, made from a record, never typed.

    <!-- perfsuite:gates records/h200/gates.jsonl family=gemm -->
    ...
    <!-- /perfsuite:gates -->

The path is relative to the document, as a link's is. `field=pattern` keeps the cases whose field, or parameter of that
name, fits the pattern.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from perfsuite.record.store import read_record
from perfsuite.report import accuracy, calibration, exploits, figures, markdown, outputs, summary, terminal

Filters = Mapping[str, str]
_BLOCK = re.compile(
    r"^<!-- perfsuite:(?P<kind>[\w-]+)(?P<words>[^\n]*?) -->\n(?P<body>.*?)^<!-- /perfsuite:(?P=kind) -->$",
    re.DOTALL | re.MULTILINE,
)
_FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
"""Code: a block inside is an example of one."""
_OPENING = re.compile(r"^<!-- perfsuite:", re.MULTILINE)


class BlockError(Exception):
    """A document holds a block that cannot be made; the text says which and why."""


def refresh(document: Path) -> str:
    """The document's text with every block made anew; BlockError, RecordError where one cannot be.

    Blocks in fenced code stay as they are.
    """
    try:
        text = document.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BlockError(f"{document}: cannot be read: {error}") from None
    fences = [fence.span() for fence in _FENCE.finditer(text)]

    def quoted(match: re.Match[str]) -> bool:
        return any(start < match.start() < end for start, end in fences)

    blocks = [block for block in _BLOCK.finditer(text) if not quoted(block)]
    if len(blocks) != sum(not quoted(opening) for opening in _OPENING.finditer(text)):
        raise BlockError(f"{document}: a block has no end: it needs <!-- /perfsuite:KIND --> on a line of its own")
    return _BLOCK.sub(lambda block: block[0] if quoted(block) else _made(block, document), text)


def _made(block: re.Match[str], document: Path) -> str:
    kind, words = block["kind"], block["words"].split()
    where = f"{document}: <!-- perfsuite:{kind} -->"
    if kind not in KINDS:
        raise BlockError(f"{where}: there is no such table; known are {', '.join(KINDS)}")
    paths = [word for word in words if "=" not in word]
    if len(paths) != 1:
        raise BlockError(f"{where}: needs the path of one record, has {len(paths)}")
    filters = dict(word.split("=", 1) for word in words if "=" in word)
    body = KINDS[kind](document.parent / paths[0], filters)
    opening = block[0].partition("\n")[0]
    return f"{opening}\n{body}\n<!-- /perfsuite:{kind} -->"


def gates(path: Path, filters: Filters) -> str:
    """The table of a gates record, in the record's order, over a line that says where it was measured."""
    cases = _fitting(path, filters)
    return f"{markdown.table(cases, worst_first=False)}\n\n{_measured(cases)}"


def summed(path: Path, filters: Filters) -> str:
    """The gates record in a row for each candidate and rival, over a line that says where, and what the checks cost."""
    cases = _fitting(path, filters)
    told = figures.checking(cases).removeprefix("; ")
    return f"{summary.table(cases)}\n\n{_measured(cases)}{f' {told.capitalize()}.' if told else ''}"


def errors(path: Path, filters: Filters) -> str:
    """The gates record's errors against float64, in a row for each candidate and rival, over a line that says where."""
    cases = _fitting(path, filters)
    return f"{accuracy.table(cases)}\n\n{_measured(cases)}"


def shown(path: Path, filters: Filters) -> str:
    """What the terminal shows at the end of the run that a gates record is of, shortened to `rows=N` of its rows.

    The rows come from the whole of the table, worst first, evenly; the sentence is the worst case's, the counts are
    those of the whole record.
    """
    wanted = filters.get("rows", "8")
    if not wanted.isdigit() or int(wanted) < 2:
        raise BlockError(f"{path}: rows={wanted} is no number of rows; it must be at least 2")
    cases = _fitting(path, {name: pattern for name, pattern in filters.items() if name != "rows"})
    worst = figures.worst_first([case for case in cases if case["target"] is not None])
    count = min(int(wanted), len(worst))
    rows = [worst[round(place * (len(worst) - 1) / max(count - 1, 1))] for place in range(count)]
    title = " perfsuite: gates "
    lines = [title.center(terminal.WIDTH, "="), *(line for _, line in terminal.table(rows))]
    lines += [part for _, said in terminal.sentences(rows)[:1] for part in textwrap.wrap(said, terminal.WIDTH)]
    return "\n".join(["```", *lines, f"{figures.counts(cases)}{figures.checking(cases)}", "```"])


def _fitting(path: Path, filters: Filters) -> list[dict[str, Any]]:
    cases = [case for case in read_record(path) if _fits(case, filters)]
    if not cases:
        wanted = " ".join(f"{name}={pattern}" for name, pattern in filters.items())
        raise BlockError(f"{path}: no case fits {wanted}")
    return cases


def _measured(cases: Sequence[Mapping[str, Any]]) -> str:
    return f"Measured on one {'; '.join(dict.fromkeys(markdown.environment(case) for case in cases))}."


def _fits(case: Mapping[str, Any], filters: Filters) -> bool:
    return all(fnmatchcase(_value(case, name), pattern) for name, pattern in filters.items())


def _value(case: Mapping[str, Any], name: str) -> str:
    value = case["params"].get(name) if name in case["params"] else case.get(name)
    return str(value)


KINDS: dict[str, Callable[[Path, Filters], str]] = {
    "gates": gates,
    "summary": summed,
    "errors": errors,
    "terminal": shown,
    "calibration": calibration.gates_table,
    "peers": calibration.peers_table,
    "exploits": exploits.exploits_table,
    "downgrades": exploits.downgrades_table,
    "output": outputs.output,
}
"""Kind of block -> what makes its body from the path of a record and the filters."""


def stale(documents: Sequence[Path]) -> list[Path]:
    """The documents whose blocks are not what their records say."""
    return [path for path in documents if refresh(path) != path.read_text(encoding="utf-8")]
