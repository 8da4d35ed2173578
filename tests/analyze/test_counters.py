"""Hardware counters: ncu's table read, held against targets, and what the command says where it cannot count."""

from __future__ import annotations

import argparse
import csv
import dataclasses
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from perfsuite.analyze import counters as read_counters
from perfsuite.analyze.counters import CountersError, Kernel, bytes_ratio, check, memory_bound, verdict
from perfsuite.cli.commands import counters
from perfsuite.cli.main import main
from perfsuite.outcome import UserError

STREAMING = {
    "ID": ("", "0"),
    "Kernel Name": ("", "void add<float>(T1 *, T1 *)"),
    "gpu__time_duration.sum": ("ns", "192,352"),
    "dram__bytes_read.sum": ("byte", "536,870,912"),
    "dram__bytes_write.sum": ("byte", "268,435,456"),
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "88.50"),
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "14.73"),
    "sm__warps_active.avg.pct_of_peak_sustained_active": ("%", "91.00"),
    "sm__maximum_warps_per_active_cycle_pct": ("%", "100"),
    "lts__t_sector_hit_rate.pct": ("%", "33.40"),
    "launch__registers_per_thread": ("register/thread", "16"),
    "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum": ("sector", "0"),
    "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum": ("sector", "0"),
    "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active": ("%", "0"),
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": ("inst", "31.5"),
    "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio": ("inst", "2.1"),
    "smsp__average_warps_issue_stalled_selected_per_issue_active.ratio": ("inst", "1"),
}
PRODUCT = STREAMING | {
    "Kernel Name": ("", "gemm_kernel"),
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "12"),
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "92"),
    "sm__warps_active.avg.pct_of_peak_sustained_active": ("%", "18.7"),
    "sm__maximum_warps_per_active_cycle_pct": ("%", "18.75"),
    "lts__t_sector_hit_rate.pct": ("%", "81"),
    "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active": ("%", "90"),
    "launch__registers_per_thread": ("register/thread", "168"),
}


def log(*rows: dict[str, tuple[str, str]]) -> str:
    """What ncu writes: its own lines, then names, units and a line a kernel."""
    out = io.StringIO()
    out.write("==PROF== Connected to process 12\n==WARNING== Note: Running with unmodified GPU clocks.\n")
    table = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    table.writerow(rows[0])
    table.writerow([unit for unit, _ in rows[0].values()])
    for row in rows:
        table.writerow([value for _, value in row.values()])
    out.write("==PROF== Disconnected from process 12\n")
    return out.getvalue()


def kernels(*rows: dict[str, tuple[str, str]]) -> list[Kernel]:
    return read_counters.read(log(*rows).splitlines(keepends=True))


def test_the_table_is_read_in_plain_units() -> None:
    [add, product] = kernels(STREAMING, PRODUCT)
    assert add.name == "void add<float>(T1 *, T1 *)"
    assert add.seconds == pytest.approx(192.352e-6)
    assert add.dram_bytes == 3 * 2**28
    assert (add.memory_share, add.occupancy, add.l2_hit_rate) == pytest.approx((0.885, 0.91, 0.334))
    assert add.stalls == (("long_scoreboard", 31.5), ("wait", 2.1)), "having been chosen is no wait"
    assert (product.tensor_share, product.registers) == (0.9, 168)


def test_a_memory_bound_kernel_is_held_against_memory_s_targets() -> None:
    [add] = kernels(STREAMING)
    assert memory_bound(add)
    assert {one.what: one.ok for one in check(add)} == {
        "occupancy": True,
        "memory throughput": True,
        "L2 hit rate": None,
        "local memory": True,
    }
    assert "device memory at 88% of the peak" in verdict(add)
    assert "warps wait longest for long_scoreboard (31.5 cycles an instruction: waits for global" in verdict(add)
    slow = dataclasses.replace(add, memory_share=0.6)
    assert [one.what for one in check(slow) if one.ok is False] == ["memory throughput"]
    assert verdict(slow).endswith("below target: memory throughput")


