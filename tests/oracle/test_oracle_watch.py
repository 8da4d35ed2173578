"""What the examination sees besides the numbers: inputs, memory, late work, and whether it comes out the same twice."""

from __future__ import annotations

import threading
import time

import pytest

from perfsuite.clock.rotation import allocations
from perfsuite.guards.poison import poison_results
from perfsuite.oracle import Judgement, examine, poison, poison_free_memory
from perfsuite.outcome import Reason
from perfsuite.problems import Custom, Gemm
from perfsuite.problems.tensors import same_bits

torch = pytest.importorskip("torch")

PROBLEM = Gemm(64, 48, 96)


def judge(candidate, problem=PROBLEM, **options) -> Judgement:
    return examine(problem, candidate, torch.Generator("cpu").manual_seed(0), **options)


def test_a_candidate_that_writes_into_its_inputs():
    def zero_out(a, b):
        b.zero_()
        return a @ b

    judgement = judge(zero_out)
    assert judgement.reason is Reason.INPUTS_CHANGED
    assert "argument 1" in judgement.sentence


def test_an_input_may_be_transposed_without_a_copy_being_taken_for_a_change():
    assert judge(lambda a, b: a @ b, Gemm(64, 48, 96, trans_a=True, trans_b=True)).ok


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_an_unwritten_part_is_seen_as_such(dtype):
    def half(a, b):
        out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype)
        poison(out)  # what the allocator hands out behind poison_free_memory
        out[:32] = (a @ b)[:32]
        return out

    judgement = judge(half, Gemm(64, 48, 96, dtype))
    assert judgement.reason is Reason.UNWRITTEN
    assert f"{32 * 48} of {64 * 48} elements" in judgement.sentence


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_poison_is_nan_in_every_dtype_of_the_kernels(dtype):
    tensor = torch.zeros(8, dtype=dtype)
    poison({"nested": [tensor]})
    assert tensor.isnan().all()


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(8, 8, dtype=torch.float16),
        lambda: torch.zeros(3, 7, dtype=torch.float64),
        lambda: torch.zeros(3, 7, dtype=torch.complex64),
        lambda: torch.zeros(5, dtype=torch.int8),
        lambda: torch.zeros(5, dtype=torch.bool),
        lambda: torch.zeros(6, 4).t(),
        lambda: torch.zeros(6, 4)[1:, ::2],
        lambda: torch.zeros(1 << 16, dtype=torch.float32),
        lambda: torch.zeros(0),
        lambda: torch.zeros(()),
        lambda: {"loss": torch.zeros(4), "rest": [torch.zeros(2, 2), 3, None]},
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.zeros(4, requires_grad=True),
        lambda: (torch.zeros(4, 4), torch.zeros(4)),
        lambda: (torch.zeros(4, 4), torch.zeros(4, dtype=torch.int64)),
        lambda: torch.nested.nested_tensor([torch.zeros(2, 3), torch.zeros(1, 3)]),
    ],
)
def test_results_are_poisoned_as_any_value_is_but_for_those_that_are_spared(make):
    with torch.no_grad():
        first, second, third, expected = make(), make(), make(), make()
        whole = torch.zeros(16)
        inside, beside = whole[4:8], torch.zeros(4)
        poison(expected)
        poison_results([first, inside, [beside, inside], second], allocations([whole, third]))
        assert same_bits(first, expected)
        assert same_bits(second, expected)
        assert not whole.any()
        assert not beside.any()
        poison_results([third], allocations([third]))
        assert same_bits(third, make())
        alike = [make(), make(), third]  # as a side's results are
        poison_results(alike, allocations([third]))
        assert same_bits(alike, [expected, expected, make()])


def test_results_without_memory_are_left_to_torch():
    with pytest.raises(RuntimeError, match="ZeroTensor"):
        poison_results([torch._efficientzerotensor(4), torch._efficientzerotensor(4)], allocations(()))


