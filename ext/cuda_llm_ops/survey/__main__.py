"""`python -m cuda_llm_ops.survey` times products, attention and decode of shapes that nobody tuned.

The shapes are those of real models (models.toml), drawn by a seed: in all layouts, float16 and bfloat16 with results in
float32 too, lines that begin anywhere, short and long sequences. Every case is timed beside the library's call, or
beside the fastest read of as many bytes, and the result is held against the library's. The distribution is held against
the rules of rules.py, which are printed at the end.

`--official` surveys the kernels of this checkout: the seed is the last commit that changed them, and the record goes to
records/CARD/survey.jsonl. A seed is surveyed once. A run that was cut is continued by the same command. Of several
cards, `--part 1/2` and `--part 2/2` measure a part each at the same time, and `--official --join` makes the record.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from cuda_llm_ops._loading import PROJECT

from . import draw, record, rules
from .draw import Case
from .record import Line, Record, RecordError, card_folder

COUNTS = {"product": 1000, "attention": 300, "decode": 100}
REGRETS = 150
"""Products whose plans are timed as well, the first of those that have plans."""
MOST_CASES = 10_000
RECORD = "survey.jsonl"
KERNELS = "csrc"
"""The folder, of PROJECT, whose last commit is the seed."""
WITHOUT_GIT = "PERFSUITE_KERNEL_COMMIT"
"""Names that commit for a copy without git's folder. The record also has the digest of the sources."""
Measure = Callable[..., dict[str, Any]]


def official_seed(project: Path) -> str:
    """The last commit that changed a kernel.

    Raises:
        RecordError: the folder is in no repository of git, or a kernel differs from its commit.
    """

    if (given := os.environ.get(WITHOUT_GIT, "")) and not (project.parent / ".git").exists():
        return given

    def git(*words: str) -> str:
        line = ["git", "-c", "safe.directory=*", "-C", str(project), *words]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RecordError(f"the seed of an official survey is a commit, but git said: {done.stderr.strip()}")
        return done.stdout.strip()

    if changed := git("status", "--porcelain", "--", KERNELS):
        raise RecordError(f"kernels differ from their commit, {changed.splitlines()[0].strip()!r}: commit them first")
    seed = git("log", "-1", "--format=%H", "--", KERNELS)
    if not seed:
        raise RecordError(f"no commit of {project} has a kernel")
    return seed


