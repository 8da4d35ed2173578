"""This machine's cards together: the judge, identical code, and a test suite on one card and on more.

    python -m tests.judge.thousand --scale --parts judge,same,perf --output records/h200/scale.json tests/perf

judge: jobs, faults among them, on 1, 2, 4 and all cards; then on all, one of which is taken away in the middle. same:
gates of identical code on one card, then on all at once. perf, turns, ray: a suite on one card against all of them, by
`-n auto`, by two workers a card and by Ray; the words at the end go to pytest. Each part is written when it ends,
beside what the record holds already, so parts can run one by one. --join FILE takes over the parts of another record.
--identical N=FILE takes over a record of `perfsuite calibrate` on N cards at once.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from measured import kept_in
from scaled_judge import Asked, Node
from scaled_same import MOST_CARDS, same, told
from scaled_suite import suites

from perfsuite.device.cards import usable_devices
from perfsuite.judge.beside import on_each_card
from perfsuite.record.atomic_write import write_whole
from perfsuite.settings import DeviceKind

PARTS = ("judge", "same", "perf", "turns", "ray")
SUITES = {"perf": "auto", "turns": "turns", "ray": "ray"}
DEFAULT = "judge,same,perf"


def main(words: Sequence[str] | None = None) -> int:
    """Measure, and write each part when it ends."""
    given, rest = _read(words)
    cards = usable_devices(os.environ).cards[: given.cards]
    device: DeviceKind = "cuda" if cards else "cpu"
    places = len(cards) or given.cards or len(os.sched_getaffinity(0))
    begin, bad = time.monotonic(), False

    def tell(name: str, values: Mapping[str, Any]) -> None:
        print(f"{time.monotonic() - begin:.0f} s: {json.dumps({name: values})}", flush=True)
        kept_in(given.output, name, values, device)

    for path in given.join:
        _joined(given.output, path)
    for count, path in given.identical:
        tell(f"identical-{count}", told(json.loads(path.read_text()), count))
    if "judge" in given.parts:
        asked = Asked(
            jobs=given.jobs,
            seconds=given.seconds,
            warm_seconds=given.warm_seconds,
            counts=[count for count in given.counts or sorted({1, 2, 4, places}) if count <= places],
            beside=given.beside or on_each_card(cards),
            timed=not given.untimed,
            together=given.together,
        )
        with Node(asked, cards, places, device) as node:
            print(f"{places} cards, {asked.beside} processes on each; first {json.dumps(node.warm())}", flush=True)
            for name, values in node.parts():
                tell(name, values)
                bad |= bool(values["faults"])
    if "same" in given.parts:
        selectors = [card.selector for card in cards] or [None] * places
        limits = (given.gates, given.same_seconds, given.alone_seconds)
        for name, values in same(device, selectors, *limits, given.noise):
            tell(name, values)
    if names := [name for part, name in SUITES.items() if part in given.parts]:
        common = ["--gpu" if cards else "--perf-portable", "--perf-seed=0", *(rest or ["tests/perf"])]
        for name, values in suites(cards, places, names, common, given.suite_seconds):
            tell(name, values)
            bad |= bool(values["different"])
    return int(bad)


def _read(words: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=DEFAULT, help=f"of {', '.join(PARTS)} (default: {DEFAULT})")
    parser.add_argument("--cards", type=int, metavar="N", help=f"at most {MOST_CARDS} (default: all that there are)")
    parser.add_argument("--jobs", type=int, default=2000, metavar="N", help="of each part of judge (default: 2000)")
    parser.add_argument("--seconds", type=float, default=90.0, metavar="S", help="of each part of judge (default: 90)")
    warm = "of the first pass, which does not count (default: 90)"
    parser.add_argument("--warm-seconds", type=float, default=90.0, metavar="S", help=warm)
    parser.add_argument("--counts", metavar="N,N", help="numbers of cards (default: 1,2,4 and all that there are)")
    beside = "processes on each card (default: as `perfsuite judge`)"
    parser.add_argument("--beside", type=int, metavar="N", help=beside)
    parser.add_argument("--untimed", action="store_true", help="judge answers alone")
    parser.add_argument("--together", action="store_true", help="smaller numbers of cards run at the same time")
    parser.add_argument("--gates", type=int, default=1000, metavar="N", help="of identical code (default: 1000)")
    parser.add_argument("--same-seconds", type=float, default=90.0, metavar="S", help="on all cards (default: 90)")
    parser.add_argument("--alone-seconds", type=float, default=240.0, metavar="S", help="on one (default: 240)")
    noise = "a part of a calibration of such a card, whose noise the gates assume (default: the one card's)"
    parser.add_argument("--noise", type=Path, metavar="PART", help=noise)
    parser.add_argument("--suite-seconds", type=float, default=600.0, metavar="S", help="of each run (default: 600)")
    parser.add_argument("--identical", action="append", default=[], metavar="N=FILE", help="records to add")
    parser.add_argument("--join", action="append", type=Path, default=[], metavar="FILE", help="parts to add")
    parser.add_argument("--output", type=Path, metavar="FILE", help="the record; what else it holds stays there")
    given, rest = parser.parse_known_args(words)
    given.parts = [part for part in given.parts.split(",") if part]
    if unknown := set(given.parts) - {*PARTS}:
        parser.error(f"--parts has {', '.join(sorted(unknown))}; allowed are {', '.join(PARTS)}")
    for name, least in (("cards", 1), ("jobs", 1), ("beside", 1), ("gates", 1)):
        if (value := getattr(given, name)) is not None and value < least:
            parser.error(f"--{name} is {value}; it must be at least {least}")
    if given.cards is not None and given.cards > MOST_CARDS:
        parser.error(f"--cards is {given.cards}; it must be at most {MOST_CARDS}")
    if given.counts is not None:
        counts = given.counts.split(",")
        if not all(one.isdecimal() and int(one) for one in counts):
            parser.error(f"--counts is {given.counts!r}; it must be numbers such as 1,2,4")
        given.counts = [int(one) for one in counts]
    if given.join and given.output is None:
        parser.error("--join needs --output, the record that takes the parts")
    pairs = [one.partition("=") for one in given.identical]
    if not all(count.isdecimal() and int(count) and file for count, _, file in pairs):
        parser.error(f"--identical is {' '.join(given.identical)!r}; it must be N=FILE")
    given.identical = [(int(count), Path(file)) for count, _, file in pairs]
    return given, rest


def _joined(record: Path, other: Path) -> None:
    """Take over the parts of another record; SystemExit if both have one of them with other figures."""
    here = json.loads(record.read_text()) if record.exists() else {}
    there = json.loads(other.read_text())
    if twice := sorted(name for name in here.keys() & there.keys() if here[name] != there[name]):
        raise SystemExit(f"{record} and {other} have both measured {', '.join(twice)}; remove it from one of them")
    write_whole(record, json.dumps({**here, **there}, indent=1) + "\n")
