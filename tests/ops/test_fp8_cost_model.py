"""The cost model of FP8 products: its plans on the committed survey, its fit, and how it reads surveys."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "ext"))  # the package is not installed: it belongs to the tree, not to the wheel

from cost_models import __main__ as command  # noqa: E402
from cost_models import fp8  # noqa: E402
from cost_models.errors import UsageError  # noqa: E402

pytestmark = pytest.mark.skipif(
    shutil.which(os.environ.get("CXX", "g++")) is None, reason="needs a C++ compiler for the cost models"
)
SURVEY = ROOT / "records/h200/survey-fp8.txt"
FEW_ROWS = ROOT / "records/h200/survey-fp8-few-rows.txt"
"""Of the few-rows kernels before their blocks walked over tiles."""


@pytest.fixture(scope="module")
def model() -> fp8.Fp8Model:
    return fp8.Fp8Model()


def behind(model: fp8.Fp8Model, record: Path, fewest: int, most: int) -> np.ndarray:
    """The time of the chosen plan over that of the best, of the products with so many rows."""
    rows, measured, _ = fp8.read(record)
    modelled = model.microseconds(rows, model.start())
    found, first = [], 0
    for line in map(json.loads, record.read_text().splitlines()):
        if "time" not in line:
            continue
        last = first + len(set(line["microseconds"]) - set(fp8.OTHERS))
        times = measured[first:last]
        if fewest <= rows[first, 0] <= most:
            found.append(times[np.argmin(modelled[first:last])] / times.min())
        first = last
    assert first == len(rows)
    return np.array(found)


def test_the_chosen_plans_are_nearly_the_best(model: fp8.Fp8Model) -> None:
    many, few = behind(model, SURVEY, 257, 8192), behind(model, SURVEY, 1, 256)
    assert (len(many), len(few)) == (24, 48)
    assert float(np.exp(np.mean(np.log(many)))) < 1.005
    # Of 256 x 128 with block scales and 2048 x 28672 x 4096 one cluster was 7 % slower than two. It is not elsewhere.
    assert float(np.sort(many)[-2]) < 1.015
    assert float(many.max()) < 1.08
    assert float(np.exp(np.mean(np.log(few)))) < 1.02
    assert float(few.max()) < 1.32
    assert float(np.sort(few)[-2]) < 1.13


def test_exact_times_give_todays_constants_within_a_hundredth(model: fp8.Fp8Model) -> None:
    rows = np.concatenate([fp8.read(record)[0] for record in (SURVEY, FEW_ROWS)])
    generator = np.random.default_rng(1)
    start = {name: values * np.exp(generator.uniform(-0.1, 0.1, len(values))) for name, values in model.start().items()}
    fitted = model.fit(rows, model.microseconds(rows, model.start()), start)
    assert [one.struct for one in fitted] == list(fp8.STRUCTS)
    for one in fitted:
        seen = {name: value for name, value in one.after.items() if name not in one.unseen}
        assert seen == pytest.approx({name: one.before[name] for name in seen}, rel=1e-2), one.struct


@pytest.mark.parametrize(
    ("struct", "record", "within", "times"),
    [("PersistentCosts", SURVEY, 0.3, 159), ("FewRowsCosts", FEW_ROWS, None, 183)],
)
def test_the_header_has_the_constants_that_its_record_gives(
    model: fp8.Fp8Model, struct: str, record: Path, within: float | None, times: int
) -> None:
    rows, measured, _ = fp8.read(record)
    chosen = fp8.near_best(rows, measured, within)
    rows, measured = rows[chosen], measured[chosen]
    (fitted,) = (one for one in model.fit(rows, measured) if one.struct == struct)
    assert fitted.times == times
    seen = {**model.start(), struct: np.array(list(fitted.after.values()))}
    mine = rows[(rows[:, fp8.FIELDS.index("few_rows")] != 0) == (struct == "FewRowsCosts")]
    apart = np.log(model.microseconds(mine, seen) / model.microseconds(mine, model.start()))
    assert float(np.sqrt(np.mean(apart**2))) < 0.01


def test_plans_near_the_quickest_of_their_product_are_kept() -> None:
    plans = [(8, 0), (8, 0), (8, 0), (8, 1), (9, 0)]  # rows, block scales
    rows = np.zeros((len(plans), len(fp8.FIELDS)), dtype=np.int32)
    rows[:, [fp8.FIELDS.index("m"), fp8.FIELDS.index("block_scales")]] = plans
    times = np.array([1.0, 1.29, 1.31, 2.0, 9.0])
    assert fp8.near_best(rows, times, 0.3).tolist() == [True, True, False, True, True]
    assert fp8.near_best(rows, times, None).all()


def test_a_survey_is_fitted_to_plans_near_the_quickest_by_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["fp8", "--times", str(SURVEY), "--within", "0.3", "--margin", "1"]) == 0
    assert "PersistentCosts: 159 times" in capsys.readouterr().out


def test_a_survey_is_fitted_by_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["fp8", "--times", str(FEW_ROWS), "--margin", "1"]) == 0
    printed = capsys.readouterr().out
    assert "FewRowsCosts: 183 times" in printed
    assert "end_a_row" in printed


def test_every_plan_of_the_lists_has_fields() -> None:
    plan = {"few_rows": 1, "block_scales": 1, "tile_m": 32, "tile_n": 64, "stage_k": 256, "stages": 4}
    assert fp8.kernel_fields("few rows 32 k2 s4 block scales split 8") == {**plan, "blocks_per_sm": 2, "cluster": 8}
    plan = {"few_rows": 0, "block_scales": 0, "tile_m": 128, "tile_n": 192, "stage_k": 128, "stages": 4}
    assert fp8.kernel_fields("persistent 128x192 cluster 2") == {**plan, "blocks_per_sm": 1, "cluster": 2}
    for name in ("few rows 32 k2 s5 split 1", "persistent 64x64 cluster 1", "chosen"):
        with pytest.raises(UsageError, match=f"no plan of FP8 products is called '{name}'"):
            fp8.kernel_fields(name)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no times; `python -m cuda_llm_ops.survey_fp8"),
        ('{"wrong": 0}\n', "has no times"),
        ("not json\n", "line 1 is no line of a survey"),
        ("[1]\n", "line 1 is no line of a survey"),
        ('{"time": "8x8 tensor", "microseconds": {}}\n', "its product is '8x8 tensor'"),
        ('{"time": "8x8x8 row", "microseconds": {"persistent 1x1 cluster 1": 1.0}}\n', "is called 'persistent 1x1"),
        ('{"time": "8x8x8 row", "microseconds": {"persistent 128x64 cluster 1": 0}}\n', "must be above 0"),
    ],
)
def test_a_file_that_is_no_survey_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    path = tmp_path / "survey.txt"
    path.write_text(text)
    assert command.main(["fp8", "--times", str(path)]) == 2
    assert words in capsys.readouterr().err


def test_times_are_asked_for() -> None:
    with pytest.raises(UsageError, match="fp8 needs --times FILE"):
        command.run(command.parser().parse_args(["fp8"]))
