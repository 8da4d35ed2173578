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
SURVEY = ROOT / "records/h100/survey-fp8.txt"


@pytest.fixture(scope="module")
def model() -> fp8.Fp8Model:
    return fp8.Fp8Model()


def test_the_chosen_plans_are_within_a_percent_of_the_best(model: fp8.Fp8Model) -> None:
    rows, measured, _ = fp8.read(SURVEY)
    modelled = model.microseconds(rows, model.start())
    behind, first = [], 0
    for line in map(json.loads, SURVEY.read_text().splitlines()):
        if "time" not in line:
            continue
        last = first + len(set(line["microseconds"]) - set(fp8.OTHERS))
        times = measured[first:last]
        behind.append(times[np.argmin(modelled[first:last])] / times.min())
        first = last
    assert first == len(rows)
    assert len(behind) == 81
    assert float(np.exp(np.mean(np.log(behind)))) < 1.01
    assert max(behind) < 1.15


def test_exact_times_give_todays_constants_within_a_hundredth(model: fp8.Fp8Model) -> None:
    rows, _, _ = fp8.read(SURVEY)
    generator = np.random.default_rng(1)
    start = {name: values * np.exp(generator.uniform(-0.1, 0.1, len(values))) for name, values in model.start().items()}
    fitted = model.fit(rows, model.microseconds(rows, model.start()), start)
    assert [one.struct for one in fitted] == list(fp8.STRUCTS)
    for one in fitted:
        assert one.unseen == ()
        assert one.after == pytest.approx(one.before, rel=1e-2), one.struct


def test_the_header_has_the_constants_that_the_survey_gives(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["fp8", "--times", str(SURVEY)]) == 0
    assert "the fitted model differs from today's by 0.0%" in capsys.readouterr().out


def test_every_plan_of_the_lists_has_fields() -> None:
    plan = {"few_rows": 1, "block_scales": 1, "fast_sums": 0, "tile_m": 32, "tile_n": 64, "stage_k": 256, "stages": 4}
    assert fp8.kernel_fields("few rows 32 k2 s4 block scales split 8") == {**plan, "blocks_per_sm": 2, "cluster": 8}
    plan = {"few_rows": 0, "block_scales": 0, "fast_sums": 1, "tile_m": 128, "tile_n": 256, "stage_k": 128, "stages": 4}
    assert fp8.kernel_fields("persistent 128x256 fast sums cluster 2") == {**plan, "blocks_per_sm": 1, "cluster": 2}
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
