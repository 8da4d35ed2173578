"""Measure bandwidth and latency of shared memory, L2 and device memory on the card.

One thread measures latency: each load gives the address of the next. The whole card measures
bandwidth by reading wide vectors. NVRTC, which comes with torch built for CUDA, compiles the
device code when the command runs. "in flight" is the number of bytes that must be under way to
keep up the bandwidth at that latency.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from perfsuite.cli.cards import cards, held, tell
from perfsuite.cli.tables import print_columns
from perfsuite.machine import hierarchy, hierarchy_measured
from perfsuite.machine.hierarchy import Level
from perfsuite.report import units

HELP = "bandwidth and latency of shared memory, L2 and device memory, measured"
EXAMPLE = """example:
  perfsuite hierarchy
  perfsuite hierarchy --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON, in bytes and seconds")


def run(arguments: argparse.Namespace) -> int:
    devices = cards()
    with held(devices[:1]):
        found = hierarchy_measured.measure(tell)
    ratio = found.copy_bytes_a_second / found.library_copy_bytes_a_second
    if arguments.json:
        rows = [asdict(level) | {"bytes_in_flight": level.bytes_in_flight} for level in found.levels]
        copies = {"copy": found.copy_bytes_a_second, "library_copy": found.library_copy_bytes_a_second}
        print(json.dumps({"gpu": devices[0].name, "levels": rows, **copies}, indent=1))
        return 0
    print(devices[0].name)
    print_levels(found.levels)
    print(
        f"a copy of 1 GiB: {units.decimal_text(found.copy_bytes_a_second)}/s read and written by our kernel, "
        f"{units.decimal_text(found.library_copy_bytes_a_second)}/s by torch's: x{ratio:.3f}"
    )
    for sentence in hierarchy.ratios(found.levels):
        print(sentence)
    return 0


def print_levels(levels: tuple[Level, ...]) -> None:
    """Print one line for each level."""
    rows = [("level", "bandwidth", "of its peak", "latency", "cycles", "in flight", "region")]
    for level in levels:
        rate = f"{units.decimal_text(level.bytes_a_second)}/s"
        share = "-" if level.share is None else f"{level.share:.1%}"
        latency, cycles = f"{level.latency_seconds * 1e9:.1f} ns", f"{level.latency_cycles:.1f}"
        sizes = units.decimal_text(level.bytes_in_flight), units.decimal_text(level.bytes)
        rows.append((level.name, rate, share, latency, cycles, *sizes))
    print_columns(rows)
