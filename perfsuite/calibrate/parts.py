"""Parts of one calibration: each is a run on a card of one model, at its own time and on its own machine.

A part is a file of JSON lines. Its first line says where it ran and what was asked, the others are rows of
`calibrate.worker`. A run that is cut leaves a part with the rows so far. Parts are joined only if one gate could have
measured all of them: same harness, same model of card, same mode, same noise figures.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfsuite.calibrate.summary import Row, noise_cases, summarise
from perfsuite.outcome import UserError

FORM = "perfsuite calibration part 1"
OF_A_PART = ("commit", "dirty", "driver", "cards", "beside", "torch", "cuda", "cublas", "cudnn", "python", "cpu")
"""Facts that may differ between parts. The joined file has them for each part."""
Asked = Mapping[float, int]
"""Planted slow-down (0 for none) -> gates."""


@dataclass(frozen=True)
class Part:
    """The gates of one run, and where it ran."""

    path: Path
    run: int
    """A number that no other run has."""
    facts: Mapping[str, Any]
    asked: Asked
    """The gates of the whole calibration, of which this is a part."""
    noise: Sequence[Mapping[str, Any]]
    """The noise figures of its gates, by case."""
    rows: Sequence[Row]

    @property
    def gates(self) -> Sequence[Row]:
        return [row for row in self.rows if row["kind"] == "gate"]


def head(run: int, facts: Mapping[str, Any], asked: Asked, noise: Sequence[Mapping[str, Any]] | None) -> str:
    """The first line of a part. noise: the figures of an earlier part; None if this one measures them."""
    sizes = [[size, count] for size, count in asked.items()]
    return json.dumps({"form": FORM, "run": run, "asked": sizes, "noise": noise, "facts": dict(facts)}) + "\n"


def read_rows(file: Path) -> list[dict[str, Any]]:
    """The lines written so far, without a last line that is still incomplete."""
    text = file.read_text()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def read_part(path: Path) -> Part:
    """The part in that file. UserError, which names the file, if it is none or if it holds no gate."""
    try:
        lines = read_rows(path)
        first = lines[0] if lines else {}
        if first.get("form") != FORM:
            raise UserError(f"{path} is no part of a calibration; `perfsuite calibrate --part FILE` writes one")
        facts, asked = first["facts"], {float(size): int(count) for size, count in first["asked"]}
        noise = first["noise"] or noise_cases(lines[1:])
        part = Part(path, int(first["run"]), facts, asked, noise, lines[1:])
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        said = f"{type(error).__name__}: {error}"
        raise UserError(f"{path} is a part of a calibration that cannot be read: {said}") from None
    if not part.gates:
        raise UserError(f"{path} holds no gate: the run ended before its first; leave this part out")
    return part


def require_alike(parts: Sequence[Part], facts: Mapping[str, Any] | None = None) -> None:
    """UserError unless these parts, and a run with these facts, may be joined; it names the two that differ."""
    first = parts[0]
    there = [(str(one.path), one.facts) for one in parts] + ([("this run", facts)] if facts else [])
    for name, its in there[1:]:
        for key in ("harness", "gpu", "isolated", *(() if its.get("gpu") else ("cpu",))):
            if its.get(key) != first.facts.get(key):
                one, other = (_said(key, value) for value in (its.get(key), first.facts.get(key)))
                raise UserError(f"{name} is of {one}, {first.path} is of {other}; parts of one calibration are alike")
    runs: dict[int, Path] = {}
    for part in parts:
        if part.run in runs:
            raise UserError(f"{part.path} and {runs[part.run]} are of the same run; name it once")
        runs[part.run] = part.path
        if list(part.noise) != list(first.noise):
            raise UserError(
                f"the gates of {part.path} assume other noise than those of {first.path}; "
                "begin all parts but the first by --after, which takes over the noise figures"
            )


def _said(key: str, value: Any) -> str:
    if key == "isolated":
        return "isolated gates" if value else "gates in one process"
    return f"harness {value}" if key == "harness" else str(value or "a processor")


def missing(parts: Sequence[Part], wanted: Mapping[tuple[str, float], int]) -> dict[tuple[str, float], int]:
    """(case, planted slow-down) -> gates that these parts do not have yet."""
    there = Counter((row["case"], row["slowdown"]) for part in parts for row in part.gates)
    return {key: max(0, count - there[key]) for key, count in wanted.items()}


def join(parts: Sequence[Part]) -> dict[str, Any]:
    """The content of calibration.json from all gates of these parts. UserError if they may not be joined."""
    require_alike(parts)
    numbers: dict[tuple[int, int], int] = {}
    rows = []
    for part in parts:
        for row in part.rows:
            number = numbers.setdefault((part.run, row["process"]), len(numbers))
            rows.append({**row, "process": number})
    facts = {key: value for key, value in parts[0].facts.items() if all(one.facts.get(key) == value for one in parts)}
    for key in OF_A_PART:
        facts.setdefault(key, None)
    asked: Counter[float] = Counter()
    for part in parts:
        asked |= Counter(part.asked)
    have = Counter(row["slowdown"] for part in parts for row in part.gates)
    facts["complete"] = all(have[size] >= count for size, count in asked.items())
    return summarise(rows, facts, parts[0].noise) | {"parts": [_of(part) for part in parts]}


def _of(part: Part) -> dict[str, Any]:
    """The entry of a part in the joined file."""
    planted = [row for row in part.gates if row["slowdown"]]
    spent = sum(row.get("wall_seconds") or 0.0 for row in part.gates)
    facts = {key: part.facts.get(key) for key in OF_A_PART}
    same = len(part.gates) - len(planted)
    return facts | {"gates": same, "planted": len(planted), "seconds_of_gates": round(spent, 1)}
