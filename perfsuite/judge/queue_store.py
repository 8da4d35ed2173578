"""A queue of jobs in an SQLite file: what was accepted is answered exactly once, whatever ends in between.

Each change is one transaction, on disk before the caller goes on. A job that was being judged when the process ended is
queued again by the next process that opens the file. The first answer of a job counts; every later one is dropped.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from perfsuite.judge.engine import Terms
from perfsuite.judge.jobs import MOST_DEATHS, Job, Turn, decided_by_speed, lost
from perfsuite.judge.promise import Stream
from perfsuite.judge.stored import ConflictError, FullError, Limits, State, Stored
from perfsuite.outcome import UserError

FORMAT = 1
"""Version of the tables."""
RETRY_SECONDS = 1.0
"""The wait before an answer that could not be written (a full disk) is written again."""
_TABLES = """
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT, client TEXT NOT NULL, id TEXT NOT NULL, digest TEXT NOT NULL,
    job TEXT, terms TEXT NOT NULL, state TEXT NOT NULL, deaths INTEGER NOT NULL DEFAULT 0,
    made REAL NOT NULL, began REAL, ended REAL, answer TEXT, UNIQUE (client, id)
);
CREATE INDEX jobs_by_state ON jobs (state, client, number);
CREATE INDEX jobs_by_end ON jobs (ended);
CREATE TABLE streams (
    client TEXT, one_in REAL, count INTEGER NOT NULL, decided INTEGER NOT NULL, PRIMARY KEY (client, one_in)
) WITHOUT ROWID;
CREATE TABLE stream_starts (client TEXT, one_in REAL, start INTEGER);
CREATE INDEX starts_by_stream ON stream_starts (client, one_in);
"""
_COLUMNS = "id, state, made, began, ended, deaths, answer"


class Queue:
    """The queue in a file; a `jobs.Source` for a pool. One process at a time opens it, and all its threads use it."""

    def __init__(self, path: Path, limits: Limits | None = None) -> None:
        """Open or make the file; its folder must exist. UserError if it is in use, or is no such queue."""
        import filelock

        self.limits = limits or Limits()
        self._lock, self._news = threading.RLock(), threading.Condition()
        self._closing, self._closed = False, False
        self._turns: dict[str, int] = {}
        self._turn = 0
        self._streams: dict[tuple[str, float], Stream] = {}
        self._listeners: list[Callable[[str, Stored], None]] = []
        self._only = filelock.FileLock(f"{path}.lock", mode=0o600, thread_local=False)
        try:
            self._only.acquire(timeout=0)
        except filelock.Timeout:
            raise UserError(
                f"the queue {path} is in use by another process; end that one, or name another file"
            ) from None
        path.touch(mode=0o600)
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            self._open()
        except sqlite3.Error as error:
            self._connection.close()
            self._only.release()
            raise UserError(f"the queue {path} cannot be used: {error}; name another file") from None

    def _open(self) -> None:
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")  # an accepted job outlives a loss of power too
        version = self._connection.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, FORMAT):
            raise sqlite3.DatabaseError(f"its format is {version}, and this perfsuite reads {FORMAT}")
        with self._change() as change:
            if version == 0:
                for statement in filter(str.strip, _TABLES.split(";")):
                    change(statement)
                change(f"PRAGMA user_version = {FORMAT}")
            # Of a process that was killed. Its death counts: a job that takes the machine down must not do so for ever.
            change("UPDATE jobs SET state = 'queued', deaths = deaths + 1 WHERE state = 'running'")
            select = "SELECT number, id, job, terms FROM jobs WHERE state = 'queued' AND deaths >= ?"
            hopeless = change(select, (MOST_DEATHS,)).fetchall()
        for number, id, text, said in hopeless:
            turn = Turn(str(number), Job(id, *json.loads(text)), Terms(**json.loads(said)))
            self._answered(turn, lost(turn, "it ended together with the service"))

    def submit(self, client: str, jobs: Sequence[tuple[Job, Terms]]) -> list[Stored]:
        """Queue all of the jobs or none. The same identifier with the same content gives the job that is there.

        ConflictError for an identifier with other content; FullError if they do not fit.
        """
        made: list[Stored] = []
        with self._change() as change:
            for job, terms in jobs:
                text, said = _json([job.candidate, job.problem]), _json(asdict(replace(terms, alpha=None)))
                digest = hashlib.sha256(f"{text}\n{said}".encode()).hexdigest()
                row = change(f"SELECT digest, {_COLUMNS} FROM jobs WHERE client = ? AND id = ?", (client, job.id))
                if (there := row.fetchone()) is not None:
                    if there[0] != digest:
                        raise ConflictError(f"job {job.id!r} is there with other content; give this one another id")
                    made.append(_stored(there[1:]))
                    continue
                now = time.time()
                insert = "INSERT INTO jobs (client, id, digest, job, terms, state, made) VALUES (?,?,?,?,?,'queued',?)"
                change(insert, (client, job.id, digest, text, said, now))
                made.append(Stored(job.id, State.QUEUED, now, None, None, 0, None, new=True))
            if any(one.new for one in made):
                self._check_room(change, client)
        with self._news:
            self._news.notify_all()
        return made

    def _check_room(self, change: Any, client: str) -> None:
        own, whole = change(
            "SELECT coalesce(sum(client = ?), 0), count(*) FROM jobs WHERE state = 'queued'", (client,)
        ).fetchone()
        if own > self.limits.queued_per_client:
            raise FullError(f"at most {self.limits.queued_per_client} jobs of one client may wait")
        if whole > self.limits.queued:
            raise FullError(f"at most {self.limits.queued} jobs may wait")

    def take(self) -> Turn | None:
        """The next turn, of the client that waited longest for one; waits. None when the queue is closing."""
        with self._news:
            while not self._closing:
                try:
                    if (turn := self._taken()) is not None:
                        return turn
                    self._news.wait()
                except sqlite3.OperationalError:
                    self._news.wait(RETRY_SECONDS)
            return None

    def _taken(self) -> Turn | None:
        with self._change() as change:
            waiting = change("SELECT client, min(number) FROM jobs WHERE state = 'queued' GROUP BY client").fetchall()
            if not waiting:
                return None
            client, number = min(waiting, key=lambda row: (self._turns.get(row[0], 0), row[1]))
            self._turn += 1
            self._turns[client] = self._turn
            change("UPDATE jobs SET state = 'running', began = ? WHERE number = ?", (time.time(), number))
            id, text, said = change("SELECT id, job, terms FROM jobs WHERE number = ?", (number,)).fetchone()
            terms = Terms(**json.loads(said))
            alpha = self._stream(client, terms.one_in).next_alpha()
            count = "INSERT INTO streams VALUES (?, ?, 1, 0) ON CONFLICT DO UPDATE SET count = count + 1"
            change(count, (client, terms.one_in))
            return Turn(str(number), Job(id, *json.loads(text)), replace(terms, alpha=alpha))

    def answered(self, turn: Turn, answer: Mapping[str, Any]) -> None:
        """Keep the answer, unless the job has one or was cancelled. An answer that comes after `died` counts too."""
        self._insist(lambda: self._answered(turn, answer))

    def _answered(self, turn: Turn, answer: Mapping[str, Any]) -> None:
        with self._change() as change:
            (state,) = change("SELECT state FROM jobs WHERE number = ?", (int(turn.key),)).fetchone() or ("gone",)
            if state not in (State.QUEUED, State.RUNNING):
                return
            client, stored = self._ended(change, turn, answer)
        self._tell(client, stored)

    def _ended(self, change: Any, turn: Turn, answer: Mapping[str, Any]) -> tuple[str, Stored]:
        """Keep the answer, and drop the source text."""
        keep = "UPDATE jobs SET state = 'done', ended = ?, answer = ?, job = NULL WHERE number = ?"
        change(keep, (time.time(), _json(answer), int(turn.key)))
        client, *row = change(f"SELECT client, {_COLUMNS} FROM jobs WHERE number = ?", (int(turn.key),)).fetchone()
        if decided_by_speed(answer):
            self._decided(change, client, turn.terms.one_in)
        return client, _stored(row)

    def _insist(self, change: Callable[[], None]) -> None:
        """Make the change, again and again while the disk is full or fails: the job must not be lost."""
        while True:
            try:
                change()
                return
            except sqlite3.OperationalError:
                if self._closing:
                    return  # the next process judges it again
                time.sleep(RETRY_SECONDS)

    def died(self, turn: Turn, said: str) -> None:
        """Queue the job again, unless its process died MOST_DEATHS times, or the queue is closing."""
        self._insist(lambda: self._died(turn, said))

    def _died(self, turn: Turn, said: str) -> None:
        number, given_back = int(turn.key), self._closing
        with self._change() as change:
            again = "UPDATE jobs SET state = 'queued', deaths = deaths + ? WHERE number = ? AND state = 'running'"
            if not change(again, (0 if given_back else 1, number)).rowcount:
                return
            (deaths,) = change("SELECT deaths FROM jobs WHERE number = ?", (number,)).fetchone()
            hopeless = deaths >= MOST_DEATHS and not given_back
            if hopeless:
                client, stored = self._ended(change, turn, lost(turn, said))
        if hopeless:
            self._tell(client, stored)
            return
        with self._news:
            self._news.notify_all()

    def cancel(self, client: str, id: str) -> tuple[Stored, str | None] | None:
        """Cancel a job that has no answer yet; None if there is no such job. Second: the key of its turn if it runs."""
        with self._change() as change:
            found = change("SELECT number, state FROM jobs WHERE client = ? AND id = ?", (client, id)).fetchone()
            if found is None:
                return None
            number, state = found
            end = "UPDATE jobs SET state = 'cancelled', ended = ?, job = NULL WHERE number = ? "
            ended = change(f"{end} AND state IN ('queued', 'running')", (time.time(), number)).rowcount
            stored = _stored(change(f"SELECT {_COLUMNS} FROM jobs WHERE number = ?", (number,)).fetchone())
        if ended:
            self._tell(client, stored)
        return stored, str(number) if state == State.RUNNING else None

    def find(self, client: str, ids: Sequence[str]) -> list[Stored]:
        """The client's jobs of these identifiers, in their order; unknown ones are left out."""
        with self._lock:
            select = f"SELECT {_COLUMNS} FROM jobs WHERE client = ? AND id = ?"
            rows = [self._connection.execute(select, (client, id)).fetchone() for id in ids]
        return [_stored(row) for row in rows if row is not None]

    def listing(self, client: str, *, after: str = "", state: State | None = None, most: int = 100) -> list[Stored]:
        """The client's jobs without their answers, in the order of their submission, from the one behind `after`."""
        with self._lock:
            columns = _COLUMNS.replace("answer", "NULL")
            begin = "(SELECT coalesce(max(number), 0) FROM jobs WHERE client = ? AND id = ?)"
            select = f"SELECT {columns} FROM jobs WHERE client = ? AND number > {begin} AND (? IS NULL OR state = ?)"
            values = (client, client, after, state, state, most)
            return [_stored(row) for row in self._connection.execute(f"{select} ORDER BY number LIMIT ?", values)]

    def counts(self) -> dict[State, int]:
        """The number of jobs in each state."""
        with self._lock:
            found = dict(self._connection.execute("SELECT state, count(*) FROM jobs GROUP BY state").fetchall())
        return {state: found.get(state, 0) for state in State}

    def prune(self) -> int:
        """Remove ended jobs that are too old or too many; return their number."""
        with self._change() as change:
            old = time.time() - self.limits.keep_seconds
            removed = change("DELETE FROM jobs WHERE ended < ?", (old,)).rowcount
            for (client,) in change("SELECT DISTINCT client FROM jobs").fetchall():
                most = "SELECT number FROM jobs WHERE client = ? AND ended IS NOT NULL ORDER BY ended DESC"
                most += " LIMIT -1 OFFSET ?"
                delete = f"DELETE FROM jobs WHERE number IN ({most})"
                removed += change(delete, (client, self.limits.kept_per_client)).rowcount
        return int(removed)

    def listen(self, listener: Callable[[str, Stored], None]) -> None:
        """Call the listener with the client and the job whenever a job ends, from the thread in which it does."""
        self._listeners.append(listener)

    def close_for_takers(self) -> None:
        """Hand out no more turns. A process that dies from now on gives its job back, without counting a death."""
        with self._news:
            self._closing = True
            self._news.notify_all()

    def close(self) -> None:
        """Close the file. Jobs that still run are queued again, without counting a death."""
        self.close_for_takers()
        with self._lock:
            if self._closed:
                return
            with suppress(sqlite3.OperationalError), self._change() as change:
                change("UPDATE jobs SET state = 'queued' WHERE state = 'running'")
            self._connection.close()
            self._closed = True
        self._only.release()

    def _stream(self, client: str, one_in: float) -> Stream:
        key = (client, one_in)
        if key not in self._streams:
            counted = self._connection.execute(
                "SELECT count, decided FROM streams WHERE client = ? AND one_in = ?", key
            )
            count, decided = counted.fetchone() or (0, 0)
            rows = self._connection.execute("SELECT start FROM stream_starts WHERE client = ? AND one_in = ?", key)
            self._streams[key] = Stream.resumed(one_in, count, decided, [start for (start,) in rows])
        return self._streams[key]

    def _decided(self, change: Any, client: str, one_in: float) -> None:
        stream, key = self._stream(client, one_in), (client, one_in)
        if (start := stream.decided()) is not None:
            change("INSERT INTO stream_starts VALUES (?, ?, ?)", (*key, start))
        change("UPDATE streams SET decided = decided + 1 WHERE client = ? AND one_in = ?", key)

    def _tell(self, client: str, stored: Stored) -> None:
        for listener in self._listeners:
            listener(client, stored)

    @contextmanager
    def _change(self) -> Iterator[Callable[..., sqlite3.Cursor]]:
        """One transaction: all of it, or nothing."""
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection.execute
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                self._streams.clear()  # they are read again, without what was taken back
                raise
            self._connection.execute("COMMIT")


def _stored(row: Sequence[Any]) -> Stored:
    id, state, made, began, ended, deaths, answer = row
    return Stored(id, State(state), made, began, ended, deaths, None if answer is None else json.loads(answer))


def _json(value: Any) -> str:
    """JSON of ASCII letters alone: text that is no valid Unicode is kept too."""
    return json.dumps(value, sort_keys=True, allow_nan=False, default=dict)
