"""Gates an honest copy of every module of the corpus: python -m tests.corpus --device cuda [--kind KIND] [--out FILE].

Prints the verdicts and their count. The exit code is 1 if a copy is WRONG.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections import Counter
from pathlib import Path

import torch

from perfsuite.settings import Settings

from .written import Module, all_modules


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--kind", nargs="+", help="only modules of these files, such as products")
    parser.add_argument("--name", nargs="+", help="only these modules")
    parser.add_argument("--seconds", type=float, default=0.3, help="time budget of a case (default: 0.3)")
    parser.add_argument("--at-least", type=float, default=0.8, help="the target; 0 checks without timing")
    parser.add_argument("--compile", metavar="BACKEND", help="gate the copy compiled by torch.compile, as by inductor")
    parser.add_argument("--out", type=Path, help="write one JSON line a module")
    given = parser.parse_args()
    settings = Settings(device=given.device, seconds=given.seconds)
    lines = []
    for module in all_modules():
        if (given.kind and module.kind not in given.kind) or (given.name and module.name not in given.name):
            continue
        lines.append(judged(module, settings, given.at_least or None, given.compile))
        line = lines[-1]
        print(f"{line['verdict']:10}{module.kind:13}{module.name:32}{line['wall']:6.2f} s  {line['sentence'][:140]}")
        if given.device == "cuda":
            torch.cuda.empty_cache()
    counts = Counter(line["verdict"] for line in lines)
    print(f"{len(lines)} modules: " + ", ".join(f"{count} {name}" for name, count in counts.most_common()))
    if given.out:
        given.out.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return int(counts["WRONG"] > 0)


def judged(module: Module, settings: Settings, at_least: float | None, compiled: str | None) -> dict[str, object]:
    """The verdict on an honest copy of the module, as a line; an exception counts as "ERROR"."""
    size = module.card if settings.device == "cuda" else module.small
    head = {"module": module.name, "kind": module.kind}
    try:
        found = module.gate(settings, size=size, at_least=at_least, compiled=compiled)
    except Exception as error:  # the corpus shows every form that stops a run
        traceback.print_exc(limit=-3)
        said = next(iter(f"{type(error).__name__}: {error}".splitlines()))
        return {**head, "verdict": "ERROR", "reason": type(error).__name__, "sentence": said, "wall": 0.0}
    return {
        **head,
        "verdict": str(found.verdict),
        "reason": str(found.reason),
        "sentence": found.sentence,
        "speed": found.speed,
        "candidate_seconds": found.candidate_seconds,
        "clock": found.clock,
        "warnings": list(found.warnings),
        "wall": found.wall_seconds,
    }


if __name__ == "__main__":
    sys.exit(main())
