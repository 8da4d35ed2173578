"""Renders tables of a calibration.json: error rates of perfsuite's gate, and of other timers and rules."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perfsuite.record.schema import RecordError
from perfsuite.report import markdown
from perfsuite.verdict.sentence import time_text

_NEEDED = ("gpu", "harness", "commit", "processes", "aa", "planted", "cases", "gpu_seconds_per_gate_median", "peers")


def read_calibration(path: Path) -> dict[str, Any]:
    """The content of a calibration.json. Raises RecordError for other files."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RecordError(f"{path}: cannot be read as a calibration: {error}") from None
    if not isinstance(values, dict) or (missing := [name for name in _NEEDED if name not in values]):
        cause = f"it has no {', '.join(missing)}" if isinstance(values, dict) else "it is no object"
        raise RecordError(f"{path}: not a calibration: {cause}")
    return values


def gates_table(path: Path, filters: Mapping[str, str]) -> str:
    """The gate's false alarms and the planted slow-downs that it found, by case and in total."""
    values = read_calibration(path)
    sizes = [one["slowdown"] for one in values["planted"]]
    rows = [
        ("case", "a call", "false alarms", *(f"{size:.1%} found" for size in sizes), "device time a gate"),
        ["---"] * (len(sizes) + 4),
    ]
    for one in [*values["cases"], {"case": "**all**", **values}]:
        a_call = time_text(one["seconds"]) if "seconds" in one else ""
        found = [_alarms(one), *(_caught(one, size) for size in sizes)]
        rows.append((one["case"], a_call, *found, time_text(one["gpu_seconds_per_gate_median"])))
    aa = values["aa"]
    sentence = (
        f"{aa['gates']} gates of identical code, {aa['false_alarms']} false alarms: at most {aa['upper95']:.2%} at 95 %"
        f" ({aa['undecided']} stayed undecided).{_pairs(values)}{_margins(values)}{_planted(values)} "
        f"Measured on {_where(values)}."
        + ("" if values.get("complete", True) else " The run was cut short: it holds fewer gates than were asked for.")
    )
    return f"{markdown.grid(rows)}\n\n{sentence}"


def _where(values: Mapping[str, Any]) -> str:
    """The cards, the processes, the harness and the commits of a calibration."""
    names = ("pair of processes", "pairs of processes") if values.get("isolated") else ("process", "processes")
    processes = _plural(values["processes"], *names)
    parts: Sequence[Mapping[str, Any]] = values.get("parts") or [values]
    cards = {int(part.get("cards") or 1) for part in parts}
    if len(parts) > 1:
        drivers = ", ".join(dict.fromkeys(str(part["driver"]) for part in parts if part.get("driver")))
        card = f"{values['gpu']}, in {len(parts)} runs" + (f" (driver {drivers})" if drivers else "")
    else:
        card = f"one {values['gpu']}" if cards == {1} else f"{max(cards)} {values['gpu']} of one machine at once"
    commits = list(dict.fromkeys(str(part.get("commit"))[:12] for part in parts))
    changed = " with changes" if any(part.get("dirty") for part in parts) else ""
    commit = "commit" if len(commits) == 1 else "commits"
    return f"{card} in {processes}, harness {values['harness']}, {commit} {', '.join(commits)}{changed}"


def _pairs(values: Mapping[str, Any]) -> str:
    """Alarms by pair of processes, and the spread between pairs, of an isolated calibration; "" for another one."""
    if not (pairs := values.get("pairs")):
        return ""
    setups = statistics.median(one["setup_noise_seen"] for one in values["cases"])
    return (
        f" They share {_plural(pairs['gating_identical_code'], 'pair', 'pairs')} of processes, "
        f"{pairs['with_an_alarm']} with an alarm: if gates of a pair err together, at most {pairs['upper95']:.2%}. "
        f"Beyond what its set-ups explain ({setups:.3%} each), a pair differs from others by "
        f"{values['process_noise_seen']:.3%}."
    )


def _plural(count: int, one: str, more: str) -> str:
    return f"{count} {one if count == 1 else more}"


def peers_table(path: Path, filters: Mapping[str, str]) -> str:
    """perfsuite's gate, and other timers and rules in the same experiment."""
    values = read_calibration(path)
    wall = values.get("wall_seconds_per_gate_median")
    sizes = sorted({one["slowdown"] for peer in values["peers"] for one in peer["planted"]})
    own = f"{time_text(values['gpu_seconds_per_gate_median'])} (device)"
    timers = [("perfsuite", values, own + (f", {time_text(wall)} (wall)" if wall else ""))]
    timers += [(one["peer"], one, f"{time_text(one['seconds_per_gate_median'])} (wall)") for one in values["peers"]]
    rows = [
        ("timer and rule", "false alarms", *(f"{size:.1%} found" for size in sizes), "time a gate (median)"),
        ["---"] * (len(sizes) + 3),
        *((name, _alarms(one), *(_caught(one, size) for size in sizes), spent) for name, one, spent in timers),
    ]
    note = f"Measured on one {values['gpu']}, in one run; 95 % bounds in brackets are exact."
    return f"{markdown.grid(rows)}\n\n{note}"


def _margins(values: Mapping[str, Any]) -> str:
    """The margins by which the gates judged, with the shortest call of each; "" if the file does not say."""
    shortest: dict[float, float] = {}
    for one in values["cases"]:
        if "margin" in one:
            shortest[one["margin"]] = min(one["seconds"], shortest.get(one["margin"], one["seconds"]))
    if not shortest:
        return ""
    said = [f"{margin:.2%} for calls from {time_text(seconds)} on" for margin, seconds in shortest.items()]
    return f" A kernel may be slower by {' and '.join(said)}."


def _planted(values: Mapping[str, Any]) -> str:
    """The planted slow-downs as the gates measured them on average; "" if that is unknown."""
    sizes = [f"{one['slowdown']:.1%} as {one['measured']:.2%}" for one in values["planted"] if one.get("measured")]
    return f" The gates measured what was planted, on average: {', '.join(sizes)}." if sizes else ""


def _alarms(one: Mapping[str, Any]) -> str:
    aa = one["aa"]
    return f"{aa['false_alarms']} of {aa['gates']} (≤ {aa['upper95']:.2%})" if aa["gates"] else ""


def _caught(one: Mapping[str, Any], size: float) -> str:
    found = next((p for p in one["planted"] if p["slowdown"] == size), None)
    return f"{found['caught']} of {found['trials']} (≥ {found['lower95']:.1%})" if found else ""
