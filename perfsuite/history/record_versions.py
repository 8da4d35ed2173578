"""The versions of a record that git holds, and where the tests of a record are written."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from perfsuite.history.commits import HistoryError, between, full_commit, git
from perfsuite.history.stored_results import Acceptance, acceptances
from perfsuite.record.case import Case
from perfsuite.record.schema import RecordError
from perfsuite.record.store import read_record
from perfsuite.report.page.regressions import Accepted
from perfsuite.report.page.timeline import Version

MOST_VERSIONS = 100
"""The newest versions that are read."""
_DEFINITION = re.compile(
    r"^(?:async )?def (?P<name>\w+)\(|^    (?:async )?def (?P<method>\w+)\(|^class (?P<of>\w+)", re.M
)


def versions_of(path: Path, *, most: int = MOST_VERSIONS) -> list[Version]:
    """The versions of a record, oldest first, the file as it is now last.

    Outside a repository, and for a file that git does not know, that is the file alone. Versions that this perfsuite
    cannot read are left out.
    """
    last = Version(read_record(path))
    try:
        root = Path(git(path.resolve().parent, "rev-parse", "--show-toplevel"))
        name = path.resolve().relative_to(root).as_posix()
        logged = git(root, "log", f"--max-count={most}", "--format=%H %cs", "--", name).splitlines()
    except (HistoryError, ValueError):
        return [last]
    found = []
    for line in reversed(logged):
        stored, _, date = line.partition(" ")
        if cases := _cases_at(root, stored, name):
            found.append(Version(cases, date))
    if found and found[-1].cases == last.cases:
        return found
    return [*found, last]


def _cases_at(root: Path, commit: str, name: str) -> list[Case]:
    """The record as it was at a commit; empty if it cannot be read, or was not there."""
    line = ["git", "-C", str(root), "show", f"{commit}:{name}"]
    done = subprocess.run(line, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        return []
    with tempfile.TemporaryDirectory(prefix="perfsuite-record-") as folder:
        file = Path(folder) / "record.jsonl"
        file.write_bytes(done.stdout)
        try:
            return read_record(file)
        except RecordError:
            return []


def base_of(versions: list[Version], asked: str) -> int:
    """The index of the version whose measured commit begins with `asked`, the newest of several.

    Raises HistoryError with the known commits if there is none before the last version.
    """
    known = {index: version.commit or "" for index, version in enumerate(versions[:-1])}
    found = [index for index, commit in known.items() if commit.startswith(asked.lower()) and len(asked) >= 4]
    if not found:
        listed = ", ".join(commit[:9] for commit in known.values() if commit) or "none"
        raise HistoryError(f"{asked!r} is no recorded commit; give a record's file, or one of: {listed}")
    return found[-1]


def against(versions: list[Version], asked: str | None) -> tuple[list[Version], int | None]:
    """The versions and the base that a user asked for: a record's file, a recorded commit, or None for the default."""
    if asked and Path(asked).is_file():
        return [Version(read_record(Path(asked))), versions[-1]], 0
    return versions, base_of(versions, asked) if asked else None


def acceptances_in(root: Path) -> Accepted:
    """A function that gives the reason for which a commit between two recorded ones accepts a slow-down, or None."""

    @cache
    def given(before: str, after: str) -> list[Acceptance]:
        try:
            return acceptances(root, between(root, full_commit(root, before), full_commit(root, after)))
        except HistoryError:
            return []

    def accepted(before: Case, after: Case) -> str | None:
        found = given(before.commit, after.commit) if before.commit and after.commit else []
        return next((one.reason for one in found if fnmatchcase(after.case, one.glob)), None)

    return accepted


def repository_address(root: Path) -> str | None:
    """The address of the repository's page: of the CI service that runs this, else of the remote "origin"."""
    server, name = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
    if server and name:
        return f"{server}/{name}"
    if address := os.environ.get("CI_PROJECT_URL"):
        return address
    try:
        remote = git(root, "remote", "get-url", "origin")
    except HistoryError:
        return None
    found = re.fullmatch(r"(?:https://(?:[^@/]*@)?|ssh://git@|git@)([\w.-]+)[:/]([\w./~-]+?)(?:\.git)?/?", remote)
    return f"https://{found[1]}/{found[2]}" if found else None


def test_lines(root: Path, cases: Iterable[Case]) -> dict[str, int]:
    """Test function ("path.py::name") -> the line that defines it, at the commit of its case."""
    files = {(case.commit, case.test.partition("::")[0]) for case in cases if case.test and case.commit}
    found: dict[str, int] = {}
    for commit, name in sorted(files):
        try:
            text = git(root, "show", f"{commit}:{name}")
        except HistoryError:
            continue
        inside = ""
        for match in _DEFINITION.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            if match["of"]:
                inside = match["of"]
            elif match["method"]:
                found.setdefault(f"{name}::{inside}::{match['method']}", line)
            else:
                found.setdefault(f"{name}::{match['name']}", line)
    return found
