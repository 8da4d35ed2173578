"""The formatters have one version each, for `nox -s lint` and for pre-commit."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_pre_commit_has_the_versions_that_lint_installs() -> None:
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    hooks = re.findall(r'"([\w.-]+)==([^"]+)"', (ROOT / ".pre-commit-config.yaml").read_text())
    assert {name for name, _ in hooks} == {"ruff", "clang-format"}
    assert [(name, version) for name, version in hooks if pinned[name] != version] == []
