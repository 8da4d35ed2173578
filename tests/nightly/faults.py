"""Does harm to each command for real, and says what was lost and what the next run does.

Signals at 20 points of a command's work, full disks of 10 sizes, a file system whose flock, rename or fsync fails, and
two and eight runs at once. The project, the home folder and the gates are made up; the processes, files and signals are
real.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perfsuite.record.places import PARTIAL
from perfsuite.record.schema import RecordError
from perfsuite.record.store import read_record, read_run

from .made_up_project import CASES, Project
from .written import ROOT, join, update

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
POINTS = 20
SIZES = [4096 * number for number in range(1, 11)]
"""Bytes of full disks: none that the outputs of the commands fit on, but for the largest."""
END_SECONDS = 60.0
ORPHAN_SECONDS = 10.0
SMALL = ["--portable", "--tests", "test_made_up.py"]


@dataclass(frozen=True)
class Command:
    """A command, the file that it writes, and a check that this file is whole."""

    words: list[str]
    product: str
    whole: Callable[[Path], bool]
    slow: bool = False
    """Its next run is tried once in five, since each takes long."""
    fresh: bool = False
    """It refuses to write a file that exists, so its file is removed before each run."""


def is_record(path: Path) -> bool:
    try:
        return len(read_record(path)) == CASES
    except RecordError:
        return False


COMMANDS = {
    "pytest": Command(
        [
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "perfsuite.plugin",
            "--perf-portable",
            "--perf-record=out/run.jsonl",
        ],
        "out/run.jsonl",
        is_record,
    ),
    "report": Command(
        ["perfsuite", "report", "before.jsonl", "--html", "out/page.html"],
        "out/page.html",
        lambda path: path.read_text().rstrip().endswith("</html>"),
    ),
    "export": Command(
        ["perfsuite", "export", "json", "before.jsonl", "--output", "out/cases.json"],
        "out/cases.json",
        lambda path: bool(json.loads(path.read_text())),
    ),
    "export asv": Command(
        ["perfsuite", "export", "asv", "before.jsonl", "--allow-dirty", "--results", "out/results"],
        "out/results/*/*-virtualenv-*.json",
        lambda path: bool(json.loads(path.read_text())["results"]),
    ),
    "partial --join": Command(
        ["perfsuite", "partial", "--join", "out/joined.jsonl", "before.jsonl"],
        "out/joined.jsonl",
        is_record,
        fresh=True,
    ),
    "history": Command(
        ["perfsuite", "history", "HEAD~1", "HEAD", *SMALL, "--output", "out/history"],
        "out/history/*.jsonl",
        is_record,
        slow=True,
    ),
    "ab": Command(
        ["perfsuite", "ab", "HEAD~1", "HEAD", "--anyway", *SMALL, "--pairs", "2", "--output", "out/ab.json"],
        "out/ab.json",
        lambda path: path.read_text().endswith("]\n"),
        slow=True,
    ),
    "bisect": Command(
        ["perfsuite", "bisect", "*8x8x8*", "HEAD~2", "HEAD", *SMALL, "--pairs", "2"], "", lambda path: True, slow=True
    ),
}


@dataclass
class Row:
    """A fault of one command, over several runs."""

    fault: str
    command: str
    runs: int = 0
    lost: dict[str, int] = field(default_factory=dict)
    said: dict[str, int] = field(default_factory=dict)
    after: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        def told(counts: dict[str, int], none: str) -> str:
            return (
                "; ".join(f"{text} ({count})" if count < self.runs else text for text, count in counts.items()) or none
            )

        key = f"{self.fault}, {self.command}"
        return {
            "key": key,
            "fault": self.fault,
            "command": self.command,
            "runs": self.runs,
            "lost": "; ".join(f"{text} ({count})" for text, count in self.lost.items()) or "nothing",
            "how it ends": told(self.said, "-"),
            "next run": told(self.after, "-"),
        }


def note(counts: dict[str, int], text: str) -> None:
    counts[text] = counts.get(text, 0) + 1


class Harm:
    """One project, its state before, and the commands on it."""

    def __init__(self, folder: Path) -> None:
        self.project = Project(folder)
        self.out = self.project.path / "out"
        self.out.mkdir()
        code, said = self.project.run([*COMMANDS["pytest"].words[:-1], "--perf-record=before.jsonl"])
        assert code == 0, said
        self.codes: dict[str, int] = {}

    def prepare(self, name: str) -> None:
        """Run the command once, undisturbed: it leaves an older product, and its exit code is known."""
        self.begin(name)
        self.codes[name], said = self.project.run(COMMANDS[name].words)
        assert self.codes[name] in (0, 1), said
        assert self.products(name) or not COMMANDS[name].product, said

    def begin(self, name: str) -> tuple[dict[str, str], int]:
        """The user's belongings before a run, and the number of older products, all of which it must leave whole."""
        if COMMANDS[name].fresh:
            for path in self.products(name):
                path.unlink()
        return self.project.belongings(), len(self.products(name))

    def products(self, name: str) -> list[Path]:
        found = self.project.path.glob(COMMANDS[name].product) if COMMANDS[name].product else ()
        return sorted(path for path in found if not path.name.endswith(PARTIAL))

    def check(self, row: Row, name: str, mine: dict[str, str], count: int) -> None:
        """Note what a fault has cost: the user's files, an older product, cases that a run had measured, processes."""
        end = time.monotonic() + ORPHAN_SECONDS
        while self.project.left_running() and time.monotonic() < end:
            time.sleep(0.05)
        if left := self.project.left_running():
            note(row.lost, f"{len(left)} processes go on")
            for number in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
        now = self.project.belongings()
        if now != mine:
            changed = sorted(key for key in mine.keys() | now.keys() if mine.get(key) != now.get(key))
            note(row.lost, f"changed: {', '.join(Path(key).name for key in changed)}")
        products = self.products(name)
        if len(products) < count or not all(map(COMMANDS[name].whole, products)):
            note(row.lost, "the older output")
        for partial in self.project.path.rglob("*.partial.jsonl"):
            try:
                read_run(partial)
            except RecordError as error:
                if "holds no case" not in str(error) and partial.stat().st_size:
                    note(row.lost, "a case of a partial record")

    def go_on(self, row: Row, name: str) -> None:
        """The next run, undisturbed."""
        self.begin(name)
        code, said = self.project.run(COMMANDS[name].words)
        whole = all(map(COMMANDS[name].whole, self.products(name)))
        left = [path.name for path in (self.project.path / ".perfsuite" / "ab").glob(".*") if path.is_dir()]
        fine = code == self.codes[name] and whole and not [one for one in left if one.startswith((".build-", ".tree"))]
        note(row.after, "as if nothing had been" if fine else f"exit {code}: {said.strip().splitlines()[-1][:100]}")
        for partial in self.out.rglob("*.partial.jsonl"):
            partial.unlink()


