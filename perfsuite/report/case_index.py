"""Compares two large records by the index: it finds the cases that are surely the same, and reads only the others.

The answer is that of `report.difference`, which looks at all cases that the index cannot pass.
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter, defaultdict
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from perfsuite.record.case import Case
from perfsuite.record.index_db import Index, digest_of
from perfsuite.record.schema import RecordError
from perfsuite.record.store import case_at, numbered_cases, uncollected
from perfsuite.report.difference import Change, clocks_apart, differences, environment_of
from perfsuite.report.matching import matched, several_cards
from perfsuite.report.quantities import LEAST_ERROR, quantities

LARGE_BYTES = 4_000_000
"""Smaller records, of about a thousand cases, are compared as fast without the index."""


@dataclass(frozen=True)
class Indexed:
    """A record in the index."""

    path: Path
    number: int
    """Its row."""
    environments: list[Case]
    """A case of each environment, the record's first case first."""


@dataclass(frozen=True)
class Compared:
    """The result of a comparison by the index."""

    changes: list[Change]
    """All that is not surely the same."""
    same: int
    """Cases that surely are."""
    clocks: list[str]
    """Cases that were timed by different clocks, one clause each."""


def indexed(index: Index, path: Path) -> Indexed:
    """Bring the index up to date with a record. RecordError if it is none.

    The record is unchanged if its size and time are, or else its content's digest.
    """
    connection, place = index.connection, os.fspath(path.resolve())
    try:
        stat = path.stat()
    except OSError as error:
        raise RecordError(f"{path}: cannot be read as a record: {error}") from None
    row = connection.execute("SELECT id, size, changed_ns, digest FROM runs WHERE path = ?", (place,)).fetchone()
    if row is None or row[1:3] != (stat.st_size, stat.st_mtime_ns):
        digest = digest_of(path)
        if row is not None and row[3] == digest:
            connection.execute("UPDATE runs SET changed_ns = ? WHERE id = ?", (stat.st_mtime_ns, row[0]))
        else:
            _read(connection, path, (place, stat.st_size, stat.st_mtime_ns, digest))
    (number,) = connection.execute("SELECT id FROM runs WHERE path = ?", (place,)).fetchone()
    firsts = "SELECT start, length FROM environments WHERE run = ? ORDER BY number"
    return Indexed(path, number, [case_at(path, *one) for one in connection.execute(firsts, (number,))])


def compared(index: Index, before: Indexed, after: Indexed, *, least: float) -> Compared:
    """The differences of two indexed records, as `differences` finds them."""
    names = {"old": before.number, "new": after.number, "least": least, "error": LEAST_ERROR}
    connection = index.connection
    old, new, alone = [], [], 0
    for *first, number, start, length in connection.execute(_NOT_SAME, names):
        old.append(first)
        if number is None:
            alone += 1
        else:
            new.append([number, start, length])
    counted = "SELECT count(*) FROM cases WHERE run = ?"
    olds, news = (connection.execute(counted, (one.number,)).fetchone()[0] for one in (before, after))
    if news > olds - alone:  # else each case of the second record has a partner in the first
        new += map(list, connection.execute(_NEW_ALONE, names))
    rest = [
        [case_at(one.path, start, length) for _, start, length in sorted(rows)]
        for one, rows in ((before, old), (after, new))
    ]
    # A pair's cases have one name, so the passed cases of a name are those of either record without its rest.
    beside = Counter({case.case: 0 for side in rest for case in side})
    if beside:
        connection.execute("CREATE TEMP TABLE IF NOT EXISTS wanted (name TEXT PRIMARY KEY) WITHOUT ROWID")
        connection.execute("DELETE FROM temp.wanted")
        connection.executemany("INSERT INTO temp.wanted VALUES (?)", ((name,) for name in beside))
        by_name = "SELECT name, count(*) FROM cases WHERE run = ? AND name IN temp.wanted GROUP BY name"
        beside.update(dict(connection.execute(by_name, (after.number,))))
        beside.subtract(case.case for case in rest[1])
    by_card = several_cards(before.environments) or several_cards(after.environments)
    changes = differences(*rest, least=least, beside=beside, by_card=by_card)
    return Compared(changes, news - len(new), clocks_apart(matched(*rest, by_card=by_card)))


