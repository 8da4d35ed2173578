"""Every defect in the table of docs/reliability.md has a test, and it was seen to fail where the defect was found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.nightly.old_tree import PROOFS, Proof

ROOT = Path(__file__).resolve().parents[1]
ROWS = json.loads((ROOT / "records" / "nightly" / "old-tree.json").read_text())["rows"]


@pytest.mark.parametrize("proof", PROOFS, ids=lambda proof: proof.defect)
def test_a_defect_was_seen_by_its_test_on_the_older_tree(proof: Proof) -> None:
    file, _, name = proof.test.partition("::")
    assert f"def {name}(" in (ROOT / file).read_text(), "it has another name now: mend PROOFS"
    seen = [row for row in ROWS if (row["defect"], row["test"]) == (proof.defect, proof.test)]
    assert [row["its own reason"] for row in seen] == ["yes"], "run: nox -s nightly -- old_tree"


def test_the_table_has_no_other_row() -> None:
    assert len(ROWS) == len(PROOFS)
