"""Compares two large records by the index: it finds the cases that are surely the same, and reads only the others.

The answer is that of `report.difference`, which looks at all cases that the index cannot pass.
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from perfsuite.record.case import Case
from perfsuite.record.index_db import Index, digest_of
from perfsuite.record.schema import RecordError
from perfsuite.record.store import case_at, numbered_cases, uncollected
from perfsuite.report.difference import Change, clocks_apart, differences, environment_of
from perfsuite.report.matching import matched
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
    firsts = "SELECT min(start), length FROM cases WHERE run = ? GROUP BY environment ORDER BY min(number)"
    return Indexed(path, number, [case_at(path, *one) for one in connection.execute(firsts, (number,))])


def compared(index: Index, before: Indexed, after: Indexed, *, least: float) -> Compared:
    """The differences of two indexed records, as `differences` finds them."""
    names = {"old": before.number, "new": after.number, "least": least, "error": LEAST_ERROR}
    connection = index.connection
    connection.execute("DROP TABLE IF EXISTS temp.passed")
    connection.execute(f"CREATE TEMP TABLE passed AS {_SURELY_SAME}", names)
    rest = [
        [case_at(one.path, *row) for row in connection.execute(f"{_NOT_PASSED.format(side=side)}", (one.number,))]
        for side, one in (("old", before), ("new", after))
    ]
    wanted = {case.case for side in rest for case in side}
    counts = connection.execute("SELECT name, count(*) FROM temp.passed GROUP BY name")
    beside = Counter({name: count for name, count in counts if name in wanted})
    (same,) = connection.execute("SELECT count(*) FROM temp.passed").fetchone()
    return Compared(differences(*rest, least=least, beside=beside), same, clocks_apart(matched(*rest)))


# One row for each pair whose verdict, clock and costs agree, and whose time and error moved less than is reported.
_SURELY_SAME = """
SELECT one.number AS old, two.number AS new, two.name AS name
FROM cases one JOIN cases two
    ON two.run = :new AND two.key = one.key AND two.place = one.place AND two.alike = one.alike
WHERE one.run = :old AND one.verdict = two.verdict AND one.clock = two.clock AND one.costs = two.costs
    AND (one.time IS NULL) = (two.time IS NULL)
    AND (one.time IS NULL OR abs(two.time / one.time - 1) < :least * 0.999999)
    AND (one.error IS NULL OR two.error IS NULL OR one.error = two.error
         OR (two.error < one.error * :error * 0.999999 AND one.error < two.error * :error * 0.999999))
"""
_NOT_PASSED = """
SELECT start, length FROM cases WHERE run = ? AND number NOT IN (SELECT {side} FROM temp.passed) ORDER BY number
"""


def _read(connection: sqlite3.Connection, path: Path, stamp: tuple[str, int, int, bytes]) -> None:
    """Read a record into the index; RecordError, and nothing changed, if it is none."""
    with uncollected():
        # In the order of the table's key each row goes to its end, however many there are.
        rows = sorted(_rows(path), key=lambda row: row[3:5])
    connection.execute("BEGIN IMMEDIATE")
    try:
        which = "(SELECT id FROM runs WHERE path = ?)"
        connection.execute(f"DELETE FROM cases WHERE run = {which}", stamp[:1])
        connection.execute("DELETE FROM runs WHERE path = ?", stamp[:1])
        line = "INSERT INTO runs (path, size, changed_ns, digest) VALUES (?, ?, ?, ?)"
        run = connection.execute(line, stamp).lastrowid
        connection.executemany(f"INSERT INTO cases VALUES ({', '.join('?' * 14)})", ((run, *row) for row in rows))
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _rows(path: Path) -> Iterator[tuple[Any, ...]]:
    found: list[list[Any]] = []
    groups: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for number, (start, length, case) in enumerate(numbered_cases(path)):
        key = _digest(repr((case.test, case.label, case.case, case.cache)))
        known = dict(quantities(case))
        name = next((name for name in ("speed", "share of the roofline") if name in known), "")
        time = known.pop(name, None)
        error = known.pop("error", None)
        costs = repr([name, *((name, one.value) for name, one in known.items())]) if known else name
        environment = _digest(repr((case.speed is None, environment_of(case))))
        groups[key].append((case.call or 0, number))
        values = [time.value if time else None, error.value if error else None, costs, environment]
        found.append([number, start, length, key, 0, 0, case.case, case.verdict.value, case.clock, *values])
    for members in groups.values():
        for place, (_, number) in enumerate(sorted(members, key=lambda member: member[0])):
            found[number][4:6] = place, len(members)
    yield from map(tuple, found)


def _digest(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)
