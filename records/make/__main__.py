"""Makes the records of this machine's cards within a time.

    python -m records.make --list
    python -m records.make --output FOLDER --seconds 590              # all jobs, in the order of the list
    python -m records.make --resume FOLDER --seconds 590              # what that one lacks
    python -m records.make --output FOLDER --seconds 300 --only gates-fp8,random-backward
    python -m records.make --take FOLDER                              # whole records into records/CARD/

Jobs share the cards that CUDA_VISIBLE_DEVICES leaves. What is cut is kept, and --resume continues there, on the same
commit. `--cpu` tries the commands in small, without a card. The exit code is 0 if every job that was asked for is
whole, 1 if not, and 2 for bad input.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from perfsuite.device.cards import find_devices
from perfsuite.outcome import UserError
from perfsuite.record.fingerprint import commit_of

from . import kept as folders
from .job import CPU, Job
from .jobs import JOBS, named
from .needs import SANITIZER, find_sanitizer
from .run import ROOT, Run
from .schedule import Card
from .taken import take


def main(arguments: Sequence[str] | None = None, jobs: Sequence[Job] = JOBS) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m records.make", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--list", action="store_true", help="print the jobs")
    what.add_argument("--output", type=Path, metavar="FOLDER", help="begin here; the folder is new or empty")
    what.add_argument("--resume", type=Path, metavar="FOLDER", help="continue there")
    what.add_argument("--take", type=Path, metavar="FOLDER", help="copy its whole records into records/CARD/")
    parser.add_argument("--only", default="", metavar="NAME,...", help="these jobs (default: all)")
    parser.add_argument("--seconds", type=float, metavar="N", help="of this call, all of it")
    parser.add_argument("--sanitizer", default=SANITIZER, metavar="FILE", help="the program (default: %(default)s)")
    parser.add_argument("--cpu", action="store_true", help="try the commands in small, without a card")
    parser.add_argument("--records", type=Path, default=ROOT / "records", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    try:
        wanted = named([name for name in given.only.split(",") if name], jobs)
        if given.list:
            print("\n".join(listed(wanted)))
            return 0
        if given.take:
            return _take(given.take, wanted, given.records)
        if given.seconds is None or not given.seconds > 0:
            raise UserError(f"--seconds is {given.seconds}; it must be above 0")
        return _make(given, wanted)
    except UserError as error:
        print(f"records: {error}", file=sys.stderr)
        return 2


def listed(jobs: Sequence[Job]) -> list[str]:
    """A line for each job, and the sum."""
    lines = [f"{'job':21} {'seconds':>7}  {'cards':>5}  {'times':5}  record and needs"]
    for job in jobs:
        needs = f"; needs {', '.join(job.needs)}" if job.needs else ""
        times = "yes" if job.times else "no"
        lines.append(f"{job.name:21} {job.seconds:7.0f}  {job.cards:5}  {times:5}  {job.record}{needs}")
    return [*lines, f"{'':21} {sum(job.seconds for job in jobs):7.0f}  of a card"]


def _make(given: argparse.Namespace, jobs: Sequence[Job]) -> int:
    from cuda_llm_ops.survey.record import card_folder

    name, cards = _cards(cpu=given.cpu)
    commit, dirty = commit_of(ROOT)
    if commit is None:
        raise UserError("no commit is known: the folder is no checkout, and PERFSUITE_COMMIT is not set")
    if given.resume:
        kept = folders.resume(given.resume.resolve(), commit, bool(dirty), name)
    else:
        kept = folders.begin(given.output.resolve(), commit, bool(dirty), name)
    if dirty:
        print(f"the tree differs from commit {commit[:10]}: --take will refuse these records", file=sys.stderr)
    share = max(1, len(os.sched_getaffinity(0)) // len(cards))
    sanitizer = find_sanitizer(given.sanitizer) or given.sanitizer
    run = Run(
        kept, card_folder(name), jobs, cards, seconds=given.seconds, processors=share, sanitizer=sanitizer
    )  # fmt: skip
    run.run()
    states = [kept.jobs[job.name] for job in jobs]
    print("\n".join(summary(kept, jobs)))
    return int(any(state.state != folders.WHOLE for state in states))


def _cards(*, cpu: bool) -> tuple[str, list[Card]]:
    """The cards' name, and the cards. UserError if there are none, or two models."""
    if cpu:
        return CPU, [Card(None)]
    found = find_devices(os.environ)
    if found.missing:
        raise UserError(f"{found.missing} (--cpu tries the commands without a card)")
    if len(names := sorted({card.name for card in found.cards})) > 1:
        raise UserError(f"the cards are {' and '.join(names)}; choose those of one model by CUDA_VISIBLE_DEVICES")
    return names[0], [Card(card.selector) for card in found.cards]


def summary(kept: folders.Kept, jobs: Sequence[Job]) -> list[str]:
    """A table: job, state, seconds, its record, what was found."""
    rows = [("job", "state", "seconds", "record", "found")]
    for job in jobs:
        state = kept.jobs[job.name]
        rows.append((job.name, state.state, f"{state.seconds:.0f}", state.record, state.found))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return ["  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]]).rstrip()
            for row in rows]  # fmt: skip


def _take(folder: Path, jobs: Sequence[Job], records: Path) -> int:
    """Copy, and say what was refused; 1 if anything was."""
    from cuda_llm_ops.survey.record import card_folder

    kept = folders.read(folder)
    found = take(kept, jobs, records / card_folder(kept.card), ROOT)
    for name, what in found:
        print(f"{name}: {what}")
    return int(not found or any(what != "taken" for _, what in found))


if __name__ == "__main__":
    sys.exit(main())
