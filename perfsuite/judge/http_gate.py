"""The gate before the service: who asks, how often, and how much. Nothing of a body is read before that is known."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from prometheus_client import Counter

from perfsuite.judge.clients import Clients, Rates

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
OPEN = ("/health", "/openapi.json")
"""Addresses that need no token."""
BODY_SECONDS = 30.0
"""The longest time for a request's body."""


class TooLargeError(Exception):
    """The body has more bytes than allowed."""


class Gate:
    """ASGI middleware: 401 without a token, 429 above the rate, 413 for a large body, 408 for a slow one."""

    def __init__(self, app: Any, *, clients: Clients, rates: Rates, most_bytes: int, requests: Counter) -> None:
        self._app, self._clients, self._rates, self._most = app, clients, rates, most_bytes
        self._requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through, or answer it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def counted(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self._requests.labels(message["status"]).inc()
            await send(message)

        headers = {bytes(name).lower(): bytes(value) for name, value in scope["headers"]}
        refused, body = self._refusal(scope, headers), None
        if refused is None:
            try:
                async with asyncio.timeout(BODY_SECONDS):
                    body = await self._body(receive)
            except TimeoutError:
                refused = 408, "too-slow", f"the body took longer than {BODY_SECONDS:g} s"
            except TooLargeError as error:
                refused = 413, "too-large", str(error)
        if refused is not None:
            await _send(counted, *refused)
        elif body is not None:
            await self._app(scope, _again(body, receive), counted)

    def _refusal(self, scope: Scope, headers: dict[bytes, bytes]) -> tuple[Any, ...] | None:
        if scope["path"] not in OPEN:
            kind, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
            client = self._clients.named(token.strip()) if kind.lower() == "bearer" else None
            if client is None:
                said = "this needs the header Authorization: Bearer TOKEN, with the token of a client"
                return 401, "unauthorised", said, {"WWW-Authenticate": "Bearer"}
            if seconds := self._rates.wait(client):
                after = {"Retry-After": str(math.ceil(seconds))}
                return 429, "too-many-requests", f"the next request is allowed in {seconds:.2g} s", after
            scope.setdefault("state", {})["client"] = client
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self._most:
            return 413, "too-large", f"the body has {int(length)} bytes; at most {self._most} are taken"
        return None

    async def _body(self, receive: Receive) -> bytes | None:
        """The whole body; it may come without its length. None if the client has gone."""
        parts, size, more = [], 0, True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return None
            parts.append(message.get("body", b""))
            size, more = size + len(parts[-1]), message.get("more_body", False)
            if size > self._most:
                raise TooLargeError(f"the body has more than {self._most} bytes, the most that is taken")
        return b"".join(parts)


def _again(body: bytes, receive: Receive) -> Receive:
    """Gives the body that was read; the next message comes when the client goes."""
    read = False

    async def again() -> MutableMapping[str, Any]:
        nonlocal read
        if read:
            return await receive()
        read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def _send(send: Send, status: int, code: str, said: str, headers: dict[str, str] | None = None) -> None:
    body = json.dumps({"error": code, "message": said}).encode()
    own = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    own += [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
    await send({"type": "http.response.start", "status": status, "headers": own})
    await send({"type": "http.response.body", "body": body})
