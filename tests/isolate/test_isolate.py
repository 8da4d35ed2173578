"""Candidates in processes of their own: the same verdicts as without, and none that outlives its own case."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

import isolated_kernels as kernels
from beside import company, gains_nothing

from perfsuite.case.ask import Ask
from perfsuite.case.comparison import Comparison
from perfsuite.clock.base import Sides
from perfsuite.clock.host import REUSES
from perfsuite.clock.processor import THREADS_VARIABLES
from perfsuite.isolate import IsolationError, compare_isolated, receipt, sandbox
from perfsuite.isolate.clock import IsolatedClock
from perfsuite.isolate.log import MOST_LOG_BYTES, Log
from perfsuite.isolate.memory import Arena, Opened
from perfsuite.isolate.remote import Remote
from perfsuite.isolate.sizes import result_of_one_size
from perfsuite.outcome import Reason, UnjudgeableError, Verdict
from perfsuite.problems import Attention, Custom, Gemm
from perfsuite.problems.base import Inputs
from perfsuite.problems.written import Written
from perfsuite.settings import Settings

PROBLEM = Gemm(64, 48, 80, "float32", trans_b=True)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small products on one thread, in the workers too."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def isolated(candidate: Callable[..., Any], *, seconds: float = 20.0, **options: Any) -> Comparison:
    settings = Settings(device="cpu", seconds=0.1)
    return compare_isolated(Ask(options.pop("problem", PROBLEM), candidate, settings=settings, **options), seconds)


@pytest.mark.parametrize(
    ("candidate", "against", "verdict"),
    [
        (kernels.doubles, kernels.doubles, Verdict.MET),
        (kernels.doubles, kernels.doubles_and_returns, Verdict.MET),
        (kernels.doubles_and_returns, kernels.doubles, Verdict.MET),
        (kernels.doubles_and_sums, kernels.doubles_and_sums, Verdict.MET),
        (kernels.doubles_and_sums, kernels.doubles, Verdict.WRONG),
        (kernels.doubles, kernels.doubles_and_sums, Verdict.WRONG),
        (kernels.doubles_a_copy, kernels.doubles, Verdict.WRONG),
        (kernels.doubles_later, kernels.doubles, Verdict.WRONG),
    ],
)
def test_what_is_written_and_what_is_returned_beside_it(
    candidate: Callable[..., Any], against: Callable[..., Any], verdict: Verdict
) -> None:
    one = isolated(candidate, problem=Custom((torch.randn(64, 80),), against=against), at_least=1e-3)
    assert one.verdict is verdict, one.sentence


def test_an_honest_candidate_is_checked_and_timed() -> None:
    one = isolated(kernels.product, at_least=1e-3)
    assert (one.verdict, one.reason) == (Verdict.MET, Reason.FAST_ENOUGH), one.sentence
    assert one.candidate == "isolated_kernels.product"
    assert "isolated" in (one.clock_note or "")
    assert one.speed is not None
    assert 0.05 < one.speed < 20 or company()


@pytest.mark.parametrize(
    ("candidate", "verdict", "reason", "words"),
    [
        (kernels.half_right, Verdict.WRONG, Reason.INACCURATE, "relative error"),
        (kernels.segfaults, Verdict.WRONG, Reason.CANDIDATE_FAILED, "died of SIGSEGV"),
        (kernels.leaves, Verdict.WRONG, Reason.CANDIDATE_FAILED, "ended with exit code 0"),
        (kernels.raises, Verdict.WRONG, Reason.CANDIDATE_FAILED, "NotImplementedError: m is odd"),
        (kernels.eats_memory, Verdict.WRONG, Reason.CANDIDATE_FAILED, "out of memory where its rival runs"),
        (kernels.zeroes_its_inputs, Verdict.WRONG, Reason.INPUTS_CHANGED, "argument 1"),
        (kernels.lazy, Verdict.WRONG, Reason.BAD_TYPE, "must be a plain torch.Tensor"),
    ],
)
def test_what_becomes_of_a_worker_is_its_own_cases_verdict(
    candidate: Callable[..., Any], verdict: Verdict, reason: Reason, words: str
) -> None:
    one = isolated(candidate)
    assert (one.verdict, one.reason) == (verdict, reason), one.sentence
    assert words in one.sentence


@pytest.mark.parametrize(
    ("candidate", "words"),
    [
        (kernels.describes_a_terabyte, "sent no valid receipt: a result of 1099511627776 bytes; at most 1073741824"),
        (kernels.nests_deeply, "sent no valid receipt: not JSON"),
        (kernels.forgets_a_field, "sent no valid receipt: error is 1; it must be text"),
        (kernels.shortens_the_memory, "Operation not permitted"),
        (kernels.writes_much, "Operation not permitted"),
        (kernels.says_much, "raised ValueError: ?xxx"),
        (kernels.dies_of_a_real_time_signal, "its process died of signal 40"),
    ],
)
def test_what_a_worker_sends_is_limited(candidate: Callable[..., Any], words: str) -> None:
    one = isolated(candidate)
    assert (one.verdict, one.reason) == (Verdict.WRONG, Reason.CANDIDATE_FAILED), one.sentence
    assert words in one.sentence
    assert len(one.sentence.encode()) < 3000


def test_a_candidate_that_fails_leaves_no_descriptor_open() -> None:
    isolated(kernels.raises, at_least=1e-3)  # with it the nursery starts
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for candidate in (kernels.raises, kernels.segfaults, kernels.describes_a_terabyte, kernels.product):
        isolated(candidate, at_least=1e-3)
        gc.collect()
        assert len(os.listdir("/proc/self/fd")) <= before, candidate


def test_a_log_is_bounded_and_its_first_line_is_shown() -> None:
    log = Log()
    os.write(log.descriptor, b"\n  terminate called\n" + b"y" * (1 << 20))
    os.write(log.descriptor, b"x" * MOST_LOG_BYTES)
    with pytest.raises(PermissionError):
        os.write(log.descriptor, b"x")
    assert log.summary() == "terminate called"
    log.close()


def test_a_hang_is_ended() -> None:
    one = isolated(kernels.hangs, seconds=1.0)
    assert (one.verdict, one.reason) == (Verdict.WRONG, Reason.CANDIDATE_FAILED)
    assert "did not return within 1 s" in one.sentence


def test_a_reused_output_buffer_passes_with_a_warning() -> None:
    one = isolated(kernels.into_one_buffer, at_least=1e-3)
    assert one.verdict is Verdict.MET, one.sentence
    assert REUSES in one.warnings
    other = isolated(kernels.product, at_least=1e-3)
    assert REUSES not in other.warnings


def test_a_reused_output_buffer_that_is_not_filled_in_each_call_is_wrong() -> None:
    one = isolated(kernels.every_other_call, at_least=1e-3)
    assert (one.verdict, one.reason) == (Verdict.WRONG, Reason.INACCURATE), one.sentence
    assert "timed call" in one.sentence


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """Other programs keep the machine busy."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for one in started:
            one.kill()
            one.wait()


