"""Measures a suspect, a case about to be MISSED, again in a fresh process: a second pytest that runs its test alone.

All rounds of one process share its addresses, heap and clocks, so a second process may disagree. It measures what comes
before the suspect's call of `perf`, on which the test may build, then the suspect, and ends.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from perfsuite.clock.rounds import Round
from perfsuite.device import turns
from perfsuite.outcome import Verdict
from perfsuite.pytest_plugin import ELSEWHERE, VALUES, WRITTEN
from perfsuite.pytest_plugin.fresh_process import Processes, WayError, plugin_modules
from perfsuite.pytest_plugin.run import RUN
from perfsuite.record.schema import RecordError, plain
from perfsuite.record.store import read_record

LOADED_BEFORE = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
"""Plugins that a template has loaded cannot be rewritten, which a suite may take for an error."""
MANY_CASES = 30
"""Timed cases of a run in which a suspect is likely: 43 of 627 were measured again on H200s."""
_PROCESSES = pytest.StashKey[Processes]()


def measure_afresh(item: pytest.Item, number: int, before: int) -> list[Round]:
    """Rounds of a test's comparison of that number (from 0), measured in a fresh process; empty if that fails.

    before: the comparisons of the test's earlier calls of `perf`.
    """
    config = item.config
    with turns.paused():  # where workers share the card: that process takes the turns meanwhile
        return rounds_elsewhere(
            *(item.nodeid, number, before),
            root=config.rootpath,
            options=options_of(config),
            processes=_processes(config),
        )


def prepare_ahead(config: pytest.Config) -> None:
    """Begin what a fresh process needs, which takes seconds, in a run so long that a suspect is likely.

    Only for cards: on a processor it would disturb what is timed.
    """
    run = config.stash[RUN]
    if run.options.gpu and not run.fresh and run.planned >= MANY_CASES and _PROCESSES not in config.stash:
        _processes(config).prepare()


def _processes(config: pytest.Config) -> Processes:
    if _PROCESSES not in config.stash:
        made = config.stash[_PROCESSES] = Processes(config.invocation_params.dir, plugin_modules(config))
        config.stash[RUN].held.callback(made.close)
    return config.stash[_PROCESSES]


def rounds_elsewhere(
    test: str, number: int, before: int, *, root: Path, options: Sequence[str], processes: Processes
) -> list[Round]:
    """The rounds that `measure_afresh` returns. test: an id below the folder `root`."""
    for way in processes.ways:
        with tempfile.TemporaryDirectory(prefix="perfsuite-fresh-") as folder:
            record = Path(folder) / "record.jsonl"
            line = ["-q", "-p", "perfsuite.plugin", *LOADED_BEFORE, *options, f"--rootdir={root}"]
            try:
                way([*line, f"--perf-record={record}", f"{root}/{test}"], number)
            except TimeoutError:
                return []
            except WayError:
                continue
            if rounds := rounds_in(record, test, before):
                processes.succeeded(way)
                return rounds
    return []


def rounds_in(record: Path, test: str, number: int) -> list[Round]:
    """The rounds of a test's comparison of that number; empty if it is not in the record, or there is no record.

    Rounds whose calls were WRONG do not count: they could only excuse a candidate.
    """
    try:
        cases = [case for case in read_record(record) if case.test == plain(test) and case.aspect is None]
    except RecordError:
        return []
    found = cases[number] if number < len(cases) else None
    return [] if found is None or found.verdict == Verdict.WRONG else found.samples.rounds()


def options_of(config: pytest.Config) -> list[str]:
    """Options for a pytest that collects the same tests and measures on the same backend, with another seed."""
    options = config.stash[RUN].options
    # A worker of xdist runs without a terminal; the fresh process needs one.
    line = [f"-p{name}" for name in config.getoption("plugins", None) or () if name != "no:terminal"]
    if config.inipath is not None:
        line.append(f"--config-file={config.inipath}")
    line += [f"--override-ini={one}" for one in config.getoption("override_ini", None) or ()]
    line += [f"--import-mode={config.getoption('importmode')}", "--junitxml=", "--maxfail=0", "-k", "", "-m", ""]
    if config.pluginmanager.hasplugin("xdist"):
        line.append("-n0")
    if config.pluginmanager.hasplugin("_cov"):
        line.append("--no-cov")
    line += ["--perf-portable"] if options.portable else ["--gpu", "--perf-allow-shared"]
    line += ["--perf-ci"] if options.ci else []
    line += [f"{flag}=" for flag, *_ in WRITTEN + ELSEWHERE]
    values = options._replace(seed=options.seed + 1)._asdict()
    given = ((flag, values[flag.removeprefix("--perf-").replace("-", "_")]) for flag, *_ in VALUES)
    return line + [f"{flag}={value}" for flag, value in given if value is not None]
