"""The program that fits the cost models' constants (ext/cost_models), on times that the models themselves make."""

from __future__ import annotations

import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "ext"))  # the package is not installed: it belongs to the tree, not to the wheel

from cost_models import attention, constants, gemm, host_library, measure_attention, regret, times  # noqa: E402
from cost_models.errors import UsageError  # noqa: E402
from cost_models.fitted import Fitted  # noqa: E402
from cost_models.measure_gemm import draw  # noqa: E402

pytestmark = pytest.mark.skipif(
    shutil.which(os.environ.get("CXX", "g++")) is None, reason="needs a C++ compiler for the cost models"
)
MULTIPROCESSORS = 132
# Clusters of an H200 that run at once, by their size: its groups of multiprocessors do not divide evenly.
CLUSTERS = {1: 132, 2: 66, 3: 43, 4: 32, 5: 24, 6: 20, 8: 16}
MULTICAST_CLUSTERS = ((2, 2, 1, 1), (2, 1, 2, 1), (3, 1, 2, 1), (4, 1, 2, 1), (2, 4, 1, 1), (1, 4, 2, 2), (5, 1, 1, 1))


def kernels() -> list[dict[str, int]]:
    """The kernels that instances.cuh lists, as the model sees them; both storages of P, where a kernel has them."""
    found = []
    macro = re.compile(r"CUDA_LLM_OPS_(\w+)\(T, (\d+), (\d+), (\d+), (\d+)(?:, (\d+))?(?:, (\d+))?\)")
    for match in macro.finditer((gemm.FOLDER / "instances.cuh").read_text()):
        kind, (m, n, k, stages, warpgroups, blocks) = match[1], (int(part or 1) for part in match.groups()[1:])
        kernel = {"tile_m": m, "tile_n": n, "tile_k": k, "stages": stages, "blocks_per_sm": blocks, "q_mn_major": 0}
        kernel["persistent"] = int(kind.startswith(("PERSISTENT", "SWAPPED", "PINGPONG")))
        kernel["swap"] = int("SWAPPED" in kind or kind.startswith("SKINNY"))
        kernel["pingpong"] = int("PINGPONG" in kind)
        kernel["multicasts"] = int("MULTICAST" in kind)
        kernel["shared_bytes"] = stages * (2 * k * (m + n) + 16) + warpgroups * 16384
        found += [{**kernel, "p_mn_major": stored} for stored in ((0,) if kind.endswith("KK") else (0, 1))]
    return found


def plans(count: int) -> np.ndarray:
    """Rows of plans as random as those that are measured on a card."""
    draw_plan, listed, rows = random.Random(0), kernels(), []
    assert len(listed) > 80
    while len(rows) < count:
        kernel = draw_plan.choice(listed)
        m, n, k, *_ = draw(draw_plan)
        split = parts = cluster_m = cluster_n = 1
        if kernel["multicasts"]:
            split, cluster_m, cluster_n, parts = draw_plan.choice(MULTICAST_CLUSTERS)
        elif kernel["persistent"]:
            cluster_m, cluster_n = draw_plan.choice(((1, 1), (2, 1), (1, 2)))
        elif draw_plan.random() < 0.2 and kernel["blocks_per_sm"] == 1:
            parts = draw_plan.choice((2, 3))
        else:
            split = draw_plan.choice((1, 2, 3, 4, 8))
        clusters = CLUSTERS[split * cluster_m * cluster_n] * kernel["blocks_per_sm"]
        product = {"m": m, "n": n, "k": k, "batch": 1, "out_float": 0}
        launch = {"split": split, "cluster_m": cluster_m, "cluster_n": cluster_n, "parts": parts, "clusters": clusters}
        line = {**kernel, **product, **launch, "multiprocessors": MULTIPROCESSORS}
        rows.append([line[field] for field in gemm.FIELDS])
    return np.array(rows, dtype=np.int32)


@pytest.fixture(scope="module")
def model() -> gemm.GemmModel:
    return gemm.GemmModel()


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return plans(6000)


def elsewhere(model: gemm.GemmModel) -> dict[str, np.ndarray]:
    """Every constant up to 20 % off."""
    generator = np.random.default_rng(1)
    return {name: values * np.exp(generator.uniform(-0.2, 0.2, len(values))) for name, values in model.start().items()}