IMPOSSIBLE = 20.0
"""A speed that no honest candidate reaches. A late receipt has reached 200,000."""
LATE = [
    kernels.says_done_first,
    kernels.computes_in_a_thread,
    pytest.param(
        kernels.computes_in_a_helper,
        marks=pytest.mark.skipif(sandbox.why_not() is not None, reason="a process outside of the group goes on"),
    ),
]


@pytest.mark.parametrize("candidate", LATE)
def test_results_that_come_after_the_receipt_are_no_results(candidate: Callable[..., Any]) -> None:
    one = isolated(candidate, problem=Gemm(512, 512, 512, "float32"), against="cublas", at_least=IMPOSSIBLE)
    # On a busy machine they may be there when the parent gets to stop the process; then its time has counted.
    gains_nothing(one)


@pytest.mark.parametrize("candidate", LATE)
def test_results_that_come_after_the_receipt_gain_nothing_on_a_busy_machine(candidate: Callable[..., Any]) -> None:
    with busy(4):
        one = isolated(candidate, problem=Gemm(320, 320, 320, "float32"), against="cublas", at_least=IMPOSSIBLE)
    assert one.verdict is not Verdict.MET, one.sentence


def test_results_that_are_made_before_the_order_gain_nothing() -> None:
    problem = Gemm(256, 256, 256, "float32")
    gains_nothing(isolated(kernels.computes_ahead, problem=problem, against="cublas", at_least=2.0))


def test_results_that_cannot_be_read_when_their_time_ends_are_tampering() -> None:
    one = isolated(kernels.fills_pages_when_they_are_read, against="cublas", at_least=1e-3)
    assert (one.verdict, one.reason) == (Verdict.WRONG, Reason.TAMPERED), one.sentence
    assert "not in the memory of its process when its time ends" in one.sentence


def test_replacing_timers_and_judges_in_the_worker_is_of_no_use() -> None:
    one = isolated(kernels.stops_the_clock, at_least=0.5)
    assert one.candidate_seconds is None or one.candidate_seconds > 1.5e-3
    gains_nothing(one)