def told(said: str) -> str:
    """Of a traceback on the screen: whose it is. Python or pytest shows one if Ctrl-C meets it while it starts."""
    if "Traceback (most recent call last)" not in said:
        return ""
    return ", with a traceback" if "perfsuite" in said and "in main" in said else " while it starts"


@dataclass(frozen=True)
class Point:
    """A place in a command's work: the `at`-th of its calls of one kind. The first is 1."""

    which: int
    """0: calls on files of the project, the home folder and the temporary one; 1: readings of the clock and waits."""
    at: int


class Counted:
    """A preloaded library counts a command's calls, and sends it a signal at one of them; see counting.c."""

    def __init__(self, library: Path, folder: Path) -> None:
        self.file, self.layout = folder.with_name(f"{folder.name}.counts"), struct.Struct("8q")
        self.environment = {"LD_PRELOAD": str(library), "COUNTING_FILE": str(self.file), "COUNTING_FOLDER": str(folder)}

    def arm(self, point: Point | None = None, number: int = 0) -> None:
        """Begin to count anew; send the signal of that number at the point."""
        which, at = (point.which, point.at) if point else (0, 0)
        self.file.write_bytes(self.layout.pack(0, 0, 0, 0, which, at, number, 0))

    def counts(self) -> tuple[int, int]:
        """The calls of each kind so far."""
        return self.layout.unpack(self.file.read_bytes())[:2]

    def sent(self) -> bool:
        """True if the command has come to the point."""
        return bool(self.layout.unpack(self.file.read_bytes())[2])


def points_of(counts: Sequence[int], points: int) -> list[Point]:
    """So many points, spread evenly over the calls on files and, as many, over the readings of the clock."""
    halves = points - points // 2, points // 2
    return [
        Point(which, 1 + int(count * (place + 0.5) / many))
        for which, (count, many) in enumerate(zip(counts, halves, strict=True))
        for place in range(many)
    ]


def signals(harm: Harm, name: str, library: Path, points: int) -> Iterator[Row]:
    """Send each signal at so many points of the command's work."""
    command = COMMANDS[name]
    counted = Counted(library, harm.project.folder)
    counted.arm()
    harm.begin(name)
    harm.project.run(command.words, **counted.environment)
    places = points_of(counted.counts(), points)
    for number in SIGNALS:
        row = Row(f"{number.name} at {points} points", name)
        for place, point in enumerate(places):
            mine, count = harm.begin(name)
            counted.arm(point, number)
            child = harm.project.start(command.words, **counted.environment)
            try:
                out, _ = child.communicate(timeout=END_SECONDS)
            except subprocess.TimeoutExpired:
                note(row.lost, "does not end")
                child.kill()
                out, _ = child.communicate()
            row.runs += 1
            ended = (
                f"by {signal.Signals(-child.returncode).name}" if child.returncode < 0 else f"exit {child.returncode}"
            )
            note(row.said, ended + told(out) + ("" if counted.sent() else ", before the point"))
            harm.check(row, name, mine, count)
            if not command.slow or place % 5 == 4:
                harm.go_on(row, name)
        harm.go_on(row, name)
        yield row


