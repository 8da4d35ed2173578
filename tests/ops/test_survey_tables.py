"""The tables that pages show of the kernels' surveys are those that the committed surveys give."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "ext"))  # the package is not installed: it belongs to the tree, not to the wheel

from cost_models import tables  # noqa: E402
from cost_models.errors import UsageError  # noqa: E402

PAGES = sorted((ROOT / "docs").rglob("*.md"))


def block(name: str, body: str = "") -> str:
    return f"<!-- survey:{name} -->\n{body}<!-- /survey:{name} -->"


def test_pages_show_every_table_as_the_committed_surveys_give_it() -> None:
    text = "".join(page.read_text() for page in PAGES)
    assert [name for name in tables.TABLES if f"<!-- survey:{name} -->" not in text] == []
    assert tables.main(["--check", *map(str, PAGES)]) == 0


def test_a_typed_figure_is_found_and_made_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text((ROOT / "docs/ladder-weights.md").read_text())
    right = page.read_text()
    assert tables.main(["--check", str(page)]) == 0
    page.write_text(right.replace("| 0.54 | 0.68 |", "| 0.65 | 0.68 |"))
    assert page.read_text() != right
    assert tables.main(["--check", str(page)]) == 1
    assert page.read_text() != right, "--check writes nothing"
    assert tables.main([str(page)]) == 0
    assert page.read_text() == right
    assert capsys.readouterr().out == f"{page}: out of date\n{page}: made anew\n"


def test_figures_follow_the_survey(tmp_path: Path) -> None:
    """A tile that is faster or loses more takes the place of the others; a plan without a kind to show does not."""
    table = tables.TABLES["fp8-teraflops"]
    survey = tmp_path / table.survey
    survey.parent.mkdir(parents=True)
    ours = {"128x64": 7, "256x128": 5, "256x128 as before": 9, "64x64 fast sums": 1, "128x64 fast sums": 2}
    product = {"tflops": "8x16x32", "torch": None, "ours": ours | {"128x64 every 512": 3, "128x64 none": 4}}
    run = {"device": "Some card", "products_checked": 1234, "wrong": 5}
    survey.write_text("\n".join(map(json.dumps, [run, {"constant_rows_k": 8}, product])))
    rows = table.made(tmp_path).splitlines()
    assert rows[2] == "| 8 x 16 x 32 | - | - | 7 | 2 | 3 | 4 |"
    assert rows[-1] == f"Measured on one Some card (`{table.survey}`); 1,234 products were checked, 5 of them wrong."
    assert len(rows) == 5, "the line of another kind is none of this table"


def test_pairs_are_those_of_the_chosen_plan(tmp_path: Path) -> None:
    table = tables.TABLES["fp8-pairs"]
    survey = tmp_path / table.survey
    survey.parent.mkdir(parents=True)
    line = {"pairs": "8x16x32", "speed_teraflops": 1234, "speed_of_torch": {"chosen": 0.75, "before": 7}}
    kinds = [("promoted", {"before": 0.5, "chosen": 1.004, "best": 2}), ("fast", {"before": 0.25, "chosen": 0.125})]
    products = [line | {"sums": sums, "speed": speed} for sums, speed in kinds]
    run = {"device": "Some card", "products_checked": 1, "wrong": 0}
    survey.write_text("\n".join(map(json.dumps, [run, products[0], {"time": "8x16x32 tensor"}, products[1]])))
    rows = table.made(tmp_path).splitlines()
    assert rows[2] == "| 8 x 16 x 32 | 1234 | 0.50 | 1.00 | 0.75 | 1234 | 0.25 | 0.12 | 0.75 |"
    survey.write_text("\n".join(map(json.dumps, [run, products[0]])))
    with pytest.raises(UsageError, match="KeyError, 'fast'"):
        table.made(tmp_path)


def test_block_scales_stand_beside_one_scale_where_rows_are_many(tmp_path: Path) -> None:
    table = tables.TABLES["fp8-block-scales"]
    survey = tmp_path / table.survey
    survey.parent.mkdir(parents=True)
    many = {"tensor": ("persistent 256x128 cluster 2", 400.4), "block": ("persistent 192x128 block scales", 300.2)}
    few = {"tensor": ("few rows 8 k2 s5 split 1", 4.0), "block": ("persistent 128x64 block scales cluster 1", 3.0)}
    lines = [
        {"time": f"{size} {kind}", "best": best, "teraflops": speed}
        for size, of in (("300x16x32", many), ("1x16x32", few))
        for kind, (best, speed) in of.items()
    ]
    survey.write_text("\n".join(map(json.dumps, [{"device": "Some card"}, *lines])))
    rows = table.made(tmp_path).splitlines()
    assert rows[2:] == [
        "| 300 x 16 x 32 | 400 | 256 x 128 | 300 | 192 x 128 | 0.75 |",
        "",
        f"Measured on one Some card (`{table.survey}`).",
    ]
    survey.write_text("\n".join(map(json.dumps, [{"device": "Some card"}, lines[0]])))
    with pytest.raises(UsageError, match="KeyError, 'block'"):
        table.made(tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            block("others"),
            "page.md: there is no table others; known are fp8-errors, fp8-teraflops, fp8-pairs, fp8-block-",
        ),
        ("<!-- survey:fp8-errors -->\n", "page.md: a table needs <!-- survey:NAME --> and <!-- /survey:NAME -->"),
        (block("fp8-errors").replace("\n", " "), "each on its own line"),
        (None, "page.md cannot be read"),
    ],
)
def test_what_cannot_be_made_is_said(
    text: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    if text is not None:
        page.write_text(text)
    assert tables.main([str(page)]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace('"chosen"', '"taken"'), "is no such survey: KeyError, 'chosen'"),
        (lambda text: text.replace("int4 g128", "int5"), "no weight-only product is called '1x8192x8192 int5'"),
        (lambda text: text[:-9], "is no such survey: JSONDecodeError"),
        (lambda text: "", "is no such survey: ValueError"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_survey_that_lacks_the_figures_is_named(
    change: Callable[[str], str] | None, said: str, tmp_path: Path
) -> None:
    table = tables.TABLES["weights-few-rows"]
    survey = tmp_path / table.survey
    survey.parent.mkdir(parents=True)
    if change is not None:
        shutil.copy(ROOT / table.survey, survey)
        survey.write_text(change(survey.read_text()))
    with pytest.raises(tables.UsageError) as caught:
        table.made(tmp_path)
    assert said in str(caught.value)


def test_the_table_of_shapes_follows_the_records_of_every_card(tmp_path: Path) -> None:
    table = tables.TABLES["shapes"]
    assert table.made(tmp_path) == "No card's survey is on record."
    product = {"kind": "product", "number": 0, "m": 8, "n": 64, "k": 64, "layout": "nt", "dtype": "float16"}
    product |= {"out": "float16", "ratio": 0.93, "high": 1.0, "apart": 0.0}
    decode = {"kind": "decode", "number": 0, "ratio": 0.98, "apart": 0.0, "bytes": 1 << 28, "ours": 1e-4}
    for card, ratio in (("H100", 0.91), ("H200", 0.93)):
        path = tmp_path / f"records/{card.lower()}/survey.jsonl"
        path.parent.mkdir(parents=True)
        run = {"survey": 1, "seed": "abcdef0123456789", "device": f"NVIDIA {card}", "torch": "2.11", "earlier": []}
        run |= {"counts": {"product": 1, "attention": 1}, "large_read": 3e12}
        path.write_text("".join(json.dumps(line) + "\n" for line in (run, product | {"ratio": ratio}, decode)))
    rows = table.made(tmp_path).splitlines()
    assert rows[0] == "| cases | figure | asked | H100 | cases |  | H200 | cases |  |"
    assert "| products, aligned | lowest | at least 0.920 | 0.910 | 1 | **missed** | 0.930 | 1 | met |" in rows
    assert rows[-1].startswith(
        "Measured on one NVIDIA H200 with torch 2.11, seed abcdef012345: 2 of 2 cases (`records/h2"
    )
    ceilings = tables.TABLES["read-ceilings"].made(tmp_path).splitlines()
    assert ceilings[2] == "| NVIDIA H100 | from 256 MiB | 1 | 0.895 | 0.895 | 0.980 | 0.980 |"
    path.write_text("none")
    with pytest.raises(tables.UsageError, match=r"survey.jsonl is no record of a survey"):
        table.made(tmp_path)


def test_the_table_of_a_build_follows_its_record(tmp_path: Path) -> None:
    table = tables.TABLES["build"]
    assert table.made(tmp_path) == "No build is on record."
    family = {"sources": 3, "object_bytes": 2_000_000, "seconds": 10.0}
    build = {"architectures": "sm_80 sm_90a", "module_bytes": 230_000_000, "seconds": 60.0, "longest_seconds": 9.0}
    (tmp_path / "records").mkdir()
    place = tmp_path / "records/build.json"
    place.write_text(json.dumps({**build, "cores": 32, "families": {"gemm": family}}))
    made = table.made(tmp_path)
    assert "| gemm | 3 | 2.0 | 10 |" in made
    assert "with code for sm_80 sm_90a. The build took 60 s on 32 cores" in made
    assert made.endswith("are allowed: the module has 230 MB; 220 are allowed (`records/build.json`).")
    place.write_text("{}")
    with pytest.raises(UsageError, match="is no record of a build: KeyError"):
        table.made(tmp_path)
