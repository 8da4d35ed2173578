"""The table of `perfsuite bench`: a line a case, times in milliseconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfsuite.analyze.memory_model import attention_bytes
from perfsuite.analyze.units import text_of
from perfsuite.report import figures

_MILLISECONDS = 1e3
Row = Mapping[str, Any]


def print_table(rows: Sequence[Row]) -> None:
    """Print the cases in the order in which they ran, and a sentence for each that is not met."""
    attention = rows[0]["family"] == "attention"
    head = ["length" if attention else "size", "rival", "rival ms", f"{figures.candidate(rows[0])} ms", "speed-up"]
    head += ["interval", "memory saved" if attention else "TFLOPS", "verdict"]
    lines = [head] + [_line(row, attention) for row in rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(head))]
    for line in lines:
        print("  ".join(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True)))
    if attention and not any(row.get("measured") for row in rows):
        print("memory saved: by the model of `perfsuite memory attention`, score matrix against none; not measured")
    for row in rows:
        if row["verdict"] != "MET":
            print(f"{row['verdict']} {row['name']}: {row['sentence']}")


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
