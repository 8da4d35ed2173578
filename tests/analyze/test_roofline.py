"""The roofline: costs by formula, ceilings by source, points of a record, the picture, the command."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from perfsuite.analyze import resources, roofline
from perfsuite.analyze.roofline_ceilings import Ceilings, from_data_sheet, measured
from perfsuite.analyze.roofline_plot import COLOURS, look, rate_text, svg
from perfsuite.analyze.roofline_points import points
from perfsuite.cli.main import main
from perfsuite.problems import Attention, Fp8Gemm, Gemm
from perfsuite.problems.base import Problem
from perfsuite.record.case import Case
from perfsuite.record.store import write_record

ROOF = roofline.Ceiling(1000e12, 5e12)
GIVEN = Ceilings({"float16": ROOF}, "made up")
SVG = "{http://www.w3.org/2000/svg}"


def test_the_two_ceilings_meet_at_the_ridge() -> None:
    assert ROOF.ridge == 200
    assert ROOF.attainable(200) == ROOF.attainable(5000) == 1000e12
    assert ROOF.attainable(20) == 100e12
    assert (ROOF.bound(199), ROOF.bound(200)) == ("memory", "compute")
    assert ROOF.seconds(roofline.Cost(1000e12, 1.0)) == 1.0
    assert ROOF.seconds(roofline.Cost(1.0, 10e12)) == 2.0


def test_the_essay_s_ratio_of_an_a10() -> None:
    known = from_data_sheet("NVIDIA A10")
    assert known is not None
    assert known.by_dtype["float16"].ridge == pytest.approx(208, abs=0.5)


@pytest.mark.parametrize(
    ("gpu", "source"),
    [
        ("NVIDIA H200", "data sheet of H200"),
        ("NVIDIA H100 PCIe", "data sheet of H100 PCIe"),
        ("NVIDIA H100 80GB HBM3", "data sheet of H100"),
        ("NVIDIA A100-SXM4-80GB", "data sheet of A100-SXM4-80GB"),
    ],
)
def test_data_sheets_are_found_by_the_card_s_name(gpu: str, source: str) -> None:
    known = from_data_sheet(gpu)
    assert known is not None
    assert known.source == source
    assert from_data_sheet("NVIDIA A1000") is None


def test_costs_by_their_formulas() -> None:
    assert roofline.gemm(512, 256, 128) == roofline.Cost(2 * 512 * 256 * 128, 2 * (512 * 128 + 128 * 256 + 512 * 256))
    assert roofline.gemm(1024, 1024, 1024).intensity == pytest.approx(1024 / 3)
    assert roofline.softmax(10, 100, item=4) == roofline.Cost(5000, 8000)
    assert roofline.layer_norm(10, 100) == roofline.Cost(8000, 4400)
    assert roofline.elementwise(100, operands=2) == roofline.Cost(100, 600)
    for memory_bound in (roofline.softmax(64, 64), roofline.layer_norm(64, 64), roofline.elementwise(64)):
        assert ROOF.bound(memory_bound.intensity) == "memory"


def test_flash_moves_attention_past_the_ridge() -> None:
    with_flash, without = (roofline.attention(2, 8, 4096, 64, flash=flash) for flash in (True, False))
    assert with_flash.flops == without.flops
    assert without.bytes - with_flash.bytes == 4 * 2 * (2 * 8 * 4096 * 4096)
    assert (ROOF.bound(without.intensity), ROOF.bound(with_flash.intensity)) == ("memory", "compute")
    assert roofline.attention(1, 1, 1, 64, flash=True, seq_kv=4096).intensity == pytest.approx(1.02, abs=0.01)


@pytest.mark.parametrize("problem", [Gemm(512, 256, 128), Gemm(64, 64, 64, dtype="float32")])
def test_the_problems_count_as_the_formulas_do(problem: Gemm) -> None:
    item = {"float16": 2.0, "float32": 4.0}[problem.dtype]
    assert roofline.gemm(problem.m, problem.n, problem.k, item=item) == roofline.Cost(problem.flops, problem.bytes)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_a_product_of_8_bit_floats_has_both_ceilings(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    asked: list[str] = []

    def product(device: int, dtype: str) -> float:
        asked.append(dtype)
        return 1.4e15

    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr("perfsuite.machine.ceilings.product_flops_a_second", product)
    monkeypatch.setattr("perfsuite.machine.ceilings.read_bytes_a_second", lambda device: 4e12)
    few, many = (Fp8Gemm(m, 8192, 8192, a_dtype=dtype, scales="row") for m in (16, 8192))
    assert few.bytes is not None
    seconds = few.bytes / 4e12
    assert resources.attainable_flops_reading(few, sum) == pytest.approx(few.flops / seconds)
    assert resources.attainable_flops_reading(many, sum) == 1.4e15
    assert asked == [dtype] * 2


def test_a_dtype_without_a_ceiling_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    problem: Any = SimpleNamespace(family="custom", name="sum", params={"arg0": "int8[64x64]"}, flops=1e9, bytes=1e6)
    with pytest.raises(resources.ResourceError, match="has FLOPs of int8, whose ceiling is not known"):
        resources.attainable_flops_reading(problem, sum)


def test_batch_walks_a_layer_up_to_the_ridge() -> None:
    walk = roofline.batch_walk(4096, 4096, ROOF)
    assert walk[0][1].intensity == pytest.approx(1.0, rel=1e-3)
    assert [batch for batch, _ in walk] == [2**power for power in range(len(walk))]
    assert walk[-2][1].intensity < ROOF.ridge <= walk[-1][1].intensity
    never = roofline.batch_walk(16, 16, ROOF)
    assert never[-1][0] <= 2**21, "a layer that never reaches the ridge ends too"


@pytest.mark.parametrize("numbers", [(0, 1), (1, float("inf")), (-1, 1), (1, float("nan"))])
def test_ceilings_are_positive(numbers: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="it must be a positive number"):
        roofline.Ceiling(*numbers)


def case(problem: Problem, candidate: str = "kernels.gemm", rival: str | None = "cublas", **changes: Any) -> Case:
    values = {
        "schema": 1,
        "case": f"{candidate} {problem.family} {problem.name}",
        "family": problem.family,
        "name": problem.name,
        "params": problem.params,
        "candidate": candidate,
        "rival": rival,
        "speed": 0.5,
        "speed_low": 0.49,
        "speed_high": 0.51,
        "target": 0.9,
        "verdict": "MISSED",
        "reason": "too-slow",
        "sentence": "0.5 of cublas",
        "candidate_seconds": 2e-5,
        "rival_seconds": 1e-5,
        "commit": None,
        "dirty": None,
        "gpu": "NVIDIA H200",
        "torch": "2.11.0",
        "cuda": "13.0",
        "harness": "1",
        "clock": "graph",
    }
    return Case.of_json(values | changes, problem.name)


RECORD = [
    case(Gemm(1024, 1024, 1024)),
    case(Gemm(1024, 1024, 1024), rival="other"),
    case(Attention(2, 8, 512, 64, causal=True), "kernels.flash_attention", "sdpa:flash", gpu="NVIDIA H200"),
    case(Gemm(64, 64, 64), candidate_seconds=None, rival_seconds=None),
    case(Gemm(64, 64, 64, dtype="float32")),
    case(Gemm(8, 8, 8), family="custom", name="mine", params={"label": "mine"}),
]


def test_every_timed_side_is_a_point_once() -> None:
    found, left_out = points(RECORD, GIVEN)
    assert sorted(point.label for point in found) == [
        "cublas 1024x1024x1024 fp16",
        "flash_attention 2x8x512x64 fp16 causal",
        "gemm 1024x1024x1024 fp16",
        "other 1024x1024x1024 fp16",
        "sdpa:flash 2x8x512x64 fp16 causal",
    ]
    [ours] = [point for point in found if point.label.startswith("gemm")]
    assert ours.achieved == 2 * 1024**3 / 2e-5
    assert ours.bound == "compute"
    assert ours.share == pytest.approx(ours.achieved / 1000e12)
    assert not ours.rival
    assert [each.rpartition(": ")[2] for each in left_out] == [
        "it was not timed",
        "no ceiling is known for float32",
        "its FLOPs and bytes are not known",
    ]


def test_the_picture_holds_every_point_inside_its_frame() -> None:
    found, _ = points(RECORD, GIVEN)
    root = ElementTree.fromstring(svg(found, GIVEN, title="a < b & c"))
    circles = [circle for circle in root.iter(f"{SVG}circle") if circle.find(f"{SVG}title") is not None]
    assert len(circles) == len(found)
    for circle in circles:
        assert 100 <= float(circle.attrib["cx"]) <= 960 - 220
        assert 50 <= float(circle.attrib["cy"]) <= 600 - 60
    assert len(list(root.iter(f"{SVG}polyline"))) == 1
    assert any(text.text == "a < b & c" for text in root.iter(f"{SVG}text"))


def test_more_kernels_than_colours_stay_apart() -> None:
    assert len({look(place) for place in range(2 * len(COLOURS) + 3)}) == 2 * len(COLOURS) + 3
    found, _ = points(RECORD, GIVEN)
    names = [f"kernel {place}" for place in range(len(COLOURS) + 1)]
    drawn = svg([dataclasses.replace(found[0], kernel=name) for name in names], GIVEN, title="many")
    root = ElementTree.fromstring(drawn)
    assert len([each for each in root.iter(f"{SVG}rect") if each.find(f"{SVG}title") is not None]) == 1


@pytest.mark.parametrize(
    ("rate", "text"),
    [(2e15, "2 PFLOPS"), (312e12, "312 TFLOPS"), (45.25e9, "45.2 GFLOPS"), (999.9e9, "1 TFLOPS"), (12.0, "12 FLOPS")],
)
def test_rates_as_text(rate: float, text: str) -> None:
    assert rate_text(rate) == text


@pytest.fixture
def record(tmp_path: Path) -> Path:
    path = tmp_path / "gates.jsonl"
    write_record(path, RECORD)
    return path


def test_the_command_prints_and_draws(record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["roofline", str(record), "--svg", str(tmp_path / "roof.svg")]) == 0
    told = capsys.readouterr().out
    assert "ceilings: data sheet of H200" in told
    assert "flash_attention 2x8x512x64 fp16 causal" in told
    assert "left out: kernels.gemm gemm 8x8x8 float16: its FLOPs and bytes are not known" in told
    ElementTree.parse(tmp_path / "roof.svg")
    command = ["roofline", str(record), "--flops", "float16=1e15", "--bandwidth", "5e12", "--json"]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["ceilings"]["float16"]["ridge"] == 200


def test_a_share_above_one_is_told(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["roofline", str(record), "--flops", "float16=1e9", "--bandwidth", "5e12"]) == 0
    assert "a share above 100 %" in capsys.readouterr().out


def test_ceilings_measured_on_the_host() -> None:
    found = measured("cpu", ["bfloat16", "float32"])
    assert all(roof.flops_a_second > 1e8 for roof in found.by_dtype.values())
    assert found.by_dtype["float32"].bytes_a_second > 1e8
    assert "this CPU" in found.source


def test_the_walk(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["roofline", "--walk", "4096x4096", "--flops", "1e15", "--bandwidth", "5e12"]
    assert main(command) == 0
    assert "compute" in capsys.readouterr().out.splitlines()[-1]
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["batch"] == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--flops", "1e12"], "--flops and --bandwidth belong together"),
        (["--flops", "float8=1e12", "--bandwidth", "1e12"], "the dtype must be one of float16"),
        (["--flops", "fast", "--bandwidth", "1e12"], "'fast' is not a number"),
        (["--flops", "-1", "--bandwidth", "1e12"], "--flops is -1; it must be a positive number"),
        (["--flops", "1", "--bandwidth", "1", "--measure"], "exclude each other"),
        (["--flops", "float32=1", "--bandwidth", "1", "--svg", "/no/such/folder/roof.svg"], "cannot be written"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(
    arguments: list[str], words: str, record: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["roofline", str(record), *arguments]) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert said.err.count("\n") == 1


def test_more_bad_input(record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_record(tmp_path / "cpu.jsonl", [case(Gemm(8, 8, 8), gpu=None)])
    write_record(tmp_path / "custom.jsonl", [RECORD[-1]])
    bad = {
        ("roofline", str(tmp_path / "none.jsonl")): "cannot be read as a record",
        ("roofline", str(tmp_path / "cpu.jsonl")): "no ceilings are known for a CPU",
        ("roofline", str(tmp_path / "custom.jsonl")): "none of 1 cases can be placed",
        ("roofline", "--walk", "4096"): "--walk needs the ceilings",
        ("roofline", "--walk", "4096", "--flops", "1", "--bandwidth", "1"): "it must be two sizes",
        ("roofline", "--walk", "0x5", "--flops", "1", "--bandwidth", "1"): "it must be two sizes",
    }
    for command, words in bad.items():
        assert main(list(command)) == 2
        assert words in capsys.readouterr().err


def test_ceilings_of_another_card_are_refused(
    record: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from perfsuite.device import cards as devices

    other = devices.Device(0, "NVIDIA A10", "GPU-1", (8, 6), 24 * 10**9, "0")
    for found, words in (
        (devices.Devices(missing="there is none"), "needs the record's card, NVIDIA H200, and there is none"),
        (devices.Devices((other,)), "would measure NVIDIA A10, but the record is of NVIDIA H200"),
    ):
        monkeypatch.setattr("perfsuite.cli.commands.roofline.usable_devices", lambda environ, found=found: found)
        assert main(["roofline", str(record), "--measure"]) == 2
        assert words in capsys.readouterr().err
