"""The card's protocol: words on a made-up driver, memory for results, a worker that fails; on a card, the whole."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import shutil
import socket
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

import isolated_kernels as kernels

from perfsuite.case.ask import Ask
from perfsuite.case.comparison import Comparison
from perfsuite.clock.base import CaptureError, Sides
from perfsuite.clock.rounds import SIDES
from perfsuite.isolate import card_clock, card_memory, card_queue, card_side, card_words, compare_isolated
from perfsuite.isolate.card_clock import PLACES, IsolatedCardClock
from perfsuite.isolate.card_fit import why_not
from perfsuite.isolate.card_queue import UNIT, CardQueue, Room
from perfsuite.isolate.card_side import CardSide
from perfsuite.isolate.card_words import END, START, WORDS_BYTES, Gate, wait, write
from perfsuite.isolate.errors import CandidateError, FormError
from perfsuite.isolate.remote import Remote
from perfsuite.isolate.worker import Worker
from perfsuite.outcome import Verdict
from perfsuite.problems import Attention, Gemm
from perfsuite.problems.tensors import tensors_in
from perfsuite.settings import Settings

DRIVER = r"""
#include <stdint.h>
#include <stddef.h>
typedef unsigned long long u64;
unsigned waited = 0;
u64 waited_at = 0;
int registered = 0;
int cuStreamWaitValue32_v2(void* stream, u64 address, unsigned value, unsigned flags) {
  waited = value;
  waited_at = address;
  return stream == (void*)77 && flags == 0 ? 0 : 1;
}
int cuStreamWriteValue32_v2(void* stream, u64 address, unsigned value, unsigned flags) {
  *(volatile unsigned*)address = value;
  return stream == (void*)77 && flags == 0 ? 0 : 1;
}
int cuMemHostRegister_v2(void* page, size_t size, unsigned flags) {
  ++registered;
  return size == 4096 && flags == 2 ? 0 : 1;
}
int cuMemHostGetDevicePointer_v2(u64* address, void* page, unsigned flags) { *address = (u64)page; return 0; }
int cuMemHostUnregister(void* page) { --registered; return 0; }
"""
HEADERS = Path("/usr/local/cuda/include/cuda.h")
STREAM = SimpleNamespace(cuda_stream=77, synchronize=lambda: None)


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")
    source, library = tmp_path / "driver.c", tmp_path / "libcuda.so"
    source.write_text(DRIVER)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    monkeypatch.setattr(card_memory, "LIBRARY", str(library))
    return ctypes.CDLL(str(library))


def test_words_are_written_and_waited_for_on_the_stream(driver: Any) -> None:
    word = ctypes.c_uint32(0)
    address = ctypes.addressof(word)
    write(STREAM, address, 2**32 + 5)
    assert word.value == 5
    wait(STREAM, address, 6)
    assert ctypes.c_uint.in_dll(driver, "waited").value == 6
    assert ctypes.c_uint64.in_dll(driver, "waited_at").value == address
    with pytest.raises(card_memory.CardMemoryError, match="cuStreamWaitValue32_v2 failed with error 1"):
        wait(SimpleNamespace(cuda_stream=1), address, 6)


def test_a_gate_opens_when_its_block_ends_however_it_ends(driver: Any) -> None:
    gate = Gate()
    for number in (1, 2):
        with contextlib.suppress(KeyError), gate.closed(STREAM):
            assert ctypes.c_uint.in_dll(driver, "waited").value == number
            assert gate._words[0] == number - 1
            raise KeyError
        assert gate._words[0] == number
    gate.close()
    assert ctypes.c_int.in_dll(driver, "registered").value == 0


def test_a_gate_behind_which_the_host_waits_opens_by_itself(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(card_words, "LONGEST_CLOSED_SECONDS", 0.02)
    monkeypatch.setattr(card_words, "WATCH_SECONDS", 0.01)
    gate = Gate()
    with gate.closed(STREAM):
        deadline = time.monotonic() + 10.0
        while gate._words[0] == 0 and time.monotonic() < deadline:
            time.sleep(0.005)
        assert gate._words[0] == 1
    gate.close()


@pytest.mark.skipif(not HEADERS.exists(), reason="no cuda.h")
def test_numbers_are_those_of_the_header(tmp_path: Path) -> None:
    source, program = tmp_path / "numbers.c", tmp_path / "numbers"
    source.write_text(
        '#include <cuda.h>\n#include <stdio.h>\nint main(void) { printf("%d %d %d", CU_STREAM_WAIT_VALUE_GEQ, '
        "CU_STREAM_WRITE_VALUE_DEFAULT, CU_MEMHOSTREGISTER_DEVICEMAP); }\n"
    )
    subprocess.run(["gcc", f"-I{HEADERS.parent}", "-o", program, source], check=True)
    found = [int(word) for word in subprocess.check_output([program], text=True).split()]
    assert found == [card_words.AT_LEAST, card_words.PLAIN, card_words.MAPPED]


def test_memory_for_results_is_handed_out_and_taken_back() -> None:
    room = Room(UNIT + 4096, 6 * UNIT)
    one, two, three = room.take(10), room.take(UNIT + 1), room.take(UNIT)
    assert (one, two, three) == (2 * UNIT, 3 * UNIT, 5 * UNIT)
    assert room.take(2 * UNIT) is None
    room.give_back(two or 0)
    room.give_back(one or 0)
    room.give_back(one or 0)  # once is enough
    assert room.take(UNIT) == one
    assert room.take(UNIT) == two  # a larger part serves too
    assert room.take(2 * UNIT) is None


def test_memory_for_results_is_freed_although_torchs_allocator_keeps_its_functions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Memory:
        address, size, device = 4 * UNIT, 4 * UNIT, 0

    given: list[int] = []
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: STREAM)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(torch._C, "_cuda_customAllocator", lambda *places: given.extend(places), raising=False)
    monkeypatch.setattr(torch.cuda, "MemPool", lambda allocator: SimpleNamespace(id=(1, 0)))
    monkeypatch.setattr(torch, "zeros", lambda *size, device: None)
    monkeypatch.setattr(card_queue, "Pool", lambda device, handle: None)
    memory = Memory()
    queue = CardQueue(memory, 2, costs=False)  # type: ignore[arg-type]
    alive = weakref.ref(memory)
    queue.close()
    del queue, memory
    gc.collect()
    assert alive() is None
    take, give_back = (kind(place) for kind, place in zip((card_queue._ALLOCATE, card_queue._FREE), given, strict=True))
    place = take(10, 0, None)
    assert place == 5 * UNIT
    give_back(place, 10, 0, None)
    assert take(10, 0, None) == place


class Pending:
    """An event that comes once the last word has been written."""

    def __init__(self, word: Any, value: int) -> None:
        self.word, self.value = word, value

    def query(self) -> bool:
        return int(self.word.value) >= self.value

    def synchronize(self) -> None:
        assert self.query()


@pytest.fixture
def side(driver: Any) -> Any:
    memory = (ctypes.c_uint32 * (WORDS_BYTES // 4))()
    asked: list[Any] = []
    remote = SimpleNamespace(ask=lambda request, **_: asked.append(request), running=True)
    made = CardSide(remote, STREAM)  # type: ignore[arg-type]
    there = SimpleNamespace(address=ctypes.addressof(memory), size=2 * WORDS_BYTES, device=0)
    made._pool = SimpleNamespace(memory=there)  # type: ignore[assignment]
    return SimpleNamespace(side=made, asked=asked, end=ctypes.c_uint32.from_buffer(memory, END),
                           start=ctypes.c_uint32.from_buffer(memory, START), kept=memory)  # fmt: skip


def test_an_order_is_queued_then_started(side: Any) -> None:
    side.side.queue([3, 4])
    assert side.asked == [{"do": "queue", "keys": [3, 4], "value": 1, "ahead": 2}]
    assert side.start.value == 0
    side.side.start(STREAM)
    assert side.start.value == 1
    side.end.value = 1
    side.side.await_end(Pending(side.end, 1))
    side.side.queue([3])
    assert side.asked[-1]["value"] == 2


@pytest.mark.parametrize("trusted", [True, False])
def test_the_rivals_process_alone_has_graphs_that_tell_costs(
    trusted: bool, side: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(card_side, "Pool", lambda size, device: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    asked: list[Any] = []
    side.side.remote.ask, side.side.remote.trusted = lambda request, _: asked.append(request), trusted
    side.side._pool = None
    side.side.open(1 << 20, 0, 2)
    assert asked == [{"do": "pool", "pools": 2, "costs": trusted}]


def test_a_queue_that_fails_leaves_nothing_waiting(side: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(request: Any, **_: Any) -> None:
        if request["do"] == "wait":
            raise CandidateError("its process died of SIGSEGV")

    monkeypatch.setattr(card_side, "PATIENCE_SECONDS", 0.01)
    side.side.remote.ask = fails
    side.side.queue([1])
    side.side.start(STREAM)
    with pytest.raises(CandidateError, match="SIGSEGV"):
        side.side.await_end(Pending(side.end, 1))
    assert side.end.value == 1


def test_a_queue_without_its_last_word_is_a_failure(side: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(card_side, "PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr(card_side, "GRACE_SECONDS", 0.02)
    side.side.queue([1])
    side.side.start(STREAM)
    with pytest.raises(CandidateError, match="did not write its last word"):
        side.side.await_end(Pending(side.end, 1))
    assert side.end.value == 1


def test_a_result_outside_of_its_memory_is_refused(side: Any) -> None:
    told = {"shape": [4, 4], "dtype": "float32", "stride": [4, 1]}
    form = torch.empty(4, 4)
    for place in (0, WORDS_BYTES - 1, 2 * WORDS_BYTES - 63, 1 << 50):
        with pytest.raises(FormError, match="not lie in the memory for results"):
            side.side._results({"at": [place], "tensors": [told]}, 1, form)
    with pytest.raises(ValueError, match="at has 1 addresses; 2 calls"):
        side.side._results({"at": [WORDS_BYTES], "tensors": [told]}, 2, form)
    with pytest.raises(FormError, match=r"torch.float32\(4, 4\); before it was torch.float32\(4, 5\)"):
        side.side._results({"at": [WORDS_BYTES], "tensors": [told]}, 1, torch.empty(4, 5))
    lying = told | {"stride": [1 << 40, 1]}
    with pytest.raises(FormError, match="not lie in the memory for results"):
        side.side._results({"at": [WORDS_BYTES], "tensors": [lying]}, 1, form)


def test_the_graphs_of_a_sample_are_ordered_together_and_their_results_lie_where_it_is_said(side: Any) -> None:
    asked: list[Any] = []
    tensors = [
        {"shape": [2, 3], "dtype": "float16", "stride": [3, 1]}, {"shape": [], "dtype": "int64", "stride": []},
    ]  # fmt: skip

    def ask_each(requests: Any) -> Any:
        asked.append([(one["do"], one.get("sets")) for one in requests])
        for one in requests:
            at = [WORDS_BYTES + 64 * place + apart for place in one.get("sets", ()) for apart in (0, 32)]
            yield {"at": at, "tensors": tensors}

    side.side.remote.ask_each, side.side.remote.told = ask_each, lambda read, said: read(said)
    form = {"loss": torch.zeros((), dtype=torch.int64), "a": torch.zeros(2, 3, dtype=torch.float16), "scale": 2}
    keys, hollow, memory = side.side.capture(1, [[0, 1], [4]], form)
    assert asked == [[("capture", [0, 1]), ("capture", [4]), ("drop", None)]]
    assert len(set(keys)) == 2
    begin = ctypes.addressof(side.kept) + WORDS_BYTES
    assert [[one.address - begin for one in call] for call in memory] == [[0, 32], [64, 96], [256, 288]]
    assert [(one.shape, one.stride, one.kind) for one in memory[2]] == [
        ((2, 3), (3, 1), torch.float16), ((), (), torch.int64),
    ]  # fmt: skip
    assert [one.shape for one in tensors_in(hollow)] == [(0,), (0,)]
    assert side.side.capture(0, [[7]], form)[0][0] not in keys
    for asked_for, error, words in (
        (torch.zeros(2, 2), FormError, r"torch.float16\(2, 3\); before it was torch.float32\(2, 2\)"),
        ((torch.zeros(2, 3, dtype=torch.float16), torch.tensor(0), torch.tensor(0)), FormError, "fewer tensors"),
    ):
        with pytest.raises(error, match=words):
            side.side.capture(0, [[0]], asked_for)


def test_a_card_that_is_taken_before_a_sample_costs_the_sample_that_time() -> None:
    class Event:
        def __init__(self, milliseconds: float) -> None:
            self.milliseconds = milliseconds

        def elapsed_time(self, _: Any) -> float:
            return self.milliseconds

    clock = IsolatedCardClock.__new__(IsolatedCardClock)
    clock._least_read = None
    delays = [clock._delay(Event(took), None) for took in (0.050, 0.048, 0.350, 0.090, 0.048)]
    assert delays == pytest.approx([0.0, 0.0, 302e-6, 0.0, 0.0])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        ({"clock": "host"}, "the host clock is asked for"),
        ({"written": object()}, "write arguments"),
        ({"reset": object()}, "prepares state"),
        ({"rival": None}, "cannot be sent"),
        ({"opens": False}, "do not open the card's memory"),
    ],
)
def test_cases_that_the_events_do_not_time_say_why(changes: dict[str, Any], words: str | None) -> None:
    given = {"clock": "auto", "written": None, "reset": None, "rival": True, "opens": True} | changes
    sides = SimpleNamespace(written=given["written"], reset=given["reset"], rival=torch.mm)
    remote = SimpleNamespace(opens_card_memory=given["opens"])
    rival = SimpleNamespace(opens_card_memory=True) if given["rival"] else None
    found = why_not(sides, SimpleNamespace(clock=given["clock"]), remote, rival)  # type: ignore[arg-type]
    assert found is None if words is None else words in (found or "")


def test_both_processes_capture_at_the_same_time_each_in_its_order() -> None:
    clock, order, meet = IsolatedCardClock.__new__(IsolatedCardClock), [], threading.Barrier(2, timeout=20.0)
    clock._named, clock._seconds = None, 0.0
    clock._run_once = lambda side: order.append((side, "run", 0)) or 0.5  # type: ignore[func-returns-value]

    def captured(side: Any, pieces: Any, place: int, *, nodes: bool) -> Any:
        meet.wait()  # neither goes on before the other is there
        order.append((side, pieces, place))
        if side == "candidate" and pieces == 2:
            raise CaptureError(side, RuntimeError("no graph"))
        return (side, pieces, place)

    clock._captured = captured  # type: ignore[method-assign]
    tracks = [SimpleNamespace(pieces=number, captures={}) for number in range(3)]
    planned: Any = [(track, side, place) for track in tracks[:2] for place in PLACES for side in SIDES]
    clock._capture_all(planned)
    for side in SIDES:
        captures = [(side, n, place) for n in (0, 1) for place in PLACES]
        assert [one for one in order if one[0] == side] == [*captures, (side, "run", 0)]
    assert clock._seconds == 1.0
    assert tracks[1].captures["rival", 1] == [("rival", 1, 1)]
    with pytest.raises(CaptureError, match="no graph"):
        clock._capture_all([(tracks[2], side, 0) for side in SIDES])


@pytest.mark.parametrize(("seconds", "launches"), [(4e-6, 200), (400e-6, 2)], ids=["short", "long"])
def test_calls_that_are_tried_are_captured_while_others_use_the_card(
    seconds: float, launches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = IsolatedCardClock.__new__(IsolatedCardClock)
    clock._pools, clock._sets, clock._trials, clock._tracks = ["one", "two"], [None] * 20, {}, []  # type: ignore[list-item]
    clock.launches, clock._opened, clock._most_calls, clock._event_cost = 0, 1000, 1000, 3e-4
    clock.sides = SimpleNamespace(written=None, calls_per_reset=None)  # type: ignore[assignment]
    captured: list[Any] = []
    replayed: list[Any] = []
    reset: list[Any] = []

    def capture(side: Any, pieces: list[list[int]], place: int, *, nodes: bool) -> Any:
        captured.append((side, place, pieces))
        graph = SimpleNamespace(calls=len(pieces[0]), replay=lambda: None)
        graph.reset = lambda: reset.append(graph)
        return SimpleNamespace(graphs=[graph])

    def replay(graph: Any, times: int) -> float:
        replayed.append(graph.calls)
        return clock._event_cost + graph.calls * seconds

    clock._captured, clock._replayed = capture, replay  # type: ignore[method-assign]
    clock._load()
    tried = [(side, place, [sets]) for place, side in enumerate(SIDES) for sets in ([0], list(range(8)))]
    assert captured == tried
    clock._choose_launches()
    assert clock.launches == launches
    assert captured == tried
    assert set(replayed) == ({1, 8} if seconds < 1e-4 else {1})
    assert len(reset) == 4
    assert not clock._trials
    clock._load()  # of a further set-up, which knows its calls
    assert captured[4:] == [(side, place, [[0]]) for place, side in enumerate(SIDES)]
    assert len(reset) == 6


def test_all_graphs_run_once_and_none_waits_for_a_word() -> None:
    """A stream takes so many kernels behind a word that has not come, and whoever enqueues more waits."""
    clock = IsolatedCardClock.__new__(IsolatedCardClock)
    asked: dict[str, list[Any]] = {side: [] for side in SIDES}
    clock._workers = {
        side: CardSide(SimpleNamespace(ask=asked[side].append, running=True), STREAM)  # type: ignore[arg-type]
        for side in SIDES
    }
    graphs = [SimpleNamespace(key=key) for key in range(40)]
    captures = {(side, 0): [SimpleNamespace(graphs=graphs)] for side in SIDES}
    clock._tracks = [SimpleNamespace(captures=captures)]  # type: ignore[list-item]
    assert all(clock._run_once(side) > 0.0 for side in SIDES)
    assert asked == {side: [{"do": "touch", "keys": list(range(40))}] for side in SIDES}


def full_above(side: Any, room: int) -> None:
    """Let the process of that side wait for room in its stream if more than `room` graphs are to be there ahead."""

    def ask(request: Any, *, late: Any = None) -> None:
        side.asked.append((request["do"], request.get("ahead")))
        if request["do"] == "queue" and request["ahead"] > room:
            assert side.start.value < request["value"]
            late[1]()
            assert side.start.value == request["value"]

    side.side.remote.ask = ask


def test_a_process_whose_stream_is_full_is_let_go_and_enqueues_fewer_graphs_ahead(side: Any) -> None:
    full_above(side, 3)
    side.side.queue(list(range(12)), tried=False)
    assert side.asked == [("queue", 12), ("wait", None), ("queue", 6), ("wait", None), ("queue", 3)]
    side.asked.clear()
    side.side.queue(list(range(12)))
    side.side.queue([1, 2])
    assert side.asked == [("queue", 3), ("queue", 2)]


def test_calls_with_more_kernels_than_a_stream_takes_are_timed_otherwise(side: Any) -> None:
    full_above(side, 0)
    clock = IsolatedCardClock.__new__(IsolatedCardClock)
    clock._workers = {"candidate": side.side}  # type: ignore[dict-item]
    with pytest.raises(CaptureError, match="more kernels than a stream takes"):
        clock._enqueue_graphs("candidate", [1, 2], None, None, None, tried=False)
    assert side.asked == [("queue", 2), ("wait", None), ("queue", 1), ("wait", None)]


@pytest.mark.parametrize("ahead", [1, 2, 3])
def test_a_process_says_that_graphs_are_there_before_it_enqueues_the_others(
    ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[Any] = []
    queue = CardQueue.__new__(CardQueue)
    queue.stream, queue._memory = STREAM, SimpleNamespace(address=0)  # type: ignore[assignment]
    queue._graphs = {key: SimpleNamespace(replay=lambda key=key: done.append(key)) for key in range(3)}
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    for name in ("wait", "write"):
        monkeypatch.setattr(card_queue, name, lambda stream, address, value, name=name: done.append(name))
    queue.queue([0, 1, 2], 7, ahead, lambda: done.append("told"))
    assert (
        done
        == {
            1: ["wait", 0, "told", 1, 2, "write"],
            2: ["wait", 0, 1, "told", 2, "write"],
            3: ["wait", 0, 1, 2, "write", "told"],
        }[ahead]
    )


def test_what_fails_behind_a_receipt_is_told_by_the_next_one() -> None:
    class Channel:
        orders: ClassVar[list[Any]] = [
            {"do": "queue", "keys": [1, 2], "value": 1, "ahead": 1}, {"do": "wait"}, {"do": "wait"},
        ]  # fmt: skip
        receipts: ClassVar[list[Any]] = []

        def introduce(self) -> None:
            pass

        def next_order(self) -> Any:
            if not self.orders:
                raise EOFError
            return self.orders.pop(0), []

        def reply(self, receipt: Any) -> None:
            self.receipts.append(receipt)

    class Queue:
        def queue(self, keys: Any, value: int, ahead: int, told: Any) -> None:
            told()
            raise RuntimeError("no more graphs")

    ours, _theirs = socket.socketpair()
    worker = Worker(ours.detach())
    worker.channel.socket.close()
    worker.channel, worker.queue = Channel(), Queue()  # type: ignore[assignment]
    worker.serve()
    assert [one.get("sentence", one) for one in Channel.receipts] == [{"done": True}, "no more graphs", {"done": True}]


@pytest.mark.gpu
def test_calls_of_many_kernels_are_timed_and_block_nothing() -> None:
    """All graphs of a set-up have thousands of kernels, and one call of the second candidate has as many."""
    for candidate in (kernels.product_of_many_kernels, kernels.product_of_thousands_of_kernels):
        begin = time.monotonic()
        one = isolated(candidate, Gemm(64, 64, 64, "float16"), against="cublas", at_least=1e-6)
        assert one.verdict is Verdict.MET, one.sentence
        assert time.monotonic() - begin < 15.0


# -- on a card ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[IsolatedCardClock]:
    """The clocks that a test makes."""
    made: list[IsolatedCardClock] = []
    genuine = IsolatedCardClock.setup

    def setup(self: IsolatedCardClock) -> None:
        made.append(self)
        genuine(self)

    monkeypatch.setattr(IsolatedCardClock, "setup", setup)
    return made


def isolated(candidate: Any, problem: Any, **options: Any) -> Comparison:
    settings = Settings(device="cuda", seconds=0.3, allow_shared=True)
    return compare_isolated(Ask(problem, candidate, settings=settings, **options), 20.0)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("candidate", "problem", "against"),
    [
        (kernels.product, Gemm(512, 512, 512, "float16"), "cublas"),
        (kernels.product, Gemm(2048, 2048, 2048, "float16"), "cublas"),
        (kernels.product, Gemm(6144, 6144, 6144, "float16"), "cublas"),
        (torch.nn.functional.scaled_dot_product_attention, Attention(2, 8, 2048, 64, dtype="float16"), "sdpa"),
    ],
    ids=["4us", "25us", "700us", "attention"],
)
def test_the_library_against_itself_is_as_fast(candidate: Any, problem: Any, against: str, seen: list[Any]) -> None:
    one = isolated(candidate, problem, against=against, at_least=0.9)
    assert one.verdict is Verdict.MET, one.sentence
    assert card_clock.NOTE in (one.clock_note or ""), one.sentence
    assert one.speed == pytest.approx(1.0, abs=0.02), one.sentence
    assert seen


@pytest.mark.gpu
def test_a_set_up_frees_what_the_one_before_had() -> None:
    function = torch.nn.functional.scaled_dot_product_attention
    settings, problem = Settings(device="cuda", seconds=0.3), Attention(2, 8, 512, 64, dtype="float16")
    both = [Remote(function, device="cuda", seconds=60.0, room=1 << 34, trusted=trusted) for trusted in (False, True)]
    generator = torch.Generator("cuda").manual_seed(1)
    clock = IsolatedCardClock(Sides(both[0], function, lambda: problem.inputs(generator)), both[0], settings, both[1])
    free = []
    for _ in range(6):
        clock.setup()
        clock.rounds(2)
        free.append(torch.cuda.mem_get_info()[0])
    clock.close()
    for one in both:
        one.close()
    assert min(free[1:]) > free[0] - (1 << 28), free


@pytest.mark.gpu
@pytest.mark.parametrize(
    "candidate",
    [
        kernels.computes_behind_its_last_word,
        kernels.computes_before_its_first_word,
        kernels.computes_nothing_on_the_card,
    ],
)
def test_results_that_are_not_there_when_the_parent_copies_them_are_wrong(candidate: Any) -> None:
    one = isolated(candidate, Gemm(512, 512, 512, "float16"), against="cublas", at_least=2.0)
    assert one.verdict is Verdict.WRONG or (one.speed or 0.0) < 1.1, one.sentence


@pytest.mark.gpu
def test_a_candidate_that_keeps_a_buffer_is_timed_by_the_host() -> None:
    one = isolated(kernels.into_one_buffer_of_the_card, Gemm(512, 512, 512, "float16"), against="cublas", at_least=1e-3)
    assert one.verdict is Verdict.MET, one.sentence
    assert "not timed by events on the card" in (one.clock_note or "")
