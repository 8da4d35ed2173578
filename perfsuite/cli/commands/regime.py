"""Measure what bounds a workload (arithmetic, memory, communication, overhead), and name remedies.

The command varies the workload: more arithmetic at the same bytes, and more bytes at the same
arithmetic. Work that costs no time does not bound it. A problem varies by its shape; a function
of yours by its parameters `arithmetic` and `bytes`, factors that are 1 by default:

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

from perfsuite.analyze import ranks
from perfsuite.analyze.regime import LEVERS, Evidence, Finding, judge
from perfsuite.analyze.regime_cases import MADE, NEEDS_SEVERAL_GPUS
from perfsuite.analyze.regime_measured import measure
from perfsuite.analyze.roofline import Cost
from perfsuite.analyze.roofline_ceilings import measured
from perfsuite.cli.cards import cards, held, tell
from perfsuite.cli.workloads import add_workload, workload
from perfsuite.outcome import EXIT_MET, EXIT_UNDECIDED, UserError

HELP = "what bounds a workload: compute, memory, communication or overhead; by measurement"
EXAMPLE = """example:
  perfsuite regime gemm:4096x4096x4096
  perfsuite regime attention:8x32x1/8192x128 --candidate sdpa        # a step of decoding
  perfsuite regime my_model:layer
  perfsuite regime my_model:step --gpus 2
  perfsuite regime --self-test                                       # six workloads of known regime"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_workload(parser, optional=True)
    parser.add_argument("--gpus", type=int, default=1, metavar="N", help="ranks that run the function (default 1)")
    parser.add_argument("--flops", type=float, metavar="N", help="FLOPs of a call of a function")
    parser.add_argument("--bytes", type=float, metavar="N", help="bytes that a call of a function moves")
    parser.add_argument("--self-test", action="store_true", help="instead: six workloads whose regime is known")
    parser.add_argument("--json", action="store_true", help="print JSON")


@dataclass(frozen=True)
class Row:
    """A workload, its measurements, and the conclusion."""

    name: str
    evidence: Evidence
    finding: Finding


def run(arguments: argparse.Namespace) -> int:
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
        raise UserError("--flops and --bytes belong together: their quotient is compared with the ridge")
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
            evidence = measure(found, tell=tell)
        ceiling = None
        if cost is not None and not evidence.variations:
            dtype = found.dtype or "float16"
            ceiling = measured("cuda", [dtype]).by_dtype[dtype]
        return Row(found.name, evidence, judge(evidence, cost=cost, ceiling=ceiling))


def _on_ranks(gpus: int, text: str, candidate: str | None) -> Evidence:
    tell(f"{gpus} ranks, one a GPU")
    try:
        evidence: Evidence = ranks.run(gpus, measure_on_rank, text, candidate)[0]
    except ranks.RanksError as error:
        raise UserError(f"{text} on {gpus} ranks: {error}") from None
    return evidence


def measure_on_rank(rank: int, text: str, candidate: str | None) -> Evidence:
    """Measure on one of several ranks, which agree on the number of calls."""
    return measure(workload(text, candidate), agree=ranks.agree, tell=tell if rank == 0 else lambda _: None)


def _self_test(as_json: bool) -> int:
    devices = cards()
    rows = []
    with held(devices):
        for name, expected in MADE.items():
            text = f"perfsuite.analyze.regime_cases:{name}"
            if name in NEEDS_SEVERAL_GPUS:
                if len(devices) < 2:
                    tell(f"left out: {name} needs two GPUs, and there is one")
                    continue
                evidence = _on_ranks(2, text, None)
            else:
                evidence = measure(workload(text, None), tell=tell)
            rows.append((Row(name, evidence, judge(evidence)), expected))
    right = all(row.finding.regime == expected for row, expected in rows)
    if as_json:
        print(json.dumps([_plain(row) | {"expected": expected} for row, expected in rows], indent=1))
        return 0 if right else 1
    width = max(len(row.name) for row, _ in rows)
    for row, expected in rows:
        mark = "right" if row.finding.regime == expected else f"WRONG, it is {expected}"
        print(f"{row.name:<{width}}  {row.finding.regime:<13}  {mark:<6}  {row.finding.sentence}")
    return 0 if right else 1


def _plain(row: Row) -> dict[str, Any]:
    return {"workload": row.name, **asdict(row.finding), "levers": LEVERS[row.finding.regime], **asdict(row.evidence)}


def _print(row: Row) -> None:
    seen = row.evidence
    print(f"{row.name}: {row.finding.regime} bound" if row.finding.regime != "unknown" else f"{row.name}: unknown")
    print(f"  {row.finding.sentence}")
    print(
        f"  a call: {seen.seconds * 1e6:.4g} us in a loop, the host returns after {seen.host_seconds * 1e6:.4g} us, "
        f"the device is busy for {seen.busy_seconds * 1e6:.4g} us"
    )
    for lever in LEVERS[row.finding.regime]:
        print(f"  lever: {lever}")
