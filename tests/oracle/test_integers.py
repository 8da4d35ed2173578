"""Integers, indices and truth values: exact where the operation is, and no stricter than a rounding elsewhere."""

from __future__ import annotations

import pytest

from perfsuite.oracle import examine
from perfsuite.outcome import Reason
from perfsuite.problems import Custom

torch = pytest.importorskip("torch")


def judge(candidate, rival, *args, seed=0):
    problem = Custom(args or (torch.randn(64, 128, generator=torch.Generator().manual_seed(1)),), against=rival)
    return examine(problem, candidate, torch.Generator("cpu").manual_seed(seed), adversarial=False)


def quantised(x):
    return (x / x.abs().amax(-1, keepdim=True) * 127).round().to(torch.int8)


def quantised_by_reciprocal(x):
    return (x * (127 / x.abs().amax(-1, keepdim=True))).round().to(torch.int8)


def test_a_quantiser_may_differ_by_a_tie_and_no_more() -> None:
    for seed in range(4):
        assert judge(quantised_by_reciprocal, quantised, seed=seed).ok
    floor = judge(lambda x: (x / x.abs().amax(-1, keepdim=True) * 127).floor().to(torch.int8), quantised)
    assert floor.reason is Reason.INACCURATE
    assert "integers differ from float64's, the library's in 0; allowed are 1" in floor.sentence
    far = judge(lambda x: quantised(x) - 2 * (quantised(x) == 5).to(torch.int8), quantised)
    assert "by up to 2 units" in far.sentence


def packed(x):
    low, high = quantised(x).view(64, -1, 2).unbind(-1)
    return ((low >> 4) + 8).to(torch.uint8) | (((high >> 4) + 8).to(torch.uint8) << 4)


def test_packed_integers_of_4_bits() -> None:
    assert judge(packed, packed).ok
    assert judge(lambda x: packed(x).roll(1, 1), packed).reason is Reason.INACCURATE


def test_integers_from_integers_are_exact() -> None:
    codes = torch.randint(0, 50, (4096,), dtype=torch.uint8)
    sums = lambda x: x.long().cumsum(0)  # noqa: E731
    assert judge(sums, sums, codes).ok

    def one_more(x):
        found = sums(x)
        found[3] += 1
        return found

    assert "1 of 4096 integers differ" in judge(one_more, sums, codes).sentence


class TestIndices:
    def ties(self) -> torch.Tensor:
        return torch.randint(0, 9, (64, 128), dtype=torch.uint8)

    def test_an_index_to_an_equal_value_is_right(self) -> None:
        def first(x):
            return x.float().sort(dim=-1, stable=True)[1]

        def last(x):
            return 127 - x.float().flip(-1).sort(dim=-1, stable=True)[1]

        verdict = judge(last, first, self.ties())
        assert verdict.ok
        assert "point elsewhere, to equal values" in verdict.sentence
        assert judge(lambda x: last(x).roll(1, -1), first, self.ties()).reason is Reason.INACCURATE

    def test_an_index_must_not_come_twice_nor_lie_outside(self) -> None:
        def chosen(x):
            return x.float().topk(8, -1)[1]

        twice = judge(lambda x: chosen(x)[:, :1].expand(-1, 8).contiguous(), chosen, self.ties())
        assert "an index comes twice" in twice.sentence
        outside = judge(lambda x: chosen(x) + 128, chosen, self.ties())
        assert "an index lies outside of 0 to 127" in outside.sentence

    @pytest.mark.parametrize("keepdim", [False, True])
    def test_argmax_of_rounded_sums(self, keepdim) -> None:
        weight = torch.randn(64, 96, generator=torch.Generator().manual_seed(2)).bfloat16()

        def largest(x):
            return (x @ weight).argmax(-1, keepdim=keepdim)

        def in_float32(x):
            return (x.float() @ weight.float()).argmax(-1, keepdim=keepdim)

        x = torch.randn(64, 64).bfloat16()
        assert judge(in_float32, largest, x).ok
        assert judge(lambda x: largest(x.roll(1, -1)), largest, x).reason is Reason.INACCURATE
        assert judge(lambda x: (x @ weight).argmin(-1, keepdim=keepdim), largest, x).reason is Reason.INACCURATE


def test_thresholds_are_counted() -> None:
    def above(x):
        return x.softmax(-1) > 0.01

    assert judge(lambda x: torch.exp(x) / torch.exp(x).sum(-1, keepdim=True) > 0.01, above).ok
    assert judge(lambda x: x.softmax(-1) > 0.0101, above).reason is Reason.INACCURATE


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_float8_results_have_their_own_precision(dtype) -> None:
    def cast(x):
        return (x * 3).to(dtype)

    assert judge(lambda x: (x + x + x).to(dtype), cast).ok
    assert judge(lambda x: (x * 4).to(dtype), cast).reason is Reason.INACCURATE
    assert judge(lambda x: (x * 3).to(torch.float8_e5m2).float().mul(1.25).to(dtype), cast).reason is Reason.INACCURATE


def test_complex_results_are_judged() -> None:
    assert judge(torch.fft.rfft, lambda x: torch.fft.fft(x)[..., :65]).ok
    assert judge(lambda x: torch.fft.rfft(x).conj().resolve_conj(), torch.fft.rfft).reason is Reason.INACCURATE
