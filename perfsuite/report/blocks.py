"""Generates tables in documents from records, between two comments.

    <!-- perfsuite:gates records/h200/gates.jsonl family=gemm -->
    ...
    <!-- /perfsuite:gates -->

The path is relative to the document, as in a link. `field=pattern` keeps the cases whose field or parameter of that
name matches the pattern. `<!-- perfsuite:listing NAME -->` holds one of the caller's tables.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType

from perfsuite.outcome import UserError
from perfsuite.record.case import Case
from perfsuite.record.store import read_record
from perfsuite.report import (
    accuracy,
    by_card,
    calibration,
    clocks,
    corpus,
    exploits,
    faults,
    figures,
    goals,
    isolated,
    judged,
    markdown,
    outputs,
    rows,
    scaled,
    summary,
    terminal,
)

Filters = Mapping[str, str]
Listings = Mapping[str, Callable[[], str]]
_BLOCK = re.compile(
    r"^<!-- perfsuite:(?P<kind>[\w-]+)(?P<words>[^\n]*?) -->\n(?P<body>.*?)^<!-- /perfsuite:(?P=kind) -->$",
    re.DOTALL | re.MULTILINE,
)
_FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
"""Fenced code: a block inside is an example."""
_OPENING = re.compile(r"^<!-- perfsuite:", re.MULTILINE)


class BlockError(UserError):
    """A block of a document cannot be generated; the text names the block and the cause."""


def pictures(document: Path) -> dict[Path, str]:
    """The pictures that blocks of a document show, as the records give them: file -> its text.

    Raises BlockError or RecordError if one cannot be drawn.
    """
    found: dict[Path, str] = {}
    for block in _blocks(document, _text(document)):
        filters = dict(word.split("=", 1) for word in block["words"].split() if "=" in word)
        if block["kind"] in PICTURES and (name := filters.get("picture")) is not None:
            if not re.fullmatch(r"[\w-]+\.svg", name):
                raise BlockError(f"{document}: picture={name} must be the name of an .svg file beside the document")
            (record,) = (word for word in block["words"].split() if "=" not in word)
            if (drawn := PICTURES[block["kind"]](document.parent / record)) is not None:
                found[document.parent / name] = drawn
    return found


def refresh(document: Path, listings: Listings = MappingProxyType({})) -> str:
    """The document's text with every block generated anew. Blocks in fenced code stay as they are.

    listings: the function that makes the table of a `listing` block, by the block's name.
    Raises BlockError or RecordError if a block cannot be generated.
    """
    text = _text(document)
    blocks = {block.span() for block in _blocks(document, text)}
    return _BLOCK.sub(lambda block: _made(block, document, listings) if block.span() in blocks else block[0], text)


def _text(document: Path) -> str:
    try:
        return document.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BlockError(f"{document}: cannot be read: {error}") from None


def _blocks(document: Path, text: str) -> list[re.Match[str]]:
    """The blocks of a document, without those in fenced code."""
    fences = [fence.span() for fence in _FENCE.finditer(text)]

    def quoted(match: re.Match[str]) -> bool:
        return any(start < match.start() < end for start, end in fences)

    blocks = [block for block in _BLOCK.finditer(text) if not quoted(block)]
    if len(blocks) != sum(not quoted(opening) for opening in _OPENING.finditer(text)):
        raise BlockError(f"{document}: a block has no end: it needs <!-- /perfsuite:KIND --> on a line of its own")
    return blocks


def _made(block: re.Match[str], document: Path, listings: Listings) -> str:
    kind, words = block["kind"], block["words"].split()
    where = f"{document}: <!-- perfsuite:{kind} -->"
    opening = block[0].partition("\n")[0]
    if kind == "listing":
        if len(words) != 1 or words[0] not in listings:
            raise BlockError(f"{where}: there is no listing {' '.join(words)}; known are {', '.join(listings)}")
        return f"{opening}\n{listings[words[0]]()}\n<!-- /perfsuite:{kind} -->"
    if kind not in KINDS:
        raise BlockError(f"{where}: there is no such table; known are {', '.join(KINDS)}, listing")
    paths = [word for word in words if "=" not in word]
    if len(paths) != 1:
        raise BlockError(f"{where}: needs the path of one record, has {len(paths)}")
    filters = dict(word.split("=", 1) for word in words if "=" in word)
    body = KINDS[kind](document.parent / paths[0], filters)
    return f"{opening}\n{body}\n<!-- /perfsuite:{kind} -->"


def gates(path: Path, filters: Filters) -> str:
    """The table of a gates record, in the record's order, and a line that names the machine."""
    cases = _fitting(path, filters)
    return f"{markdown.table(cases)}\n\n{_measured(cases)}"