def test_an_address_is_told_from_those_beside_it():
    rows = torch.zeros(4, 8)
    taken = allocations([{"rows": rows[1:3]}, 3, torch.zeros(0)])
    assert [taken(rows.data_ptr() + offset) for offset in (-1, 0, 8 * 4 * 4 - 1, 8 * 4 * 4)] == [
        False,
        True,
        True,
        False,
    ]
    assert not allocations(())(rows.data_ptr())


def test_poisoning_free_memory_takes_any_nest():
    poison_free_memory(PROBLEM.inputs(torch.Generator().manual_seed(0)))


def test_work_put_off_to_a_thread_is_caught():
    def later(a, b):
        out = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype)

        def work():
            time.sleep(0.05)
            out.copy_(a @ b)

        threading.Thread(target=work).start()
        return out

    judgement = judge(later)
    time.sleep(0.1)
    assert judgement.reason in (Reason.OUTPUT_CHANGED, Reason.INACCURATE)


def test_a_second_call_that_overwrites_the_first_result():
    kept = torch.empty(64, 48, dtype=torch.float16)

    calls = []

    def differs(a, b):
        calls.append(1)
        return kept.copy_((a.float() @ b.float()).half() + len(calls) % 2)

    assert judge(differs).reason is Reason.OUTPUT_CHANGED


def test_results_that_differ_from_call_to_call():
    calls = []

    def unsteady(a, b):
        calls.append(1)
        out = a @ b
        if len(calls) % 2:
            out[0, 0] = torch.nextafter(out[0, 0], torch.tensor(1e4, dtype=out.dtype))
        return out

    judgement = judge(unsteady)
    assert judgement.reason is Reason.NOT_DETERMINISTIC
    assert "1 of 3072 elements" in judgement.sentence
    assert judge(unsteady, deterministic=False).ok
    noisy = Custom((torch.randn(64, 64),), against=lambda x: (x + x).add_(1e-7 * torch.rand(())))
    assert judge(lambda x: 2 * x + 1e-7 * torch.rand(()), noisy).ok  # the library does not repeat itself either


@pytest.mark.parametrize("stall", [0.0, 0.7], ids=["quiet", "busy machine"])
def test_a_library_that_differs_from_itself_only_now_and_then_is_heard_out(stall):
    calls = []

    def rarely(x):
        calls.append(1)
        if len(calls) == 20:
            time.sleep(stall)  # others have the processor
        out = 2 * x
        if len(calls) % 300 == 2:
            out[0, 0] = torch.nextafter(out[0, 0], torch.tensor(1e4))
        return out

    def once(x):
        return rarely(x)

    problem = Custom((torch.randn(8, 8),), against=rarely)
    assert judge(once, problem).ok
    assert len(calls) > 300


def test_a_result_kept_by_the_address_of_its_inputs_does_not_survive_the_second_call():
    known = {}

    def by_pointer(a, b):
        key = a.data_ptr()
        if key not in known:
            known[key] = a @ b
        return known[key].clone()

    generator = torch.Generator("cpu").manual_seed(0)
    storage = torch.empty(64, 96, dtype=torch.float16), torch.empty(96, 48, dtype=torch.float16)

    def same_place(generator):
        fresh = PROBLEM.inputs(generator).args
        return tuple(place.copy_(values) for place, values in zip(storage, fresh, strict=True))

    problem = Custom(same_place, against=torch.mm)
    assert examine(problem, by_pointer, generator).ok  # the first time it has nothing to remember
    assert examine(problem, by_pointer, generator).reason is Reason.INACCURATE


def test_what_the_candidate_raises_is_passed_on():
    def fails(a, b):
        raise RuntimeError("no kernel for this")

    with pytest.raises(RuntimeError, match="no kernel for this"):
        judge(fails)


def test_bits_tell_nan_from_nan_and_zero_from_zero():
    one = torch.tensor([0.0, float("nan")])
    assert same_bits(one, one.clone())
    assert not same_bits(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert not same_bits(one, one.double())
    assert same_bits(one.to(torch.complex64), one.to(torch.complex64))