# A pair's verdict, clock and costs agree, and its time and error moved less than is reported.
_SURELY_SAME = """
    two.alike = one.alike AND one.verdict = two.verdict AND one.clock = two.clock AND one.costs = two.costs
    AND (one.time IS NULL) = (two.time IS NULL)
    AND (one.time IS NULL OR abs(two.time / one.time - 1) < :least * 0.999999)
    AND (one.error IS NULL OR two.error IS NULL OR one.error = two.error
         OR (two.error < one.error * :error * 0.999999 AND one.error < two.error * :error * 0.999999))
"""
_PARTNERS = "two.key = one.key AND two.place = one.place"
# The rows of both records lie in the order of their keys, so each look-up finds its page where the last one left it.
_NOT_SAME = f"""
SELECT one.number, one.start, one.length, two.number, two.start, two.length
FROM cases one LEFT JOIN cases two ON two.run = :new AND {_PARTNERS}
WHERE one.run = :old AND ({_SURELY_SAME}) IS NOT TRUE
"""
_NEW_ALONE = f"""
SELECT number, start, length FROM cases two WHERE run = :new
    AND NOT EXISTS (SELECT 1 FROM cases one WHERE one.run = :old AND {_PARTNERS})
"""


def _read(connection: sqlite3.Connection, path: Path, stamp: tuple[str, int, int, bytes]) -> None:
    """Read a record into the index; RecordError, and nothing changed, if it is none."""
    with uncollected():
        # In the order of the table's key each row goes to its end, however many there are.
        rows, environments = _rows(path)
        rows.sort(key=lambda row: row[3:5])
    connection.execute("BEGIN IMMEDIATE")
    try:
        which = "(SELECT id FROM runs WHERE path = ?)"
        for table in ("cases", "environments"):
            connection.execute(f"DELETE FROM {table} WHERE run = {which}", stamp[:1])
        connection.execute("DELETE FROM runs WHERE path = ?", stamp[:1])
        line = "INSERT INTO runs (path, size, changed_ns, digest) VALUES (?, ?, ?, ?)"
        run = connection.execute(line, stamp).lastrowid
        connection.executemany(f"INSERT INTO cases VALUES ({', '.join('?' * 13)})", ((run, *row) for row in rows))
        connection.executemany("INSERT INTO environments VALUES (?, ?, ?, ?)", ((run, *row) for row in environments))
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _rows(path: Path) -> tuple[list[list[Any]], list[tuple[int, int, int]]]:
    """(a row for each case, (number, start, length) of the first case of each environment)."""
    found: list[list[Any]] = []
    firsts: dict[tuple[bool, tuple[object, ...]], tuple[int, int, int]] = {}
    groups: dict[int, list[tuple[int, int]]] = defaultdict(list)
    cards: dict[str | None, int] = {}
    for number, (start, length, case) in enumerate(numbered_cases(path)):
        card = cards.setdefault(case.gpu, len(cards)) if case.gpu or case.speed is not None else 0
        key = _digest(repr((case.test, case.label, case.case, case.cache)))
        known = dict(quantities(case))
        name = next((name for name in ("speed", "share of the roofline") if name in known), "")
        time = known.pop(name, None)
        error = known.pop("error", None)
        costs = repr([name, *((name, one.value) for name, one in known.items())]) if known else name
        firsts.setdefault((case.speed is None, environment_of(case)), (number, start, length))
        values = [time.value if time else None, error.value if error else None, costs]
        found.append(
            [number, start, length, key, case.call or 0, card, case.case, case.verdict.value, case.clock, *values]
        )
    for row in found:
        if len(cards) > 1:  # of a record that joins card models, each is compared by itself
            row[3] = _digest(f"{row[3]} {list(cards)[row[5]]}")
        groups[row[3]].append((row[4], row[0]))
    for members in groups.values():
        for place, (_, number) in enumerate(sorted(members, key=lambda member: member[0])):
            found[number][4:6] = place, len(members)
    return found, list(firsts.values())


def _digest(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)
