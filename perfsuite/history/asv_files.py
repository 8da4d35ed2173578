"""Reads and checks asv's files: result files, benchmarks.json, machine.json, and our list of series beside them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from perfsuite.history import series
from perfsuite.history.commits import HistoryError
from perfsuite.history.machines import HARNESS_KEY, Machine

DECLARED_FILE = "cases.json"
"""The file beside the results that lists all series. A machine may be able to measure only some of them."""


def asv_itself() -> Any:
    """The asv package, with the modules that we use."""
    try:
        for name in ("benchmarks", "config", "machine", "results", "runner", "util"):
            import_module(f"asv.{name}")
    except ImportError as error:
        raise HistoryError(f"asv is not installed ({error}): pip install asv") from None
    return import_module("asv")


def read_declared(path: Path) -> series.Declared:
    """The series that a file declares; empty without a file."""
    if not path.exists():
        return {}
    try:
        groups = json.loads(path.read_text(encoding="utf-8"))["groups"]
        return {
            str(group): {str(measure): [str(name) for name in names] for measure, names in of_group.items()}
            for group, of_group in groups.items()
        }
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise HistoryError(f"{path} is not a list of cases: {type(error).__name__}: {error}") from None


def read_benchmarks(results: Path) -> dict[str, dict[str, Any]]:
    """Every series as asv describes it; empty without a file. Raises HistoryError for a broken file."""
    path = results / "benchmarks.json"
    return _load_json(path, 2) if path.exists() else {}


def load_results(path: Path) -> Any:
    """A result file of asv. Raises HistoryError for other files."""
    asv = asv_itself()
    try:
        return asv.results.Results.load(str(path))
    except (asv.util.UserError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise HistoryError(f"{path} is not a result file of asv: {type(error).__name__}: {error}") from None


def check_results(results: Path) -> int:
    """Read every file of a results folder; return the number of results.

    Raises HistoryError for the first file that does not belong to its folder. asv's page leaves such files out.
    """
    benchmarks = results / "benchmarks.json"
    if not benchmarks.exists():
        raise HistoryError(f"{results} holds no history: there is no benchmarks.json")
    _load_json(benchmarks, 2)
    count = 0
    for folder in sorted(path for path in results.iterdir() if path.is_dir()):
        files = sorted(path for path in folder.glob("*.json") if path.name != "machine.json")
        if not files:
            continue
        machine = _load_json(folder / "machine.json", 1)
        machine.pop("version", None)
        for path in files:
            apart = [
                f"{name} {other!r}, not {value!r}" for name, value, other in _apart(machine, load_results(path).params)
            ]
            if apart or machine.get("machine") != folder.name:
                where = "; ".join(apart) or f"machine {machine.get('machine')!r} in the folder {folder.name!r}"
                raise HistoryError(f"{path} is of another card than its folder: {where}")
            count += 1
    return count


def check_machine(results: Path, key: Machine) -> None:
    """Raise HistoryError if the results have another card under the machine's name."""
    path = results / key["machine"] / "machine.json"
    if not path.exists():
        return
    unlike = [f"{name} {there!r} there, {here!r} here" for name, here, there in _apart(key, _load_json(path, 1))]
    if unlike:
        raise HistoryError(f"{path} is of another card: {'; '.join(unlike)} (--machine gives this one another name)")


def _apart(key: Mapping[str, Any], other: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """(name, value in `key`, value in `other`) if they differ. Each harness has its own lines on a machine."""
    pairs = [(name, value, other.get(name)) for name, value in key.items() if name != HARNESS_KEY]
    return [pair for pair in pairs if pair[1] != pair[2]]


def keep_series(results: Path, known: Mapping[str, Mapping[str, Any]]) -> None:
    """Add the series and cases of the earlier benchmarks.json, since asv writes only those that it has discovered."""
    asv, now = asv_itself(), read_benchmarks(results)
    kept: dict[str, Any] = {name: dict(benchmark) for name, benchmark in known.items()}
    for name, benchmark in now.items():
        before = kept.get(name)
        kept[name] = benchmark
        if before and before.get("version") == benchmark.get("version") and before["params"] and benchmark["params"]:
            both = dict.fromkeys([*before["params"][0], *benchmark["params"][0]])
            kept[name] = {**benchmark, "params": [list(both)]}
    asv.util.write_json(str(results / "benchmarks.json"), kept, asv.benchmarks.Benchmarks.api_version)


def asv_value(value: series.Value) -> tuple[Any, list[float] | None, int | None]:
    """(result, samples, number) as asv's runner gives them. asv computes the median and its interval itself."""
    if isinstance(value, list):
        return value[0], value, 1
    return value, None, None


def _load_json(path: Path, version: int) -> dict[str, Any]:
    asv = asv_itself()
    try:
        loaded = asv.util.load_json(str(path), api_version=version)
    except (asv.util.UserError, OSError, ValueError) as error:
        raise HistoryError(f"{path} cannot be read: {error}") from None
    if not isinstance(loaded, dict):
        raise HistoryError(f"{path} holds no JSON object")
    return loaded
