"""Makes calibration.json and its table from the gates of a calibration: rates with exact intervals, and noise."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from perfsuite.verdict.policy import REGRESSION_MARGIN

Row = Mapping[str, Any]
LEAST_NOISE = 1e-4
"""The least estimate of a standard deviation, since no gate is free of noise."""
FEW_SETUPS = ((20e-6, 1e-3), (math.inf, 5e-4))
"""(time of a call, least noise between set-ups for shorter calls), for the few set-ups before the gates. A small sample
can show too little noise."""
MEDIAN_SPREAD = math.sqrt(math.pi / 2.0)
"""Standard deviation of a median over that of a mean, for normal values."""
TRIMMED = 0.1
"""Part of the set-ups, those furthest off, that do not count for the spread of set-ups."""
TRIMMED_EFFICIENCY = 0.6
"""About the efficiency of such a trimmed variance against the plain one, for normal values."""
PRIOR_FREEDOM = 8.0
FOUND = 0.99


def summarise(
    rows: Sequence[Row], facts: Mapping[str, Any], noise_used: Sequence[Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """The content of calibration.json: `facts` (gpu, harness, commit, ...), then the rates in all, by case and by peer.

    Its noise is that of the calibration's gates, so its rates hold for gates that read it: noise_used, by case, or what
    the rows of noise show. `setup_noise_seen` is the noise that the gates of identical code showed.
    """
    gates = [row for row in rows if row["kind"] == "gate" and row["seconds"] is not None]
    names = sorted(_cases_in(gates), key=lambda name: _seconds(gates, name))
    seen = {name: components([row for row in gates if row["case"] == name and not row["slowdown"]]) for name in names}
    found = noise_cases(rows) if noise_used is None else noise_used
    noise = {one["case"]: {key: one[key] for key in ("setup_noise", "process_noise")} for one in found}
    between, seen_noises = process_noise(seen.values()), setup_noises(seen)
    cases = []
    for name in names:
        own = [row for row in gates if row["case"] == name]
        used = noise.get(name, {"setup_noise": seen_noises[name], "process_noise": between})
        spent = {"gpu_seconds_per_gate_median": statistics.median(row["gpu_seconds"] for row in own)}
        case = {"case": name, "seconds": _seconds(gates, name)} | used | {"setup_noise_seen": seen_noises[name]}
        margin = {"margin": own[0].get("margin", REGRESSION_MARGIN)}
        cases.append(case | margin | rates(own) | spent)
    peers = []
    for peer in dict.fromkeys(row["peer"] for row in rows if row["kind"] == "peer"):
        own = [row for row in rows if row["kind"] == "peer" and row["peer"] == peer]
        spent = {"seconds_per_gate_median": statistics.median(row["seconds"] for row in own)}
        peers.append({"peer": peer} | rates(own) | spent)
    walls = [row["wall_seconds"] for row in gates if row.get("wall_seconds")]
    return {
        **facts,
        "processes": len({row["process"] for row in gates}),
        **rates(gates),
        "gpu_seconds_per_gate_median": statistics.median(row["gpu_seconds"] for row in gates) if gates else None,
        "wall_seconds_per_gate_median": statistics.median(walls) if walls else None,
        "process_noise_seen": between,
        **({"pairs": _pairs([row for row in gates if not row["slowdown"]])} if facts.get("isolated") else {}),
        "cases": cases,
        "peers": peers,
    }


def _pairs(same: Sequence[Row]) -> dict[str, Any]:
    """Pairs of processes that gated identical code, and those with an alarm.

    Gates of a pair may err together. The exact bound on the rate of pairs with an alarm holds for gates all the same: a
    gate alarms at most as often as a pair of such gates has one.
    """
    alarms: dict[Any, bool] = {}
    for row in same:
        alarms[row["process"]] = alarms.get(row["process"], False) or row["alarm"]
    found = sum(alarms.values())
    upper = exact_interval(found, len(alarms))[1] if alarms else 1.0
    return {"gating_identical_code": len(alarms), "with_an_alarm": found, "upper95": upper}


def noise_cases(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The noise for the gates of a calibration itself, by case, from its rows of noise.

    `responses` has (planted slow-down, how much slower the case was by it) where that was measured.
    """
    planted = [row for row in rows if row["kind"] == "response" and row["setups"]]
    rows = [row for row in rows if row["kind"] == "noise" and row["seconds"] is not None]
    return [
        {"case": name, "seconds": _seconds(rows, name)}
        | noise
        | ({"responses": _responses(planted, name)} if planted else {})
        for name, noise in _noise(rows).items()
    ]


