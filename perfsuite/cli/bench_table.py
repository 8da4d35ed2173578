"""The table of `perfsuite bench`: a line a case, times in milliseconds."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from perfsuite.memory.model import attention_bytes
from perfsuite.report import figures
from perfsuite.report.units import text_of

_MILLISECONDS = 1e3
MOST_DROP = 0.20
"""Time a FLOP that a change of head_dim may cost before it is called an alignment trap."""
Row = Mapping[str, Any]


def print_table(rows: Sequence[Row]) -> None:
    """Print the cases in the order in which they ran, and a sentence for each that is not met."""
    attention = rows[0]["family"] == "attention"
    head = ["length" if attention else "size", "rival", "rival ms", f"{figures.candidate(rows[0])} ms", "speed-up"]
    head += ["interval", "memory saved" if attention else "TFLOPS", "verdict"]
    lines = [head] + [_line(row, attention) for row in rows]
    if attention and len({row["params"]["head_dim"] for row in rows}) > 1:
        dims = ["head_dim", *(str(row["params"]["head_dim"]) for row in rows)]
        lines = [[line[0], dim, *line[1:]] for line, dim in zip(lines, dims, strict=True)]
        head = lines[0]
    widths = [max(len(line[place]) for line in lines) for place in range(len(head))]
    for line in lines:
        print("  ".join(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True)))
    if attention and not any(row.get("measured") for row in rows):
        print("memory saved: by the model of `perfsuite memory attention`, score matrix against none; not measured")
    if attention:
        for sentence in drops(rows):
            print(sentence)
    for row in rows:
        if row["verdict"] != "MET":
            print(f"{row['verdict']} {row['name']}: {row['sentence']}")


def drops(rows: Sequence[Row]) -> list[str]:
    """What each side loses from a row's head_dim to the next at the same length, flagged above MOST_DROP.

    Time is divided by FLOPs first, so that a larger head_dim may take longer in proportion.
    """
    told = []
    for before, after in itertools.combinations(rows, 2):
        same = all(before["params"][name] == after["params"][name] for name in ("batch", "heads", "seq_q", "causal"))
        dims = [row["params"]["head_dim"] for row in (before, after)]
        if not same or dims[0] == dims[1] or before["rival"] != after["rival"]:
            continue
        for side, name in (("candidate", figures.candidate(before)), ("rival", before["rival"])):
            seconds = [row[f"{side}_seconds"] for row in (before, after)]
            if not all(seconds):
                continue
            growth = seconds[1] / seconds[0] * dims[0] / dims[1] - 1.0
            flag = f"ALIGNMENT, over {MOST_DROP:.0%}: " if growth > MOST_DROP else ""
            told.append(
                f"{flag}{name} at length {before['params']['seq_q']} takes {growth:+.0%} a FLOP at head_dim {dims[1]} "
                f"against {dims[0]}"
            )
    return told


def _line(row: Row, attention: bool) -> list[str]:
    params = row["params"]
    what = str(params["seq_q"]) if attention else f"{params['m']}x{params['n']}x{params['k']}"
    times = [_time(row["rival_seconds"]), _time(row["candidate_seconds"])]
    speed = "-" if row["speed"] is None else f"{row['speed']:.3g}x"
    last = _saved(row) if attention else _rate(row)
    # Without a target there was nothing to meet: the answer was checked.
    verdict = "checked" if row["verdict"] == "MET" and row["target"] is None else row["verdict"]
    return [what, str(row["rival"]), *times, speed, figures.interval(row), last, verdict]


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * _MILLISECONDS:.4g}"


def _saved(row: Row) -> str:
    """Measured where there is a measurement: the rival's peak less the candidate's; else what the model says."""
    measured = row.get("measured")
    if measured:
        saved = measured["rival_peak_bytes"] - measured["peak_bytes"]
        return text_of(saved) if saved >= 0 else f"-{text_of(-saved)}"
    params = row["params"]
    memory = attention_bytes(
        params["batch"],
        params["heads"],
        params["seq_q"],
        params["head_dim"],
        kv_heads=params["kv_heads"],
        seq_kv=params["seq_kv"],
        dtype=params["dtype"],
    )
    return f"{1 - memory.flash / memory.standard:.0%} (model)"


def _rate(row: Row) -> str:
    params, seconds = row["params"], row["candidate_seconds"]
    if not seconds:
        return "-"
    return f"{2.0 * (params['batch'] or 1) * params['m'] * params['n'] * params['k'] / seconds / 1e12:.3g}"
