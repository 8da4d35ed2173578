"""Renders tables of a calibration.json: error rates of perfsuite's gate, and of other timers and rules."""

from __future__ import annotations

import json
from collections.abc import Mapping
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
        f" ({aa['undecided']} stayed undecided).{_margins(values)}{_planted(values)} "
        f"Measured on {_cards(values)} in {values['processes']} process{'es' if values['processes'] != 1 else ''}, "
        f"harness {values['harness']}, commit {str(values['commit'])[:12]}"
        + (" with changes." if values.get("dirty") else ".")
        + ("" if values.get("complete", True) else " The run was cut short: it holds fewer gates than were asked for.")
    )
    return f"{markdown.grid(rows)}\n\n{sentence}"


def _cards(values: Mapping[str, Any]) -> str:
    cards = values.get("cards", 1)
    return f"one {values['gpu']}" if cards == 1 else f"{cards} {values['gpu']} of one machine at once"


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
