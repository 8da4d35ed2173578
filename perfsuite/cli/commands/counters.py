"""Run one call of a workload under Nsight Compute and read its counters: a verdict a kernel.

Occupancy, throughput of device memory, L2 hit rate, spills and stall reasons are compared with
the usual targets: occupancy 60 %; memory throughput 70 % of the peak if memory bounds the
kernel, otherwise L2 hit rate 60 %; no spills. The bytes counted at device memory are compared
with those that the problem must move. ncu empties the caches before each pass and runs the
kernel several times. Clocks stay as they are, and perfsuite times nothing meanwhile.

exit codes: 0 counted, whatever the counters show; 2 ncu, a card or the permission to read
counters is missing
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from perfsuite.analyze import counters
from perfsuite.analyze.counters import Check, Kernel
from perfsuite.cli.cards import cards, held, tell
from perfsuite.cli.places import check_place
from perfsuite.cli.programs import find_ncu
from perfsuite.cli.workloads import add_workload, workload
from perfsuite.outcome import UserError
from perfsuite.report import units

HELP = "a workload's hardware counters under ncu, against targets: a verdict a kernel"
EXAMPLE = """example:
  perfsuite counters gemm:8x16384x16384 --candidate cublas
  perfsuite counters attention:2x8x4096x64
  perfsuite counters my_model:layer --kernel 'flash|softmax' --bytes 1.2e9"""
LONGEST_NAME = 100
FORBIDDEN = "ERR_NVGPUCTRPERM"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_workload(parser)
    parser.add_argument("--kernel", metavar="REGEX", help="only kernels whose name matches")
    parser.add_argument("--most", type=int, default=20, metavar="N", help="kernels at most (default 20)")
    parser.add_argument("--bytes", type=float, metavar="N", help="bytes that a call of a function must move")
    parser.add_argument("--ncu", metavar="PATH", help="Nsight Compute (default: ncu on PATH, then /usr/local/cuda)")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="also keep ncu's output")
    parser.add_argument("--timeout", type=float, default=600.0, metavar="SECONDS", help="limit for ncu (default 600)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    if arguments.most < 1:
        raise UserError(f"--most is {arguments.most}; at least 1 is needed")
    if arguments.bytes is not None and not 0 < arguments.bytes < float("inf"):
        raise UserError(f"--bytes is {arguments.bytes}; it must be a positive number")
    check_place("--csv", arguments.csv, replaced=False)
    found = workload(arguments.workload, arguments.candidate)
    expected = arguments.bytes or (found.cost.bytes if found.cost else None)
    ncu = find_ncu(arguments.ncu)
    devices = cards()
    with held(devices[:1]):
        tell(f"{found.name} under {ncu}; each kernel runs several times, with empty caches")
        kernels = count(ncu, arguments)
    ratio = None if expected is None else counters.bytes_ratio(kernels, expected)
    if arguments.json:
        rows = [_plain(kernel) for kernel in kernels]
        print(json.dumps({"workload": found.name, "kernels": rows, "bytes": expected, "ratio": ratio}, indent=1))
        return 0
    for kernel in kernels:
        _print(kernel)
    if expected is not None and ratio is not None:
        total = sum(kernel.dram_bytes for kernel in kernels)
        counted, least = units.decimal_text(total), units.decimal_text(expected)
        print(f"device memory: {counted} counted, {least} must move: x{ratio:.3f}")
    return 0


def command(ncu: str, log: Path, arguments: argparse.Namespace) -> list[str]:
    """The command line of ncu for one call of the workload."""
    line = [ncu, "--csv", "--page", "raw", "--print-units", "base", "--log-file", str(log)]
    line += ["--profile-from-start", "off", "--clock-control", "none"]
    line += [word for section in counters.SECTIONS for word in ("--section", section)]
    line += ["--metrics", ",".join(counters.METRICS), "--launch-count", str(arguments.most)]
    if arguments.kernel:
        line += ["--kernel-name", f"regex:{arguments.kernel}"]
    line += [sys.executable, "-m", "perfsuite.cli.counted", arguments.workload]
    return [*line, arguments.candidate] if arguments.candidate else line


def count(ncu: str, arguments: argparse.Namespace) -> list[Kernel]:
    """The kernels of one call of the workload, counted. UserError with the reason if ncu gives none."""
    with tempfile.TemporaryDirectory(prefix="perfsuite-ncu-") as folder:
        log = Path(folder) / "ncu.csv"
        line, seconds = command(ncu, log, arguments), arguments.timeout
        try:
            done = subprocess.run(line, capture_output=True, text=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            raise UserError(f"ncu took longer than {seconds:g} s; choose --kernel or --most") from None
        except OSError as error:
            raise UserError(f"ncu does not run: {error}") from None
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        kernels = read(text, done.stdout + done.stderr, done.returncode)
        if arguments.csv:
            shutil.copyfile(log, arguments.csv)
        return kernels


def read(log: str, output: str, code: int) -> list[Kernel]:
    """The kernels in ncu's log; UserError with the reason if it has none."""
    both = f"{log}\n{output}"
    if FORBIDDEN in both:
        raise UserError(
            "the driver keeps performance counters for root: run as root, or load it with "
            "NVreg_RestrictProfilingToAdminUsers=0"
        )
    try:
        return counters.read(log.splitlines(keepends=True))
    except counters.CountersError as error:
        marks = ("==ERROR==", "perfsuite counters: ")
        errors = [line for line in both.splitlines() if line.startswith(marks)] or [str(error)]
        why = errors[0].removeprefix(marks[0]).removeprefix(marks[1]).strip()
        raise UserError(f"{why} (exit code {code})") from None


def _print(kernel: Kernel) -> None:
    print(kernel.name if len(kernel.name) <= LONGEST_NAME else kernel.name[: LONGEST_NAME - 3] + "...")
    print(f"  {counters.verdict(kernel)}")
    print(
        f"  {kernel.seconds * 1e6:.4g} us under ncu; {units.decimal_text(kernel.read_bytes)} read, "
        f"{units.decimal_text(kernel.written_bytes)} written; {share_text(kernel.compute_share)} SMs, "
        f"{share_text(kernel.tensor_share)} tensor cores; {kernel.registers} registers a thread"
    )
    for one in counters.check(kernel):
        judged = "" if one.ok is None else "ok" if one.ok else "LOW" if one.target else "SPILL"
        print(f"  {one.what:<18}{_value(one):>8}  {_target(one):<14}{judged:<5} {one.words}".rstrip())
    waits = ", ".join(f"{reason} {cycles:.3g}" for reason, cycles in kernel.stalls[:5])
    print(f"  waits, cycles an instruction: {waits or 'none'}")


def share_text(value: float | None) -> str:
    return "?" if value is None else f"{value:.0%}"


def _value(one: Check) -> str:
    if one.value is None:
        return "?"
    return units.decimal_text(one.value) if one.what == "local memory" else f"{one.value:.1%}"


def _target(one: Check) -> str:
    if one.target is None:
        return "no target"
    return "none" if one.target == 0.0 else f"at least {one.target:.0%}"


def _plain(kernel: Kernel) -> dict[str, Any]:
    checks = [asdict(one) for one in counters.check(kernel)]
    return asdict(kernel) | {"stalls": dict(kernel.stalls), "checks": checks, "verdict": counters.verdict(kernel)}
