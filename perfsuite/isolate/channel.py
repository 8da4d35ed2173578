"""Messages between the parent and a worker, over a socket: a length, bytes, and sometimes file descriptors.

The parent sends pickles. A worker sends only JSON, because it runs untrusted code and reading a pickle runs code too.
"""

from __future__ import annotations

import json
import os
import pickle
import socket
import struct
from collections.abc import Sequence
from typing import Any

from perfsuite.isolate.receipt import MOST_RECEIPT_BYTES, ReceiptError, parsed

_HEADER = struct.Struct("<Q")
MOST_DESCRIPTORS = 2
"""Of the memory of a message: the host's, and the card's. Of an introduction: memory and process."""
INTRODUCTION = b"worker"


class Channel:
    """One end of the socket. Its time-out is the longest wait for the next bytes."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end

    def introduce(self) -> None:
        """Give the parent, from the worker, what reads this process's memory and what signals this process.

        This comes before any line of a candidate, which could refuse it later.
        """
        own = [os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC), os.pidfd_open(os.getpid())]
        socket.send_fds(self.socket, [INTRODUCTION], own)
        for one in own:
            os.close(one)

    def introduced(self) -> tuple[int, int]:
        """(descriptor of the worker's memory, descriptor of the worker's process). EOFError if it has ended."""
        said, descriptors, _, _ = socket.recv_fds(self.socket, len(INTRODUCTION), MOST_DESCRIPTORS)
        if said != INTRODUCTION or len(descriptors) != MOST_DESCRIPTORS:
            raise EOFError
        return descriptors[0], descriptors[1]

    def order(self, request: dict[str, Any], memory: Sequence[int] = ()) -> None:
        """Send a request from the parent, with the descriptors of its shared memory if it uses any."""
        body = pickle.dumps(request)
        header = _HEADER.pack(len(body))
        # In one message, as far as it takes: the other side wakes once.
        sent = socket.send_fds(self.socket, [header, body], list(memory))
        if sent < len(header) + len(body):
            self.socket.sendall((header + body)[sent:])

    def next_order(self) -> tuple[dict[str, Any], list[int]]:
        """The next request, in the worker. EOFError when the parent has gone."""
        header, descriptors, _, _ = socket.recv_fds(self.socket, _HEADER.size, MOST_DESCRIPTORS)
        header += self._read(_HEADER.size - len(header)) if header else b""
        if not header:
            raise EOFError
        request: dict[str, Any] = pickle.loads(self._read(_HEADER.unpack(header)[0]))
        return request, descriptors

    def reply(self, receipt: dict[str, Any]) -> None:
        """Send a receipt from the worker."""
        body = json.dumps(receipt).encode()[:MOST_RECEIPT_BYTES]
        self.socket.sendall(_HEADER.pack(len(body)) + body)

    def receipt(self) -> dict[str, Any]:
        """The worker's next receipt. EOFError if the worker has ended; TimeoutError; ReceiptError for other bytes."""
        return parsed(self.receipt_bytes())

    def receipt_bytes(self) -> bytes:
        """The worker's next receipt, not yet read, so that nothing lies between its arrival and what follows."""
        size = _HEADER.unpack(self._read(_HEADER.size))[0]
        if size > MOST_RECEIPT_BYTES:
            raise ReceiptError(f"it has {size} bytes; at most {MOST_RECEIPT_BYTES} are read")
        return self._read(size)

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self.socket.recv(size - len(parts))
            if not part:
                raise EOFError
            parts += part
        return bytes(parts)
