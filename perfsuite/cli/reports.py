"""Makes the report of a record with its history in git, for the commands that show one."""

from __future__ import annotations

from pathlib import Path

from perfsuite.exporters.html import costs_of
from perfsuite.history.record_versions import acceptances_in, against, repository_address, test_lines, versions_of
from perfsuite.report.page.data import Links, Report, report_of


def report_with_history(path: Path, base: str | None, repository: str | None = None) -> Report:
    """The report of a record.

    base: another record, or a recorded commit; None for the version before. repository: address of the repository's
    page; None for that of CI's variables or of git's origin.
    """
    versions, number = against(versions_of(path), base)
    root = path.resolve().parent
    address = repository.rstrip("/") if repository else repository_address(root)
    links, title = Links(address, test_lines(root, versions[-1].cases)), f"perfsuite: {path.name}"
    accepted = acceptances_in(root)
    return report_of(versions, title=title, base=number, links=links, costs=costs_of, accepted=accepted)
