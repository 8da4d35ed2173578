"""Measure how often the gate of this card is wrong, and how small a slow-down it finds.

Library kernels are gated against themselves, in several processes one after another on each card.
Without a change, every alarm is false. With device work of known length planted in one side, every gate
without an alarm is a miss. The noise figures in calibration.json widen the gate's intervals;
its rates are the error rates that the gate may claim. --part, --after and --join split a calibration over
several runs, on machines with cards of one model.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from perfsuite.calibrate.parts import join, read_part
from perfsuite.calibrate.running import Calibration, Order
from perfsuite.calibrate.summary import table
from perfsuite.cli.places import check_place
from perfsuite.device.cards import usable_devices
from perfsuite.outcome import EXIT_NOTHING_MEASURED, UserError
from perfsuite.record.atomic_write import write_whole
from perfsuite.record.places import make_folder

HELP = "measure the gate's false alarms and misses on this card; writes calibration.json"
EXAMPLE = """examples:
  perfsuite calibrate --output .perfsuite/calibration.json --seconds 330
  perfsuite calibrate --aa 1500 --planted 300 --sharp 200 --others 0 --seconds 900 \\
    --output records/h200/calibration.json
in parts, each of at most 500 s:
  perfsuite calibrate --isolated --aa 3000 --planted 300 --sharp 0 --others 0 --seconds 480 --part 1.jsonl
  perfsuite calibrate --isolated --aa 3000 --planted 300 --sharp 0 --others 0 --seconds 480 --part 2.jsonl \\
    --after 1.jsonl
  perfsuite calibrate --join 1.jsonl 2.jsonl --output records/h200/calibration-isolated.json"""

OUTPUT = Path(".perfsuite/calibration.json")
SHARP_SLOWDOWN, OTHER_SLOWDOWNS = 0.005, (0.02, 0.05)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", type=Path, help=f"where to write (default {OUTPUT})")
    part = "write all gates of this run to FILE, a part of a calibration, instead of calibration.json"
    parser.add_argument("--part", type=Path, metavar="FILE", help=part)
    after = "earlier parts: use their noise figures, and measure only the gates that they lack; needs --part"
    parser.add_argument("--after", type=Path, metavar="PART", nargs="+", default=[], help=after)
    joined = "measure nothing: join these parts to one calibration.json"
    parser.add_argument("--join", type=Path, metavar="PART", nargs="+", default=[], help=joined)
    parser.add_argument("--seconds", type=float, default=360.0, help="wall time for everything (default 360)")
    parser.add_argument("--processes", type=int, default=4, help="processes that gate (default 4)")
    cards = "cards that are calibrated at once, of those that can be seen; one noise and one rate for all (default 1)"
    parser.add_argument("--jobs", type=int, metavar="N", default=1, help=cards)
    parser.add_argument("--aa", type=int, default=3000, help="gates of a kernel against itself (default 3000)")
    parser.add_argument("--planted", type=int, default=400, help="gates with a planted 1%% (default 400)")
    sharp = "gates with a planted 0.5%%, of calls from 20 us on (default 80)"
    parser.add_argument("--sharp", type=int, default=80, help=sharp)
    parser.add_argument("--others", type=int, default=80, help="gates with each of 2 and 5%% (default 80)")
    peers = "time for the peers' timers and rules, on a card; 0 leaves them out (default 20)"
    parser.add_argument("--peers-seconds", type=float, default=20.0, help=peers)
    isolated = "calibrate gates that time both sides in processes of their own, as --perf-isolate does"
    parser.add_argument("--isolated", action="store_true", help=isolated)
    beside = "processes on each card, which set up beside one another and time in turns (default 1)"
    parser.add_argument("--beside", type=int, metavar="N", default=1, help=beside)
    parser.add_argument("--portable", action="store_true", help="calibrate the host clock on the CPU")
    parser.add_argument("--json", action="store_true", help="print JSON: what is written")


def run(arguments: argparse.Namespace) -> int:
    """Calibrate, print the table, write the file; 21 without a device."""
    if arguments.join:
        return _join(arguments)
    _check(arguments)
    output = None if arguments.part else arguments.output or OUTPUT
    check_place("--output", output, makes_folder=True)
    check_place("--part", arguments.part, makes_folder=True)
    order = Order(
        device="cpu" if arguments.portable else "cuda",
        gates={
            0.0: arguments.aa,
            0.01: arguments.planted,
            SHARP_SLOWDOWN: arguments.sharp,
            **dict.fromkeys(OTHER_SLOWDOWNS, arguments.others),
        },
        seconds=arguments.seconds,
        processes=arguments.processes,
        peers_seconds=arguments.peers_seconds,
        isolated=arguments.isolated,
        beside=arguments.beside,
        output=output,
        part=arguments.part,
        after=[read_part(path) for path in arguments.after],
    )
    selectors: list[str | None] = [None]
    if order.device == "cuda":
        found = usable_devices(os.environ)
        if found.missing:
            print(f"nothing was measured: {found.missing} (--portable calibrates the CPU)", file=sys.stderr)
            return EXIT_NOTHING_MEASURED
        selectors = [one.selector for one in found.cards]
    if arguments.jobs > len(selectors):
        there = "--portable uses 1 processor" if arguments.portable else f"{len(selectors)} can be seen"
        raise UserError(f"--jobs is {arguments.jobs}; {there}")
    written = output or arguments.part
    make_folder(written.parent)
    with tempfile.TemporaryDirectory(prefix="perfsuite-calibrate-") as folder:
        calibration = Calibration(order, selectors[: arguments.jobs], Path(folder))
        summary = calibration.run()
    if not summary["aa"]["gates"] and not summary["planted"]:
        print("no gate ended in the time given: nothing was calibrated", file=sys.stderr)
        return EXIT_NOTHING_MEASURED
    return _told(arguments, summary, written)


def _check(arguments: argparse.Namespace) -> None:
    """UserError for arguments that make no sense."""
    for name in ("processes", "jobs", "beside", "aa", "planted"):
        if getattr(arguments, name) < 1:
            raise UserError(f"--{name} is {getattr(arguments, name)}; it must be at least 1")
    if not 0.0 < arguments.seconds < math.inf:
        raise UserError(f"--seconds is {arguments.seconds:g}; it must be more than 0")
    for name in ("sharp", "others"):
        if getattr(arguments, name) < 0:
            raise UserError(f"--{name} is {getattr(arguments, name)}; it must be 0 or more")
    if not 0.0 <= arguments.peers_seconds < math.inf:
        raise UserError(f"--peers-seconds is {arguments.peers_seconds:g}; it must be 0 or more")
    if arguments.beside > 1 and arguments.portable:
        raise UserError(f"--beside is {arguments.beside}; only gates on a card have turns")
    if arguments.beside > 1 and arguments.peers_seconds and not arguments.isolated:
        raise UserError(f"--beside is {arguments.beside}; the peers' timers know no turns (--peers-seconds 0)")
    if arguments.part and arguments.output:
        raise UserError("--part writes a part and --output a calibration.json; give one, and join parts by --join")
    if arguments.after and not arguments.part:
        raise UserError("--after continues a calibration in parts; name the file of this part by --part")
    if arguments.part and arguments.part.exists():
        raise UserError(f"--part is {str(arguments.part)!r}, which exists; each part is a new file")


def _join(arguments: argparse.Namespace) -> int:
    """Join the parts, and write and print what they show."""
    if arguments.part or arguments.after:
        raise UserError("--join measures nothing; leave out --part and --after")
    output = arguments.output or OUTPUT
    check_place("--output", output, makes_folder=True)
    summary = join([read_part(path) for path in arguments.join])
    make_folder(output.parent)
    write_whole(output, json.dumps(summary, indent=1) + "\n")
    return _told(arguments, summary, output)


def _told(arguments: argparse.Namespace, summary: dict[str, Any], written: Path) -> int:
    if arguments.json:
        print(json.dumps(summary, indent=1))
        return 0
    print(table(summary))
    print(f"written to {written}")
    return 0
