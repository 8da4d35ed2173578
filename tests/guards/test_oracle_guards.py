"""The guards beside the judgement: fresh inputs, fingerprints, surroundings, weak problems, kept answers."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_clock import FakeClock

from perfsuite.case.ask import Ask
from perfsuite.case.checks import Checks
from perfsuite.case.failures import Stop
from perfsuite.clock.base import TimedCall
from perfsuite.guards import kernel_names
from perfsuite.guards.fingerprint import fingerprint, same_fingerprint
from perfsuite.guards.ground import looker
from perfsuite.guards.library_use import ran, shared_kernels, shared_operators
from perfsuite.guards.origin import strangers
from perfsuite.guards.poison import poison
from perfsuite.guards.surroundings import Surroundings, handicaps
from perfsuite.oracle import Judgement, WeakProblemError, examine
from perfsuite.oracle.agreement import apart, furthest_allowed, norms_apart, share_of
from perfsuite.oracle.cache import VARIABLE, cached_reference, key_of
from perfsuite.oracle.worth import neighbour
from perfsuite.outcome import Reason
from perfsuite.problems import Attention, Custom, Gemm
from perfsuite.problems.base import Inputs
from perfsuite.settings import Settings


def drawn(problem: Gemm | Attention | Custom, count: int = 5) -> list[Inputs]:
    generator = torch.Generator().manual_seed(0)
    return [problem.inputs(generator) for _ in range(count)]


@pytest.mark.parametrize("stacked", [1 << 10, 1 << 15, 1 << 25], ids=["each alone", "few at once", "all at once"])
@pytest.mark.parametrize("noted", [0, 1 << 20], ids=["sums", "bytes"])
def test_a_fingerprint_sees_one_value_overwritten(stacked: int, noted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfsuite.guards.fingerprint.TOGETHER_BYTES", stacked)
    monkeypatch.setattr("perfsuite.guards.fingerprint.HOST_BYTES", noted)
    for place in range(5):
        sets = drawn(Gemm(64, 64, 64))
        marks = fingerprint(sets)
        assert same_fingerprint(marks, fingerprint(sets))
        sets[place].args[1][5, 7] += 1
        assert not same_fingerprint(marks, fingerprint(sets))
        assert not same_fingerprint(marks, marks[:-1])


def test_a_fingerprint_sees_what_lies_in_memory_of_any_form() -> None:
    base = torch.arange(24.0).view(4, 6)
    forms = [base[:, ::2], base.t(), base[1:], base[0].expand(3, 6), torch.zeros(()), torch.zeros(0), torch.eye(3)]
    forms += [torch.eye(3).to_sparse(), torch.zeros(3, dtype=torch.complex64).conj(), torch.zeros(3, dtype=torch.bool)]
    marks = fingerprint([Inputs(tuple(forms))])
    assert same_fingerprint(marks, fingerprint([Inputs(tuple(forms))]))
    for tensor in (base[2:, 2:3], *forms[4:5], *forms[6:7], forms[7]._values(), forms[8], forms[9]):
        before = tensor.clone()
        tensor.copy_(torch.ones_like(tensor))
        assert same_fingerprint(marks, fingerprint([Inputs(tuple(forms))])) == torch.equal(before, tensor)
        tensor.copy_(before)
    assert same_fingerprint(marks, fingerprint([Inputs(tuple(forms))]))


def test_surroundings_say_what_changed_and_put_it_back() -> None:
    before, threads = Surroundings.now(), torch.get_num_threads()
    assert before.changes() == []
    torch.set_num_threads(threads + 1)
    torch.backends.cuda.enable_flash_sdp(False)
    try:
        assert list(map(str, before.changes())) == [
            f"torch.num_threads from {threads} to {threads + 1}",
            "SDPA's flash backend from True to False",
        ]
        assert handicaps() == ["SDPA's flash backend is False, not True"]
    finally:
        before.restore()
    assert before.changes() == handicaps() == []


def test_replaced_functions_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert strangers() == []
    # What torch.compile leaves behind where it has traced through a function of the oracle.
    monkeypatch.setattr("perfsuite.oracle.check.__resume_at_78_6", lambda: None, raising=False)
    assert strangers() == []
    monkeypatch.setattr(time, "perf_counter", lambda: 0.0)
    monkeypatch.setattr(sys.modules["perfsuite.oracle.one_result"], "measure", lambda *args: None)
    monkeypatch.setattr(torch, "mm", lambda a, b: a)
    assert set(strangers()) == {"time.perf_counter", "torch.mm", "perfsuite.oracle.one_result.measure"}


def test_a_function_of_ours_that_a_built_in_one_replaces_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert strangers() == []
    monkeypatch.setattr(sys.modules["perfsuite.oracle.one_result"], "judge_errors", len)
    for _ in range(2):
        assert strangers() == ["perfsuite.oracle.one_result.judge_errors"]


def test_a_function_whose_code_was_exchanged_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert strangers() == []
    judge = sys.modules["perfsuite.oracle.one_result"].judge_errors
    monkeypatch.setattr(judge, "__code__", (lambda found, allowed, dtype, rows=None: None).__code__)
    assert strangers() == ["perfsuite.oracle.one_result.judge_errors"]
    monkeypatch.undo()
    assert strangers() == []


def test_results_are_apart_by_their_difference() -> None:
    one = torch.randn(64, 64)
    assert apart(one, one) == 0.0
    assert apart(one * 1.01, one) == pytest.approx(0.01, rel=1e-3)
    assert apart(torch.full_like(one, math.nan), one) == math.inf
    planted = one.clone()
    planted[3, 5] = math.inf
    assert apart(planted, planted) == 0.0
    assert apart(planted + 0.01 * one, planted) == pytest.approx(0.01, rel=1e-2)
    assert apart(one, planted) == math.inf
    assert apart(torch.ones(3, dtype=torch.int32), torch.zeros(3, dtype=torch.int32)) == 0.0
    assert apart((one, one * 1.5), (one, one)) == pytest.approx(0.5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e5m2, torch.float32, torch.float64])
def test_results_of_every_dtype_are_apart_by_their_difference(dtype: torch.dtype) -> None:
    one = torch.randn(256, 256).to(dtype)
    other = (one.float() * 1.5).to(dtype)
    expected = ((one.double() - other.double()).norm() / other.double().norm()).item()
    assert apart(one, one) == 0.0
    assert apart(one, other) == pytest.approx(expected, rel=5e-3)
    norms = norms_apart(one, other)
    assert norms is not None
    assert share_of(*norms.tolist()) == pytest.approx(expected, rel=5e-3)


def test_norms_that_are_not_finite_tell_only_of_a_library_that_is() -> None:
    one = torch.randn(64, 64)
    planted = one.clone()
    planted[3, 5] = math.inf
    for mine, rivals, share in ((one, one, 0.0), (planted, one, math.inf), (planted, planted, None)):
        norms = norms_apart(mine, rivals)
        assert norms is not None
        assert share_of(*norms.tolist()) == share
    whole = torch.ones(3, dtype=torch.int32)
    assert norms_apart(whole, whole) is None
    assert norms_apart((one, one), (one, one)) is None
    assert norms_apart(one, one[:3]) is None


@pytest.mark.parametrize("infinite", [False, True], ids=["finite", "infinite"])
@pytest.mark.parametrize("wrong_at", [None, 7])
def test_one_timed_call_of_many_that_is_off_is_seen(wrong_at: int | None, infinite: bool) -> None:
    """Also where the library's own results are not finite, so that norms do not tell."""
    right = torch.randn(64, 64)
    if infinite:
        right[5, 5] = math.inf

    results = [right * 1.1 if call == wrong_at else right.clone() for call in range(16)]
    look_at(results, right, truth=right)


