"""The decode problem: its costs, its inputs, the oracle's answer, and the library behind it."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="problems are drawn with torch")

from perfsuite import Decode  # noqa: E402
from perfsuite.oracle import examine  # noqa: E402
from perfsuite.problems import Inputs  # noqa: E402

PROBLEMS = [
    Decode(2, 8, 96, 32, kv_heads=2),
    Decode(2, 4, 96, 32, kv_heads=4, seq_q=3, scale=0.2),
    Decode(3, 8, 96, 32, kv_heads=2, page_size=16),
    Decode(1, 4, 64, 32, page_size=1, dtype="float32"),
    Decode(1, 4, 64, 32, dtype="bfloat16"),
]
problems = pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(5)


def plain(inputs: Inputs, scale: float) -> torch.Tensor:
    """Key by key through the table, in float64: nothing shared with the oracle's way."""
    q, k_cache, v_cache, lens, *rest = inputs.args
    table = rest[0] if rest else None
    out = torch.zeros(q.shape, dtype=torch.float64)
    batch, heads, seq_q, _ = q.shape
    kv_heads = k_cache.shape[1 if table is None else 2]
    for b in range(batch):
        for h in range(heads):
            kv = h // (heads // kv_heads)
            for i in range(seq_q):
                seen = int(lens[b]) - (seq_q - 1 - i)
                if table is None:
                    k, v = k_cache[b, kv, :seen], v_cache[b, kv, :seen]
                else:
                    size = k_cache.shape[1]
                    place = [(int(table[b, j // size]), j % size) for j in range(seen)]
                    k, v = (
                        torch.stack([cache[page, slot, kv] for page, slot in place]) for cache in (k_cache, v_cache)
                    )
                weights = torch.softmax(scale * (k.double() @ q[b, h, i].double()), 0)
                out[b, h, i] = weights @ v.double()
    return out


@problems
def test_the_reference_is_the_formula(problem: Decode) -> None:
    inputs = problem.inputs(generator())
    torch.testing.assert_close(problem.answer(inputs), plain(inputs, problem.scaling), rtol=1e-12, atol=1e-12)


@problems
def test_the_library_passes_its_own_oracle_and_a_shifted_one_does_not(problem: Decode) -> None:
    library = problem.rival("sdpa")
    assert examine(problem, library, generator()).ok

    def shifted(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: torch.Tensor, **kwargs: float
    ) -> torch.Tensor:
        return problem.rival("sdpa")(
            q, k.roll(1, 0 if k.shape[0] > 1 else 2 if k.shape[2] > 1 else 1), v, *rest, **kwargs
        )

    assert not examine(problem, shifted, generator()).ok


def test_pages_are_shuffled_within_their_sequence() -> None:
    problem = Decode(4, 8, 256, 32, kv_heads=2, page_size=16)
    _, k, v, lens, table = problem.inputs(generator()).args
    assert k.shape == v.shape == (4 * 16, 16, 2, 32)
    assert lens.tolist() == [256] * 4
    assert table.dtype == lens.dtype == torch.int32
    for b in range(4):
        assert sorted(table[b].tolist()) == list(range(16 * b, 16 * b + 16))
        assert table[b].tolist() != sorted(table[b].tolist())


def test_costs() -> None:
    problem = Decode(2, 8, 1024, 64, kv_heads=2)
    assert problem.flops == 4.0 * 2 * 8 * 1024 * 64
    assert problem.bytes == 2 * (2 * 2 * 1024 * 64 * 2 + 2 * 8 * 64 * 2 + 4)
    assert Decode(1, 1, 8, 8, seq_q=3).flops == 4.0 * 8 * (6 + 7 + 8)
    paged = Decode(2, 8, 1024, 64, kv_heads=2, page_size=64)
    assert paged.bytes == problem.bytes + 2 * 16 * 4
    assert (problem.name, paged.name) == ("2x8/2x1024x64 float16", "2x8/2x1024x64 float16 pages of 64")
    assert Decode(**problem.params) == problem  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Decode(1, 8, 64, 64, kv_heads=3), "kv_heads is 3; it must divide heads"),
        (lambda: Decode(1, 8, 64, 64, page_size=48), "page_size is 48; it must divide length"),
        (lambda: Decode(1, 8, 64, 64, page_size=16, seq_q=2), "seq_q is 2; with a page_size it must be 1"),
        (lambda: Decode(1, 8, 4, 64, seq_q=5), "seq_q is 5; it must be at most length"),
        (lambda: Decode(0, 8, 64, 64), "batch is 0; it must be a whole number of at least 1"),
        (lambda: Decode(1, 8, 64, 64).rival("cublas"), "rival is 'cublas'; a rival of decode must be one of sdpa"),
    ],
)
def test_what_is_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=message):
        make()
