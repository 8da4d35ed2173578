"""Messages between the parent and a worker, over a socket: a length, bytes, and sometimes a file descriptor.

The parent sends pickles. A worker sends JSON and nothing else: it runs untrusted code, and to read a pickle is to run
its code.
"""

from __future__ import annotations

import json
import pickle
import socket
import struct
from typing import Any

_HEADER = struct.Struct("<Q")
MOST_REPLY_BYTES = 1 << 20
"""Longest receipt. A worker that announces a longer one has failed."""


class Channel:
    """One end of the socket."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    def fileno(self) -> int:
        """The descriptor, to be passed to a new process."""
        return self._socket.fileno()

    def wait(self, seconds: float | None) -> None:
        """Set how long `receipt` waits for the next bytes before it raises TimeoutError; None: without limit."""
        self._socket.settimeout(seconds)

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

    def order(self, request: dict[str, Any], memory: int | None = None) -> None:
        """Send a request from the parent, with the descriptor of shared memory if it uses any."""
        body = pickle.dumps(request)
        header = _HEADER.pack(len(body))
        if memory is None:
            self._socket.sendall(header)
        else:
            socket.send_fds(self._socket, [header], [memory])
        self._socket.sendall(body)

    def next_order(self) -> tuple[dict[str, Any], int | None]:
        """The next request, in the worker. EOFError when the parent has gone."""
        header, descriptors, _, _ = socket.recv_fds(self._socket, _HEADER.size, 1)
        header += self._read(_HEADER.size - len(header)) if header else b""
        if not header:
            raise EOFError
        request: dict[str, Any] = pickle.loads(self._read(_HEADER.unpack(header)[0]))
        return request, descriptors[0] if descriptors else None

    def reply(self, receipt: dict[str, Any]) -> None:
        """Send a receipt from the worker."""
        body = json.dumps(receipt).encode()[:MOST_REPLY_BYTES]
        self._socket.sendall(_HEADER.pack(len(body)) + body)

    def receipt(self) -> dict[str, Any]:
        """The worker's next receipt; EOFError if the worker has ended, TimeoutError, or ValueError for other bytes."""
        size = _HEADER.unpack(self._read(_HEADER.size))[0]
        if size > MOST_REPLY_BYTES:
            raise ValueError(f"a receipt of {size} bytes")
        receipt = json.loads(self._read(size))
        if not isinstance(receipt, dict):
            raise ValueError("a receipt that is no object")
        return receipt

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            if not part:
                raise EOFError
            parts += part
        return bytes(parts)
