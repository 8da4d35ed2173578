"""Write one comment on a pull request, and edit it in place from then on.

The comment begins with one sentence. Two tables follow: cases that are wrong or got slower, and
cases that are newly missed. What was missed before is folded, so that nobody has to tell old
from new. Without --github or --gitlab the comment is printed.

The record is read as data: all text in it is escaped, and nothing of it is run.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from perfsuite.cli.forges import GitHub, GitLab
from perfsuite.cli.places import record_or_latest
from perfsuite.cli.reports import report_with_history
from perfsuite.outcome import EXIT_MET, UserError
from perfsuite.report.comment import MARKER, comment
from perfsuite.report.page.cards import sentence
from perfsuite.report.page.data import Report

HELP = "one comment on a pull request, edited in place: what is wrong, slower, newly missed"
EXAMPLE = """example:
  perfsuite comment run.jsonl --against base.jsonl                     # prints it
  perfsuite comment run.jsonl --against base.jsonl --github owner/name --pull 12 --check
  perfsuite comment run.jsonl --ab ab.json --gitlab group/name --pull 12

GITHUB_TOKEN or GITLAB_TOKEN holds the token; exit codes: 0 done, 2 bad input or a refusal"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("record", nargs="?", type=Path, metavar="RECORD", help="a record (default: the newest run's)")
    base = "compare with this record, or with this recorded commit (default: the version before)"
    parser.add_argument("--against", metavar="RECORD|COMMIT", help=base)
    parser.add_argument("--ab", type=Path, metavar="FILE", help="what `perfsuite ab --output FILE` wrote")
    parser.add_argument("--page", metavar="URL", help="address of the whole report, for a link")
    forge = parser.add_mutually_exclusive_group()
    forge.add_argument("--github", metavar="OWNER/NAME", help="write to a pull request of this repository")
    forge.add_argument("--gitlab", metavar="PROJECT", help="write to a merge request of this project")
    parser.add_argument("--pull", type=int, metavar="N", help="number of the pull or merge request")
    parser.add_argument("--check", action="store_true", help="also write a check run on the record's commit (GitHub)")


def run(arguments: argparse.Namespace) -> int:
    """Print or write the comment."""
    if bool(arguments.github or arguments.gitlab) != (arguments.pull is not None):
        raise UserError("--github or --gitlab, and --pull N, must be given together")
    if arguments.check and not arguments.github:
        raise UserError("--check needs --github: other services have no check runs")
    if arguments.page and not arguments.page.startswith(("https://", "http://")):
        raise UserError(f"--page is {arguments.page!r}; it must be an address with https://")
    path = record_or_latest(arguments.record)
    report = report_with_history(path, arguments.against)
    body = comment(report, page=arguments.page, ab=read_ab(arguments.ab))
    if arguments.github:
        github = GitHub.of(arguments.github, arguments.pull)
        print(github.put_comment(MARKER, body))
        if arguments.check:
            print(_check(github, report, body))
    elif arguments.gitlab:
        print(GitLab.of(arguments.gitlab, arguments.pull).put_comment(MARKER, body))
    else:
        print(body, end="")
    return EXIT_MET


def read_ab(path: Path | None) -> list[dict[str, Any]]:
    """The cases of a file of `ab --json`; empty without a file. Raises UserError for anything else."""
    if path is None:
        return []
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"--ab is {str(path)!r}, which cannot be read: {error}") from None
    if not isinstance(found, list) or not all(
        isinstance(one, dict) and one.get("verdict") in VERDICTS for one in found
    ):
        raise UserError(f"--ab is {str(path)!r}, which `perfsuite ab --json` did not write")
    return found


VERDICTS = ("WRONG", "MISSED", "UNDECIDED", "MET")


def _check(github: GitHub, report: Report, body: str) -> str:
    commit = report.now.commit
    if commit is None:
        raise UserError("--check needs the commit of the record, and the record names none")
    failed = any(one.state in ("wrong", "regressed", "newly missed") for one in report.standings)
    return github.put_check(commit, failed=failed, title=sentence(report), summary=body)