@contextlib.contextmanager
def disk(folder: Path, size: int) -> Iterator[None]:
    """A file system of that many bytes at the folder."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", folder], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def may_mount() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        try:
            with disk(Path(folder), SIZES[0]):
                return True
        except (subprocess.CalledProcessError, FileNotFoundError):
            return False


def full_disks(harm: Harm, name: str) -> Iterator[Row]:
    """A disk that has no room: for the output of a command, for the builds of ab and bisect."""
    where = harm.project.path / ".perfsuite" if name in ("ab", "bisect") else harm.out
    row = Row(f"disks of {SIZES[0] >> 10} to {SIZES[-1] >> 10} KiB", name)
    if not may_mount():
        note(row.said, "skipped: it needs the right to mount")
        yield row
        return
    for size in SIZES:
        where.mkdir(exist_ok=True)
        mine, count = harm.begin(name)
        with disk(where, size):
            code, said = harm.project.run(COMMANDS[name].words)
            ended = f"exit {code}" + told(said)
            spare = [path for path in harm.products(name) if not COMMANDS[name].whole(path)]
            if spare:
                note(row.lost, f"{spare[0].name} is cut off")
        row.runs += 1
        note(row.said, ended)
        harm.check(row, name, mine, count)
    harm.go_on(row, name)
    yield row


def unwilling(harm: Harm, name: str, library: Path) -> Iterator[Row]:
    """A call of the C library fails for all files of the project."""
    for call in ("flock", "rename", "fsync"):
        row = Row(f"{call} fails", name)
        mine, count = harm.begin(name)
        places = {"UNWILLING_CALL": call, "UNWILLING_FOLDER": str(harm.project.path), "LD_PRELOAD": str(library)}
        code, said = harm.project.run(COMMANDS[name].words, **places)
        row.runs += 1
        note(row.said, f"exit {code}" + told(said))
        harm.check(row, name, mine, count)
        harm.go_on(row, name)
        yield row


def at_once(harm: Harm, name: str) -> Iterator[Row]:
    """Several runs of one command at once, on one record or output."""
    for runs in (2, 8):
        row = Row(f"{runs} runs at once", name)
        mine, count = harm.begin(name)
        children = [harm.project.start(COMMANDS[name].words) for _ in range(runs)]
        for child in children:
            out, _ = child.communicate(timeout=600)
            refused = "is being written by process" in out
            row.runs += 1
            note(
                row.said,
                "refused, and names the other's process" if refused else f"exit {child.returncode}" + told(out),
            )
        harm.check(row, name, mine, count)
        harm.go_on(row, name)
        yield row


KINDS = ("signals", "disks", "unwilling", "at-once")


def main() -> int:
    """Do the harm, print a line of each fault, and write the rows; 1 if anything was lost."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("commands", nargs="*", help=f"of {', '.join(COMMANDS)} (default: all)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="default: all")
    parser.add_argument("--points", type=int, default=POINTS, help=f"points of each signal (default {POINTS})")
    parser.add_argument("--output", type=Path, default=ROOT / "records" / "nightly" / "faults.json")
    parser.add_argument("--join", nargs="+", type=Path, metavar="FILE", help="instead: put these results together")
    given = parser.parse_args()
    if unknown := set(given.commands) - set(COMMANDS):
        parser.error(f"{', '.join(sorted(unknown))} is none of {', '.join(COMMANDS)}")
    if not shutil.which("gcc"):
        parser.error("gcc is needed, for the libraries that are preloaded; it is not installed")
    if given.join:
        join(given.output, given.join, key="key")
        return 0
    # A shell's background jobs and nohup ignore these, and so would the commands.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    lost = False
    with tempfile.TemporaryDirectory(prefix="perfsuite-faults-") as folder:
        libraries = {name: Path(folder, f"{name}.so") for name in ("unwilling", "counting")}
        for library in libraries.values():
            source = Path(__file__).with_name(f"{library.stem}.c")
            subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        for name in given.commands or COMMANDS:
            harm = Harm(Path(folder, name))
            harm.prepare(name)
            harm.prepare(name)  # with warm builds
            made: list[Iterator[Row]] = []
            if "at-once" in given.kinds:
                made.append(at_once(harm, name))
            if "unwilling" in given.kinds:
                made.append(unwilling(harm, name, libraries["unwilling"]))
            if "disks" in given.kinds:
                made.append(full_disks(harm, name))
            if "signals" in given.kinds:
                made.append(signals(harm, name, libraries["counting"], given.points))
            for row in (row for rows in made for row in rows):
                update(given.output, [row.as_json()], key="key")
                print(*row.as_json().values(), sep="; ", flush=True)
                lost |= bool(row.lost)
    return int(lost)


if __name__ == "__main__":
    sys.exit(main())
