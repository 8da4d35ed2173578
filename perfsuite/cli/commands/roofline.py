"""Place the cases of a record on a roofline: their rate, the rate they could attain, and their
bound.

Problems may replace the record, as FAMILY:SHAPE[:WORD...], path.py:Class(...) or
module:Class(...). Nothing is timed then, and the table shows the least time of a call. The
ceilings are those of --flops and --bandwidth, or measured here by --measure, or from the data
sheet of the record's card (for problems, of this machine's card). Intensity counts only the
bytes that must cross memory.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from perfsuite.analyze.roofline import Ceiling, Cost, batch_walk
from perfsuite.analyze.roofline_ceilings import Ceilings, from_data_sheet, measured
from perfsuite.analyze.roofline_plot import rate_text, svg
from perfsuite.analyze.roofline_points import Point, points
from perfsuite.cli.places import record_or_latest
from perfsuite.cli.problem_specs import FORMS, problem_if_named
from perfsuite.cli.tables import print_columns
from perfsuite.device.cards import usable_devices
from perfsuite.outcome import UserError
from perfsuite.problems.base import Problem
from perfsuite.record.atomic_write import write_whole
from perfsuite.record.store import read_record
from perfsuite.report import units

HELP = "a record's cases, or any problems, against the card's ceilings: table, SVG"
EXAMPLE = """example:
  perfsuite roofline records/h200/gates.jsonl --svg roofline.svg
  perfsuite roofline .perfsuite/bench.jsonl --measure           # measures the ceilings first
  perfsuite roofline gates.jsonl --flops float16=312e12 --flops float32=19.5e12 --bandwidth 2.0e12
  perfsuite roofline gemm:8x4096x4096 'kernels.py:RMSNorm(8192, 4096)' --measure
  perfsuite roofline --walk 4096x4096 --flops 989.5e12 --bandwidth 4.8e12"""
_DTYPES = ("float16", "bfloat16", "float32")
_LEAST_HEAD = ("FLOPs/B", "bound", "attainable", "least time of a call")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    record = f"a record (default: the newest run's), or problems: {FORMS}"
    parser.add_argument("record", nargs="*", metavar="RECORD|CASE", help=record)
    most = "FLOPs a second at most; repeat by dtype"
    parser.add_argument("--flops", action="append", default=[], metavar="[DTYPE=]NUMBER", help=most)
    parser.add_argument("--bandwidth", type=float, metavar="NUMBER", help="bytes a second at most")
    parser.add_argument("--measure", action="store_true", help="measure the ceilings of this machine now")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the roofline")
    parser.add_argument("--walk", metavar="NxK", help="instead of a record: a linear layer at batches 1, 2, 4, ...")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    given = _given(arguments)
    if arguments.walk:
        if arguments.record:
            raise UserError(f"--walk takes no record, and {arguments.record[0]} is given: draw one or the other")
        return _walk(arguments, given)
    problems = [problem_if_named(text) for text in arguments.record if not Path(text).is_file()]
    named = [problem for problem in problems if problem is not None]
    if named and len(named) == len(arguments.record):
        return _problems(arguments, named, given)
    if len(arguments.record) > 1:
        raise UserError(f"give one record, or problems: {FORMS}")
    path = record_or_latest(Path(arguments.record[0]) if arguments.record else None)
    cases = read_record(path)
    ceilings = given or _ceilings(arguments, cases[0].gpu, {str(case.params.get("dtype")) for case in cases})
    found, left_out = points(cases, ceilings)
    if not found:
        raise UserError(f"{path}: none of {len(cases)} cases can be placed: {left_out[0]}")
    if arguments.svg:
        title = f"{path.name}: {cases[0].gpu or 'CPU, portable backend'}"
        write_whole(arguments.svg, svg(found, ceilings, title=title))
    if arguments.json:
        rows = [asdict(point) | {"share": point.share} for point in found]
        print(json.dumps({**_plain(ceilings), "points": rows, "left_out": left_out}, indent=1))
        return 0
    _table(found, ceilings)
    for each in left_out:
        print(f"left out: {each}")
    return 0


def _given(arguments: argparse.Namespace) -> Ceilings | None:
    """The ceilings of --flops and --bandwidth, or None."""
    if not arguments.flops and arguments.bandwidth is None:
        return None
    if not arguments.flops or arguments.bandwidth is None:
        raise UserError("--flops and --bandwidth belong together: one of them alone makes no roof")
    if arguments.measure:
        raise UserError("--measure and --flops exclude each other: ceilings are measured or given")
    if not 0.0 < arguments.bandwidth < math.inf:
        raise UserError(f"--bandwidth is {arguments.bandwidth:g}; it must be a positive number of bytes a second")
    roofs: dict[str, Ceiling] = {}
    for text in arguments.flops:
        dtype, separator, number = text.rpartition("=")
        if separator and dtype not in _DTYPES:
            raise UserError(f"--flops {text}: the dtype must be one of {', '.join(_DTYPES)}")
        try:
            value = float(number)
        except ValueError:
            raise UserError(f"--flops {text}: {number!r} is not a number such as 312e12") from None
        if not 0.0 < value < math.inf:
            raise UserError(f"--flops is {text}; it must be a positive number of FLOPs a second")
        for name in [dtype] if separator else _DTYPES:
            roofs[name] = Ceiling(value, arguments.bandwidth)
    return Ceilings(roofs, "given")


def _ceilings(arguments: argparse.Namespace, gpu: str | None, dtypes: set[str]) -> Ceilings:
    """The ceilings measured here, or those in the data sheet of the card `gpu`; None stands for a CPU."""
    if not arguments.measure:
        known = from_data_sheet(gpu) if gpu else None
        if known is None:
            remedy = "give --flops and --bandwidth, or --measure them here"
            raise UserError(f"no ceilings are known for {gpu or 'a CPU'}: {remedy}")
        return known
    if gpu:
        devices = usable_devices(os.environ)
        if devices.missing:
            raise UserError(f"--measure needs the record's card, {gpu}, and {devices.missing}")
        if devices.cards[0].name != gpu:
            raise UserError(f"--measure would measure {devices.cards[0].name}, but the record is of {gpu}")
    return measured("cuda" if gpu else "cpu", sorted(dtypes & set(_DTYPES)))


def _problems(arguments: argparse.Namespace, problems: Sequence[Problem], given: Ceilings | None) -> int:
    """Print intensity, bound and least time of problems without timing them."""
    if arguments.svg:
        raise UserError("--svg draws measured cases; `perfsuite bench --output FILE` makes a record of them")
    dtypes = [str(problem.params.get("dtype")) for problem in problems]
    cards = usable_devices(os.environ).cards
    ceilings = given or _ceilings(arguments, cards[0].name if cards else None, set(dtypes))
    rows = []
    for problem, dtype in zip(problems, dtypes, strict=True):
        name = f"{problem.family} {problem.name}"
        if problem.flops is None or not problem.bytes:
            raise UserError(f"{name} cannot be placed: its FLOPs and bytes are not known")
        if dtype not in ceilings.by_dtype:
            raise UserError(f"{name} cannot be placed: no ceiling is known for {dtype}")
        rows.append((name, Cost(problem.flops, problem.bytes), ceilings.by_dtype[dtype]))
    if arguments.json:
        plain = [
            {"case": name, **asdict(cost), "bound": roof.bound(cost.intensity), "least_seconds": roof.seconds(cost)}
            for name, cost, roof in rows
        ]
        print(json.dumps({**_plain(ceilings), "rows": plain}, indent=1))
        return 0
    _print_ceilings(ceilings)
    print_columns([("case", *_LEAST_HEAD), *((name, *_least(cost, roof)) for name, cost, roof in rows)])
    return 0


def _table(found: Sequence[Point], ceilings: Ceilings) -> None:
    _print_ceilings(ceilings)
    rows = [("case", "FLOPs/B", "bound", "achieved", "attainable", "share")]
    for point in found:
        rates = rate_text(point.achieved), rate_text(point.attainable)
        rows.append((point.label, f"{point.intensity:.1f}", point.bound, *rates, f"{point.share:.1%}"))
    print_columns(rows)
    if any(point.share > 1 for point in found):
        print("a share above 100 %: its bytes came from a cache, or the machine was busy when its ceiling was measured")


def _print_ceilings(ceilings: Ceilings) -> None:
    print(f"ceilings: {ceilings.source}")
    for dtype, roof in ceilings.by_dtype.items():
        memory = f"{units.decimal_text(roof.bytes_a_second)}/s"
        print(f"  {dtype:<9} {rate_text(roof.flops_a_second)}, {memory}, ridge at {roof.ridge:.1f} FLOPs a byte")


def _plain(ceilings: Ceilings) -> dict[str, Any]:
    roofs = {dtype: asdict(roof) | {"ridge": roof.ridge} for dtype, roof in ceilings.by_dtype.items()}
    return {"ceilings": roofs, "source": ceilings.source}


def _least(cost: Cost, roof: Ceiling) -> tuple[str, str, str, str]:
    """Cells of a row under _LEAST_HEAD."""
    bound, attainable = roof.bound(cost.intensity), rate_text(roof.attainable(cost.intensity))
    return f"{cost.intensity:.2f}", bound, attainable, f"{roof.seconds(cost) * 1e6:.1f} us"


def _walk(arguments: argparse.Namespace, ceilings: Ceilings | None) -> int:
    if ceilings is None:
        raise UserError("--walk needs the ceilings: give --flops and --bandwidth")
    dtype, roof = next(iter(ceilings.by_dtype.items()))
    sizes = arguments.walk.lower().split("x")
    if len(sizes) != 2 or not all(size.isdecimal() and int(size) for size in sizes):
        raise UserError(f"--walk is {arguments.walk!r}; it must be two sizes such as 4096x11008")
    walk = batch_walk(int(sizes[0]), int(sizes[1]), roof, item=units.item_bytes(dtype))
    if arguments.json:
        rows = [
            {"batch": batch, "intensity": cost.intensity, "attainable": roof.attainable(cost.intensity)}
            for batch, cost in walk
        ]
        print(json.dumps({"dtype": dtype, "ridge": roof.ridge, "rows": rows}, indent=1))
        return 0
    print(f"a layer of {sizes[0]} x {sizes[1]} weights in {dtype}, ridge at {roof.ridge:.1f} FLOPs a byte")
    head = ("batch", *_LEAST_HEAD[:-1], "least time of a step")
    print_columns([head, *((str(batch), *_least(cost, roof)) for batch, cost in walk)], left=0)
    return 0