def survey(
    into: Record,
    measure: Measure,
    seconds: float,
    tell: Callable[[str], None],
    elsewhere: Collection[tuple[str, int]] = (),
) -> bool:
    """Measure the cases of its part that the record lacks; False if the seconds ended before.

    A case that fails becomes a line with the error's text: it counts as the slowest there is. elsewhere: kind and
    number of cases that need no measurement.
    """
    counts, (part, parts) = into.run["counts"], into.part
    begin = time.monotonic()
    regrets = sum("regret" in line for line in into.lines)
    mine = list(draw.interleaved(into.run["seed"], counts))[part - 1 :: parts]
    left = [one for one in mine if one[:2] not in into.done and one[:2] not in elsewhere]
    total = len(into.lines) + len(left)
    for measured, (kind, number, case) in enumerate(left):
        spent = time.monotonic() - begin
        if measured and spent > seconds:
            tell(f"stopped after {spent:.0f} s: {len(into.lines)} of {total} cases; the same command continues")
            return False
        line = _measured(case, measure, plans=regrets < REGRETS // parts)
        regrets += "regret" in line
        into.add({"number": number, **draw.fields(case), **line})
        more = (time.monotonic() - begin) / (measured + 1) * (total - len(into.lines))
        said = f"failed: {line['failed']}" if "failed" in line else f"{line['ratio']:.3f}"
        tell(f"{len(into.lines)} of {total} cases, about {more:.0f} s left: {kind} {case}: {said}")
    return True


def _measured(case: Case, measure: Measure, *, plans: bool) -> dict[str, Any]:
    try:
        return measure(case, plans=plans)
    except (RuntimeError, ValueError, NotImplementedError) as error:
        return {"failed": (str(error).strip().splitlines() or [type(error).__name__])[0][:200]}


def report(of: Record) -> str:
    """Every rule, with what the record says of it, and the lowest cases of each kind."""
    texts = [f"seed {of.run['seed']}, {of.run['device']}, {len(of.lines)} of {sum(of.run['counts'].values())} cases"]
    for one in rules.findings(of.lines):
        state = {None: "-", True: "met", False: "MISSED"}[one.met]
        rule = one.rule
        texts.append(f"{state:6} {rule.subject}: {rule.figure} {one.text()}, {rule.asked()}; {one.cases} cases")
    for kind in COUNTS:
        for line in sorted((line for line in of.lines if line["kind"] == kind), key=rules.speed)[:5]:
            texts.append(
                f"lowest {kind}: {rules.speed(line):.3f} {draw.case_of(line)} {line.get('failed', '')}".rstrip()
            )
    return "\n".join(texts)


def count(text: str) -> int:
    """A whole number from 0 to 10,000.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    if not (text.isdecimal() and int(text) <= MOST_CASES):
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from 0 to {MOST_CASES}")
    return int(text)


def part(text: str) -> record.Part:
    """Which part of how many, from "2/3".

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    found = re.fullmatch(r"([1-9]\d?)/([1-9]\d?)", text)
    if found is None or int(found[1]) > int(found[2]):
        raise argparse.ArgumentTypeError(f"{text!r} must be K/N, the K-th of N parts, such as 1/2")
    return int(found[1]), int(found[2])


def facts() -> Line:
    """The card and the software, as the first line of a record has them. RecordError without a card or a build."""
    import torch

    from cuda_llm_ops.build import build_info

    if not torch.cuda.is_available():
        raise RecordError("the survey times kernels on a GPU; there is none")
    info = build_info()
    if info["flavour"] != "cuda":
        raise RecordError(f"the extension was built without CUDA: {info['reason']}")
    from perfsuite.machine.ceilings import read_bytes_a_second

    properties = torch.cuda.get_device_properties(0)
    return {
        "device": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "large_read": round(read_bytes_a_second(0)),
        "sources": info["sources"],
        "stale": info["stale"],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command: 0 every rule is met, 1 one is missed, 2 bad input, 3 the seconds ended before the cases."""
    parser = argparse.ArgumentParser(
        prog="python -m cuda_llm_ops.survey", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--official", action="store_true", help="the survey of these kernels, into records/")
    which.add_argument("--seed", type=count, metavar="N", help="another survey, to look at; needs --output")
    which.add_argument("--report", type=Path, metavar="FILE", help="only print what a record says of the rules")
    parser.add_argument("--output", type=Path, metavar="FILE", help="the record of --seed")
    parser.add_argument("--records", type=Path, default=PROJECT.parent / "records", help=argparse.SUPPRESS)
    for kind, cases in COUNTS.items():
        parser.add_argument(f"--{kind}", type=count, default=cases, metavar="N", help=f"cases of --seed ({cases})")
    parser.add_argument("--part", type=part, default=(1, 1), metavar="K/N", help="of --official: only this part")
    parser.add_argument("--join", action="store_true", help="of --official: make the record from its parts")
    parser.add_argument("--seconds", type=float, default=math.inf, metavar="N", help="after which no case begins")
    given = parser.parse_args(arguments)
    counts = {kind: getattr(given, kind) for kind in COUNTS}
    if given.official and (given.output is not None or counts != COUNTS):
        parser.error("--official has its own record and its own numbers of cases; --seed takes --output and others")
    if not given.official and (given.join or given.part != (1, 1)):
        parser.error("--part and --join are for --official")
    if given.join and given.part != (1, 1):
        parser.error("--join takes all parts; leave --part out")
    if given.seed is not None and given.output is None:
        parser.error("--seed needs --output FILE, the record to write")
    if not given.seconds > 0:
        parser.error(f"--seconds is {given.seconds}; it must be above 0")
    try:
        return _run(given, counts)
    except RecordError as error:
        print(f"survey: {error}", file=sys.stderr)
        return 2


def _run(given: argparse.Namespace, counts: dict[str, int]) -> int:
    if given.report is not None:
        of, whole = record.read(given.report), True
    elif given.join:
        of = _joined(given.records)
        whole = of.whole
    else:
        of, whole = _surveyed(given, counts)
    print(report(of))
    if not whole:
        return 3
    if of.part != (1, 1):
        return 0
    return 1 if any(one.met is False for one in rules.findings(of.lines)) else 0


def _surveyed(given: argparse.Namespace, counts: dict[str, int]) -> tuple[Record, bool]:
    known = facts()
    if known.pop("stale") and given.official:
        raise RecordError("the extension that is loaded was not built from this checkout's kernels: build it again")
    seed = official_seed(PROJECT) if given.official else str(given.seed)
    run = {"seed": seed, "official": given.official, "counts": counts, **known}
    place = given.records / card_folder(known["device"]) / RECORD if given.official else given.output
    elsewhere: Collection[tuple[str, int]] = ()
    if given.part != (1, 1):
        elsewhere = record.measured(place, seed)
        place, run = record.place_of(place, given.part), {**run, "part": list(given.part)}
    of = record.begun(place, run)
    from .measure import measured, prepared

    with prepared():
        whole = survey(of, measured, given.seconds, lambda text: print(text, file=sys.stderr, flush=True), elsewhere)
    return of, whole


def _joined(records: Path) -> Record:
    """The record of the only card that has parts."""
    parts = sorted(records.glob(f"*/{Path(RECORD).stem}.*-of-*.jsonl"))
    folders = {part.parent for part in parts}
    if len(folders) != 1:
        raise RecordError(f"{records} has parts of {len(folders)} cards; it must be one")
    return record.joined(folders.pop() / RECORD, parts)


if __name__ == "__main__":
    sys.exit(main())
