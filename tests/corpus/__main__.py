"""Gates the corpus by the plain call: python -m tests.corpus --device cuda --out records/h200/corpus.json.

Judged are an honest copy of each module, each form of call, with `--what compiled` each module against its copy by
torch.compile, with `--what liger` the operators of liger-kernel against torch, and with `--what large` calls with one
argument of a twentieth of the card's memory. A run that was cut off goes on: what
FILE holds of the same commit and device is not judged again. Each MISSED and each WRONG is repeated by plain torch
(`plain.py`). The exit code is 1 if a case is WRONG or raised.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from perfsuite.outcome import Reason
from perfsuite.record.fingerprint import environment
from perfsuite.settings import Settings

from . import large, liger, plain
from .calls import CALLS
from .written import Call, Module, all_modules

WHAT = ("modules", "calls", "compiled", "liger", "large")
Line = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--what", nargs="+", choices=WHAT, default=WHAT[:2], help="(default: modules calls)")
    parser.add_argument("--kind", nargs="+", help="only these kinds, such as products")
    parser.add_argument("--name", nargs="+", help="only these modules and calls")
    parser.add_argument("--drawn", type=int, metavar="COUNT", help="only that many, drawn by --seed")
    parser.add_argument("--seed", type=int, default=0, help="draws the cases and their inputs (default: 0)")
    parser.add_argument("--seconds", type=float, default=0.3, help="time budget of a case (default: 0.3)")
    parser.add_argument("--at-least", type=float, default=0.8, help="the target; 0 checks without timing")
    parser.add_argument("--compiler", default="inductor", help="the backend of torch.compile (default: inductor)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the record")
    parser.add_argument("--join", type=Path, nargs="+", default=[], metavar="FILE", help="records of other parts")
    given = parser.parse_args()
    settings = Settings(device=given.device, seconds=given.seconds, seed=given.seed)
    record: dict[str, Any] = {
        "environment": asdict(environment(Path(__file__).parents[2], device=given.device)),
        "corpus": [],
    }
    for file in [*([given.out] if given.out and given.out.exists() else []), *given.join]:
        before = json.loads(file.read_text())
        if alike(before["environment"], record["environment"]):
            record["corpus"] += before["corpus"]
        elif file in given.join:
            parser.error(f"{file} is of another commit or device, or of changed files")
    lines: list[Line] = record["corpus"]
    known = {(line["what"], line["case"]) for line in lines}
    wanted = [
        (what, case)
        for what, case in cases(given.what)
        if (not given.kind or case.kind in given.kind) and (not given.name or case.name in given.name)
    ]
    for what, case in wanted if given.drawn is None else drawn(wanted, given.drawn, given.seed):
        if (what, case.name) in known:
            continue
        line = judged(what, case, settings, given.at_least or None, given.compiler)
        lines.append(line)
        shown = f"{line['verdict']:10}{case.kind:13}{case.name:36}{line['wall']:6.2f} s  {line['sentence'][:140]}"
        print(shown, flush=True)
        if given.device == "cuda":
            torch.cuda.empty_cache()
        if given.out:
            given.out.parent.mkdir(parents=True, exist_ok=True)
            given.out.write_text(json.dumps(record, indent=1) + "\n")
    for line in lines:
        if line["verdict"] == "UNDECIDED":
            print(f"UNDECIDED ({line['reason']}) {line['what']} {line['case']}: {line['sentence']}")
    for what in WHAT:
        counts = Counter(line["verdict"] for line in lines if line["what"] == what)
        if counts:
            print(f"{counts.total()} {what}: " + ", ".join(f"{count} {name}" for name, count in counts.most_common()))
    if wall := sum(line["wall"] for line in lines):
        checks = sum(line.get("checks", 0.0) for line in lines)
        print(f"checks took {checks:.1f} s, {checks / wall:.1%} of {wall:.1f} s of wall time")
    return int(any(line["verdict"] in ("WRONG", "ERROR") for line in lines))


def drawn(wanted: list[Any], count: int, seed: int) -> list[Any]:
    """That many of them, or all, in their order."""
    if count < 1:
        raise SystemExit(f"--drawn is {count}; it must be at least 1")
    places = sorted(random.Random(seed).sample(range(len(wanted)), min(count, len(wanted))))
    return [wanted[place] for place in places]


def alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """True if two environments are of one commit without changes, and of one device."""
    same = all(one.get(name) == other.get(name) for name in ("commit", "gpu", "cpu", "torch", "harness"))
    return same and not one.get("dirty") and not other.get("dirty")


def cases(wanted: tuple[str, ...]) -> Iterator[tuple[str, Module | Call]]:
    """(what, case) of everything that is to be judged."""
    for what in wanted:
        if what == "liger" and (reason := liger.missing()):
            print(f"the operators of liger-kernel are not judged: {reason}")
            continue
        listed = {"calls": lambda: CALLS, "liger": liger.calls, "large": large.calls}.get(what, all_modules)
        for case in listed():
            yield what, case


def judged(what: str, case: Module | Call, settings: Settings, at_least: float | None, compiler: str) -> Line:
    """The verdict on one case, as a line; an exception counts as "ERROR"."""
    line: Line = {"case": case.name, "kind": case.kind, "what": what}
    if settings.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    try:
        if what == "compiled" and isinstance(case, Module):
            torch.compiler.reset()
            given = case.given(settings.device, compiled=compiler)
        else:
            given = case.given(settings.device)
        found = given.gate(case.name, settings, at_least=at_least)
        if what == "liger" and found.reason is Reason.INPUTS_CHANGED:
            given = liger.on_copies(given)
            found = given.gate(case.name, settings, at_least=at_least)
            line["copies"] = "it writes its arguments, so it is given copies, which are timed too"
    except Exception as error:  # the corpus shows every form that stops a run
        traceback.print_exc(limit=-3)
        said = next(iter(f"{type(error).__name__}: {error}".splitlines()))
        return {**line, "verdict": "ERROR", "reason": type(error).__name__, "sentence": said, "wall": 0.0}
    line |= {
        "verdict": str(found.verdict),
        "reason": str(found.reason),
        "sentence": found.sentence,
        "speed": found.speed,
        "candidate_seconds": found.candidate_seconds,
        "rival_seconds": found.rival_seconds,
        "clock": found.clock,
        "warnings": list(found.warnings),
        "wall": round(found.wall_seconds, 3),
        "checks": round(found.check_seconds, 3),
    }
    if settings.device == "cuda":
        line["peak_bytes"] = torch.cuda.max_memory_allocated()
    if line["verdict"] in ("MISSED", "WRONG"):
        line["plain"] = plain.repeated(given, line, at_least)
    return line


if __name__ == "__main__":
    sys.exit(main())
