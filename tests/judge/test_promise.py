"""The error that a stream hands out never passes its bound, and it bounds the share of false verdicts."""

from __future__ import annotations

import random

import pytest

from perfsuite.judge.promise import Stream, part


def test_parts_add_up_to_one() -> None:
    assert sum(part(number) for number in range(1, 100_000)) == pytest.approx(1.0, abs=2e-5)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_the_sum_never_passes_the_bound(share: float) -> None:
    draw, stream, spent, decided = random.Random(0), Stream(20.0), 0.0, 0
    for _ in range(600):
        spent += stream.next_alpha()
        assert spent <= max(1, decided) / 20.0 + 1e-12
        if draw.random() < share:
            decided += 1
            stream.decided()
    if share == 1.0:  # a stream of clear cases keeps nearly all of its allowance
        assert stream.next_alpha() > 0.9 / 20.0


def test_false_verdicts_are_at_most_one_in_n() -> None:
    draw, false, verdicts = random.Random(1), 0, 0
    for _ in range(200):
        stream = Stream(10.0)
        for case in range(100):
            alpha = stream.next_alpha()
            clear = case % 2 == 0
            wrong = draw.random() < alpha  # the worst case: every interval errs as often as it may
            if clear or wrong:
                verdicts += 1
                false += wrong
                stream.decided()
    sampling = 3 * (0.09 / verdicts) ** 0.5  # of the simulation itself
    assert 0 < false / verdicts <= 1 / 10 + sampling


def test_a_bad_number_is_named() -> None:
    with pytest.raises(ValueError, match="one_in is 1"):
        Stream(1)
