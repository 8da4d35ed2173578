"""Opens the index, `.perfsuite/index.db`: an SQLite database of what records and histories hold.

The files are the truth. The index only finds things in them faster, can be deleted at any time, and is made anew from
them. If it cannot be used (a read-only folder, a network file system without locks), one in memory takes its place.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

from perfsuite.record.places import OWN_FOLDER, make_folder

FORMAT = 4
"""Version of the tables. An index of another version is made anew."""
NAME = "index.db"
BUSY_SECONDS = 30.0
"""Longest wait for another process that writes."""
_TABLES = """
CREATE TABLE result_files (
    id INTEGER PRIMARY KEY, folder TEXT, name TEXT, size INTEGER, changed_ns INTEGER, digest BLOB,
    commit_hash TEXT, params TEXT, UNIQUE (folder, name)
);
CREATE TABLE series (
    file INTEGER REFERENCES result_files (id), title TEXT, version TEXT, name TEXT, samples BLOB,
    PRIMARY KEY (title, name, file, version)
) WITHOUT ROWID;
CREATE INDEX series_of_file ON series (file);
CREATE TABLE runs (id INTEGER PRIMARY KEY, path TEXT UNIQUE, size INTEGER, changed_ns INTEGER, digest BLOB);
CREATE TABLE cases (
    run INTEGER REFERENCES runs (id), number INTEGER, start INTEGER, length INTEGER,
    key INTEGER, place INTEGER, alike INTEGER, name TEXT, verdict TEXT, clock TEXT,
    time REAL, error REAL, costs TEXT, PRIMARY KEY (run, key, place)
) WITHOUT ROWID;
CREATE TABLE environments (
    run INTEGER REFERENCES runs (id), number INTEGER, start INTEGER, length INTEGER, PRIMARY KEY (run, number)
) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class Index:
    """An open index."""

    connection: sqlite3.Connection
    trouble: str | None
    """A sentence why the index is in memory only, or None."""


def open_index(root: Path) -> Index:
    """The index below a root folder, opened once a process."""
    return _opened(root.resolve(), os.getpid())


@lru_cache(maxsize=8)
def _opened(root: Path, process: int) -> Index:
    # A child of a fork must not use its parent's connection, so the process is part of the key.
    path = root / OWN_FOLDER / NAME
    for again in (True, False):
        try:
            make_folder(path.parent)
            return Index(_connected(path), None)
        except (OSError, sqlite3.Error) as error:
            trouble = f"{path} cannot be used ({error}): the files are read instead"
            if not (again and isinstance(error, sqlite3.DatabaseError) and "not a database" in str(error)):
                break
            with suppress(OSError):  # no index, or a broken one: it is made anew
                path.unlink()
    return Index(_connected(None), trouble)


def _connected(path: Path | None) -> sqlite3.Connection:
    """A connection to an index with its tables; in memory without a path."""
    made = sqlite3.connect(path or ":memory:", timeout=BUSY_SECONDS, isolation_level=None)
    # A crash of the machine may break the index, which is then made anew.
    made.execute("PRAGMA synchronous = OFF")
    if made.execute("PRAGMA user_version").fetchone()[0] != FORMAT:
        made.execute("BEGIN IMMEDIATE")
        if made.execute("PRAGMA user_version").fetchone()[0] != FORMAT:  # else another process was faster
            for (table,) in made.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                made.execute(f'DROP TABLE "{table}"')
            for statement in filter(str.strip, _TABLES.split(";")):
                made.execute(statement)
            made.execute(f"PRAGMA user_version = {FORMAT}")
        made.execute("COMMIT")
    return made


def digest_of(path: Path) -> bytes:
    """A digest of a file's content."""
    made = blake2b(digest_size=16)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            made.update(block)
    return made.digest()
