"""The problem Attention with a window, and with its diagonal from the bottom right: counts, inputs, rivals, answer."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="inputs are tensors")

from perfsuite import Attention  # noqa: E402
from perfsuite.oracle.check import check  # noqa: E402

CASES: dict[str, dict[str, Any]] = {
    "bottom right": {"causal": True, "bottom_right": True},
    "bottom right without a mask": {"bottom_right": True},
    "window": {"window": (9, 4)},
    "window, causal": {"causal": True, "window": (9, 4)},
    "window to the left, bottom right": {"bottom_right": True, "window": (5, -1)},
    "the diagonal": {"bottom_right": True, "window": (0, 0)},
}
cases = pytest.mark.parametrize("case", CASES)


def problem(case: str, seq_q: int = 23, seq_kv: int = 41) -> Attention:
    return Attention(2, 4, seq_q, 16, seq_kv=seq_kv, kv_heads=2, dtype="float32", **CASES[case])


def by_hand(of: Attention) -> torch.Tensor:
    """(seq_q, seq_kv), element by element as the documentation has it."""
    shift = of.keys - of.seq_q if of.bottom_right else 0
    left, right = of.window or (-1, -1)
    rows = [
        [
            not (of.causal and j > i + shift)
            and (left < 0 or j >= i + shift - left)
            and (right < 0 or j <= i + shift + right)
            for j in range(of.keys)
        ]
        for i in range(of.seq_q)
    ]
    return torch.tensor(rows)


@cases
@pytest.mark.parametrize(("seq_q", "seq_kv"), [(23, 41), (41, 23), (30, 30)])
def test_what_a_query_sees(case: str, seq_q: int, seq_kv: int) -> None:
    made = problem(case, seq_q, seq_kv)
    seen = by_hand(made)
    assert torch.equal(made.visible(torch.arange(seq_q), torch.arange(seq_kv)), seen)
    for query in range(seq_q):
        first, end = made.span(query)
        assert list(range(first, end)) == seen[query].nonzero().flatten().tolist()
    assert made.pairs == int(seen.sum())
    assert made.flops == 4.0 * 2 * 4 * int(seen.sum()) * 16


@cases
@pytest.mark.parametrize(("seq_q", "seq_kv"), [(23, 41), (41, 23)])
@pytest.mark.parametrize("some", [False, True], ids=["all rows", "some rows"])
def test_reference(case: str, seq_q: int, seq_kv: int, some: bool) -> None:
    made = problem(case, seq_q, seq_kv)
    given = made.inputs(torch.Generator().manual_seed(1))
    q, k, v = (tensor.double() for tensor in given.args)
    seen = by_hand(made)
    scores = (q @ k.repeat_interleave(2, 1).mT / 4.0).masked_fill(~seen, float("-inf"))
    right = torch.softmax(scores, -1).nan_to_num(0.0) @ v.repeat_interleave(2, 1)
    rows = torch.tensor([0, 5, seq_q - 1]) if some else None
    got = made.answer(given, rows=rows)
    torch.testing.assert_close(got, right if rows is None else right[:, :, rows])


@cases
@pytest.mark.parametrize("distribution", ["normal", "dominant"])
@pytest.mark.parametrize("rival", ["sdpa", "sdpa:math", "sdpa:flash"])
def test_rivals_on_the_cpu_are_right(case: str, distribution: str, rival: str) -> None:
    made = problem(case)
    given = made.inputs(torch.Generator().manual_seed(2), distribution=distribution)
    mask = {"is_causal": made.causal, "bottom_right": made.bottom_right, "window": made.window}
    assert given.kwargs == {name: value for name, value in mask.items() if value}
    torch.testing.assert_close(given.call(made.rival(rival)).double(), made.answer(given), atol=1e-5, rtol=1e-4)


def test_a_candidate_that_ignores_the_window_is_wrong() -> None:
    made = Attention(1, 2, 64, 16, window=(7, 0), dtype="float32")

    def careless(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    given = made.inputs(torch.Generator().manual_seed(3))
    rival = made.rival("sdpa")
    assert not check(made, given, given.call(careless), given.call(rival)).ok
    assert check(made, given, given.call(rival), given.call(rival)).ok


def test_names_tell_masks_apart_and_old_cases_keep_theirs() -> None:
    plain = Attention(2, 8, 512, 64, causal=True)
    assert plain.name == "2x8x512x64 float16 causal"
    assert "window_left" not in plain.params
    assert "bottom_right" not in plain.params
    made = Attention(2, 8, 512, 64, seq_kv=1024, causal=True, bottom_right=True, window=(128, -1))
    assert made.name == "2x8x512/1024x64 float16 causal bottom-right window 128,-1"
    assert (made.params["window_left"], made.params["window_right"], made.params["bottom_right"]) == (128, -1, True)


@pytest.mark.parametrize("window", [3, (1,), (1, 2, 3), (-2, 1), (1.0, 2), (True, 1), "ab"])
def test_windows_that_are_none_are_refused(window: Any) -> None:
    with pytest.raises(ValueError, match=r"window is .*; it must be a pair of whole numbers of keys"):
        Attention(1, 1, 8, 8, window=window)