def test_exact_times_give_todays_constants_within_a_thousandth(model: gemm.GemmModel, rows: np.ndarray) -> None:
    fitted = model.fit(rows, model.microseconds(rows, model.start()), elsewhere(model))
    assert [one.struct for one in fitted] == list(gemm.STRUCTS)
    for one in fitted:
        assert one.unseen == ()
        assert one.after == pytest.approx(one.before, rel=1e-3), one.struct


def test_disturbed_times_give_todays_model_within_a_percent(model: gemm.GemmModel, rows: np.ndarray) -> None:
    generator = np.random.default_rng(2)
    exact = model.microseconds(rows, model.start())
    disturbed = exact * np.exp(0.02 * generator.standard_normal(len(exact)))
    disturbed[::200] *= 3.0  # another process had the card
    fitted = model.fit(rows, disturbed, elsewhere(model))
    again = model.microseconds(rows, {one.struct: np.array(list(one.after.values())) for one in fitted})
    assert float(np.sqrt(np.mean(np.log(again / exact) ** 2))) < 0.01


def test_constants_that_no_time_depends_on_are_left_and_named(model: gemm.GemmModel, rows: np.ndarray) -> None:
    persistent = rows[(rows[:, gemm.FIELDS.index("persistent")] != 0) & (rows[:, gemm.FIELDS.index("swap")] == 0)]
    (one,) = model.fit(persistent, model.microseconds(persistent, model.start()))
    assert one.struct == "PlanCosts"
    assert {"split_k_outside", "exchange", "second_kernel"} <= set(one.unseen)
    assert "cycles_a_microsecond" not in one.unseen
    assert all(one.after[name] == pytest.approx(one.before[name], rel=1e-12) for name in one.unseen)


def test_few_times_move_little_of_what_is_held(model: gemm.GemmModel, rows: np.ndarray) -> None:
    few, start = rows[:200], model.start()
    slower = 1.2 * model.microseconds(few, start)
    free, held = (model.fit(few, slower, near=near) for near in (0.0, 1e4))
    moved = [
        max(abs(math.log(one.after[name] / value)) for one in fits for name, value in one.before.items())
        for fits in (free, held)
    ]
    assert moved[0] > 0.1
    assert moved[1] < 0.01


def test_choices_lose_what_the_quickest_plan_would_save(model: gemm.GemmModel, rows: np.ndarray) -> None:
    """Two layouts of one size are two products; a swapped kernel has its operands the other way round."""
    i = {name: place for place, name in enumerate(gemm.FIELDS)}
    of = np.repeat(rows[:1], 4 * 12, axis=0)
    of[:, [i["swap"], i["p_mn_major"], i["q_mn_major"]]] = np.repeat(
        [[0, 0, 0], [0, 1, 0], [1, 0, 1], [1, 1, 0]], 12, 0
    )
    products = regret.Products.of_rows(np.concatenate([of, rows[1:6]]), gemm.product_of)
    assert [len(one) for one in products.of] == [12, 24, 12]
    measured = np.full(len(of) + 5, 20.0)
    measured[[3, 15, 40]] = 10.0, 16.0, 4.0
    chosen = np.full(len(measured), 2.0)
    chosen[[3, 20, 37]] = 1.0
    lost = regret.regrets(products, chosen, measured)
    assert lost.tolist() == [0.0, 0.25, 4.0]
    assert regret.by_quickest(products, lost, measured) == {"0 to 5 us": (1, 4.0), "10 to 25 us": (2, 0.125)}
    near = regret.near_best(products, measured, 0.3)
    assert near[12:36].all()
    assert np.flatnonzero(near[:12]).tolist() == [3]
    assert near[len(of) :].all()


def test_a_product_is_chosen_for_by_a_fit_to_the_others() -> None:
    rows = np.repeat(np.arange(10, dtype=np.int32), 10).reshape(-1, 1)
    measured = np.tile(np.arange(1.0, 11.0), 10)
    products = regret.Products.of_rows(rows, lambda row: (row[0],))
    seen = []

    def fit(some: np.ndarray, times: np.ndarray) -> Any:
        seen.append(set(some[:, 0].tolist()))
        return lambda every: np.where(np.isin(every[:, 0], some), measured, -measured)

    assert regret.held_out(products, rows, measured, fit).tolist() == [9.0] * 10
    assert [set(range(10)) - one for one in seen] == [{fold, fold + 5} for fold in range(5)]


