"""Runs tests of today on the tree in which the defects that they show were found, and says how each fails there.

The older commit's `perfsuite` comes from git, the tests are those of this checkout as they are. A test counts if it
fails there by what the defect does: its message has to fit an expression. A test that only misses a newer name fails
by `Absent`, and does not count.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .written import ROOT, update

BEFORE = "2ca95809"
"""The last commit before the defects were mended."""
TRIED = "9b6e0f1"
"""The commit at which they were found; one of them was gone at BEFORE."""
MOST = 150
"""Characters of a message in the table."""


@dataclass(frozen=True)
class Proof:
    """A defect, the test that shows it, and what the test's message is on the older tree (an expression)."""

    defect: str
    test: str
    says: str
    commit: str = BEFORE


HISTORY, PLUGIN = "tests/history", "tests/plugin"
PROOFS = (
    Proof(
        "compare hides a slow-down of one of two calls alike",
        "tests/report/test_difference.py::test_of_two_calls_alike_the_first_cannot_get_slower_unseen",
        r"assert 0 == 1\n.* main\(\['compare'",
    ),
    Proof(
        "an interrupted run replaces an older record",
        f"{PLUGIN}/test_record_place.py::test_a_run_that_does_not_finish_leaves_the_older_record",
        r"assert 1 == 2\n.*len\(",
    ),
    Proof(
        "a build breaks a user's worktree that is not mounted",
        f"{HISTORY}/test_builds.py::test_a_worktree_that_is_not_mounted_survives_a_build",
        r"'status', '--porcelain'\]' returned non-zero exit status 128",
    ),
    Proof(
        "past 1,024 result files every look-up reads them all",
        f"{HISTORY}/test_stored_results.py::test_a_second_look_up_reads_no_result_file_again",
        r"assert 1102 == 0",
    ),
    Proof(
        "a config that was parsed and never configured is a KeyError",
        f"{PLUGIN}/test_calls.py::test_a_config_that_was_parsed_and_never_configured_is_left_alone",
        r"KeyError: <_pytest\.stash\.StashKey",
    ),
    Proof(
        "a forged separator in a commit's message ascribes an acceptance to another commit",
        f"{HISTORY}/test_stored_results.py::test_a_forged_separator_in_a_message_breaks_nothing",
        r"\('deadbeef', '\*a\*'\)",
    ),
    Proof(
        "nested fields of a record are not looked at",
        "tests/record/test_schema.py::test_nested_fields_are_looked_at",
        r"DID NOT RAISE RecordError",
    ),
    Proof(
        "a large value of a record is quoted whole",
        "tests/record/test_schema.py::test_a_large_value_is_not_quoted_whole",
        r"assert \d{8} <= 300",
    ),
    Proof(
        "a command that is ended while it builds leaves pip, a worktree and a folder",
        f"{HISTORY}/test_children.py::test_a_command_that_is_ended_while_it_builds_leaves_nothing",
        r"assert False\n.*ends\(",
    ),
    Proof(
        "history --asv that is killed leaves junk in the results",
        f"{HISTORY}/test_asv_run.py::test_a_killed_run_is_put_right_by_the_next",
        r"asv\.conf\.js\.\.\.son': b'junk'",
    ),
    Proof(
        "a card's lock lies where every user may replace it",
        "tests/device/test_locks.py::test_a_lock_lies_in_a_private_folder",
        r"assert PosixPath\(.*== PosixPath\(",
    ),
    Proof(
        "a FIFO in place of a card's lock is taken for one",
        "tests/device/test_locks.py::test_a_fifo_in_place_of_a_lock_is_a_sentence",
        r"DID NOT RAISE CardBusy",
    ),
    Proof(
        "a name of a record leads export asv out of its folder",
        f"{HISTORY}/test_export.py::test_no_name_of_a_record_leaves_the_folder_of_the_results",
        r"assert False\n.*is_relative_to",
    ),
    Proof(
        "a test file's name that is not UTF-8 ends a report with a traceback",
        f"{PLUGIN}/test_record_place.py::test_a_name_that_is_not_utf_8_passes_through_record_and_reports",
        r"UnicodeEncodeError",
    ),
    Proof(
        "names of a record are markup in markdown",
        "tests/report/test_report.py::test_nothing_of_a_record_is_markup_in_markdown_or_an_escape_in_the_terminal",
        r"assert '<script' not in",
    ),
    Proof(
        "history --asv that is refused has changed the user's file of machines",
        f"{HISTORY}/test_asv_run.py::test_a_refused_run_leaves_the_users_file_of_machines",
        r"assert not True\n.*exists\(\)",
    ),
    Proof(
        "report does not name what a killed run left",
        f"{PLUGIN}/test_record_place.py::test_the_report_names_what_a_killed_run_left",
        r"in 'perfsuite report: there is no record[^;]*",
    ),
    Proof(
        "a glob of perf_targets.toml with many stars takes minutes",
        f"{PLUGIN}/test_targets.py::test_a_glob_of_many_stars_takes_no_longer",
        r"it was ended for the time that it took",
        TRIED,
    ),
    Proof(
        "another attempt turns a failed gate green",
        f"{PLUGIN}/test_reruns.py::test_another_attempt_does_not_turn_a_failed_gate_green",
        r"assert 0 == 1\n.*Outcome\(code=0",
    ),
    Proof(
        "a test that runs again counts more than once",
        f"{PLUGIN}/test_reruns.py::test_an_undecided_attempt_may_be_rerun_and_counts_once",
        r"\['UNDECIDED', 'MET'\] == \['MET'\]",
    ),
    Proof(
        "a test's time-out is the candidate's fault",
        f"{PLUGIN}/test_reruns.py::test_a_time_out_is_not_the_candidates_fault",
        r"\['WRONG'\] == \[\]",
    ),
    Proof(
        "pytest.skip behind a decided case loses it",
        f"{PLUGIN}/test_reruns.py::test_a_skip_does_not_lose_a_decided_case",
        r"assert 0 == 1\n.*Outcome\(code=0",
    ),
    Proof(
        "nothing tells that a run did not close its record",
        "tests/record/test_journal.py::test_a_candidate_that_ends_the_process_leaves_no_green_record",
        r"SystemExit: 2",
    ),
    Proof(
        "the marker regression passes a kernel four times slower that it cannot tell",
        f"{HISTORY}/test_marker.py::test_a_slow_down_that_cannot_be_told_is_undecided_and_said_on_screen",
        r"assert 0 == 20",
    ),
    Proof(
        "the marker regression does not say that nothing is stored yet",
        f"{HISTORY}/test_marker.py::test_a_case_without_a_history_is_said_on_screen",
        r"assert 'warning: regression compared nothing: [^']*' in",
    ),
    Proof(
        "the series of a renamed file is lost",
        f"{HISTORY}/test_marker.py::test_the_series_of_a_renamed_file_goes_on",
        r"assert \(0, 'checked'\) == \(1, 'regressed'\)",
    ),
    Proof(
        "a test changes the variables that a later one records",
        f"{PLUGIN}/test_record_place.py::test_the_environment_is_that_of_the_start",
        r"\['d00d'\] == \['c0ffee'\]",
    ),
)


