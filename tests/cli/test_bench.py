"""`perfsuite bench`: tables and records of made-up kernels on the CPU, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfsuite.cli import bench_case, bench_table
from perfsuite.cli.commands import bench
from perfsuite.cli.main import main
from perfsuite.problems import Attention, Gemm
from perfsuite.record.store import read_record
from perfsuite.settings import Settings

KERNELS = """
import torch

def attention(q, k, v, is_causal=False):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal)

def product(a, b):
    return a.clone() @ b

def off(a, b):
    return a @ b + 1

def broken(a, b):
    raise RuntimeError("no such kernel")
"""
RECORDED = read_record(Path(__file__).resolve().parents[2] / "records" / "h200" / "gates.jsonl")[0]
QUICK = ["--device", "cpu", "--dtype", "fp32", "--seconds", "0.05"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with kernels in it, as the current one."""
    (tmp_path / "bench_kernels.py").write_text(KERNELS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_attention_gives_a_table_and_a_record(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bench", "attention", "--seq-lengths", "16", "32", "--batch-size", "1", "--num-heads", "2"]
    command += ["--head-dim", "16", "--causal", "--candidate", "bench_kernels:attention", "--output", "results.json"]
    assert main([*command, *QUICK, "--against", "sdpa", "sdpa:math"]) == 0
    told = capsys.readouterr()
    table = told.out.splitlines()
    assert table[0].split() == [
        "length",
        "rival",
        "rival",
        "ms",
        "attention",
        "ms",
        "speed-up",
        "interval",
        "memory",
        "saved",
        "verdict",
    ]
    assert [line.split()[:2] for line in table[1:5]] == [
        ["16", "sdpa"],
        ["16", "sdpa:math"],
        ["32", "sdpa"],
        ["32", "sdpa:math"],
    ]
    assert "on the CPU, as requested" in told.err
    assert "[4/4] attention 1x2x32x16 float32 causal" in told.err
    cases = read_record(here / "results.json")
    assert [case.params["seq_q"] for case in cases] == [16, 16, 32, 32]
    assert all(case.clock == "host" and case.gpu is None and case.samples.rounds() for case in cases)


def test_gemm_against_a_function_of_the_user_s(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bench", "gemm", "--sizes", "16x8x24", "--candidate", "bench_kernels:product", "--against", "torch:mm"]
    assert main([*command, *QUICK, "--iterations", "3", "--json"]) == 0
    [line] = capsys.readouterr().out.splitlines()
    case = json.loads(line)
    assert case["rival"].endswith("mm")
    assert (case["params"]["m"], case["params"]["n"], case["params"]["k"]) == (16, 8, 24)
    assert "samples" not in case


@pytest.mark.parametrize(("kernel", "words"), [("off", "WRONG 16x16x16"), ("broken", "no such kernel")])
def test_a_wrong_answer_is_exit_1(kernel: str, words: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bench", "gemm", "--sizes", "16x16x16", "--candidate", f"bench_kernels:{kernel}"]
    assert main([*command, *QUICK]) == 1
    assert words in capsys.readouterr().out


def test_a_target_that_is_missed_is_exit_1(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bench", "gemm", "--sizes", "16x16x16", "--candidate", "bench_kernels:product", "--at-least", "100"]
    assert main([*command, *QUICK]) == 1
    assert "MISSED" in capsys.readouterr().out


def test_what_costs_too_much_for_a_cpu_is_left_out(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bench", "gemm", "--sizes", "16x16x16", "--candidate", "bench_kernels:product", "--max-flops", "8000"]
    assert main([*command, *QUICK, "--output", "results.json"]) == 21
    assert "left out: 16x16x16 float32 costs 8.19e+03 FLOPs" in capsys.readouterr().err
    assert not (here / "results.json").exists(), "nothing measured, nothing written"


def test_iterations_are_the_time_of_so_many_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    sides = [lambda a, b, name=name: calls.append(name) for name in ("ours", "theirs")]
    seconds = bench_case.warm_up(Gemm(4, 4, 4), sides, Settings(device="cpu"), 2)
    assert calls == ["ours", "ours", "theirs", "theirs", "ours", "theirs"]
    assert seconds > 0


def test_memory_saved_is_measured_where_it_is_and_modelled_where_not() -> None:
    case = RECORDED.changed(params=Attention(2, 16, 8192, 64).params)
    larger = case.changed(measured={"peak_bytes": 3e6, "rival_peak_bytes": 1e6})
    smaller = case.changed(measured={"peak_bytes": 1e6, "rival_peak_bytes": 3e6})
    assert bench_table._saved(smaller) == "2.00 MB (1.91 MiB)"
    assert bench_table._saved(larger).startswith("-2.00 MB")
    assert bench_table._saved(case.changed(measured=None)) == "97% (model)"


def attention_row(head_dim: int, candidate: float, rival: float | None) -> bench_table.Row:
    problem = Attention(1, 2, 2048, head_dim)
    seconds = {"candidate_seconds": candidate, "rival_seconds": rival}
    return problem, RECORDED.changed(params=problem.params, candidate="kernels.flash", rival="sdpa", **seconds)


def test_the_alignment_trap_is_flagged_above_a_fifth() -> None:
    rows = [attention_row(128, 1.0, 1.0), attention_row(129, 1.1, 4.0)]
    assert bench_table.drops(rows) == [
        "flash at length 2048 takes +9% a FLOP at head_dim 129 against 128",
        "ALIGNMENT, over 20%: sdpa at length 2048 takes +297% a FLOP at head_dim 129 against 128",
    ]
    assert bench_table.drops([attention_row(64, 1.0, None), attention_row(128, 2.0, None)]) == [
        "flash at length 2048 takes +0% a FLOP at head_dim 128 against 64"
    ]
    assert bench_table.drops([attention_row(64, 1.0, 1.0), attention_row(64, 1.0, 1.0)]) == []


def test_several_head_dimensions_make_a_column(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bench", "attention", "--seq-lengths", "32", "--batch-size", "1", "--num-heads", "2"]
    command += ["--head-dim", "16", "17", "--candidate", "bench_kernels:attention"]
    assert main([*command, *QUICK]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[:3]] == [["length", "head_dim"], ["32", "16"], ["32", "17"]]
    assert sum("a FLOP at head_dim 17 against 16" in line for line in lines) == 2


def test_the_device_is_chosen_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from perfsuite.device import cards as devices

    monkeypatch.setattr(devices, "usable_devices", lambda environ: devices.Devices(missing="there is none"))
    device, why = bench._device("auto")
    assert device == "cpu"
    assert why is not None
    assert why.startswith("no GPU (there is none)")
    with pytest.raises(bench.UserError, match="--device cuda, but there is none"):
        bench._device("cuda")
    monkeypatch.setattr(devices, "usable_devices", lambda environ: devices.Devices())
    assert bench._device("auto") == bench._device("cuda") == ("cuda", None)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gemm", "--sizes", "16x16"], "the shape is '16x16'; it must be m x n x k"),
        (["gemm", "--sizes", "0x16x16"], "m is 0"),
        (["gemm", "--dtype", "fp32", "--out-dtype", "fp16"], "out_dtype is 'float16'"),
        (["gemm", "--warmup", "-1"], "--warmup is -1"),
        (["gemm", "--iterations", "0"], "--iterations is 0"),
        (["gemm", "--seconds", "0"], "seconds is 0.0"),
        (["gemm", "--at-least", "nan"], "--at-least is nan"),
        (["gemm", "--against", "sdpa"], "the libraries for gemm are cublas, cublas:tuned"),
        (["gemm", "--candidate", "no_such_module:f"], "cannot be imported"),
        (["gemm", "--output", "/no/such/folder/results.json"], "which cannot be written"),
        (["attention", "--seq-lengths", "-5"], "seq_q is -5"),
        (["attention", "--against", "sdpa:fast"], "sdpa:math"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(
    arguments: list[str], words: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind, *rest = arguments
    assert main(["bench", kind, "--device", "cpu", "--candidate", "bench_kernels:product", *rest]) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_what_is_no_record_is_not_overwritten(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "notes.txt").write_text("dear diary\n")
    command = ["bench", "gemm", "--candidate", "bench_kernels:product", "--output", "notes.txt"]
    assert main([*command, *QUICK]) == 2
    assert "would overwrite a file that is not a record" in capsys.readouterr().err
    assert (here / "notes.txt").read_text() == "dear diary\n"