def _responses(planted: Sequence[Row], case: str) -> list[list[float]]:
    """[planted slow-down, the one measured], of all set-ups of all processes."""
    found = []
    for size in sorted({row["slowdown"] for row in planted if row["case"] == case}):
        own = [row for row in planted if (row["case"], row["slowdown"]) == (case, size)]
        mean = statistics.fmean(centre for row in own for centre, _, _ in row["setups"])
        found.append([size, math.exp(-mean) - 1.0])
    return found


def _noise(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    found = {name: components([row for row in rows if row["case"] == name]) for name in _cases_in(rows)}
    between = process_noise(found.values())
    noises = {}
    for name, setup in setup_noises(found).items():
        least = next(least for below, least in FEW_SETUPS if _seconds(rows, name) < below)
        noises[name] = {"setup_noise": max(setup, least), "process_noise": between}
    return noises


def _seconds(rows: Sequence[Row], case: str) -> float:
    return statistics.median(row["seconds"] for row in rows if row["case"] == case)


def _cases_in(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["case"] for row in rows))


def exact_interval(successes: int, trials: int) -> tuple[float, float]:
    """Two-sided 95 % interval on a rate (C. J. Clopper and E. S. Pearson, Biometrika 26, 1934)."""
    from scipy.stats import binomtest  # type: ignore[import-untyped, import-not-found, unused-ignore]

    low, high = binomtest(successes, trials).proportion_ci(0.95, "exact")
    return float(low), float(high)


def rates(rows: Sequence[Row]) -> dict[str, Any]:
    """False alarms of the A/A gates, and alarms of each planted slow-down, with exact intervals at 95 %."""
    planted = []
    for slowdown in sorted({row["slowdown"] for row in rows if row["slowdown"]}):
        trials = [row for row in rows if row["slowdown"] == slowdown]
        measured = [1.0 / row["speed"] - 1.0 for row in trials if row.get("speed")]
        of_all = {"slowdown": slowdown, "measured": statistics.fmean(measured) if measured else None}
        planted.append(of_all | _counts(trials, "trials", "caught"))
    same = _counts([row for row in rows if not row["slowdown"]], "gates", "false_alarms")
    return {"aa": same, "planted": planted, "smallest_found": smallest_found(planted)}


def _counts(rows: Sequence[Row], gates: str, alarms: str) -> dict[str, Any]:
    """Counts of gates and of their alarms, under these names, and the interval on the rate of alarms."""
    found = sum(row["alarm"] for row in rows)
    low, high = exact_interval(found, len(rows)) if rows else (0.0, 1.0)
    undecided = sum(row.get("undecided", False) for row in rows)
    return {gates: len(rows), alarms: found, "undecided": undecided, "lower95": low, "upper95": high}


def smallest_found(planted: Iterable[Mapping[str, Any]]) -> float | None:
    """The least slow-down that was caught, like every larger one, in at least 99 % of its trials; None without one."""
    found = None
    for one in sorted(planted, key=lambda one: -one["slowdown"]):
        if one["caught"] < FOUND * one["trials"]:
            break
        found = one["slowdown"]
    return found


@dataclass(frozen=True)
class Components:
    """Estimated variances of the log ratio. They can be negative."""

    setup: float
    freedom: float
    """Degrees of freedom of `setup`."""
    process: float
    process_error: float
    """About the standard error of `process`; infinite for fewer than two processes."""


