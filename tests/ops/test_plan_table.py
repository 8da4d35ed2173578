"""The table of measured GEMM plans is read and rewritten without its text changing where its rows do not."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="cuda_llm_ops needs torch")

from cuda_llm_ops.plan_table import TABLE, Plan, Product, line, parse, rewritten

TEXT = TABLE.read_text()


def test_every_row_of_the_table_is_read() -> None:
    assert len(parse(TEXT)) == TEXT.count("KernelKind::") > 80


def test_the_table_is_as_the_command_would_write_it() -> None:
    assert rewritten(TEXT, parse(TEXT), 132) == TEXT


def test_a_measured_plan_becomes_a_row() -> None:
    product = Product(512, 384, 256, a_mn_major=False, b_mn_major=True)
    plan = Plan.named("swapped 128x144x64/5 mk split 1 cluster 2x1")
    written = rewritten(TEXT, {product: plan}, 114)
    assert parse(written) == {product: plan}
    assert "    {512, 384, 256, false, true, KernelKind::swapped, 128, 144, 64, 5, 1, 2, 1}," in written.splitlines()
    assert "kMeasuredMultiprocessors = 114;" in written
    assert line(product, plan) in written


def test_the_fewest_blocks_are_the_simplest_plan() -> None:
    assert Plan.named("split 64x64x64/6 kk split 3 cluster 1x1").blocks == 3
    assert Plan.named("persistent 64x64x64/5 km split 1 cluster 2x1").blocks == 2


@pytest.mark.parametrize("name", ["", "persistent 128x256x64 kk split 1 cluster 1x1", "persistent 128x256x64/4"])
def test_what_is_no_plan_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no plan's name"):
        Plan.named(name)


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(ValueError, match="no table of plans"):
        rewritten("constexpr int x = 1;", {}, 132)
