"""Measure the links of this machine: host to GPU and back, GPU to GPU, and collectives over all
GPUs.

Copies start from pinned and from pageable memory. All-reduce and all-gather run through
torch.distributed (NCCL), one process a GPU; their bus bandwidth is comparable with that of a
link. Latency is the time of a copy of a few bytes, until the host knows that it has arrived.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Sequence
from dataclasses import asdict

from perfsuite.analyze import ranks
from perfsuite.cli.cards import cards, held, tell
from perfsuite.cli.tables import print_columns
from perfsuite.device.cards import Device
from perfsuite.machine import links_measured
from perfsuite.machine.links import Collective, Link
from perfsuite.outcome import UserError
from perfsuite.report import units

HELP = "bandwidth and latency between host and GPUs, and between GPUs; collectives"
EXAMPLE = """example:
  perfsuite links
  perfsuite links --gpus 4 --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpus", type=int, metavar="N", help="GPUs that take part (default: all)")
    parser.add_argument("--json", action="store_true", help="print JSON, in bytes and seconds")


def run(arguments: argparse.Namespace) -> int:
    if arguments.gpus is not None and arguments.gpus < 1:
        raise UserError(f"--gpus is {arguments.gpus}; at least 1 is needed")
    devices = cards(at_least=arguments.gpus or 1)[: arguments.gpus]
    with held(devices):
        links = _links(devices)
        collectives = _collectives(devices) if len(devices) > 1 else []
    if arguments.json:
        rows = [asdict(one) | {"bus_bytes_a_second": one.bus_bytes_a_second} for one in collectives]
        print(json.dumps({"links": [asdict(one) for one in links], "collectives": rows}, indent=1))
        return 0
    print(f"{len(devices)} x {devices[0].name}")
    print_links(links)
    if collectives:
        print_collectives(collectives)
    else:
        print("one GPU: no links between GPUs, no collectives")
    return 0


def _links(devices: Sequence[Device]) -> list[Link]:
    found = []
    for device in devices:
        tell(f"host and gpu {device.index}")
        found += links_measured.host_links(device.index, device.uuid)
    uuids = [device.uuid for device in devices]
    for first, second in itertools.combinations(range(len(devices)), 2):
        tell(f"gpu {first} and gpu {second}")
        found += links_measured.device_links(first, second, uuids)
    return found


def _collectives(devices: Sequence[Device]) -> list[Collective]:
    tell(f"collectives over {len(devices)} ranks")
    try:
        by_rank = ranks.run(len(devices), links_measured.collectives_on_rank, len(devices))
    except ranks.RanksError as error:
        raise UserError(f"the collectives failed: {error}") from None
    # The slowest rank decides when a collective has ended.
    return [max(same, key=lambda one: one.seconds) for same in zip(*by_rank, strict=True)]


def print_links(links: Sequence[Link]) -> None:
    """Print one line for each direction."""
    rows = [("from", "to", "link", "bandwidth", "of its peak", "latency")]
    for link in links:
        share = "-" if link.share is None else f"{link.share:.0%}"
        rate = f"{units.decimal_text(link.bytes_a_second)}/s"
        rows.append((link.source, link.target, link.kind, rate, share, f"{link.latency_seconds * 1e6:.3g} us"))
    print_columns(rows, left=3)


def print_collectives(collectives: Sequence[Collective]) -> None:
    """Print one line for each collective."""
    for one in collectives:
        rate, latency = f"{units.decimal_text(one.bus_bytes_a_second)}/s", f"{one.latency_seconds * 1e6:.3g} us"
        print(
            f"{one.name} of {units.decimal_text(one.bytes)} over {one.ranks} ranks: {one.seconds * 1e3:.4g} ms, "
            f"{rate} on the bus; {latency} for a few bytes"
        )
