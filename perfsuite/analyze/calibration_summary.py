"""From the gates of a calibration to calibration.json and its table: rates with exact intervals, noise by component."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perfsuite.verdict.interval import clopper_pearson

Row = Mapping[str, Any]
LEAST_NOISE = 1e-4
"""Standard deviations are not estimated to be less: a gate must not take its own noise for nothing."""
FEW_SETUPS = ((20e-6, 1e-3), (math.inf, 5e-4))
"""The least noise between set-ups, by the time of a call, that is taken from the few set-ups before the gates: a small
sample can show none where there is some."""
MEDIAN_SPREAD = math.sqrt(math.pi / 2.0)
"""Standard deviation of a median over that of a mean, for normal values."""
FOUND = 0.99


def summarise(rows: Sequence[Row], facts: Mapping[str, Any]) -> dict[str, Any]:
    """What calibration.json holds: `facts` (gpu, harness, commit, ...), then the rates in all, by case and by peer."""
    gates = [row for row in rows if row["kind"] == "gate"]
    names = list(dict.fromkeys(row["case"] for row in gates))
    noises = {name: noise_of([row for row in gates if row["case"] == name and not row["slowdown"]]) for name in names}
    shared = math.sqrt(statistics.fmean(one[1] ** 2 for one in noises.values())) if noises else 0.0
    cases = []
    for name in names:
        own = [row for row in gates if row["case"] == name]
        setup, process = noises[name]
        # A few processes say little about one case: the mean over all cases is the least that is assumed.
        cases.append(
            {"case": name, "seconds": statistics.median(row["seconds"] for row in own), "setup_noise": setup}
            | {"process_noise": max(process, shared)}
            | rates(own)
            | {"gpu_seconds_per_gate_median": statistics.median(row["gpu_seconds"] for row in own)}
        )
    peers = []
    for peer in dict.fromkeys(row["peer"] for row in rows if row["kind"] == "peer"):
        own = [row for row in rows if row["kind"] == "peer" and row["peer"] == peer]
        spent = {"seconds_per_gate_median": statistics.median(row["seconds"] for row in own)}
        peers.append({"peer": peer} | rates(own) | spent)
    return {
        **facts,
        "processes": len({row["process"] for row in gates}),
        **rates(gates),
        "gpu_seconds_per_gate_median": statistics.median(row["gpu_seconds"] for row in gates) if gates else None,
        "cases": cases,
        "peers": peers,
    }


def noise_file(rows: Sequence[Row], facts: Mapping[str, Any]) -> dict[str, Any]:
    """A calibration.json that holds no rates yet: the noise that gates are to reckon with while they are calibrated."""
    noises = {
        name: noise_of([row for row in rows if row["case"] == name]) for name in dict.fromkeys(r["case"] for r in rows)
    }
    shared = math.sqrt(statistics.fmean(one[1] ** 2 for one in noises.values()))
    seconds = {name: statistics.median(row["seconds"] for row in rows if row["case"] == name) for name in noises}
    return {
        **facts,
        "cases": [
            {
                "case": name,
                "seconds": seconds[name],
                "setup_noise": max(setup, next(least for below, least in FEW_SETUPS if seconds[name] < below)),
                "process_noise": max(process, shared),
            }
            for name, (setup, process) in noises.items()
        ],
    }


def rates(rows: Sequence[Row]) -> dict[str, Any]:
    """False alarms among the A/A gates, and what was caught of each slow-down; intervals are exact, at 95 %."""
    same = [row for row in rows if not row["slowdown"]]
    planted = []
    for slowdown in sorted({row["slowdown"] for row in rows if row["slowdown"]}):
        trials = [row for row in rows if row["slowdown"] == slowdown]
        caught = sum(row["alarm"] for row in trials)
        measured = [1.0 / row["speed"] - 1.0 for row in trials if row.get("speed")]
        low, high = clopper_pearson(caught, len(trials))
        planted.append(
            {
                "slowdown": slowdown,
                "measured": statistics.fmean(measured) if measured else None,
                "trials": len(trials),
                "caught": caught,
                "undecided": sum(row.get("undecided", False) for row in trials),
                "lower95": low,
                "upper95": high,
            }
        )
    alarms = sum(row["alarm"] for row in same)
    low, high = clopper_pearson(alarms, len(same)) if same else (0.0, 1.0)
    return {
        "aa": {
            "gates": len(same),
            "false_alarms": alarms,
            "undecided": sum(row.get("undecided", False) for row in same),
            "lower95": low,
            "upper95": high,
        },
        "planted": planted,
        "smallest_found": smallest_found(planted),
    }


def smallest_found(planted: Iterable[Mapping[str, Any]]) -> float | None:
    """The least slow-down that was caught in at least 99 % of its trials, as was every larger one; None if none was."""
    found = None
    for one in sorted(planted, key=lambda one: -one["slowdown"]):
        if one["caught"] < FOUND * one["trials"]:
            break
        found = one["slowdown"]
    return found


def noise_of(rows: Sequence[Row]) -> tuple[float, float]:
    """Standard deviations of the log ratio between set-ups and between processes, by the analysis of variance.

    Each row's `setups` holds (median, standard deviation, count) of the log ratios of its set-ups' rounds. What rounds
    contribute to the medians is taken off the spread of set-ups, and what set-ups contribute off that of processes.
    """
    groups: dict[Any, list[tuple[float, float, int]]] = {}
    for row in rows:
        groups.setdefault(row["process"], []).extend(tuple(one) for one in row["setups"])
    groups = {process: setups for process, setups in groups.items() if len(setups) > 1}
    if not groups:
        return LEAST_NOISE, LEAST_NOISE
    freedom = sum(len(setups) - 1 for setups in groups.values())
    means = {process: statistics.fmean(one[0] for one in setups) for process, setups in groups.items()}
    between = sum((one[0] - means[process]) ** 2 for process, setups in groups.items() for one in setups) / freedom
    rounds = statistics.fmean(
        (MEDIAN_SPREAD * sd) ** 2 / count for setups in groups.values() for _, sd, count in setups
    )
    setup = math.sqrt(max(LEAST_NOISE**2, between - rounds))
    if len(groups) < 2:
        return setup, LEAST_NOISE
    explained = statistics.fmean(between / len(setups) for setups in groups.values())
    process = math.sqrt(max(LEAST_NOISE**2, statistics.variance(means.values()) - explained))
    return setup, process


def table(summary: Mapping[str, Any]) -> str:
    """The figures for a terminal of 100 columns."""
    sizes = [one["slowdown"] for one in summary["planted"]]
    head = f"{'case':<16}{'a call':>9}{'noise':>8}{'false alarms':>24}"
    lines = [head + "".join(f"{size:>9.1%}" for size in sizes) + f"{'GPU s':>9}"]
    for one in [*summary["cases"], {"case": "all", **summary}]:
        seconds = f"{one['seconds'] * 1e6:.1f} us" if "seconds" in one else ""
        noise = f"{one['setup_noise']:.2%}" if "setup_noise" in one else ""
        lines.append(
            f"{one['case']:<16}{seconds:>9}{noise:>8}{_alarms(one):>24}"
            + "".join(f"{_caught(one, size):>9}" for size in sizes)
            + f"{one['gpu_seconds_per_gate_median']:>9.3f}"
        )
    if summary["peers"]:
        lines += ["", f"{'rule':<49}{'false alarms':>24}" + "".join(f"{size:>9.1%}" for size in sizes)]
        for one in summary["peers"]:
            lines.append(
                f"{one['peer'][:48]:<49}{_alarms(one):>24}" + "".join(f"{_caught(one, size):>9}" for size in sizes)
            )
    return "\n".join(lines)


def _alarms(one: Mapping[str, Any]) -> str:
    aa = one["aa"]
    return f"{aa['false_alarms']}/{aa['gates']} (<= {aa['upper95']:.2%})" if aa["gates"] else ""


def _caught(one: Mapping[str, Any], size: float) -> str:
    return next((f"{p['caught']}/{p['trials']}" for p in one["planted"] if p["slowdown"] == size), "")
