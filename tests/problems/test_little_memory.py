"""Float64 answers where the whole does not fit: in blocks where the function can be cut, else on the host."""

from __future__ import annotations

import pytest

from perfsuite.problems import Custom, Inputs
from perfsuite.problems.float64 import blocks, in_float64, in_little_memory

torch = pytest.importorskip("torch")
F, nn = torch.nn.functional, torch.nn


@pytest.fixture
def small_card(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A float64 run of over 3000 elements of arguments is out of memory; the list holds those that were not."""
    sizes: list[int] = []
    real = in_float64

    def bounded(function, inputs, *, deadline=None):
        size = inputs.args[0].numel()
        if size > 3000 and deadline is None:
            raise torch.OutOfMemoryError("CUDA out of memory")
        sizes.append(size)
        return real(function, inputs, deadline=deadline)

    monkeypatch.setattr(blocks, "in_float64", bounded)
    monkeypatch.setattr("perfsuite.problems.families.custom.in_float64", bounded)
    return sizes


LINEAR = nn.Linear(40, 24)
CUT = {
    "rows": (lambda x: x.softmax(-1), [(100, 64)]),
    "columns": (lambda x: x.softmax(0), [(64, 100)]),
    "module": (LINEAR, [(300, 40)]),
    "batches": (lambda q, k: (q @ k.mT).softmax(-1), [(12, 20, 30), (12, 20, 30)]),
    "one operand": (lambda a, b: a @ b, [(90, 90), (90, 90)]),
    "several results": (lambda x: (x.sin(), x.sum(-1)), [(100, 64)]),
}


@pytest.mark.parametrize("name", CUT)
def test_a_function_is_cut_along_an_axis_that_it_does_not_mix(name, small_card) -> None:
    function, shapes = CUT[name]
    inputs = Inputs(tuple(torch.randn(shape) for shape in shapes))
    with torch.no_grad():
        right = in_float64(function, inputs).values
        found = Custom(inputs.args, against=function).known_answer(inputs)
    torch.testing.assert_close(found.values, right, rtol=1e-12, atol=1e-14)
    assert not found.gaps
    assert len(small_card) >= 8


@pytest.mark.parametrize("function", [lambda x: x / x.norm(), lambda x: x.softmax(0).cumsum(1)])
def test_a_function_that_mixes_everything_runs_on_the_host(function, small_card) -> None:
    inputs = Inputs((torch.randn(64, 100),))
    found = in_little_memory(function, inputs)
    assert small_card == [6400]
    assert not found.gaps
    torch.testing.assert_close(found.values, in_float64(function, inputs).values)


def test_the_host_has_a_time_limit(small_card, monkeypatch) -> None:
    monkeypatch.setattr(blocks, "HOST_SECONDS", -1.0)
    found = in_little_memory(lambda x: x / x.norm(), Inputs((torch.randn(64, 100),)))
    assert found.gaps == ("the float64 answer does not fit, and took over -1 s on the host",)


def test_dropped_memory_is_given_back(monkeypatch) -> None:
    """A chain of operators keeps the twins of two results, not of all."""
    from perfsuite.problems.float64 import twins

    most = 0
    monkeypatch.setattr(twins, "SWEEP_BYTES", 1 << 12)
    note = twins.Twins._note

    def counted(self, *args, **kwargs):
        nonlocal most
        found = note(self, *args, **kwargs)
        most = max(most, sum(one.twin.nbytes for one in self._entries.values() if one.twin is not None))
        return found

    monkeypatch.setattr(twins.Twins, "_note", counted)

    def chain(x):
        for _ in range(20):
            x = (x * 1.1).sin()
        return x

    with torch.no_grad():
        in_float64(chain, Inputs((torch.randn(1024),)))
    assert most <= 4 * 8 * 1024
