"""Trace calls of a workload with torch.profiler, keep the trace, and summarise it.

The summary shows the ten most expensive operators by device time and by memory, the shares of
products, copies and waits, host time beside device time, and kernels a call. --output writes a
trace for https://ui.perfetto.dev or chrome://tracing, --tensorboard one for TensorBoard. With
several --candidate a problem is traced through each of them: with flash attention and without,
for instance.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from perfsuite.analyze import trace, trace_recorded
from perfsuite.analyze.trace import Trace
from perfsuite.analyze.workload import Workload
from perfsuite.cli.cards import cards, held, tell
from perfsuite.cli.tables import print_columns
from perfsuite.cli.workloads import FORMS, workload
from perfsuite.outcome import UserError
from perfsuite.report import units

HELP = "trace a workload with torch.profiler: costly operators, kernels a call, waits"
EXAMPLE = """example:
  perfsuite trace my_model:layer --output layer.json
  perfsuite trace attention:32x16x4096x128 --candidate sdpa:flash --candidate sdpa:math"""
LONGEST_NAME = 68


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("workload", metavar="CASE", help=FORMS)
    kernel = "the kernel for a case (see `regime --help`); repeat it for several"
    parser.add_argument("--candidate", action="append", metavar="KERNEL", help=kernel)
    parser.add_argument("--calls", type=int, default=5, metavar="N", help="calls that are traced (default 5)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="keep the trace (several: FILE-1, FILE-2, ...)")
    parser.add_argument("--tensorboard", type=Path, metavar="DIR", help="keep the trace for TensorBoard instead")
    parser.add_argument("--stacks", action="store_true", help="with the lines of Python that launched each operator")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    if arguments.calls < 1:
        raise UserError(f"--calls is {arguments.calls}; at least 1 is needed")
    if arguments.output and arguments.tensorboard:
        raise UserError("--output and --tensorboard exclude each other: torch's profiler keeps a trace once")
    if arguments.output and not arguments.output.parent.is_dir():
        raise UserError(f"--output {arguments.output}: there is no folder {arguments.output.parent}")
    names = arguments.candidate or [None]
    found = [workload(arguments.workload, name) for name in names]
    titles = [f"{one.name} by {name}" if name else one.name for one, name in zip(found, names, strict=True)]
    traces = []
    with held(cards()[:1]):
        for number, (title, one) in enumerate(zip(titles, found, strict=True), start=1):
            tell(f"[{number}/{len(found)}] {title}: {arguments.calls} calls")
            traces.append((title, _trace(one, arguments, _file(arguments.output, number, len(found)))))
    if arguments.json:
        print(json.dumps([_plain(title, made) for title, made in traces], indent=1))
        return 0
    for title, made in traces:
        _print(title, made)
    if len(traces) > 1:
        _compare(traces)
    return 0


def _file(output: Path | None, number: int, count: int) -> Path | None:
    if output is None or count == 1:
        return output
    return output.with_name(f"{output.stem}-{number}{output.suffix}")


def _trace(one: Workload, arguments: argparse.Namespace, file: Path | None) -> Trace:
    try:
        made = trace_recorded.record(
            one, arguments.calls, file=file, folder=arguments.tensorboard, stacks=arguments.stacks
        )
    except OSError as error:
        raise UserError(f"the trace cannot be written: {error}") from None
    if file is not None:
        tell(f"trace: {file}")
    return made


def _print(title: str, made: Trace) -> None:
    print(f"{title}: {made.seconds * 1e6:.4g} us a call, {made.fused}")
    device = sum(one.device_seconds for one in made.operators) or 1.0
    for by, head in (("device_seconds", "by device time"), ("bytes", "by memory")):
        rows = trace.dearest(made.operators, by)
        print(f"{'dearest operators ' + head:<{LONGEST_NAME}}  {'calls':>6}  {'device us':>10}  share  {'memory':>9}")
        for one in rows:
            print(
                f"  {_short(one.name):<{LONGEST_NAME - 2}}  {one.calls / made.calls:>6g}  "
                f"{one.device_seconds / made.calls * 1e6:>10.4g}  {one.device_seconds / device:>5.1%}  "
                f"{units.decimal_text(max(0.0, one.bytes / made.calls)):>9}"
            )
    for reading in trace.read(made):
        print(f"{reading.what:<30} {reading.share:>6.1%}  {reading.words}".rstrip())


def _compare(traces: Sequence[tuple[str, Trace]]) -> None:
    rows = [("", "device us", "kernels", "peak memory")]
    for title, made in traces:
        peak = "?" if made.peak_bytes is None else units.decimal_text(made.peak_bytes)
        rows.append((title, f"{made.device_seconds * 1e6:.4g}", f"{made.kernels_a_call:g}", peak))
    print_columns(rows)


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME - 2 else name[: LONGEST_NAME - 5] + "..."


def _plain(title: str, made: Trace) -> dict[str, Any]:
    return {"workload": title} | asdict(made) | {"reading": [asdict(one) for one in trace.read(made)]}
