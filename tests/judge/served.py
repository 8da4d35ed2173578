"""A running `perfsuite serve` for tests, and requests to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

START_SECONDS = 60.0


class Got(NamedTuple):
    """An answer of the service."""

    status: int
    value: Any
    headers: dict[str, str]


class Served:
    """A service in a process of its own. It can be killed and started again at the same port."""

    def __init__(self, folder: Path, *options: str, jobs: int = 1) -> None:
        self.folder, self.port, self.starts = folder, 0, 0
        self._options = ("--folder", str(folder), "--device", "cpu", "--jobs", str(jobs), *options)
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
        return self.process.wait(timeout=60)

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

    def ask(
        self, method: str, path: str, body: Any = None, *, client: str | None = "local", raw: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Got:  # fmt: skip
        """One request, as a client of the file; None sends no token."""
        sent = {"Content-Type": "application/json", **(headers or {})}
        if client is not None:
            sent["Authorization"] = f"Bearer {self.tokens.get(client, client)}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=90)
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
            assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.1)
