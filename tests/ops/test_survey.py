"""The survey of products that nobody tuned: what it draws, and what it makes of times."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="cuda_llm_ops needs torch")

from cuda_llm_ops import survey  # noqa: E402


def timed(m: int, library: float, chosen: float, best: float) -> survey.Timed:
    return survey.Timed(m, 4096, 4096, "torch.float16", library, chosen, best, "a plan" if best < chosen else "")


def test_a_sample_is_the_same_for_the_same_seed_and_has_no_product_twice() -> None:
    drawn = survey.sample(300, 1)
    assert drawn == survey.sample(300, 1) != survey.sample(300, 2)
    assert len(set(drawn)) == 300
    assert all((n, k) in survey.LAYERS and 1 <= m <= survey.MOST_ROWS for m, n, k in drawn)
    assert all(m * n * k <= survey.MOST_MULTIPLICATIONS for m, n, k in drawn)
    assert sum(m <= 16 for m, _, _ in drawn) > 50 < sum(m > 512 for m, _, _ in drawn), "log-uniform"


def test_an_uneven_sample_has_lines_that_begin_anywhere_in_every_layout() -> None:
    drawn = survey.uneven_sample(300, 1)
    assert drawn == survey.uneven_sample(300, 1) != survey.uneven_sample(300, 2)
    assert len(set(drawn)) == 300
    for one in drawn:
        lengths = one.m if one.a_mn_major and one.m > 1 else one.k, one.n if one.b_mn_major else one.k
        assert any(length % 8 for length in lengths)
    assert {survey.layout(one) for one in drawn} == {"nn", "nt", "tn", "tt"}
    assert sum((one.n, one.k) in survey.HEADS for one in drawn) > 30 < sum(one.m <= 16 for one in drawn)


def test_a_summary_of_uneven_products_tells_layouts_and_the_share_of_the_aligned_speed() -> None:
    made_up = [
        survey.Timed(9, 4097, 4096, "torch.float16", 2e-5, 1e-5, 1e-5, "", layout, aligned)
        for layout, aligned in (("nn", 8e-6), ("nn", 5e-6), ("tt", 1e-5))
    ]
    text = survey.summary(made_up)
    assert "layout nn: 2.000, lowest 2.000, 2 products" in text
    assert "of the aligned product's speed: geometric mean 0.737, a tenth below 0.500, lowest 0.500" in text
    assert text.splitlines()[-3] == "9 x 4097 x 4096: 2.000, 10.0 us; 8.0 aligned"


def test_a_summary_tells_the_mean_the_tenth_and_the_lowest() -> None:
    text = survey.summary([timed(m, 2e-5, 1e-5, 1e-5) for m in range(1, 10)] + [timed(200, 1e-5, 2e-5, 1e-5)])
    assert "10 products: geometric mean 1.741 of torch.mm's speed, a tenth below 2.000; 7.2% behind the best" in text
    assert "129 to 384 rows: 0.500, lowest 0.500, 1 products" in text
    assert "385 to 1024" not in text
    assert text.splitlines()[-5] == "200 x 4096 x 4096: 0.500, 20.0 us; 10.0 by a plan"


@pytest.mark.parametrize("argument", ["--products=0", "--products=-3", "--plans=many"])
def test_a_number_that_is_none_is_named(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        survey.main([argument])
    assert "must be a whole number from 1 to 10000" in capsys.readouterr().err


@pytest.fixture
def reductions() -> Iterator[None]:
    """Puts back what the command sets."""
    matmul = torch.backends.cuda.matmul
    names = [f"allow_{name}_reduced_precision_reduction" for name in ("fp16", "bf16")]
    before = [getattr(matmul, name) for name in names]
    yield
    for name, value in zip(names, before, strict=True):
        setattr(matmul, name, value)


@pytest.mark.usefixtures("reductions")
def test_each_product_is_written_as_it_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a run that is ended loses none; the two types come in turn."""
    types: list[torch.dtype] = []

    def made_up(m: int, n: int, k: int, dtype: torch.dtype, plans: int) -> survey.Timed:
        if len(types) == 2:
            raise KeyboardInterrupt
        types.append(dtype)
        return survey.Timed(m, n, k, str(dtype), 2e-5, 1e-5, 1e-5, "")

    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.empty_cache", lambda: None)
    monkeypatch.setattr(survey, "timed", made_up)
    output = tmp_path / "survey.jsonl"
    with pytest.raises(KeyboardInterrupt):
        survey.main(["--products", "3", "--output", str(output)])
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [(row["m"], row["n"], row["k"]) for row in rows] == survey.sample(3, 0)[:2]
    assert types == [torch.float16, torch.bfloat16]


def test_it_needs_a_gpu(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit):
        survey.main([])
    assert "there is none" in capsys.readouterr().err