def test_all_processes_have_the_same_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in THREADS_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TEST_OF_THREADS", str(os.getpid()))
    torch.set_num_threads(2)
    values = torch.randn(64, 64), torch.randn(64, 64)
    problem = Custom(values, against=kernels.product_on_one_thread, label="threads")
    one = isolated(kernels.product_on_one_thread, problem=problem, against=kernels.product_on_one_thread, at_least=1e-3)
    assert one.verdict is Verdict.MET, one.sentence


def test_options_of_the_problem_reach_the_candidate() -> None:
    problem = Attention(1, 4, 33, 16, kv_heads=2, causal=True, scale=0.3, dtype="float32")
    attention = functools.partial(torch.nn.functional.scaled_dot_product_attention, enable_gqa=True)
    functools.update_wrapper(attention, torch.nn.functional.scaled_dot_product_attention)
    assert isolated(attention, problem=problem).verdict is Verdict.MET


def test_a_candidate_that_cannot_be_imported_is_refused_by_name() -> None:
    with pytest.raises(IsolationError, match="a function that can be imported"):
        isolated(lambda a, b: a @ b)


def test_tensors_keep_values_and_strides_through_shared_memory() -> None:
    nest = [torch.randn(3, 5).t(), (torch.arange(4), {"x": torch.randn(2).half()}), 7, torch.randn(1, 4).expand(3, 4)]
    arena = Arena(nest, on_card=False)
    from perfsuite.problems.tensors import map_tensors, same_bits, tensors_in

    placed = map_tensors(nest, arena.place)
    opened = Opened([os.dup(one) for one in arena.descriptors], arena.card).rebuild(arena.describe(placed))
    assert same_bits(opened, nest)
    assert [one.stride() for one in tensors_in(opened)] == [one.stride() for one in tensors_in(nest)]
    next(tensors_in(opened))[0, 0] = 42.0
    assert next(tensors_in(placed))[0, 0] == 42.0
    arena.close()


def both_parts() -> Custom:
    arguments = kernels.Parts(torch.randn(24, 16), {"b": torch.randn(16, 16)})
    return Custom((arguments,), against=kernels.in_parts, label="parts")


def test_nests_cross_the_process_in_both_directions() -> None:
    one = isolated(kernels.in_parts, problem=both_parts(), at_least=1e-3)
    assert one.verdict is Verdict.MET, one.sentence
    assert one.rounds
    other = isolated(kernels.in_wrong_parts, problem=both_parts())
    assert (other.verdict, other.reason) == (Verdict.WRONG, Reason.BAD_TYPE)
    assert '["total"]: tensor' in other.sentence


def test_sizes_that_are_equal_by_chance_on_two_sets_depend_on_data() -> None:
    sets = [Inputs((torch.arange(8.0) < count,)) for count in (3, 5, 5, 3, 5, 3)]
    assert result_of_one_size([sets[0], sets[3], sets[5]], torch.nonzero).shape == (3, 1)
    with pytest.raises(UnjudgeableError, match="size depends on data"):
        result_of_one_size(sets, torch.nonzero)


def test_forms_that_cannot_leave_a_process_are_usage_errors() -> None:
    numbers = Custom((torch.randn(24, 16),), against=kernels.above_zero, label="size by data")
    with pytest.raises(UnjudgeableError, match="size depends on data; run without --perf-isolate"):
        isolated(kernels.above_zero, problem=numbers, at_least=1e-3)
    sparse = Custom((torch.randn(8, 8).to_sparse(),), against=kernels.above_zero, label="sparse")
    with pytest.raises(UnjudgeableError, match="sparse and nested arguments cannot leave a process"):
        isolated(kernels.above_zero, problem=sparse)


def test_a_worker_names_the_line_that_raised() -> None:
    problem = Custom((torch.randn(8, 8),), against=kernels.above_zero, label="raises")
    one = isolated(kernels.fails_inside, problem=problem)
    assert one.reason is Reason.CANDIDATE_FAILED
    assert one.frames[-1].endswith("in fails_inside")
    assert "isolated_kernels.py:" in one.sentence