def main() -> int:
    """Run the tests on the older trees, print a line of each, and write the rows; 1 if one does not show its defect."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", metavar="WORD", help="only tests whose names hold this word")
    parser.add_argument("--output", type=Path, default=ROOT / "records" / "nightly" / "old-tree.json")
    given = parser.parse_args()
    proofs, rows = [one for one in PROOFS if given.only in one.test], []
    for commit in dict.fromkeys(one.commit for one in proofs):
        mine = [one for one in proofs if one.commit == commit]
        found = messages(commit, [one.test for one in mine])
        rows += [row(one, found.get(one.test, [])) for one in mine]
    for made in rows:
        print(*made.values(), sep="; ", flush=True)
    update(given.output, rows, key="defect")
    return int(any(made["its own reason"] != "yes" for made in rows))


def row(proof: Proof, found: list[str | None]) -> dict[str, Any]:
    """The row of a proof, from the messages of its test there (None: passed), one for each set of arguments."""
    failed = [message for message in found if message is not None]
    fitting = [match.group() for message in failed if (match := re.search(proof.says, message))]
    told = _shown((fitting or failed or ["it passes" if found else "it does not run"])[0])
    return {
        "defect": proof.defect,
        "test": proof.test,
        "commit": proof.commit,
        "fail there": f"{len(failed)} of {len(found)}",
        "message there": told if len(told) <= MOST else told[: MOST - 3] + "...",
        "its own reason": "yes" if fitting else "no",
    }


def _shown(message: str) -> str:
    """A message in one line, without what is another each time."""
    text = re.sub(r"/[^ ']*/pytest-of-[^/]*/pytest-\d+", "TMP", " ".join(message.split()))
    return re.sub(r" at 0x[0-9a-f]+", "", text).removeprefix("AssertionError: ")


def messages(commit: str, tests: list[str]) -> dict[str, list[str | None]]:
    """Test -> its messages on the tree of a commit, one for each set of arguments; None where it passes."""
    with tempfile.TemporaryDirectory(prefix="perfsuite-old-tree-") as folder:
        tree, report = Path(folder, "tree"), Path(folder, "junit.xml")
        packed = subprocess.run(["git", "archive", commit, "perfsuite"], cwd=ROOT, check=True, capture_output=True)
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
            archive.extractall(tree, filter="data")
        shutil.copytree(ROOT / "tests", tree / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("conftest.py", "pyproject.toml"):
            shutil.copy(ROOT / name, tree)
        words = ["-q", "-p", "nightly.absent", "-p", "no:cacheprovider", "--timeout=120", f"--junitxml={report}"]
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "PERFSUITE", "NOX"))}
        kept |= {"PYTHONPATH": os.pathsep.join([str(tree), str(tree / "tests")])}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *words, *tests], cwd=tree, env=kept, capture_output=True, text=True,
            errors="replace", check=False,
        )  # fmt: skip
        if not report.exists():
            raise SystemExit(f"{commit}: no report: {(done.stdout + done.stderr)[-2000:]}")
        found: dict[str, list[str | None]] = {test: [] for test in tests}
        for case in ElementTree.parse(report).iter("testcase"):
            test = f"{str(case.get('classname')).replace('.', '/')}.py::{str(case.get('name')).partition('[')[0]}"
            bad = [child.get("message") or "" for child in case if child.tag in ("failure", "error")]
            found.setdefault(test, []).append(bad[0] if bad else None)
        return found


if __name__ == "__main__":
    sys.exit(main())
