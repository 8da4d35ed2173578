"""The folder of a run: whose records it holds, and how far each job is. A later call continues there."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from perfsuite.outcome import UserError
from perfsuite.record.atomic_write import write_whole

FORM = "records 1"
FILE = "run.json"
WHOLE = "whole"


@dataclass
class State:
    """How far a job is."""

    state: str = "not begun"
    """"whole", "partial", "failed", "not begun", or "lacks" and a reason."""
    seconds: float = 0.0
    """Spent on its commands, in all calls."""
    found: str = ""
    record: str = ""
    """Its record, below the folder."""
    ended: list[str] = field(default_factory=list)
    """Pieces that are whole."""


@dataclass
class Kept:
    """The file run.json of a folder."""

    folder: Path
    commit: str
    dirty: bool
    card: str
    """The cards' name, as NVML gives it; "cpu" without one."""
    jobs: dict[str, State] = field(default_factory=dict)

    def write(self) -> None:
        """Replace the file as a whole."""
        told = asdict(self) | {"form": FORM}
        del told["folder"]
        write_whole(self.folder / FILE, json.dumps(told, indent=1) + "\n")


def begin(folder: Path, commit: str, dirty: bool, card: str) -> Kept:
    """A new folder. UserError if it has files."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"--output is {str(folder)!r}, which is not an empty folder; --resume continues there")
    folder.mkdir(parents=True, exist_ok=True)
    kept = Kept(folder, commit, dirty, card)
    kept.write()
    return kept


def read(folder: Path) -> Kept:
    """An earlier run. UserError, which names the folder, if it is none."""
    try:
        told = json.loads((folder / FILE).read_text(encoding="utf-8"))
        if told.pop("form") != FORM:
            raise ValueError(f"form is not {FORM!r}")
        jobs = {name: State(**state) for name, state in told.pop("jobs").items()}
        return Kept(folder=folder, jobs=jobs, **told)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{str(folder)!r} holds no run of this program: {error}") from None


def resume(folder: Path, commit: str, dirty: bool, card: str) -> Kept:
    """An earlier run, which this one continues. UserError if its records are of other code or of another card."""
    kept = read(folder)
    for name, then, now in (
        ("commit", kept.commit, commit), ("dirty tree", kept.dirty, dirty), ("card", kept.card, card),
    ):  # fmt: skip
        if then != now:
            said = f"{name} of {str(folder)!r} is {then}, here it is {now}"
            raise UserError(f"{said}: a record is of one commit and one model of card; begin a new folder by --output")
    return kept