def test_where_the_library_is_off_the_candidate_is_not_accused() -> None:
    right = torch.randn(64, 64)
    look_at([right.clone() for _ in range(16)], right * 1.1, truth=right)


def look_at(results: list[torch.Tensor], rivals: torch.Tensor, *, truth: torch.Tensor) -> None:
    """Look at timed calls with these results; one that is not the truth must be found."""

    class Clock(FakeClock):
        def timed_calls(self, count: int) -> list[TimedCall]:
            return [TimedCall(Inputs(()), one, None) for one in results[:count]]

        def look_at_more(self, count: int, look: Callable[[Any, Any], Any]) -> list[Any]:
            return [look(one, rivals) for one in results[:count]]

    def judge(call: TimedCall) -> Judgement:
        ok = torch.equal(call.candidate_output, truth)
        return Judgement(ok=ok, reason=None if ok else Reason.INACCURATE, sentence="far from float64")

    checks = Checks(Ask(Gemm(64, 64, 64, "float32"), torch.mm, settings=Settings(device="cpu")), looker())
    clock = Clock(lambda setup, count: [])
    if all(torch.equal(one, truth) for one in results):
        checks._look_at_more(clock, judge, 1e-6, 1e-6)
    else:
        with pytest.raises(Stop, match=r"1 of .* another result than the library: 0\.1 off; far from float64"):
            checks._look_at_more(clock, judge, 1e-6, 1e-6)