def test_margins_count_where_a_plan_is_chosen(model: gemm.GemmModel, rows: np.ndarray) -> None:
    times, choosing = (model.microseconds(rows, model.start(), choosing=one) for one in (False, True))
    assert (choosing >= times).all()
    late = rows[:, gemm.FIELDS.index("multicasts")] == 1
    assert (choosing[late] > times[late]).all()


def test_fitted_constants_are_written_where_they_were_read(tmp_path: Path) -> None:
    header = tmp_path / "cost_model.h"
    header.write_text(gemm.HEADER.read_text())
    before = constants.read(header, "PlanCosts")
    constants.write(header, "PlanCosts", {"barrier_cycles": 12.3456, "l2_bytes_a_microsecond": 2e7})
    after = constants.read(header, "PlanCosts")
    assert after == {**before, "barrier_cycles": 12.35, "l2_bytes_a_microsecond": 2e7}
    assert constants.read(header, "MulticastCosts") == constants.read(gemm.HEADER, "MulticastCosts")
    with pytest.raises(UsageError, match="has no nothing"):
        constants.write(header, "PlanCosts", {"nothing": 1.0})
    with pytest.raises(UsageError, match="has no struct Other"):
        constants.read(header, "Other")


@pytest.fixture(scope="module")
def attention_model() -> attention.AttentionModel:
    try:
        host_library.cuda_home()
    except UsageError as error:
        pytest.skip(str(error))
    return attention.AttentionModel()


# By instance: rows of queries and keys of a tile, cluster, split_keys, cross_tile, stream_k.
INSTANCES = {
    128: {"wgmma 128x128": (128, 128, 1, 0, 0, 0), "wgmma 64x128, split keys": (64, 64, 1, 1, 0, 0)},
    64: {"wgmma 128x64, 128 keys": (128, 128, 1, 0, 1, 0), "wgmma 192x64, 80 keys": (192, 80, 1, 0, 1, 0)},
}


def problems(count: int) -> tuple[np.ndarray, list[str]]:
    """Rows of random problems, each by every instance of its head_dim."""
    draw_problem, rows, plans = random.Random(0), [], []
    while len(rows) < count:
        head_dim = draw_problem.choice((64, 128))
        kv_heads = draw_problem.choice((1, 2, 4, 8, 16))
        seq = round(math.exp(draw_problem.uniform(math.log(64), math.log(16384))))
        heads, batch, causal = (
            kv_heads * draw_problem.choice((1, 4)),
            draw_problem.choice((1, 2, 8)),
            draw_problem.random() < 0.5,
        )
        misaligned = draw_problem.random() < 0.3
        for name, (block_m, block_n, *ways) in INSTANCES[head_dim].items():
            problem = (batch, heads, kv_heads, seq, seq, head_dim, int(causal), int(misaligned))
            rows.append([*problem, head_dim, block_m, block_n, *ways, 0, MULTIPROCESSORS])
            plans.append(name)
    return np.array(rows, dtype=np.int32), plans


def modelled(model: attention.AttentionModel, rows: np.ndarray, plans: list[str]) -> np.ndarray:
    """Times of today's constants: 4.5 us outside, and a unit of 0.3 or 0.5 ns."""
    table = np.array([[model.constants[plan][name] for name in model.names] for plan in plans])
    unit = np.where(rows[:, attention.FIELDS.index("head_dim")] == 64, 3e-4, 5e-4)
    return 4.5 + unit * model.costs(rows, table)


def test_exact_times_give_todays_instances_within_a_hundredth(attention_model: attention.AttentionModel) -> None:
    rows, plans = problems(1500)
    generator = np.random.default_rng(3)
    start = {
        instance: {name: value * float(np.exp(generator.uniform(-0.15, 0.15))) for name, value in values.items()}
        for instance, values in attention_model.constants.items()
    }
    for first in ("wgmma 128x128", "wgmma 128x64, 128 keys"):
        start[first]["full"] = attention_model.constants[first]["full"]  # the gauge
    fitted = attention_model.fit(rows, modelled(attention_model, rows, plans), plans, start)
    assert {one.struct for one in fitted} == {name for group in INSTANCES.values() for name in group}
    for one in fitted:
        seen = {name: value for name, value in one.after.items() if name not in one.unseen}
        assert {"full", "causal", "tile"} <= set(seen)
        assert seen == pytest.approx({name: one.before[name] for name in seen}, rel=1e-2), one.struct


