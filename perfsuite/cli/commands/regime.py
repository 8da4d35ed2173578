"""Measure what bounds a workload (arithmetic, memory, communication, overhead), and name remedies.

The workload is varied: more arithmetic at the same bytes, and more bytes at the same
arithmetic. Work that costs no time does not bound it. Problems are varied by their shape; a
function of yours by its parameters `arithmetic` and `bytes`, factors that are 1 by default:

    def layer(arithmetic=1, bytes=1):       # creates the tensors, returns the call to measure
        ...
        return call

Without these parameters, --flops and --bytes of a call are compared with the measured ceilings.
With --gpus N the function runs in N processes joined by torch.distributed (NCCL).

exit codes: 0 a regime was found (with --self-test: each was the right one); 1 --self-test found
a wrong one; 20 the evidence is not conclusive
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from typing import Any

from perfsuite.analyze.regime import LEVERS, Evidence, Finding, judge
from perfsuite.analyze.regime_cases import MADE, NEEDS_SEVERAL_GPUS
from perfsuite.analyze.roofline import Cost
from perfsuite.cli.cards import cards, held, tell
from perfsuite.cli.workloads import add_workload, workload
from perfsuite.outcome import UserError

HELP = "what bounds a workload: compute, memory, communication or overhead; by measurement"
EXAMPLE = """example:
  perfsuite regime gemm:4096x4096x4096
  perfsuite regime attention:8x32x1/8192x128 --candidate sdpa        # a step of decoding
  perfsuite regime my_model:layer
  perfsuite regime my_model:step --gpus 2
  perfsuite regime --self-test                                       # six workloads of known regime"""
_MODULE = "perfsuite.analyze.regime_cases"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_workload(parser, optional=True)
    parser.add_argument("--gpus", type=int, default=1, metavar="N", help="ranks that run the function (default 1)")
    parser.add_argument("--flops", type=float, metavar="N", help="FLOPs of a call of a function")
    parser.add_argument("--bytes", type=float, metavar="N", help="bytes that a call of a function moves")
    parser.add_argument("--self-test", action="store_true", help="instead: six workloads whose regime is known")
    parser.add_argument("--json", action="store_true", help="print JSON")


@dataclass(frozen=True)
class Row:
    """A workload, what was measured of it, and what follows."""

    name: str
    evidence: Evidence
    finding: Finding


def run(arguments: argparse.Namespace) -> int:
    """Measure, print, and say by the exit code whether there is an answer."""
    from perfsuite.outcome import EXIT_MET, EXIT_UNDECIDED

    _check(arguments)
    if arguments.self_test:
        return _self_test(arguments.json)
    row = _one(arguments)
    if arguments.json:
        print(json.dumps(_plain(row), indent=1))
    else:
        _print(row)
    return EXIT_UNDECIDED if row.finding.regime == "unknown" else EXIT_MET


def _check(arguments: argparse.Namespace) -> None:
    if arguments.self_test == (arguments.workload is not None):
        raise UserError("name one workload, or give --self-test instead")
    if arguments.gpus < 1:
        raise UserError(f"--gpus is {arguments.gpus}; at least 1 is needed")
    if (arguments.flops is None) != (arguments.bytes is None):
        raise UserError("--flops and --bytes belong together: their quotient is put against the ridge")
    for name in ("flops", "bytes"):
        value = getattr(arguments, name)
        if value is not None and not 0 < value < float("inf"):
            raise UserError(f"--{name} is {value}; it must be a positive number")


def _one(arguments: argparse.Namespace) -> Row:
    found = workload(arguments.workload, arguments.candidate)  # before the card: a typing error needs none
    cost = Cost(arguments.flops, arguments.bytes) if arguments.flops else found.cost
    devices = cards(at_least=arguments.gpus)
    with held(devices[: arguments.gpus]):
        if arguments.gpus > 1:
            evidence = _on_ranks(arguments.gpus, arguments.workload, arguments.candidate)
        else:
            evidence = _measure(found)
        ceiling = None
        if cost is not None and not evidence.variations:
            from perfsuite.analyze.roofline_ceilings import measured

            dtype = found.dtype or "float16"
            ceiling = measured("cuda", [dtype]).by_dtype[dtype]
        return Row(found.name, evidence, judge(evidence, cost=cost, ceiling=ceiling))


def _measure(found: Any) -> Evidence:
    from perfsuite.analyze.regime_measured import measure

    return measure(found, tell=tell)


def _on_ranks(gpus: int, text: str, candidate: str | None) -> Evidence:
    from perfsuite.analyze import ranks

    tell(f"{gpus} ranks, one a GPU")
    try:
        evidence: Evidence = ranks.run(gpus, measure_on_rank, text, candidate)[0]
    except ranks.RanksError as error:
        raise UserError(f"{text} on {gpus} ranks: {error}") from None
    return evidence


def measure_on_rank(rank: int, text: str, candidate: str | None) -> Evidence:
    """Measure on one of several ranks, which agree on the number of calls."""
    from perfsuite.analyze import ranks
    from perfsuite.analyze.regime_measured import measure

    return measure(workload(text, candidate), agree=ranks.agree, tell=tell if rank == 0 else lambda _: None)


def _self_test(as_json: bool) -> int:
    devices = cards()
    rows, right = [], True
    with held(devices):
        for name, expected in MADE.items():
            text = f"{_MODULE}:{name}"
            if name in NEEDS_SEVERAL_GPUS:
                if len(devices) < 2:
                    tell(f"left out: {name} needs two GPUs, and there is one")
                    continue
                evidence = _on_ranks(2, text, None)
            else:
                evidence = _measure(workload(text, None))
            row = Row(name, evidence, judge(evidence))
            rows.append((row, expected))
            right &= row.finding.regime == expected
    if as_json:
        print(json.dumps([_plain(row) | {"expected": expected} for row, expected in rows], indent=1))
        return 0 if right else 1
    width = max(len(row.name) for row, _ in rows)
    for row, expected in rows:
        said = "right" if row.finding.regime == expected else f"WRONG, it is {expected}"
        print(f"{row.name:<{width}}  {row.finding.regime:<13}  {said:<6}  {row.finding.sentence}")
    return 0 if right else 1


def _plain(row: Row) -> dict[str, Any]:
    return {"workload": row.name, **asdict(row.finding), "levers": LEVERS[row.finding.regime], **asdict(row.evidence)}


def _print(row: Row) -> None:
    told = row.evidence
    print(f"{row.name}: {row.finding.regime} bound" if row.finding.regime != "unknown" else f"{row.name}: unknown")
    print(f"  {row.finding.sentence}")
    print(
        f"  a call: {told.seconds * 1e6:.4g} us in a loop, the host returns after {told.host_seconds * 1e6:.4g} us, "
        f"the device is busy for {told.busy_seconds * 1e6:.4g} us"
    )
    for lever in LEVERS[row.finding.regime]:
        print(f"  lever: {lever}")
