"""A running `perfsuite serve` for tests, and requests to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from perfsuite.judge.answer import Answer, Stage
from perfsuite.judge.clients import Clients, Rates, add_client
from perfsuite.judge.engine import Terms
from perfsuite.judge.jobs import Source, Turn
from perfsuite.judge.pool import SlotState
from perfsuite.judge.queue_store import Queue
from perfsuite.judge.service import Service
from perfsuite.judge.stored import Limits
from perfsuite.outcome import Verdict

START_SECONDS = 180.0
"""The most that a service, a job of its pool or an answer takes to be there, also on a busy machine."""


class Got(NamedTuple):
    """An answer of the service."""

    status: int
    value: Any
    headers: dict[str, str]


class Asking:
    """Requests to a service at a port of this machine."""

    port: int
    tokens: dict[str, str]
    """Name of a client -> token."""

    def ask(
        self, method: str, path: str, body: Any = None, *, client: str | None = "local", raw: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Got:  # fmt: skip
        """One request, as a client of the file; None sends no token."""
        sent = {"Content-Type": "application/json", **(headers or {})}
        if client is not None:
            sent["Authorization"] = f"Bearer {self.tokens.get(client, client)}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=START_SECONDS)
        try:
            data = raw if raw is not None else None if body is None else json.dumps(body).encode()
            connection.request(method, path, data, sent)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        json_type = answer.headers.get_content_type() == "application/json"
        value = json.loads(text) if json_type else text.decode()
        return Got(answer.status, value, {name.lower(): one for name, one in answer.headers.items()})

    def insist(self, method: str, path: str, body: Any = None) -> Got:
        """One request, again and again while the service is away or has no room."""
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                got = self.ask(method, path, body)
                if got.status not in (429, 503):
                    return got
            except (OSError, http.client.HTTPException):
                pass
            assert time.monotonic() < end
            time.sleep(0.1)


class Served(Asking):
    """A service in a process of its own. It can be killed and started again at the same port."""

    def __init__(self, folder: Path, *options: str, jobs: int = 1, device: str = "cpu") -> None:
        self.folder, self.port, self.starts = folder, 0, 0
        self._options = ("--folder", str(folder), "--device", device, "--jobs", str(jobs), *options)
        self.start()
        clients = Path(options[options.index("--clients") + 1]) if "--clients" in options else folder / "clients.toml"
        self.tokens: dict[str, str] = tomllib.loads(clients.read_text())

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.end(signal.SIGTERM)

    def start(self) -> None:
        """Start it, and wait until it listens."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        self.log = self.folder.parent / f"log{self.starts}"
        self.starts += 1
        line = [sys.executable, "-m", "perfsuite", "serve", "--port", str(self.port), *self._options]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(line, stderr=log, stdout=log)
        end = time.monotonic() + START_SECONDS
        while not (found := re.search(r"http://\S+?:(\d+),", self.log.read_text())):
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.02)
        self.port = int(found[1])

    def end(self, number: signal.Signals) -> int:
        """End it by a signal; its exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout=START_SECONDS)

    def workers(self) -> list[int]:
        """The numbers of the processes that judge."""
        found = []
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            with contextlib.suppress(OSError):
                children = (task / "children").read_text().split()
                found += [int(one) for one in children if b"judge.worker" in Path(f"/proc/{one}/cmdline").read_bytes()]
        return found

    def kill_worker(self, number: int) -> bool:
        """Kill one of the processes that judge; False if there is none."""
        there = self.workers()
        with contextlib.suppress(ProcessLookupError, IndexError):
            os.kill(there[number % len(there)], signal.SIGKILL)
        return bool(there)


class HeldPool:
    """A pool that judges nothing: a job that was taken is answered when the test says so."""

    def __init__(self) -> None:
        self.source: Source | None = None
        self.turns: queue.SimpleQueue[Turn] = queue.SimpleQueue()
        self.ended: list[str] = []
        self.held: set[str] = set()
        self._room, self._over = threading.Semaphore(1), threading.Event()

    def work(self, source: Source) -> None:
        self.source = source
        while self._room.acquire() and not self._over.is_set() and (turn := source.take()) is not None:
            self.held.add(turn.key)
            self.turns.put(turn)

    def answer(self, reason: str = "checked") -> str:
        """Answer the job that was taken; its identifier."""
        assert self.source is not None
        turn = self.turns.get(timeout=START_SECONDS)
        self.held.discard(turn.key)
        found = Answer(
            id=turn.job.id, candidate="candidate", problem="gemm", device="cpu", verdict=Verdict.MET, reason=reason,
            sentence="right", stage=Stage.RIGHT, seconds={"whole": 0.5},
        )  # fmt: skip
        self._room.release()
        self.source.answered(turn, found.as_json())
        return turn.job.id

    def end(self, key: str) -> bool:
        if key not in self.held:
            return False
        self.ended.append(key)
        turn = self.turns.get(timeout=START_SECONDS)
        self.held.discard(key)
        self._room.release()
        assert self.source is not None
        self.source.died(turn, "ended")
        return True

    @property
    def state(self) -> tuple[SlotState, ...]:
        return (SlotState("all processors", bool(self.held), 1 + len(self.ended)),)

    def close(self) -> None:
        self._over.set()
        self._room.release()


class Within(Asking):
    """The service in this process, with a pool that the test holds."""

    def __init__(
        self, folder: Path, *, limits: Limits | None = None, rate: float = 1e6, problems: Path | None = None
    ) -> None:
        import uvicorn

        from perfsuite.judge import http_app, http_forms

        file = folder / "clients.toml"
        self.tokens = {name: add_client(file, name) for name in ("local", "other")}
        self.queue, self.pool = Queue(folder / "queue.db", limits), HeldPool()
        self.service = Service(self.queue, self.pool)  # type: ignore[arg-type]
        parts = http_app.Parts(
            self.service, http_forms.Desk(Terms(seconds=2.0), problems), Clients(file), Rates(rate), 100_000, 0.1
        )
        self.app = http_app.make_app(parts)
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        self._server = uvicorn.Server(uvicorn.Config(self.app, log_level="error", ws="none"))
        self._thread = threading.Thread(target=self._server.run, args=([listener],), daemon=True)

    def __enter__(self) -> Within:
        self._thread.start()
        self.insist("GET", "/health")
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self.service.stop_waiting()
        self._thread.join(timeout=START_SECONDS)
        assert not self._thread.is_alive()