def test_an_unknown_instance_is_named(attention_model: attention.AttentionModel) -> None:
    rows, plans = problems(4)
    with pytest.raises(UsageError, match="no instance is called 'wgmma 3x3'"):
        attention_model.fit(rows, np.ones(len(rows)), ["wgmma 3x3"] * len(plans))


def test_an_instances_constants_are_written_into_its_entry(
    attention_model: attention.AttentionModel, tmp_path: Path
) -> None:
    for path in attention_model.files:
        (tmp_path / path.name).write_text(path.read_text())
    name = "wgmma 128x64, 128 keys"
    before = attention_model.constants[name]
    after = {**before, "full": 0.98765, "tile": 512.0}
    attention.write(sorted(tmp_path.glob("*.cu")), [Fitted(name, before, after, (), 1, 0.0, 1.0)])
    again = attention.AttentionModel(tmp_path).constants
    assert again == {**attention_model.constants, name: {**after, "full": 0.988}}


def test_the_timing_program_compiles(tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("needs nvcc")
    program, *kernels = measure_attention.sources()
    assert len(kernels) > 15
    command = [nvcc, *measure_attention.FLAGS, "-I", str(ROOT / "ext/csrc"), "-c", str(program)]
    done = subprocess.run([*command, "-o", str(tmp_path / "program.o")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "ext")}
    command = [sys.executable, "-m", "cost_models", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def lines(rows: np.ndarray, microseconds: np.ndarray) -> list[dict[str, Any]]:
    return [
        {**dict(zip(gemm.FIELDS, map(int, row), strict=True)), "microseconds": float(time)}
        for row, time in zip(rows, microseconds, strict=True)
    ]


def test_the_command_accepts_the_times_of_todays_model(tmp_path: Path, model: gemm.GemmModel, rows: np.ndarray) -> None:
    path = tmp_path / "times.jsonl"
    times.write(path, lines(rows[:1500], model.microseconds(rows[:1500], model.start())))
    done = run("gemm", "--times", str(path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PlanCosts: " in done.stdout
    assert "MulticastCosts: " in done.stdout
    assert "the fitted model differs from today's by 0.0%" in done.stdout


def test_the_command_refuses_another_cards_times(tmp_path: Path, model: gemm.GemmModel, rows: np.ndarray) -> None:
    path = tmp_path / "times.jsonl"
    times.write(path, lines(rows[:1500], 1.3 * model.microseconds(rows[:1500], model.start())))
    done = run("gemm", "--times", str(path))
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"differs from today's by {math.log(1.3):.0%}"[:-1] in done.stdout
    assert "beyond the margin of 5.0%" in done.stdout


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no times"),
        ("not json\n", "line 1 is no line of times"),
        ('{"m": 1}\n', "line 1 lacks 'n'"),
        (json.dumps({**dict.fromkeys(gemm.FIELDS, 1), "microseconds": 0}) + "\n", "must be above 0"),
    ],
)
def test_a_file_that_is_no_file_of_times_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "times.jsonl"
    path.write_text(text)
    done = run("gemm", "--times", str(path))
    assert done.returncode == 2
    assert words in done.stderr


@pytest.mark.parametrize("words", [["gemm", "--near=-1"], ["fp8", "--near=3"]])
def test_only_constants_of_gemm_are_held(tmp_path: Path, words: list[str]) -> None:
    done = run(*words, f"--times={tmp_path / 'none'}")
    assert done.returncode == 2
    assert "it must be 0 or more, and is for gemm" in done.stderr


def test_a_missing_file_and_a_missing_card_are_named(tmp_path: Path) -> None:
    done = run("gemm", "--times", str(tmp_path / "nowhere.jsonl"))
    assert done.returncode == 2
    assert "cannot be read: No such file" in done.stderr
    done = run("gemm", "--seconds", "0")
    assert done.returncode == 2
    assert "--seconds is 0.0" in done.stderr