def cards(path: Path, filters: Filters) -> str:
    """A row for each case and a column for each card model, and a line that names the machines."""
    cases = _fitting(path, filters)
    return f"{by_card.markdown_table(cases)}\n\n{_measured(cases)}"


def summed(path: Path, filters: Filters) -> str:
    """A row for each candidate and rival, and a line with the machine and the cost of the checks."""
    cases = _fitting(path, filters)
    cost = figures.checking(cases).removeprefix("; ")
    return f"{summary.table(cases)}\n\n{_measured(cases)}{f' {cost.capitalize()}.' if cost else ''}"


def errors(path: Path, filters: Filters) -> str:
    """A row of errors against float64 for each candidate and rival, and a line that names the machine."""
    cases = _fitting(path, filters)
    return f"{accuracy.table(cases)}\n\n{_measured(cases)}"


def limits(path: Path, filters: Filters) -> str:
    """A row of clocks and power for each case, and a line that names the machine."""
    cases = _fitting(path, filters)
    return f"{clocks.table(cases)}\n\n{_measured(cases)}"


def shown(path: Path, filters: Filters) -> str:
    """The terminal's table at the end of the recorded run: all of it, if the record has at most `rows=N` cases.

    Of a longer record, N rows of its timed cases are spread evenly over it, worst first, with the worst case's
    sentence. The counts are those of the whole record.
    """
    wanted = filters.get("rows", "8")
    if not wanted.isdigit() or int(wanted) < 2:
        raise BlockError(f"{path}: rows={wanted} is no number of rows; it must be at least 2")
    cases = _fitting(path, {name: pattern for name, pattern in filters.items() if name != "rows"})
    whole = len(cases) <= int(wanted)
    worst = figures.worst_first([case for case in cases if whole or case.target is not None])
    count = min(int(wanted), len(worst))
    rows = [worst[round(place * (len(worst) - 1) / max(count - 1, 1))] for place in range(count)]
    title = " perfsuite: gates "
    lines = [title.center(terminal.WIDTH, "="), *(line for _, line in terminal.table(rows))]
    lines += [
        part
        for _, text in terminal.sentences(rows)[: None if whole else 1]
        for part in textwrap.wrap(text, terminal.WIDTH)
    ]
    return "\n".join(["```", *lines, f"{figures.counts(cases)}{figures.checking(cases)}", "```"])


def _fitting(path: Path, filters: Filters) -> list[Case]:
    cases = [case for case in read_record(path) if _fits(case, filters)]
    if not cases:
        wanted = " ".join(f"{name}={pattern}" for name, pattern in filters.items())
        raise BlockError(f"{path}: no case fits {wanted}")
    return cases


def _measured(cases: Sequence[Case]) -> str:
    return f"Measured on one {'; '.join(dict.fromkeys(markdown.environment(case) for case in cases))}."


def _fits(case: Case, filters: Filters) -> bool:
    values = {**case.line, **case.params}
    return all(fnmatchcase(str(values.get(name)), pattern) for name, pattern in filters.items())


KINDS: dict[str, Callable[[Path, Filters], str]] = {
    "gates": gates,
    "cards": cards,
    "summary": summed,
    "errors": errors,
    "clocks": limits,
    "terminal": shown,
    "calibration": calibration.gates_table,
    "peers": calibration.peers_table,
    "exploits": exploits.exploits_table,
    "downgrades": exploits.downgrades_table,
    "faults": faults.faults_table,
    "corpus": corpus.corpus_table,
    "goals": goals.goals_table,
    "isolated": isolated.isolated_table,
    "judge": judged.judge_table,
    "output": outputs.output,
    "rows": rows.rows_table,
    "scale": scaled.scale_block,
}
"""Kind of block -> the function that generates its body from the path of a record and the filters."""
PICTURES: dict[str, Callable[[Path], str | None]] = {"scale": scaled.picture}
"""Kind of block -> the function that draws the picture of a record for a filter `picture=FILE`; None draws none."""
