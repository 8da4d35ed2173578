"""The files that a run writes: checked before the run measures, closed when it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsuite.pytest_plugin.environ import MOST_SHOWN
from perfsuite.pytest_plugin.options import bad_option
from perfsuite.pytest_plugin.run import Run
from perfsuite.record.atomic_write import refusal
from perfsuite.record.journal import Journal, RecordBusy
from perfsuite.record.places import OWN_FOLDER, default_path, latest_path, remove_old_partials
from perfsuite.record.run_lines import Ended
from perfsuite.record.schema import RecordError
from perfsuite.record.store import read_record


def open_journal(run: Run) -> None:
    """Get the record's file ready; UsageError if it cannot be written or would overwrite a file that is no record."""
    record, markdown = run.options.record, run.options.markdown
    if record is not None:
        _check_place("--perf-record", record)
    if markdown is not None:
        _check_place("--perf-markdown", markdown, replaced=False)
    run.previous = latest_path(run.config.rootpath)
    path = record or _default_place(run.config.rootpath)
    if markdown is not None and markdown.resolve() == path.resolve():
        raise bad_option(f"--perf-record and --perf-markdown are both {str(path)!r}; they must be two files")
    if path.exists() and path.stat().st_size:
        try:
            read_record(path)
        except RecordError as error:
            raise bad_option(f"--perf-record would overwrite what is not a record: {error}") from None
    run.journal = Journal(path, variables={name: value[:MOST_SHOWN] for name, value in run.variables.items()})
    try:
        run.journal.open()
    except RecordBusy as error:
        raise bad_option(str(error)) from None
    except OSError as error:
        raise bad_option(f"the record {str(path)!r} cannot be written: {error}") from None
    for old in remove_old_partials(run.config.rootpath / OWN_FOLDER / "runs"):
        run.notes.append(f"removed {old}, which a run did not finish long ago")


def how_ended(session: pytest.Session, exitstatus: int) -> Ended:
    """The way in which a session ended."""
    if exitstatus == pytest.ExitCode.INTERNAL_ERROR:
        return Ended.CRASHED
    if session.shouldfail:
        return Ended.STOPPED
    return Ended.INTERRUPTED if exitstatus == pytest.ExitCode.INTERRUPTED or session.shouldstop else Ended.FINISHED


def close(run: Run, ended: Ended, *, exit: int) -> None:
    """Close the record and, unless pytest crashed, write the markdown. A fault becomes a complaint of the run."""
    crashed = ended is Ended.CRASHED
    if run.journal is not None:
        try:
            run.journal.close(ended, exit=exit, tests=run.tests, part=run.part)
        except OSError as error:
            run.complaints.append(f"the record cannot be written: {error}")
            run.journal = None
    if run.options.markdown is not None and run.options.gating and not crashed and not run.collects_only:
        from perfsuite.pytest_plugin.present import write_markdown

        try:
            write_markdown(run, run.options.markdown)
        except OSError as error:
            run.complaints.append(f"--perf-markdown cannot be written: {error}")


def _check_place(flag: str, path: Path, *, replaced: bool = True) -> None:
    """Check that a file can be written, before hours of measuring; UsageError if not."""
    refused = refusal(path, replaced=replaced)
    if refused is None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            refused = str(error)
    if refused is not None:
        raise bad_option(f"{flag} is {str(path)!r}, which cannot be written: {refused}")


def _default_place(root: Path) -> Path:
    try:
        path = default_path(root)
        refused = refusal(path)
    except OSError as error:
        refused = str(error)
    if refused is not None:
        raise bad_option(f"the record cannot be written: {refused}; name another place with --perf-record")
    return path