def test_finite_results_whose_difference_or_norm_is_too_large_for_their_dtype_are_compared() -> None:
    large = torch.full((64,), 6e4, dtype=torch.float16)
    assert apart(-large, large) == pytest.approx(2.0)
    huge = torch.full((64,), 1e30)
    assert apart(huge * 1.25, huge) == pytest.approx(0.25)


@pytest.mark.parametrize(("elements", "allowed"), [(1, math.inf), (64, 0.5), (4096, 4e-3)])
def test_small_results_may_be_further_apart(elements: int, allowed: float) -> None:
    assert furthest_allowed(1.5e-3, 5e-4, elements) == pytest.approx(allowed)


def test_operators_that_both_sides_run() -> None:
    inputs = drawn(Gemm(8, 8, 8, "float32"), 1)[0]
    assert shared_operators(ran(lambda a, b: (a @ b).clone(), inputs), ran(torch.mm, inputs)) == ["aten::mm"]
    assert shared_operators(ran(lambda a, b: torch.einsum("ij,jk->ik", a, b), inputs), ran(torch.mm, inputs)) == []
    assert shared_operators(ran(torch.add, inputs), ran(torch.mm, inputs)) == []


@pytest.mark.parametrize(
    ("mine", "rivals", "shared"),
    [
        ({"nvjet_a", "_ZN2at6native1fE"}, {"nvjet_a", "_ZN2at6native1fE"}, ["nvjet_a"]),
        ({"nvjet_a", "matmul_kernel"}, {"nvjet_b"}, ["nvjet_a (cuBLAS)"]),
        ({"_ZN8cublasLt19splitKreduce_kernelE"}, {"nvjet_b"}, ["_ZN8cublasLt19splitKreduce_kernelE (cuBLAS)"]),
        ({"nvjet_a"}, {"cudnn_generated_sdpa"}, []),
        ({"_ZN7cutlass6Kernel2E", "matmul_kernel"}, {"nvjet_b", "cutlass_80_wmma"}, []),
        ({"_ZN2at6native1fE"}, {"_ZN2at6native1fE"}, []),
        (set(), set(), []),
    ],
)
def test_kernels_of_the_library_that_the_rival_is(mine: set[str], rivals: set[str], shared: list[str]) -> None:
    """Also where it chose another of its kernels for the candidate's call."""
    assert shared_kernels(mine, rivals) == shared


def test_a_captured_call_lives_until_its_nodes_were_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph that is gone has none, or another's."""

    class Graph:
        alive = False

        def __init__(self) -> None:
            Graph.alive = True

        def __del__(self) -> None:
            Graph.alive = False

        def raw_cuda_graph(self) -> int:
            return 1

    monkeypatch.setattr(kernel_names, "captured", lambda function, inputs: Graph())
    monkeypatch.setattr(kernel_names, "kernels_in", lambda graph: ["one", "one", ""] if Graph.alive else [])
    inputs = drawn(Gemm(8, 8, 8, "float32"), 1)[0]
    assert kernel_names.kernels(torch.mm, inputs) == ["one", "one", ""]
    assert not Graph.alive


