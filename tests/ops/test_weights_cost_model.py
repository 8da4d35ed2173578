"""The cost model of weight-only products of few rows: its plans on the committed survey, its fit, what it reads."""

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
from cost_models import weights  # noqa: E402
from cost_models.errors import UsageError  # noqa: E402

pytestmark = pytest.mark.skipif(
    shutil.which(os.environ.get("CXX", "g++")) is None, reason="needs a C++ compiler for the cost models"
)
SURVEY = ROOT / "records/h200/survey-weights-few-rows.txt"


@pytest.fixture(scope="module")
def model() -> weights.WeightsModel:
    return weights.WeightsModel()


def test_the_chosen_plans_are_nearly_the_best(model: weights.WeightsModel) -> None:
    """Every chosen plan was measured. One is more than 3 % behind: with one row, the plan that is the best of the same
    product with four and eight rows."""
    behind = {}
    for line in map(json.loads, SURVEY.read_text().splitlines()):
        product = weights.product_fields(line["time"]) if "time" in line else {"m": 0}
        if 1 <= product["m"] <= weights.MOST_ROWS:
            times = line["microseconds"]
            behind[line["time"]] = times[model.chosen(**product)] / min(times.values())
    assert len(behind) == 60
    assert float(np.exp(np.mean(np.log(list(behind.values()))))) < 1.002
    assert {product for product, ratio in behind.items() if ratio > 1.03} == {"1x4096x14336 int8"}
    assert max(behind.values()) < 1.05


def test_the_header_has_the_constants_that_its_record_gives(model: weights.WeightsModel) -> None:
    rows, measured, _ = weights.read(SURVEY)
    (fitted,) = model.fit(rows, measured)
    assert fitted.unseen == ()
    assert fitted.after == pytest.approx(fitted.before, rel=1e-2)


def test_exact_times_give_todays_constants_within_a_hundredth(model: weights.WeightsModel) -> None:
    rows, _, _ = weights.read(SURVEY)
    rows[:, weights.FIELDS.index("cut_nanoseconds")] = 0
    generator = np.random.default_rng(1)
    start = {name: values * np.exp(generator.uniform(-0.1, 0.1, len(values))) for name, values in model.start().items()}
    (fitted,) = model.fit(rows, model.microseconds(rows, model.start()), start)
    assert fitted.after == pytest.approx(fitted.before, rel=1e-2)


def test_a_slower_plan_counts_only_below_the_time_that_it_is_slower_than(model: weights.WeightsModel) -> None:
    rows, measured, _ = weights.read(SURVEY)
    cut = rows[:, weights.FIELDS.index("cut_nanoseconds")]
    assert set(cut[cut > 0] / 1000) <= set(measured[cut > 0])
    assert (model.microseconds(rows, model.start()) <= measured)[cut > 0].all()


def test_a_survey_is_fitted_by_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["weights", "--times", str(SURVEY)]) == 0
    printed = capsys.readouterr().out
    assert "FewRowsCosts: 733 times" in printed
    assert "two_blocks_meet" in printed


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no times of products of up to 16 rows"),
        ('{"time": "32x8192x8192 int8", "microseconds": {"2.4.1": 1.0}}\n', "has no times of products of up to 16"),
        ("not json\n", "line 1 is no line of a survey"),
        ("[1]\n", "it is .1., no object"),
        ('{"time": "8x8 int8", "microseconds": {}}\n', "no weight-only product is called '8x8 int8'"),
        ('{"time": "8x8x64 int4 g32", "microseconds": {}}\n', "is called '8x8x64 int4 g32'"),
        ('{"time": "8x64x64 int8", "microseconds": 3}\n', "its microseconds are 3"),
        ('{"time": "8x64x64 int8", "microseconds": {"2-4": 1.0}}\n', "no plan is called '2-4'"),
        ('{"time": "8x64x64 int8", "microseconds": {"2.4.1": 0}}\n', "must be above 0"),
        ('{"time": "8x64x64 int8", "microseconds": {}, "slower": ["2.4.1"]}\n', "slower than None microseconds"),
    ],
)
def test_a_file_that_is_no_survey_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    path = tmp_path / "survey.txt"
    path.write_text(text)
    assert command.main(["weights", "--times", str(path)]) == 2
    printed = capsys.readouterr().err
    assert words in printed.replace("[1]", ".1.")


def test_times_are_asked_for() -> None:
    with pytest.raises(UsageError, match=r"weights needs --times FILE, such as records/h200/survey-weights-few-rows"):
        command.run(command.parser().parse_args(["weights"]))
