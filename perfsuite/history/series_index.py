"""Finds the stored samples of a series by the index, which it brings up to date with asv's result files first."""

from __future__ import annotations

import json
import os
import sqlite3
from array import array
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from perfsuite.history import series
from perfsuite.history.asv_files import load_results
from perfsuite.record.index_db import Index, digest_of

_CHECKED: dict[tuple[int, str], int] = {}
"""(connection, folder) -> the folder's time of change when its files were last looked at."""
_SUFFIX = f".{series.BY_NAME['time_ratio'].method}"
"""Only the series of time ratios are looked up."""
ROWS_AT_ONCE = 20_000
"""Cases of result files that go into the index in one transaction, with those of the last file."""


def samples_of(
    index: Index, folder: Path, key: Mapping[str, str], titles: list[str], names: list[str]
) -> dict[str, list[float]]:
    """Commit -> samples of a case in the result files of a machine's folder whose parameters have the values of `key`.

    titles, names: asv's names of the series, and the case's names in it, the newest first. A commit's samples are those
    of the first name and title that have any.
    Raises HistoryError if a result file cannot be read.
    """
    update(index, folder)
    place = os.fspath(folder.resolve())
    found: dict[str, list[float]] = {}
    for name, title in product(names, titles):
        rows = index.connection.execute(
            "SELECT commit_hash, params, samples FROM series JOIN result_files ON id = file "
            "WHERE title = ? AND series.name = ? AND folder = ? AND version = ? ORDER BY result_files.name",
            (title, name, place, series.VERSION),
        )
        of_title: dict[str, list[float]] = {}
        for commit, params, samples in rows:
            given = json.loads(params)
            if all(given.get(one) == value for one, value in key.items()):
                of_title.setdefault(commit, []).extend(array("d", samples))
        found = of_title | found
    return found


def update(index: Index, folder: Path) -> int:
    """Bring the index up to date with the result files of a folder; return the number of files that were read.

    A file is unchanged if its size and time are, or else its content's digest.
    """
    place, connection = os.fspath(folder.resolve()), index.connection
    try:
        changed = folder.stat().st_mtime_ns
    except OSError:
        return 0  # no history of this machine
    # An entry that was added or replaced changes its folder's time. asv and the export replace files.
    if _CHECKED.get((id(connection), place)) == changed:
        return 0
    known = {
        name: (number, size, changed_ns, digest)
        for number, name, size, changed_ns, digest in connection.execute(
            "SELECT id, name, size, changed_ns, digest FROM result_files WHERE folder = ?", (place,)
        )
    }
    there = {
        entry.name: entry.stat()
        for entry in os.scandir(folder)
        if entry.name.endswith(".json") and entry.name != "machine.json" and entry.is_file()
    }
    read = 0
    files: list[_File] = []
    try:
        for name, stat in sorted(there.items()):
            number, *stamp = known.get(name, (None, None, None, None))
            if stamp[:2] != [stat.st_size, stat.st_mtime_ns]:
                digest = digest_of(folder / name)
                if number is not None and digest == stamp[2]:
                    now = (stat.st_mtime_ns, number)
                    connection.execute("UPDATE result_files SET changed_ns = ? WHERE id = ?", now)
                    continue
                files.append(_read(folder / name, (place, name, stat.st_size, stat.st_mtime_ns, digest)))
                read += 1
                if sum(len(one.rows) for one in files) >= ROWS_AT_ONCE:
                    _write(connection, files)
                    files = []
    finally:
        _write(connection, files)
    for name in known.keys() - there.keys():
        _forget(connection, place, name)
    _CHECKED[id(connection), place] = changed
    return read


class _File(NamedTuple):
    """A result file that was read."""

    values: tuple[Any, ...]
    """Of its row, in the order of the columns; the first two are its folder and its name."""
    rows: list[tuple[str, Any, str, bytes]]


def _read(path: Path, stamp: tuple[str, str, int, int, bytes]) -> _File:
    loaded = load_results(path)
    return _File((*stamp, loaded.commit_hash, json.dumps(loaded.params)), list(_rows(loaded)))


def _write(connection: sqlite3.Connection, files: list[_File]) -> None:
    """Put files into the index together. Cases of many files that lie beside each other share the tree's pages."""
    if not files:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        rows = []
        for one in files:
            _forget(connection, *one.values[:2])
            number = connection.execute(
                "INSERT INTO result_files (folder, name, size, changed_ns, digest, commit_hash, params) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                one.values,
            ).lastrowid
            rows += [(title, name, number, version, samples) for title, version, name, samples in one.rows]
        rows.sort(key=lambda row: row[:3])
        connection.executemany("INSERT INTO series (title, name, file, version, samples) VALUES (?, ?, ?, ?, ?)", rows)
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _rows(loaded: Any) -> Any:
    """(title, version, name, samples) of each case of the time ratios in a result file."""
    for title in loaded.get_all_result_keys():
        if not title.endswith(_SUFFIX):
            continue
        version, params = loaded.benchmark_version.get(title), loaded.get_result_params(title)
        names = params[0] if params else []
        for name, samples in zip(names, loaded.get_result_samples(title, params), strict=True):
            if samples:
                yield title, version, name, array("d", samples).tobytes()


def _forget(connection: sqlite3.Connection, place: str, name: str) -> None:
    which = "SELECT id FROM result_files WHERE folder = ? AND name = ?"
    connection.execute(f"DELETE FROM series WHERE file IN ({which})", (place, name))
    connection.execute("DELETE FROM result_files WHERE folder = ? AND name = ?", (place, name))