def test_constant_inputs_and_constant_answers_are_refused() -> None:
    generator = torch.Generator().manual_seed(0)
    with pytest.raises(WeakProblemError, match="are constant"):
        examine(Custom((torch.ones(8, 8),), against=torch.exp), torch.exp, generator)
    weak = Custom((torch.randn(64, 64),), against=lambda x: x.softmax(-1).sum(-1))
    with pytest.raises(WeakProblemError, match="same whatever the inputs are"):
        examine(weak, lambda x: torch.ones(64), generator)


def test_neighbours_are_other_problems_of_the_same_kind() -> None:
    for _ in range(20):
        other = neighbour(Gemm(64, 64, 64, "bfloat16", trans_b=True))
        assert isinstance(other, Gemm)
        assert (other.dtype, other.trans_b) == ("bfloat16", True)
        assert (other.m, other.n, other.k) != (64, 64, 64)
        attention = neighbour(Attention(1, 2, 3, 64, causal=True))
        assert isinstance(attention, Attention)
        assert attention.seq_q == attention.keys >= 1
    assert neighbour(Custom((1,))) is None


class TestCache:
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv(VARIABLE, str(tmp_path))
        monkeypatch.setattr("perfsuite.oracle.cache.WORTH_FLOPS", 0.0)
        return tmp_path

    @pytest.mark.parametrize("problem", [Gemm(30, 20, 10, batch=2), Attention(1, 2, 30, 8, causal=True)])
    def test_an_answer_is_kept_by_the_content_of_its_inputs(self, folder: Path, problem: Gemm | Attention) -> None:
        one, other = drawn(problem, 2)
        first = cached_reference(problem, one).values
        assert [file.stem for file in folder.iterdir()] == [key_of(problem, one)]
        assert torch.equal(cached_reference(problem, one).values, first)
        assert key_of(problem, other) != key_of(problem, one)
        cached_reference(problem, other)
        assert len(list(folder.iterdir())) == 2

    def test_a_forged_answer_is_thrown_away(self, folder: Path) -> None:
        problem = Gemm(8, 20, 10)
        inputs = drawn(problem, 1)[0]
        right = cached_reference(problem, inputs).values
        (file,) = folder.iterdir()
        file.write_bytes(bytes(len(file.read_bytes())))
        assert torch.equal(cached_reference(problem, inputs).values, right)
        file.write_bytes(b"short")
        assert torch.equal(cached_reference(problem, inputs).values, right)

    def test_what_was_used_longest_ago_goes_first(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        problem = Gemm(16, 16, 16)
        sets = drawn(problem, 3)
        monkeypatch.setattr("perfsuite.oracle.cache.MOST_BYTES", 2 * 16 * 16 * 8)
        for age, inputs in zip((300, 100), sets, strict=False):
            cached_reference(problem, inputs)
            file = folder / f"{key_of(problem, inputs)}.float64"
            os.utime(file, (time.time() - age, time.time() - age))
        cached_reference(problem, sets[2])
        assert {file.stem for file in folder.iterdir()} == {key_of(problem, one) for one in sets[1:]}

    def test_nothing_is_kept_unless_asked(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv(VARIABLE)
        problem = Gemm(16, 16, 16)
        inputs = drawn(problem, 1)[0]
        assert torch.equal(cached_reference(problem, inputs).values, problem.answer(inputs))
        assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "marked",
    [
        lambda: torch.randn(4, 4, dtype=torch.complex64).conj(),
        lambda: torch._neg_view(torch.randn(4, 4)),
        lambda: torch._neg_view(torch.randn(4, 4, dtype=torch.float16)),
    ],
)
def test_memory_behind_a_mark_is_poisoned(marked: Callable[[], torch.Tensor]) -> None:
    tensor = marked()
    poison(tensor)
    assert tensor.isnan().all()
