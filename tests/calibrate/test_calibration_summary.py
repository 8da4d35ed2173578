"""From gates to calibration.json: the rates, their intervals, and the noise by component."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfsuite.calibrate.summary import (
    LEAST_NOISE,
    Components,
    components,
    exact_interval,
    noise_cases,
    process_noise,
    rates,
    setup_noises,
    summarise,
    table,
    trimmed_mean_square,
)
from perfsuite.settings import HARNESS
from perfsuite.verdict.noise import CalibratedCase, Calibration, calibrated_noise, noise_for

FACTS = {"gpu": "NVIDIA H200", "harness": HARNESS, "commit": "abc"}


def gate(case: str, slowdown: float, alarm: bool, *, process: int = 0, **more: Any) -> dict[str, Any]:
    row = {"kind": "gate", "case": case, "slowdown": slowdown, "alarm": alarm, "process": process, "seconds": 4e-6}
    return row | {"gpu_seconds": 0.03, "speed": 1.0 / (1.0 + slowdown), "setups": [(0.0, 1e-3, 20)]} | more


def rows() -> list[dict[str, Any]]:
    made = [gate("a", 0.0, number == 0, process=number % 4) for number in range(1000)]
    made += [gate("b", 0.0, False, process=number % 4, seconds=1e-3) for number in range(1000)]
    made += [gate("a", 0.005, number % 2 == 0) for number in range(100)]
    made += [gate("a", 0.01, number > 0, undecided=number == 0) for number in range(300)]
    made += [gate("a", 0.02, True) for _ in range(100)]
    peer = {"kind": "peer", "peer": "timer", "process": 9, "case": "a", "seconds": 0.2}
    made += [peer | {"slowdown": 0.0, "alarm": number < 5} for number in range(10)]
    return made


def test_rates_and_their_exact_intervals() -> None:
    found = summarise(rows(), FACTS)
    assert (found["gpu"], found["harness"], found["commit"]) == ("NVIDIA H200", HARNESS, "abc")
    assert (found["processes"], found["gpu_seconds_per_gate_median"]) == (4, 0.03)
    assert found["aa"]["gates"] == 2000
    assert found["aa"]["false_alarms"] == 1
    assert found["aa"]["upper95"] == exact_interval(1, 2000)[1]
    assert [(one["slowdown"], one["trials"], one["caught"]) for one in found["planted"]] == [
        (0.005, 100, 50),
        (0.01, 300, 299),
        (0.02, 100, 100),
    ]
    assert found["planted"][1]["measured"] == pytest.approx(0.01)
    assert found["planted"][1]["undecided"] == 1
    assert found["smallest_found"] == 0.01
    assert [(one["case"], one["aa"]["false_alarms"]) for one in found["cases"]] == [("a", 1), ("b", 0)]
    (peer,) = found["peers"]
    assert (peer["peer"], peer["aa"]["false_alarms"], peer["seconds_per_gate_median"]) == ("timer", 5, 0.2)


def test_a_slow_down_counts_as_found_only_if_every_larger_one_is() -> None:
    made = [gate("a", 0.01, True) for _ in range(100)] + [gate("a", 0.02, number > 5) for number in range(100)]
    assert rates(made)["smallest_found"] is None


def test_nothing_measured_has_the_widest_interval() -> None:
    assert (rates([])["aa"]["lower95"], rates([])["aa"]["upper95"]) == (0.0, 1.0)


@pytest.mark.parametrize(("setup", "process"), [(0.004, 0.0), (0.001, 0.003), (0.0, 0.0)])
def test_noise_is_split_into_its_components(setup: float, process: float) -> None:
    random = np.random.default_rng(2)
    made = []
    for number in range(60):
        shift = random.normal(0.0, process)
        medians = [np.median(shift + random.normal(0.0, setup) + random.normal(0.0, 2e-3, 20)) for _ in range(12)]
        made.append({"process": number, "setups": [(float(median), 2e-3, 20) for median in medians]})
    found = components(made)
    assert setup_noises({"a": found})["a"] == pytest.approx(setup, rel=0.15, abs=3e-4)
    assert process_noise([found]) == pytest.approx(process, rel=0.25, abs=3e-4 + setup / 8.0)


def test_a_bad_moment_of_the_card_does_not_widen_the_noise() -> None:
    random = np.random.default_rng(5)
    made = [{"process": n, "setups": [(float(random.normal(0.0, 1e-3)), 1e-4, 20) for _ in range(8)]} for n in range(3)]
    quiet = setup_noises({"a": components(made)})["a"]
    for place in range(2):
        made[1]["setups"][place] = (0.02, 1e-4, 20)
    assert setup_noises({"a": components(made)})["a"] < 2.0 * quiet


@pytest.mark.parametrize("count", [4, 12, 40])
def test_a_trimmed_variance_is_right_for_normal_values(count: int) -> None:
    squares = np.random.default_rng(8).normal(0.0, 2.0, (4000, count)) ** 2
    assert np.mean([trimmed_mean_square(list(row)) for row in squares]) == pytest.approx(4.0, rel=0.06)


def test_a_case_with_few_set_ups_leans_on_the_others() -> None:
    others = {name: Components(1e-6, 20.0, 0.0, math.inf) for name in "bcd"}
    few, many = (setup_noises({"a": Components(16e-6, freedom, 0.0, math.inf)} | others) for freedom in (2.0, 200.0))
    assert few["a"] == pytest.approx(2e-3)
    assert many["a"] == pytest.approx(4e-3, rel=0.02)
    assert few["b"] == pytest.approx(1e-3)


def test_a_single_set_up_tells_nothing_of_noise() -> None:
    found = components([{"process": 0, "setups": [(0.1, 1e-3, 20)]}])
    assert (setup_noises({"a": found}), process_noise([found])) == ({"a": LEAST_NOISE}, LEAST_NOISE)


def test_noise_between_processes_is_pooled_over_cases_by_precision() -> None:
    quiet, loud = Components(1e-8, 9.0, 1e-8, 1e-8), Components(1e-4, 9.0, 1e-4, 1e-4)
    assert process_noise([quiet, loud]) == pytest.approx(1e-4, rel=0.01)
    assert process_noise([quiet, Components(1e-8, 9.0, -9e-8, 1e-8)]) == LEAST_NOISE


def test_the_gate_reads_what_calibration_writes(tmp_path: Path) -> None:
    file = tmp_path / "calibration.json"
    noise = [row | {"kind": "noise"} for row in rows()[:2000]]
    for summary in (summarise(rows(), FACTS), {**FACTS, "cases": noise_cases(noise)}):
        file.write_text(json.dumps(summary))
        assert Calibration.load(file).gpu == "NVIDIA H200"
        noise, warnings = noise_for("cuda", 5e-6, file=file, gpu="NVIDIA H200")
        assert (noise.source, tuple(warnings)) == ("calibration", ())
        assert noise.setup >= LEAST_NOISE


def test_the_file_keeps_the_noise_that_its_gates_reckoned_with() -> None:
    spread = [(float(shift), 1e-4, 20) for shift in np.random.default_rng(1).normal(0.0, 3e-3, 12)]
    noise = [gate("a", 0.0, False, process=n, setups=spread) | {"kind": "noise"} for n in range(3)]
    used = noise_cases(noise)[0]
    found = summarise(noise + [gate("a", 0.0, False, process=9) for _ in range(20)], FACTS)["cases"][0]
    assert {name: found[name] for name in used} == used
    assert found["setup_noise"] > 1e-3 > found["setup_noise_seen"]


@pytest.mark.parametrize(
    ("text", "card", "warning"),
    [
        (None, "NVIDIA H200", "no calibration of this card"),
        ("{}", "NVIDIA H200", "is not a calibration"),
        ("{", "NVIDIA H200", "is not a calibration"),
        (json.dumps(FACTS | {"cases": []}), "NVIDIA H200", "holds no cases"),
        (json.dumps(FACTS | {"cases": []}), "NVIDIA A100", "is of NVIDIA H200, this card is NVIDIA A100"),
        (
            json.dumps(
                FACTS | {"harness": "0", "cases": [{"seconds": 1e-5, "setup_noise": 0.01, "process_noise": 0.02}]}
            ),
            "NVIDIA H200",
            "is of harness version 0",
        ),
    ],
)
def test_a_calibration_that_does_not_fit_is_a_warning(
    text: str | None, card: str, warning: str, tmp_path: Path
) -> None:
    file = tmp_path / "calibration.json"
    if text is not None:
        file.write_text(text)
    noise, warnings = noise_for("cuda", 5e-6, file=file if text is not None else None, gpu=card, alike=True)
    assert warning in warnings[0]
    assert noise.source == ("calibration" if "version" in warning else "built in")
    missing = noise_for("cuda", 5e-6, file=tmp_path / "none.json", gpu=card)
    assert "No such file" in missing[1][0]


def test_a_warning_names_the_calibration_from_the_folder_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "calibration.json").write_text(json.dumps(FACTS | {"cases": []}))
    _, warnings = noise_for("cuda", 5e-6, file=tmp_path / "calibration.json", gpu="NVIDIA H200", alike=True)
    assert warnings[0].startswith("calibration.json holds no cases")


def test_noise_between_two_calibrated_cases_is_the_larger() -> None:
    cases = (CalibratedCase(1e-5, 0.003, 0.0), CalibratedCase(1e-3, 0.001, 0.0))
    calibration = Calibration("card", HARNESS, cases)
    found = [calibrated_noise(calibration, seconds).setup for seconds in (1e-6, 1e-4, 1e-2)]
    assert found == [0.003, 0.003, 0.001]


def test_gates_of_one_pair_count_together_too() -> None:
    made = [gate("a", 0.0, number in (0, 1, 20), process=number // 20) for number in range(200)]
    found = summarise(made, FACTS | {"isolated": True})
    assert (found["aa"]["false_alarms"], found["processes"]) == (3, 10)
    assert found["pairs"] == {"gating_identical_code": 10, "with_an_alarm": 2, "upper95": exact_interval(2, 10)[1]}
    assert "pairs" not in summarise(made, FACTS)


def test_the_table_fits_a_terminal() -> None:
    text = table(summarise(rows(), FACTS))
    assert max(map(len, text.splitlines())) <= 100
    assert "1/2000" in text
    assert "299/300" in text
    assert "5/10" in text


def test_a_file_that_is_not_used_on_a_processor_is_told(tmp_path: Path) -> None:
    file = tmp_path / "calibration.json"
    noise, warnings = noise_for("cpu", 5e-6, file=file, gpu=None)
    assert warnings == (f"{file} is not used: on a CPU built-in noise figures are",)
    assert noise_for("cpu", 5e-6, file=None, gpu=None) == (noise, ())


def test_unlike_kernels_are_taken_to_be_noisier_than_a_kernel_against_itself(tmp_path: Path) -> None:
    file = tmp_path / "calibration.json"
    file.write_text(json.dumps(FACTS | {"cases": [{"seconds": 1e-5, "setup_noise": 1e-4, "process_noise": 1e-4}]}))
    same, other = (noise_for("cuda", 5e-6, file=file, gpu="NVIDIA H200", alike=alike)[0] for alike in (True, False))
    assert same.setup == 1e-4
    assert other.setup > 10 * same.setup
    assert other.process == same.process


def test_the_interval_on_a_rate_agrees_with_published_values() -> None:
    # No event in 3,000 trials: 1 - (alpha / 2) ** (1 / n). Five in ten: tables of the binomial give 0.1871 to 0.8129.
    assert exact_interval(0, 3000) == pytest.approx((0.0, 1.0 - 0.025 ** (1.0 / 3000)))
    assert exact_interval(5, 10) == pytest.approx((0.18709, 0.81291), abs=1e-5)
    assert exact_interval(300, 300) == pytest.approx((0.025 ** (1.0 / 300), 1.0))
