"""Made-up jobs: commands of a few lines that write small records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from records.make.job import At, Found, Job, Piece

BEGIN = """
import json, os, signal, sys, time
from pathlib import Path
place, name = Path(sys.argv[1]), sys.argv[2]
def say(what):
    with open(place.parent / "journal", "a") as file:
        file.write(json.dumps([name, os.environ.get("CUDA_VISIBLE_DEVICES"), what]) + "\\n")
def wait_for(*names):
    end = time.monotonic() + 60
    while not all((place.parent / one).exists() for one in names):
        assert time.monotonic() < end, f"{names} did not come"
        time.sleep(0.01)
say("begin")
(place.parent / f"{name} began").touch()
"""
END = """
say("end")
(place / f"{name}.part").write_text(json.dumps({"from": name, "commit": "0123456789abcdef"}))
"""


@dataclass(frozen=True, kw_only=True)
class MadeUp:
    """A kind of jobs: a part for each body of a program, which is whole once its file is there."""

    bodies: dict[str, str]
    """Name of a part -> what its program does between its beginning and its end."""
    seconds: float = 1.0
    times: bool = True
    resumes: bool = True
    last: Sequence[str] = ()
    """Parts that begin when the others have ended."""
    spare: Sequence[str] = ()
    """Those of them for which nothing is left to do."""

    def pieces(self, at: At, ended: frozenset[str]) -> list[Piece]:
        return [self._piece(at, name) for name in self.bodies if name not in ended]

    def _piece(self, at: At, name: str) -> Piece:
        file = at.place / f"{name}.part"
        words = ["-c", BEGIN + self.bodies[name] + END, str(at.place), name, "{seconds}"]
        return Piece(
            name=name, words=words, seconds=self.seconds, times=self.times, whole=file.exists,
            turn=int(name in self.last), needed=lambda: name not in self.spare,
        )  # fmt: skip

    def join(self, at: At) -> Sequence[str] | None:
        files = sorted(map(str, at.place.glob("*.part")))
        program = "import json, sys; json.dump([json.load(open(one)) for one in sys.argv[2:]], open(sys.argv[1], 'w'))"
        return ["-c", program, str(at.record), *files] if files else None

    def found(self, at: At) -> Found:
        there = json.loads(at.record.read_text())
        return Found(len(there) == len(self.bodies), f"{len(there)} of {len(self.bodies)} parts")


def job(name: str, *, bodies: dict[str, str] | str = "", seconds: float = 1.0, **more: Any) -> Job:
    """A job; with one body its only part has the job's name."""
    parts = bodies if isinstance(bodies, dict) else {name: bodies}
    of_kind = {name: more.pop(name) for name in ("resumes", "last", "spare") if name in more}
    kind = MadeUp(bodies=parts, seconds=seconds, times=more.get("times", True), **of_kind)
    given = {"record": f"{name}.json", "times": True, "small": (), "least": 0.0, "closing": 0.0, **more}
    return Job(name=name, kind=kind, seconds=seconds, **given)


def journal(folder: Path) -> list[tuple[str, str | None, str]]:
    """(part, card, "begin" or "end") in the order in which it happened."""
    return [tuple(json.loads(line)) for line in (folder / "journal").read_text().splitlines()]
