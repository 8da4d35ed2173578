"""Measure bandwidth and latency of shared memory, L2 and device memory on the card.

Latency is that of one thread that loads the address of its next load. Bandwidth is that of the
whole card reading wide vectors. The device code is perfsuite's own; NVRTC, which comes with
torch built for CUDA, compiles it when the command runs. "in flight" is the number of bytes
under way that keeps up the bandwidth at that latency.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from perfsuite.cli.cards import cards, held, tell
from perfsuite.machine import hierarchy
from perfsuite.machine.hierarchy import Level
from perfsuite.report import units

HELP = "bandwidth and latency of shared memory, L2 and device memory, measured"
EXAMPLE = """example:
  perfsuite hierarchy
  perfsuite hierarchy --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON, in bytes and seconds")


def run(arguments: argparse.Namespace) -> int:
    """Measure and print."""
    from perfsuite.machine.hierarchy_measured import measure

    devices = cards()
    with held(devices[:1]):
        found = measure(tell)
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
    """One line a level."""
    head = ("level", "bandwidth", "of its peak", "latency", "cycles", "in flight", "region")
    print(f"{head[0]:<14}" + "".join(f"{word:>13}" for word in head[1:]))
    for level in levels:
        share = "-" if level.share is None else f"{level.share:.1%}"
        cells = [
            f"{units.decimal_text(level.bytes_a_second)}/s",
            share,
            f"{level.latency_seconds * 1e9:.1f} ns",
            f"{level.latency_cycles:.1f}",
            units.decimal_text(level.bytes_in_flight),
            units.decimal_text(level.bytes),
        ]
        print(f"{level.name:<14}" + "".join(f"{cell:>13}" for cell in cells))
