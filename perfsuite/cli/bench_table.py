"""The table of `perfsuite bench`: one line a case, times in milliseconds."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from perfsuite.cli.tables import print_columns
from perfsuite.memory.model import saved_by_fusion
from perfsuite.outcome import Verdict
from perfsuite.problems.base import Problem
from perfsuite.record.case import Case
from perfsuite.report import figures
from perfsuite.report.units import text_of

MOST_DROP = 0.20
"""Rise of the time per FLOP between innermost sizes above which the table flags an alignment trap."""
Row = tuple[Problem, Case]


def print_table(rows: Sequence[Row]) -> None:
    """Print the cases of one family in the order of their run, and a sentence for each that is not met."""
    first, case = rows[0]
    model = saved_by_fusion(first.family, case.params) is not None
    columns = _columns(rows)
    head = [*(columns or ["size"]), "rival", "rival ms", f"{figures.candidate(case)} ms", "speed-up", "interval"]
    head += ["memory saved" if model else "TFLOPS" if first.flops else "GB/s", "verdict"]
    print_columns([head, *(_line(problem, case, columns, model) for problem, case in rows)], left=0)
    if model and not any(case.measured for _, case in rows):
        model_of = f"the model of `perfsuite memory {first.family}`"
        print(f"memory saved: by {model_of}, score matrix against none; not measured")
    for sentence in drops(rows):
        print(sentence)
    for _, case in rows:
        if case.verdict is not Verdict.MET:
            print(f"{case.verdict} {case.name}: {case.sentence}")


def drops(rows: Sequence[Row]) -> list[str]:
    """Changes of each side's time per FLOP, between rows that differ only in an innermost size that has a column.

    The time is divided by the FLOPs, since a larger head_dim may take longer in proportion.
    """
    sentences = []
    for (problem, before), (other, after) in itertools.combinations(rows, 2):
        inner, shown = problem.innermost, problem.bench_columns
        if inner is None or inner not in shown.values() or before.rival != after.rival:
            continue
        if not (problem.flops and other.flops):
            continue
        sizes = [case.params[inner] for case in (before, after)]
        if sizes[0] == sizes[1] or {**before.params, inner: sizes[1]} != after.params:
            continue
        where = ", ".join(f"{head} {before.params[name]}" for head, name in shown.items() if name != inner)
        for side, name in (("candidate", figures.candidate(before)), ("rival", before.rival)):
            seconds = [getattr(case, f"{side}_seconds") for case in (before, after)]
            if not all(seconds):
                continue
            growth = seconds[1] / seconds[0] * problem.flops / other.flops - 1.0
            change = f"{name} at {where} takes {growth:+.0%} a FLOP at {inner} {sizes[1]} against {sizes[0]}"
            sentences.append(f"ALIGNMENT, over {MOST_DROP:.0%}: {change}" if growth > MOST_DROP else change)
    return sentences


def _columns(rows: Sequence[Row]) -> dict[str, str]:
    """The family's columns for sizes: always the first, and each other one if its values differ."""
    return {
        name: parameter
        for place, (name, parameter) in enumerate(rows[0][0].bench_columns.items())
        if place == 0 or len({case.params[parameter] for _, case in rows}) > 1
    }


def _line(problem: Problem, case: Case, columns: dict[str, str], model: bool) -> list[str]:
    size = [str(case.params[name]) for name in columns.values()] or [problem.name.partition(" ")[0]]
    sides = (case.rival_seconds, case.candidate_seconds)
    times = ["-" if seconds is None else f"{seconds * 1e3:.4g}" for seconds in sides]
    speed = "-" if case.speed is None else f"{case.speed:.3g}x"
    last = _saved(case) if model else _rate(problem, case.candidate_seconds)
    # Without a target the answer was checked, and no speed was required.
    verdict = "checked" if case.verdict is Verdict.MET and case.target is None else case.verdict
    return [*size, str(case.rival), *times, speed, figures.interval(case), last, verdict]


def _saved(case: Case) -> str:
    """The rival's peak less the candidate's if both were measured; otherwise the model's share."""
    if case.measured:
        saved = case.measured["rival_peak_bytes"] - case.measured["peak_bytes"]
        return text_of(saved) if saved >= 0 else f"-{text_of(-saved)}"
    return f"{saved_by_fusion(case.family, case.params):.0%} (model)"


def _rate(problem: Problem, seconds: float | None) -> str:
    """TFLOPS of the candidate, or GB/s for a problem that counts only bytes."""
    work = problem.flops / 1e12 if problem.flops else problem.bytes / 1e9 if problem.bytes else 0.0
    return f"{work / seconds:.3g}" if work and seconds else "-"