def test_what_the_rival_writes_in_its_process_is_restored() -> None:
    sides = Sides(
        kernels.doubles, kernels.doubles_once, lambda: Inputs((torch.randn(1500, 1500),)), written=Written((0,), ("x",))
    )
    limits: dict[str, Any] = {"device": "cpu", "seconds": 20.0, "room": 1 << 30}
    remote, rival = Remote(kernels.doubles, **limits), Remote(kernels.doubles_once, trusted=True, **limits)
    try:
        clock = IsolatedClock(sides, remote, Settings(device="cpu", seconds=0.2), rival)
        clock.setup()
        # So large that a sample has few calls: later ones begin in the middle of the sets, and come to each again.
        assert clock.launches < len(clock._sets)
        clock.rounds(3 * len(clock._sets) // clock.launches)
        clock.close()
    finally:
        remote.close()
        rival.close()


def test_an_empty_order_that_was_slow_once_shortens_no_sample() -> None:
    settings = Settings(device="cpu", seconds=0.2)
    sides = Sides(kernels.product, kernels.product, lambda: Inputs((torch.randn(64, 64), torch.randn(64, 64))))
    limits: dict[str, Any] = {"device": "cpu", "seconds": 20.0, "room": 1 << 30}
    remote, rival = Remote(kernels.product, **limits), Remote(kernels.product, trusted=True, **limits)
    try:
        clock = IsolatedClock(sides, remote, settings, rival)
        remote._start().overhead = 1.0
        clock.setup()
        assert remote._start().overhead == rival._start().overhead < 0.1
        assert statistics.median(one.candidate_seconds for one in clock.rounds(4)) > 1e-6
        clock.close()
    finally:
        remote.close()
        rival.close()


def test_memory_of_a_request_serves_the_next_ones_and_has_no_answer_of_this_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Arena] = []
    genuine = Arena.__init__

    def init(self: Arena, *arguments: Any, **options: Any) -> None:
        genuine(self, *arguments, **options)
        made.append(self)

    monkeypatch.setattr(Arena, "__init__", init)
    there = shared_memories()
    remote = Remote(kernels.leaves_the_buffers_as_they_are, device="cpu", seconds=20.0, room=1 << 30)
    try:
        for size in (64, 64, 32, 300, 64):
            a = torch.randn(size, size)
            right = a @ a
            del right  # the allocator may hand its memory out again
            assert not remote(a, a).any()
        assert len(made) == 4  # for arguments and for results, and larger ones once
        made.clear()
        large = torch.zeros(1 << 12, 1 << 12)
        assert not remote(large, large).any()
        assert not remote(large, large).any()
        assert len(made) == 4  # what is large is not kept
    finally:
        remote.close()
    made.clear()
    gc.collect()
    assert shared_memories() == there


def shared_memories() -> int:
    """The pieces of shared memory that this process has open."""
    found = 0
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found += "memfd:perfsuite" in os.readlink(one)
    return found


def test_a_process_that_takes_the_place_of_another_gets_memory_of_its_own() -> None:
    remote = Remote(kernels.product, device="cpu", seconds=20.0, room=1 << 30)
    try:
        for _ in range(2):
            a, b = torch.randn(8, 8), torch.randn(8, 8)
            assert torch.equal(remote(a, b), a @ b)
            remote._start().close()
    finally:
        remote.close()


def test_what_is_copied_to_and_from_a_card_is_there_before_the_other_side_uses_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where other processes use the card too, a copy of the parent may come late."""
    done: list[str] = []

    class Memory:
        def place(self, tensor: torch.Tensor, *, blank: bool = False) -> torch.Tensor:
            done.append("place")
            return tensor.clone()

        def describe(self, nest: Any) -> Any:
            return nest

    @contextlib.contextmanager
    def lent(what: str, nest: Any) -> Iterator[tuple[Any, Any]]:
        yield Memory(), None
        done.append("close")

    def ask(request: Any, memory: Any) -> Any:
        done.append(request["do"])
        if request["do"] == "fetch":
            request["into"][0].fill_(5.0)
            done.append(f"argument is {float(given[0])}")
            placed[0].fill_(7.0)  # the candidate's kernel, which has ended now
            return {}
        placed.append(request["args"][0])
        return {"single": True, "structure": "", "leaves": [None], "places": [0]}

    given, placed = torch.zeros(1), []
    remote = Remote.__new__(Remote)
    remote.device = "cuda"
    described = receipt.Described((1,), torch.float32, (1,), None)
    plain = torch.empty
    for name, value in {
        "_lent": lent,
        "ask": ask,
        "told": lambda read, said: [described],
    }.items():
        monkeypatch.setattr(remote, name, value, raising=False)
    monkeypatch.setattr(torch, "empty", lambda *size, device, **options: plain(*size, **options))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: done.append("synchronize"))
    assert float(remote(given)) == 5.0
    assert float(given) == 7.0
    assert done == [
        "place",
        "synchronize",
        "call",
        "place",
        "synchronize",
        "fetch",
        "argument is 0.0",
        "close",
        "close",
    ]