def test_low_occupancy_of_a_product_is_named_with_its_cause() -> None:
    [product] = kernels(PRODUCT)
    occupancy, throughput, hits, _ = check(product)
    assert occupancy.ok is False
    assert "registers (168 a thread)" in occupancy.words
    assert "enough where each warp keeps the tensor cores" in occupancy.words
    assert (throughput.ok, hits.ok) == (None, True)
    uneven = dataclasses.replace(product, theoretical_occupancy=0.75)
    assert "75% would fit: too few blocks" in check(uneven)[0].words


def test_spills_are_counted_in_bytes() -> None:
    spilled = STREAMING | {"l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum": ("sector", "1,000")}
    [kernel] = kernels(spilled)
    assert kernel.local_bytes == 32e3
    assert check(kernel)[-1].ok is False


def test_an_idle_card_is_called_so() -> None:
    [add] = kernels(STREAMING)
    assert verdict(dataclasses.replace(add, memory_share=0.1)).startswith("neither memory nor the SMs are busy")


def test_missing_metrics_are_unknown_and_missing_bytes_are_an_error() -> None:
    [kernel] = kernels({name: value for name, value in STREAMING.items() if "throughput" not in name})
    assert kernel.memory_share is None
    assert verdict(kernel) == "ncu gave no throughput"
    with pytest.raises(CountersError, match=r"no dram__bytes_read.sum for void add"):
        kernels({name: value for name, value in STREAMING.items() if "read" not in name})


def test_bytes_of_all_kernels_stand_against_those_that_must_move() -> None:
    assert bytes_ratio(kernels(STREAMING, STREAMING), 6 * 2**28) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("text", "said", "why"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "", "NVreg_RestrictProfilingToAdminUsers=0"),
        ("", "perfsuite counters: no such module\n", "^no such module \\(exit code 2\\)"),
        ("==PROF== Connected\n==WARNING== No kernels were profiled.\n", "", "ncu profiled no kernel"),
        ("==ERROR== Failed to find metric x\n", "", "^Failed to find metric x"),
    ],
)
def test_what_ncu_refuses_is_told(text: str, said: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        counters.read(text, said, 2)


def test_ncu_is_asked_for_one_untimed_call() -> None:
    arguments = argparse.Namespace(workload="gemm:8x8x8", candidate="cublas", most=3, kernel="a|b")
    made = counters.command("ncu", Path("log.csv"), arguments)
    assert made[made.index("--profile-from-start") + 1] == "off"
    assert made[made.index("--clock-control") + 1] == "none", "the suite never changes a clock"
    assert made[made.index("--kernel-name") + 1] == "regex:a|b"
    assert made[-5:] == [sys.executable, "-m", "perfsuite.cli.counted", "gemm:8x8x8", "cublas"]


def test_the_command_prints_a_verdict_a_kernel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ncu = tmp_path / "ncu"
    ncu.write_text(f'#!/bin/sh\nwhile [ "$1" != --log-file ]; do shift; done\ncat > "$2" <<"END"\n{log(PRODUCT)}END\n')
    ncu.chmod(0o755)
    monkeypatch.setattr(counters, "cards", lambda: ())
    kept = tmp_path / "kept.csv"
    asked: list[Any] = ["gemm:64x64x64", "--candidate", "cublas", "--ncu", str(ncu), "--csv", str(kept)]
    assert main(["counters", *asked]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("gemm_kernel\n  the SMs at 92% of the peak")
    assert "occupancy            18.7%  at least 60%  LOW" in printed
    assert read_counters.read(kept.read_text().splitlines(keepends=True)) == kernels(PRODUCT)
    assert main(["counters", *asked, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["bytes"] == 3 * 64 * 64 * 2
    assert told["kernels"][0]["stalls"]["long_scoreboard"] == 31.5


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--ncu", "/nowhere/ncu"], "no ncu: looked for /nowhere/ncu; install Nsight Compute"),
        (["--most", "0"], "at least 1"),
        (["--bytes", "-5"], "must be a positive number"),
        (["--candidate", "sdpa"], "the libraries for gemm are cublas"),
    ],
)
def test_bad_input_is_named(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["counters", "gemm:64x64x64", "--candidate", "cublas", *options]) == 2
    assert said in capsys.readouterr().err
