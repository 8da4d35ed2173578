"""Receipts of any content: a candidate's failure, or a result that its form describes; little memory either way."""

from __future__ import annotations

import json
import socket
from types import SimpleNamespace

import torch
from hypothesis import strategies as st

from perfsuite.case.failures import MOST_TEXT
from perfsuite.isolate.channel import Channel
from perfsuite.isolate.errors import CandidateError
from perfsuite.isolate.log import Log
from perfsuite.isolate.process import Process
from perfsuite.isolate.receipt import MOST_RESULT_BYTES
from perfsuite.isolate.remote import Remote
from perfsuite.problems.nests import Flat
from perfsuite.problems.tensors import tensors_in

from .fuzzing import fuzz, mutated, values


class Forged(Process):
    """A worker that has already answered: with these bytes."""

    def __init__(self, *bodies: bytes) -> None:
        ours, self.theirs = socket.socketpair()
        for body in bodies:
            self.theirs.sendall(len(body).to_bytes(8, "little") + body)
        self.theirs.shutdown(socket.SHUT_WR)
        self._channel, self._log, self._worker = Channel(ours), Log(), 0
        self.closed = self._stopped = self._ended = False
        self.seconds, self.descriptors = 1.0, []
        self.nursery = SimpleNamespace(opens_card_memory=False, alone=False)  # type: ignore[assignment]

    def _epitaph(self) -> str:
        self.close()
        return "its process ended"


RECEIPTS = [
    {
        "tensors": [{"shape": [2, 3], "dtype": "float32", "stride": [3, 1]}],
        "single": True,
        "structure": "",
        "leaves": [],
        "places": [],
    },
    {
        "tensors": [
            {"shape": [4], "dtype": "int8", "stride": [1]},
            {"shape": [64, 64], "dtype": "float64", "stride": [64, 1]},
        ],
        "single": False,
        "structure": "(tensor, int, tensor)",
        "leaves": [None, 3, None],
        "places": [0, 2],
    },
    {
        "tensors": [{"shape": [2, 2], "dtype": "float32", "stride": [4, 1], "view": {"of": 0, "apart": 1}}],
        "single": True,
    },
    {"fault": "bad-type", "sentence": "the output is a str"},
    {"error": "ValueError", "sentence": "m is odd", "memory": False, "frames": ["a.py:1 in f"]},
]


def test_receipts_of_any_content() -> None:
    receipts = st.one_of(mutated(RECEIPTS), mutated(RECEIPTS), values())
    bodies = st.one_of(receipts.map(lambda one: json.dumps(one).encode()), st.binary(max_size=20))
    remote = Remote(torch.matmul, device="cpu", seconds=1.0, room=0)
    given = torch.ones(4, 4)

    def check(bodies: list[bytes]) -> None:
        remote._process = forged = Forged(*bodies, b"{}")
        try:
            result = remote(given)
        except CandidateError as error:
            said = str(error)
        except torch.OutOfMemoryError as error:
            said = str(error)
        else:
            said = ""
            assert isinstance(result, torch.Tensor | Flat)
            size = sum(one.numel() * one.element_size() for one in tensors_in(result))
            assert size <= MOST_RESULT_BYTES["cpu"]
        finally:
            forged.close()
            forged.theirs.close()
        assert len(said.encode()) <= 8 * MOST_TEXT

    assert fuzz(check, bodies=st.lists(bodies, min_size=1, max_size=2))
