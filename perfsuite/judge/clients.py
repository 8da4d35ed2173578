"""The clients of the service: names and tokens, from a TOML file that only its owner and his group can read."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

from perfsuite.outcome import UserError, one_line

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
LEAST_CHARACTERS = 20
"""The shortest token that is taken."""


def add_client(path: Path, name: str) -> str:
    """Add a client with a new token to the file, which is made if it is not there. Return the token."""
    if not _NAME.fullmatch(name):
        raise UserError(one_line(f"a client is named {name!r}; allowed are 1 to 64 letters, digits, _ and -"))
    if path.exists() and name in _read(path):
        raise UserError(f"{path} has a client {name} already; remove its line first")
    token = secrets.token_urlsafe(32)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "w", encoding="utf-8") as file:
        file.write(f'{name} = "{token}"\n')
    return token


class Clients:
    """The clients of a file. A changed file is read again; if the new one is bad, the old clients stay."""

    def __init__(self, path: Path) -> None:
        """UserError for a file that is bad, or that others can read."""
        self._path = path
        self._digests, self._mark = _read(path), self._now()

    def named(self, token: str) -> str | None:
        """The name of the client with this token; None if there is none. The time it takes does not depend on it."""
        self._refresh()
        given, found = _digest(token), None
        for name, digest in self._digests.items():
            if hmac.compare_digest(given, digest):
                found = name
        return found

    def _refresh(self) -> None:
        if (mark := self._now()) == self._mark:
            return
        self._mark = mark
        try:
            self._digests = _read(self._path)
        except UserError as error:
            print(f"perfsuite serve: {error}; the clients stay as they were", file=sys.stderr, flush=True)

    def _now(self) -> tuple[int, ...]:
        try:
            found = self._path.stat()
        except OSError:
            return ()
        return found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode


def _read(path: Path) -> dict[str, bytes]:
    """Name -> hash of the token. No message holds a token."""
    try:
        with path.open("rb") as file:
            if (mode := os.fstat(file.fileno()).st_mode) & 0o037:
                raise UserError(f"{path} has mode {mode & 0o777:o}, so others can read or change it: chmod 600 {path}")
            found = tomllib.load(file)
    except (OSError, ValueError) as error:
        raise UserError(one_line(f"the clients' file {path} cannot be read: {error}")) from None
    if not found:
        raise UserError(f'{path} has no client; each line is NAME = "TOKEN"')
    for name, token in found.items():
        if not _NAME.fullmatch(name):
            raise UserError(one_line(f"{path} has a client {name!r}; allowed are 1 to 64 letters, digits, _ and -"))
        if not isinstance(token, str) or len(token) < LEAST_CHARACTERS:
            raise UserError(f"{path}: the token of {name} must be a text of at least {LEAST_CHARACTERS} characters")
    digests = {name: _digest(token) for name, token in found.items()}
    if len(set(digests.values())) < len(digests):
        raise UserError(f"{path}: two clients have the same token; each needs its own")
    return digests


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()


class Rates:
    """The requests that each client may make: `rate` a second, and BURST seconds' worth at once."""

    BURST = 5.0

    def __init__(self, rate: float, now: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._now = rate, now
        self._kept: dict[str, tuple[float, float]] = {}

    def wait(self, client: str) -> float:
        """Count a request. Seconds until the next one is allowed; 0 if this one is."""
        now, most = self._now(), max(self._rate * self.BURST, 1.0)
        left, last = self._kept.get(client, (most, now))
        left = min(most, left + (now - last) * self._rate)
        allowed = left >= 1.0
        self._kept[client] = (left - 1.0 if allowed else left, now)
        return 0.0 if allowed else (1.0 - left) / self._rate
