"""A test suite on one card, and on all by xdist and by Ray: verdicts, time, and what each card did."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from host_watch import Cards
from thousand_perfray import Suite, compared, run

from perfsuite.device.cards import Device

IN_TURNS = 2
"""Workers of each card that set up beside one another and time in turns."""


def by(name: str, places: int, *, cards: bool) -> list[str]:
    """Pytest's words for a way in which the tests get to several cards: auto, turns or ray."""
    if name == "ray":
        return ["--perf-ray=local"]
    if name == "turns":
        return ["-n", str(IN_TURNS * places)]
    return ["-n", "auto" if cards else str(places)]


def suites(
    cards: Sequence[Device], places: int, names: Sequence[str], words: Sequence[str], seconds: float
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, figures) of the suite in each of the ways of `by`, against the same on the first card.

    places: the number of cards, or of processes on processors. seconds: of each run.
    """
    with tempfile.TemporaryDirectory() as folder:
        one = {"CUDA_VISIBLE_DEVICES": cards[0].selector} if cards else {}
        every = {"CUDA_VISIBLE_DEVICES": ",".join(card.selector for card in cards)} if cards else {}
        plain = run("plain", words, Path(folder), seconds, one)
        for name in names:
            with Cards(cards) as watched:
                other = run(name, [*words, *by(name, places, cards=bool(cards))], Path(folder), seconds, every)
            found = compared(plain, other, name, 1.0 / places)
            busy = watched.busy()
            yield f"suite-{name}", {**found, "cards": places, "words": list(words), "places": spent(other, busy)}


def spent(suite: Suite, busy: dict[str, float]) -> list[dict[str, Any]]:
    """What each process did of the run's seconds, by card.

    `start` is the time before its first test, `end` that after its last one, `between` that between its tests. Of the
    tests' own time `timed` was spent in timed rounds, `checks` in checks, `other` elsewhere: set-ups, references,
    fixtures. busy: card -> share of the time with a kernel.
    """
    if not suite.times:
        return []
    cases = defaultdict(list)
    for case in suite.cases:
        cases[case.test].append(case)
    begun, ended = suite.times["begun"], max(place["last"] for place in suite.times["places"])
    found = []
    for place in sorted(suite.times["places"], key=lambda place: (place["card"], place["first"])):
        own = [case for test in place["tests"] for case in cases[test]]
        timed = sum(case.gpu_seconds or 0.0 for case in own)
        checks = sum(case.check_seconds or 0.0 for case in own)
        found.append(
            {
                "card": place["card"],
                "tests": len(place["tests"]),
                "cases": len(own),
                "whole": ended - begun,
                "start": place["first"] - begun,
                "timed": timed,
                "checks": checks,
                "other": max(0.0, place["seconds"] - timed - checks),
                "between": max(0.0, place["last"] - place["first"] - place["seconds"]),
                "end": max(0.0, ended - place["last"]),
                "kernel_share": busy.get(place["card"]),
            }
        )
    return found
