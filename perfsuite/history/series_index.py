"""Finds the stored samples of a series by the index, which it brings up to date with asv's result files first."""

from __future__ import annotations

import json
import os
import sqlite3
from array import array
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

from perfsuite.history import series
from perfsuite.history.asv_files import load_results
from perfsuite.record.index_db import Index, digest_of

_CHECKED: dict[tuple[int, str], int] = {}
"""(connection, folder) -> the folder's time of change when its files were last looked at."""
_SUFFIX = f".{series.BY_NAME['time_ratio'].method}"
"""Only the series of time ratios are looked up."""


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
    for name, stat in sorted(there.items()):
        number, *stamp = known.get(name, (None, None, None, None))
        if stamp[:2] != [stat.st_size, stat.st_mtime_ns]:
            digest = digest_of(folder / name)
            if number is not None and digest == stamp[2]:
                connection.execute("UPDATE result_files SET changed_ns = ? WHERE id = ?", (stat.st_mtime_ns, number))
                continue
            _read(connection, folder / name, place, (stat.st_size, stat.st_mtime_ns, digest))
            read += 1
    for name in known.keys() - there.keys():
        _forget(connection, place, name)
    _CHECKED[id(connection), place] = changed
    return read


def _read(connection: sqlite3.Connection, path: Path, place: str, stamp: tuple[int, int, bytes]) -> None:
    loaded = load_results(path)
    rows = list(_rows(loaded))
    connection.execute("BEGIN IMMEDIATE")
    try:
        _forget(connection, place, path.name)
        values = (place, path.name, *stamp, loaded.commit_hash, json.dumps(loaded.params))
        number = connection.execute(
            "INSERT INTO result_files (folder, name, size, changed_ns, digest, commit_hash, params) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            values,
        ).lastrowid
        connection.executemany("INSERT INTO series VALUES (?, ?, ?, ?, ?)", ((number, *row) for row in rows))
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
