"""Workflows, ours and those that we show: actions are pinned by commit, and a job has the rights that it names."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted([*ROOT.glob(".github/workflows/*.yml"), *ROOT.glob("examples/.github/workflows/*.yml")])
PINNED = re.compile(r"[\w/.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")
GENERATED = ROOT / "perfsuite" / "cli" / "first_files.py"
SHOWN = [*WORKFLOWS, ROOT / "docs" / "how-to" / "ci.md", GENERATED]


@pytest.mark.parametrize("file", SHOWN, ids=lambda file: str(file.relative_to(ROOT)))
def test_actions_are_pinned_by_commit(file: Path) -> None:
    used = re.findall(r"^\s*(?:- )?uses: (.+)$", file.read_text(), re.MULTILINE)
    assert used
    assert [one for one in used if not PINNED.match(one)] == []


def test_one_action_has_one_version() -> None:
    used = {one for file in SHOWN for one in re.findall(r"uses: (.+)", file.read_text())}
    versions: dict[str, set[str]] = {}
    for one in used:
        name, _, version = one.partition("@")
        versions.setdefault("/".join(name.split("/")[:2]), set()).add(version)
    assert {name: found for name, found in versions.items() if len(found) > 1} == {}


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_a_workflow_may_read_and_a_job_names_what_else_it_may(file: Path) -> None:
    text = file.read_text()
    assert re.search(r"^permissions: \{\}$|^permissions:\n  contents: read\n(?! )", text, re.MULTILINE), (
        "of the workflow"
    )
    for job in re.split(r"^  (?=[\w-]+:$)", text.partition("\njobs:\n")[2], flags=re.MULTILINE)[1:]:
        rights = re.findall(r"^      ([\w-]+): write", job, re.MULTILINE)
        assert len(rights) <= 2, job.splitlines()[0]


@pytest.mark.parametrize("file", SHOWN, ids=lambda file: file.name)
def test_a_record_of_gates_is_verified_in_the_step_behind_them(file: Path) -> None:
    """A process that ends without a word may leave exit code 0; then the record is the only witness."""
    steps = re.findall(r"^      - run: (.+)$", file.read_text(), re.MULTILINE)
    behind = [after for run, after in pairwise([*steps, ""]) if re.search(r"\bpytest\b(?!-)", run)]
    assert [step for step in behind if "perfsuite verify" not in step] == []
    assert behind or file not in (GENERATED, ROOT / "examples" / ".github" / "workflows" / "gates.yml")
