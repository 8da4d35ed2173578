"""Candidates that another process can import: honest ones, and some that take their process with them."""

from __future__ import annotations

import dataclasses
import mmap
import os
import signal
import socket
import threading
import time
from typing import Any

import torch

from perfsuite.oracle import Judgement

HOARD: list[torch.Tensor] = []


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Honest."""
    return a @ b


def product_of_many_kernels(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Honest, with seven kernels."""
    return sum_of_copies(a @ b, 6)


def product_of_thousands_of_kernels(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Honest, with more kernels in a call than a stream takes before the first one runs."""
    return sum_of_copies(a @ b, 6000)


def sum_of_copies(given: torch.Tensor, kernels: int) -> torch.Tensor:
    """The tensor as it is, after so many kernels."""
    for _ in range(kernels):
        given = given * 1.0
    return given


def product_on_one_thread(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Honest, and raises in a worker in which torch has several threads."""
    if torch.get_num_threads() != 1 and str(os.getpid()) != os.environ["TEST_OF_THREADS"]:
        raise ValueError(f"{torch.get_num_threads()} threads")
    return a @ b


def half_right(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The lower half is left as zeros."""
    out = a @ b
    out[a.shape[0] // 2 :] = 0
    return out


def segfaults(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """As an access outside its memory would."""
    os.kill(os.getpid(), signal.SIGSEGV)
    return a @ b


def hangs(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Never returns."""
    while True:
        time.sleep(1)


def eats_memory(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Keeps all that it can get."""
    while True:
        HOARD.append(torch.empty(1 << 28))


def leaves(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Ends its process as if all were well."""
    os._exit(0)


def raises(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Fails by name."""
    raise NotImplementedError("m is odd")


def zeroes_its_inputs(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """So that zeros would be right."""
    b.zero_()
    return a @ b


class Lazy(torch.Tensor):
    """No plain tensor."""


def lazy(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Returns one."""
    return (a @ b).as_subclass(Lazy)


def stops_the_clock(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Replaces, in its own process, the timer and the judge; and takes its time."""
    import sys

    time.perf_counter_ns = lambda: 0  # type: ignore[assignment]
    sys.modules["perfsuite.oracle.form"].check_kind = lambda *args: None  # type: ignore[attr-defined]
    for module in list(sys.modules.values()):
        if hasattr(module, "judge"):
            module.judge = lambda *args: Judgement(True, None, "right")  # type: ignore[attr-defined]
    time.sleep(2e-3)
    return a @ b


@dataclasses.dataclass
class Parts:
    """A result, and an argument, in parts."""

    product: Any
    rest: Any


def in_parts(both: Parts) -> Parts:
    """Honest."""
    return Parts(both.product @ both.rest["b"], {"sum": both.product.sum(), "count": 3, "view": both.rest["b"].t()})


def in_wrong_parts(both: Parts) -> Parts:
    """One key is another."""
    found = in_parts(both)
    found.rest["total"] = found.rest.pop("sum")
    return found


def above_zero(a: torch.Tensor) -> torch.Tensor:
    """Of a size that depends on data."""
    return a[a > 0]


def fails_inside(a: torch.Tensor) -> torch.Tensor:
    """Raises in a line of its code."""
    return a.view(7, 9)


def _forge(receipt: bytes) -> None:
    """Send the parent a receipt of the candidate's own, over the worker's socket."""
    import gc

    from perfsuite.isolate.channel import Channel

    channel = next(one for one in gc.get_objects() if type(one) is Channel)
    channel.socket.sendall(len(receipt).to_bytes(8, "little") + receipt)


def describes_a_terabyte(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """In many tensors, each of which would do."""
    one = b'{"shape": [268435456], "dtype": "float32", "stride": [1]}'
    _forge(b'{"tensors": [' + b", ".join([one] * 1024) + b'], "single": false}')
    return a @ b


def nests_deeply(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A short receipt that no parser of recursive descent can read."""
    _forge(b"[" * (1 << 20))
    return a @ b


def forgets_a_field(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Reports a failure without a sentence."""
    _forge(b'{"error": 1}')
    return a @ b


def shortens_the_memory(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The parent would die of SIGBUS at its next look at the arguments."""
    for name in os.listdir("/proc/self/fd"):
        if "memfd:perfsuite" in os.readlink(f"/proc/self/fd/{name}"):
            os.ftruncate(int(name), 0)
    return a @ b


def writes_much(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Fills the log, then dies."""
    os.write(2, b"the first line\n")
    while True:
        os.write(2, b"x" * (1 << 20))


def says_much(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """With half of a surrogate pair, which no file can hold."""
    raise ValueError("\ud800" + "x" * (1 << 19))


def dies_of_a_real_time_signal(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Its number has no name."""
    os.kill(os.getpid(), 40)
    return a @ b


def tries_to_get_out(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Raises if something of what a sandbox forbids succeeds. A colon parts the test's process from its port."""
    import socket

    parent, port = map(int, os.environ["TEST_OF_THE_SANDBOX"].split(":"))
    attempts = {
        "a signal to the parent": lambda: os.kill(parent, 0),
        "a look at the parent": lambda: open(f"/proc/{parent}/environ").close(),
        "a connection": lambda: socket.create_connection(("127.0.0.1", port), timeout=1.0).close(),
        "a file": lambda: open(f"{__file__}.changed", "w").close(),
        "the memory of the process that forked it": lambda: open(f"/proc/{os.getppid()}/mem", "r+b").close(),
    }
    for what, attempt in attempts.items():
        try:
            attempt()
        except OSError:
            continue
        raise RuntimeError(f"{what} was possible")
    with open(f"{os.environ['TMPDIR']}/own", "w") as own:
        own.write("a cache")
    return a @ b


def leaves_a_child(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Starts a process in a session of its own, which would outlive the run."""
    if os.fork() == 0:
        os.setsid()
        time.sleep(600)
        os._exit(0)
    return a @ b


def shadows(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Has an attribute that is named as a method of the harness is."""
    return a @ b


shadows.timed = time.sleep  # type: ignore[attr-defined]


def forks_without_end(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Each of its processes starts others, in sessions of their own."""
    while True:
        try:
            if os.fork() == 0:
                os.setsid()
        except OSError:
            time.sleep(0.01)


def starts_some(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Honest: twenty processes at a time, which it waits for."""
    children = []
    for _ in range(20):
        if (child := os.fork()) == 0:
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    return a @ b


BUFFER: list[torch.Tensor] = []
CALLS: list[int] = []


def into_one_buffer(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Honest: returns the same memory at every call."""
    if not BUFFER:
        BUFFER.append(torch.empty(a.shape[0], b.shape[1]))
    return torch.mm(a, b, out=BUFFER[0])


MARK = 12345.0


def doubles(x: torch.Tensor) -> None:
    """Writes its argument, and returns nothing."""
    x.mul_(2.0)[0, 0] = MARK


def doubles_once(x: torch.Tensor) -> None:
    """The same; fails where a call has written before."""
    if x[0, 0] == MARK:
        raise RuntimeError("the argument was not restored")
    x.mul_(2.0)[0, 0] = MARK


def doubles_and_returns(x: torch.Tensor) -> torch.Tensor:
    """Writes its argument, and returns it."""
    x.mul_(2.0)[0, 0] = MARK
    return x


def doubles_and_sums(x: torch.Tensor) -> torch.Tensor:
    """Writes its argument, and returns something else."""
    x.mul_(2.0)[0, 0] = MARK
    return x.sum(-1)


def doubles_a_copy(x: torch.Tensor) -> torch.Tensor:
    """Writes nothing."""
    return x * 2.0


def doubles_later(x: torch.Tensor) -> None:
    """Does its work in the first calls alone."""
    CALLS.append(1)
    if len(CALLS) < 10:
        doubles(x)


def every_other_call(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Computes in half of the timed calls, which begin behind the tenth."""
    CALLS.append(1)
    return BUFFER[0] if len(CALLS) > 10 and len(CALLS) % 2 else into_one_buffer(a, b)


def in_threads_that_join(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Honest: two threads make a half each."""
    out = torch.empty(a.shape[0], b.shape[1])
    half = a.shape[0] // 2
    parts = [(a[:half], out[:half]), (a[half:], out[half:])]
    threads = [threading.Thread(target=torch.mm, args=(rows, b), kwargs={"out": into}) for rows, into in parts]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return out


def leaves_garbage(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Honest: leaves circles, which Python collects now and then."""
    for _ in range(50):
        circle: list[Any] = []
        circle.append(circle)
    return a @ b


BURNERS: list[int] = []


def burns_while_stopped(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Right, but it starts processes in sessions of their own that are busy whenever its own process is stopped."""
    if not BURNERS:
        worker = os.getpid()
        for _ in range(4 * (os.cpu_count() or 1)):
            BURNERS.append(os.fork())
            if BURNERS[-1] == 0:
                os.setsid()
                _burn_while_stopped(worker)
    return a @ b


def _burn_while_stopped(worker: int) -> None:
    """Never returns; ends with that process."""
    state = ""
    while state != "Z":
        try:
            with open(f"/proc/{worker}/stat") as stat:
                state = stat.read().rpartition(")")[2].split()[0]
        except OSError:
            break
        if state != "T":
            time.sleep(2e-4)
    os._exit(0)


def says_done_first(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Right, but its worker sends the receipt before it makes the calls."""
    _replace_run(_run_behind_the_receipt)
    return a @ b


def computes_in_a_thread(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Right, but another thread of its worker makes the calls, and the receipt does not wait for it."""
    _replace_run(_run_in_a_thread)
    return a @ b


def computes_in_a_helper(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Right, but a process of its own makes the calls, into memory that both share, and no receipt waits for it."""
    _replace_run(_run_in_a_helper)
    return a @ b


def computes_ahead(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Right, but behind each receipt its worker makes the calls that will be asked for next."""
    _replace_run(_run_ahead)
    return a @ b


def computes_ahead_and_looks(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The same for a dozen samples, and it computes again what has got other values since."""
    _replace_run(_run_ahead_and_look)
    return a @ b


def computes_in_bunches(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Right, but it makes the calls of a dozen samples in the time of one. It looks for other values too."""
    _replace_run(_run_in_bunches)
    return a @ b


def computes_ahead_in_a_thread(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Right, but another thread of its worker always makes the calls that will be asked for. It looks too."""
    _replace_run(_run_beside_a_thread)
    return a @ b


def computes_ahead_in_a_helper(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Right, but a process of its own makes the calls that will be asked for. It looks too."""
    _replace_run(_run_beside_a_helper)
    return a @ b


def fills_pages_when_they_are_read(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Right, but in timed calls it returns memory that nobody may read."""
    _replace_run(_run_nothing)
    return a @ b


def _replace_run(run: Any) -> None:
    from perfsuite.isolate.worker import Worker

    if Worker.do_run is not run:
        Worker.do_run = run  # type: ignore[method-assign]


def _promise(worker: Any, results: list[torch.Tensor]) -> None:
    """Send the receipt of calls with these results."""
    like = results[-1]
    told = {"shape": list(like.shape), "dtype": str(like.dtype)[6:], "stride": list(like.stride())}
    worker.channel.reply({"at": [one.data_ptr() for one in results], "tensors": [told]})


def _asked_for(worker: Any, start: int, calls: int) -> list[tuple[Any, ...]]:
    return [worker.sets[(start + call) % len(worker.sets)].args for call in range(calls)]


def _compute(work: list[tuple[Any, ...]], into: list[torch.Tensor]) -> None:
    for (a, b), result in zip(work, into, strict=True):
        torch.mm(a, b, out=result)


def _empty(work: list[tuple[Any, ...]]) -> list[torch.Tensor]:
    return [torch.empty(a.shape[0], b.shape[1]) for a, b in work]


def _run_behind_the_receipt(worker: Any, start: int, calls: int) -> None:
    work = _asked_for(worker, start, calls)
    worker.held = _empty(work)
    _promise(worker, worker.held)
    _compute(work, worker.held)


def _run_in_a_thread(worker: Any, start: int, calls: int) -> None:
    work = _asked_for(worker, start, calls)
    worker.held = _empty(work)
    threading.Thread(target=_compute, args=(work, worker.held)).start()
    _promise(worker, worker.held)


def _run_in_a_helper(worker: Any, start: int, calls: int) -> None:
    work = _asked_for(worker, start, calls)
    if not hasattr(worker, "shared"):
        shape = (len(worker.sets), *_empty(work[:1])[0].shape)
        size = 4 * int(torch.Size(shape).numel())
        worker.shared = torch.frombuffer(mmap.mmap(-1, size), dtype=torch.float32).view(shape)
        worker.ask, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            os.setsid()
            worker.ask.close()
            while order := theirs.recv(64):
                first, count = map(int, order.split())
                _compute(_asked_for(worker, first, count), list(worker.shared[:count]))
            os._exit(0)
        theirs.close()
    worker.ask.send(f"{start} {calls}".encode())
    _promise(worker, list(worker.shared[:calls]))


def _run_ahead(worker: Any, start: int, calls: int) -> None:
    worker.done = getattr(worker, "done", {})
    worker.held = [worker.done.pop((start + call) % len(worker.sets), None) for call in range(calls)]
    for call, (a, b) in enumerate(_asked_for(worker, start, calls)):
        if worker.held[call] is None:
            worker.held[call] = a @ b
    _promise(worker, worker.held)
    for call, (a, b) in enumerate(_asked_for(worker, start + calls, calls)):
        worker.done[(start + calls + call) % len(worker.sets)] = a @ b


AHEAD = 12
"""Samples."""


def _seen(a: torch.Tensor, b: torch.Tensor) -> tuple[float, ...]:
    """Enough of the values to know that they are others."""
    return float(a[0, 0]), float(a[-1, -1]), float(b[0, 0]), float(b[-1, -1])


def _work_ahead(worker: Any, start: int, calls: int) -> None:
    for call, (a, b) in enumerate(_asked_for(worker, start, calls)):
        place = (start + call) % len(worker.sets)
        seen = _seen(a, b)
        if worker.done.get(place, (None,))[0] != seen:
            worker.done[place] = seen, a @ b


def _take(worker: Any, start: int, calls: int) -> list[torch.Tensor]:
    worker.done = getattr(worker, "done", {})
    _work_ahead(worker, start, calls)
    return [worker.done.pop((start + call) % len(worker.sets))[1] for call in range(calls)]


def _run_ahead_and_look(worker: Any, start: int, calls: int) -> None:
    worker.held = _take(worker, start, calls)
    _promise(worker, worker.held)
    _work_ahead(worker, start + calls, min(AHEAD * calls, len(worker.sets) - calls))


def _run_in_bunches(worker: Any, start: int, calls: int) -> None:
    CALLS.append(1)
    worker.held = _take(worker, start, calls)
    if len(CALLS) % AHEAD == 0:
        _work_ahead(worker, start + calls, min(AHEAD * calls, len(worker.sets) - calls))
    _promise(worker, worker.held)


def _run_beside_a_thread(worker: Any, start: int, calls: int) -> None:
    worker.next = start + calls
    worker.held = _take(worker, start, calls)
    if not hasattr(worker, "thread"):
        worker.thread = threading.Thread(target=_always_ahead, args=(worker, calls), daemon=True)
        worker.thread.start()
    _promise(worker, worker.held)


def _always_ahead(worker: Any, calls: int) -> None:
    while True:
        with torch.no_grad():
            _work_ahead(worker, worker.next, min(AHEAD * calls, len(worker.sets) - calls))


def _run_beside_a_helper(worker: Any, start: int, calls: int) -> None:
    if not hasattr(worker, "shared"):
        a, b = worker.sets[0].args
        each = a.shape[0] * b.shape[1]
        worker.shared = torch.frombuffer(mmap.mmap(-1, 4 * len(worker.sets) * (each + 4)), dtype=torch.float32)
        worker.shared = worker.shared.view(len(worker.sets), each + 4)
        worker.ask = torch.frombuffer(mmap.mmap(-1, 16), dtype=torch.int64)
        if os.fork() == 0:
            os.setsid()
            while True:
                for call in range(min(AHEAD * calls, len(worker.sets) - calls)):
                    place = (int(worker.ask[0]) + call) % len(worker.sets)
                    a, b = worker.sets[place].args
                    seen = torch.tensor(_seen(a, b))
                    if not torch.equal(worker.shared[place, each:], seen):
                        torch.mm(a, b, out=worker.shared[place, :each].view(a.shape[0], -1))
                        worker.shared[place, each:] = seen
    worker.ask[0] = start + calls
    worker.held = []
    for call, (a, b) in enumerate(_asked_for(worker, start, calls)):
        row = worker.shared[(start + call) % len(worker.sets)]
        known = torch.equal(row[-4:], torch.tensor(_seen(a, b)))
        worker.held.append(row[:-4].view(a.shape[0], -1) if known else a @ b)
    _promise(worker, worker.held)


def _run_nothing(worker: Any, start: int, calls: int) -> None:
    work = _asked_for(worker, start, calls)
    worker.held = _empty(work)
    told = {"shape": list(worker.held[-1].shape), "dtype": "float32", "stride": list(worker.held[-1].stride())}
    worker.channel.reply({"at": [4096] * calls, "tensors": [told]})


def computes_behind_its_last_word(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Right, but on a card its queue writes its last word before the work."""
    _replace_queue("wait", "write", "replay")
    return a @ b


def computes_before_its_first_word(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Right, but on a card its queue does the work before it may begin."""
    _replace_queue("replay", "wait", "write")
    return a @ b


def computes_nothing_on_the_card(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Right, but on a card its queue replays nothing."""
    _replace_queue("wait", "write")
    return a @ b


def _replace_queue(*steps: str) -> None:
    """Let the worker's queue consist of these steps, in this order."""
    from perfsuite.isolate import card_queue

    def queue(self: Any, keys: Any, value: int) -> None:
        with torch.cuda.stream(self.stream):
            for step in steps:
                if step == "wait":
                    card_queue.wait(self.stream, self._memory.address + card_queue.START, value)
                elif step == "write":
                    card_queue.write(self.stream, self._memory.address + card_queue.END, value)
                else:
                    for key in keys:
                        self._graphs[key].replay()

    card_queue.CardQueue.queue = queue  # type: ignore[method-assign]


def into_one_buffer_of_the_card(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Honest: returns the same memory at every call."""
    if not BUFFER:
        BUFFER.append(torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device))
    return torch.mm(a, b, out=BUFFER[0])


def leaves_the_buffers_as_they_are(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Nothing is copied into the memory from which the parent takes the result."""
    torch.Tensor.copy_ = lambda self, *_: self  # type: ignore[method-assign]
    return torch.full((a.shape[0], b.shape[1]), 3.0)