def components(rows: Sequence[Row]) -> Components:
    """The variance between set-ups and between processes, by the analysis of variance.

    Each row's `setups` holds (median, standard deviation, count) of the log ratios of its set-ups' rounds. The variance
    of set-ups is reduced by the part of their rounds, and that of processes by the part of their set-ups. A bad moment
    of the card must not widen all later intervals. The set-ups furthest off are therefore left out, and the rest is
    scaled as for normal values.
    """
    groups: dict[Any, list[tuple[float, float, int]]] = {}
    for row in rows:
        groups.setdefault(row["process"], []).extend(tuple(one) for one in row["setups"])
    groups = {process: setups for process, setups in groups.items() if len(setups) > 1}
    if not groups:
        return Components(0.0, 0.0, 0.0, math.inf)
    freedom = sum(len(setups) - 1 for setups in groups.values())
    count = freedom + len(groups)
    centres = {process: statistics.median(one[0] for one in setups) for process, setups in groups.items()}
    squares = [(one[0] - centres[process]) ** 2 for process, setups in groups.items() for one in setups]
    between = trimmed_mean_square(squares) * count / freedom
    rounds = statistics.median(
        (MEDIAN_SPREAD * sd) ** 2 / count for setups in groups.values() for _, sd, count in setups
    )
    setup = between - rounds
    if len(groups) < 2:
        return Components(setup, TRIMMED_EFFICIENCY * freedom, 0.0, math.inf)
    explained = MEDIAN_SPREAD**2 * statistics.fmean(between / len(setups) for setups in groups.values())
    excess = statistics.variance(centres.values()) - explained
    error = max(explained, LEAST_NOISE**2) * math.sqrt(2.0 / (len(groups) - 1))
    return Components(setup, TRIMMED_EFFICIENCY * freedom, excess, error)


def trimmed_mean_square(squares: Sequence[float]) -> float:
    """The variance from these squares without the largest ones, scaled as for normal values."""
    count = len(squares)
    kept = sorted(squares)[: max(1, math.ceil((1.0 - TRIMMED) * count))]
    expected = [NormalDist().inv_cdf(0.5 + (place + 0.5) / count / 2.0) ** 2 for place in range(count)]
    return math.fsum(kept) / count * math.fsum(expected) / math.fsum(expected[: len(kept)])


def setup_noises(found: Mapping[str, Components]) -> dict[str, float]:
    """Standard deviation between set-ups by case: the case's variance, drawn towards the median of the cases.

    The median counts as PRIOR_FREEDOM degrees of freedom, since a case has few set-ups.
    """
    variances = {name: max(LEAST_NOISE**2, one.setup) for name, one in found.items()}
    typical = statistics.median([variances[name] for name, one in found.items() if one.freedom] or [LEAST_NOISE**2])
    noises = {}
    for name, one in found.items():
        total = PRIOR_FREEDOM * typical + one.freedom * variances[name]
        noises[name] = math.sqrt(total / (PRIOR_FREEDOM + one.freedom))
    return noises


def process_noise(estimates: Iterable[Components]) -> float:
    """The standard deviation between processes, one for all cases, since a single case has few processes.

    It is the mean of the cases' estimates, weighted by their precision.
    """
    known = [one for one in estimates if math.isfinite(one.process_error)]
    if not known:
        return LEAST_NOISE
    weights = [one.process_error**-2 for one in known]
    mean = math.fsum(w * one.process for w, one in zip(weights, known, strict=True)) / math.fsum(weights)
    return math.sqrt(max(LEAST_NOISE**2, mean))


def table(summary: Mapping[str, Any]) -> str:
    """The figures for a terminal of 100 columns."""
    sizes = [one["slowdown"] for one in summary["planted"]]
    heads = f"{'false alarms':>24}" + "".join(f"{size:>9.1%}" for size in sizes)
    lines = [f"{'case':<16}{'a call':>9}{'noise':>8}{heads}{'GPU s':>9}"]
    for one in [*summary["cases"], {"case": "all", **summary}]:
        seconds = f"{one['seconds'] * 1e6:.1f} us" if "seconds" in one else ""
        noise = f"{one['setup_noise']:.2%}" if "setup_noise" in one else ""
        spent = f"{one['gpu_seconds_per_gate_median']:>9.3f}"
        lines.append(f"{one['case']:<16}{seconds:>9}{noise:>8}{_rates_text(one, sizes)}{spent}")
    if summary["peers"]:
        lines += ["", f"{'rule':<49}{heads}"]
        lines += [f"{one['peer'][:48]:<49}{_rates_text(one, sizes)}" for one in summary["peers"]]
    return "\n".join(lines)


def _rates_text(one: Mapping[str, Any], sizes: Sequence[float]) -> str:
    aa = one["aa"]
    alarms = f"{aa['false_alarms']}/{aa['gates']} (<= {aa['upper95']:.2%})" if aa["gates"] else ""
    caught = {planted["slowdown"]: f"{planted['caught']}/{planted['trials']}" for planted in one["planted"]}
    return f"{alarms:>24}" + "".join(f"{caught.get(size, ''):>9}" for size in sizes)
