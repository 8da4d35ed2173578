"""The source tree of a commit, or of the working tree."""

from __future__ import annotations

import ast
import io
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from machine_code.errors import UsageError

WORKING_TREE = "."


@dataclass(frozen=True)
class Revision:
    """A source tree and the name by which the report calls it."""

    name: str
    root: Path

    def sources(self, folder: str, only: list[str]) -> list[str]:
        """The .cu files under `folder`, relative to the root, whose path matches a pattern of `only`, if any."""
        found = sorted(path.relative_to(self.root).as_posix() for path in (self.root / folder).rglob("*.cu"))
        return [path for path in found if not only or any(_matches(path, pattern) for pattern in only)]

    def defines(self) -> list[str]:
        """The macros that this tree's setup.py gives to nvcc for its Hopper families; empty without a setup.py."""
        places = [self.root / "ext" / "setup.py", self.root / "setup.py"]  # the second in old commits
        setup = next((path for path in places if path.is_file()), None)
        if setup is None:
            return []
        for node in ast.parse(setup.read_text()).body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "HOPPER_FAMILIES":
                return [f"CUDA_LLM_OPS_SM90_{family}" for family in ast.literal_eval(node.value)]
        return []


def _matches(path: str, pattern: str) -> bool:
    return pattern in path or PurePosixPath(path).match(pattern)


def open_revision(name: str, repository: Path, cache: Path) -> Revision:
    """The tree of a commit, unpacked under `cache`; "." is the working tree itself."""
    if name == WORKING_TREE:
        return Revision("working tree", repository)
    commit = _git(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    if commit is None:
        raise UsageError(f"{name!r} names no commit of {repository}; allowed are commits, and '.' for the working tree")
    full = commit.decode().strip()
    root = cache / "trees" / full
    if not root.is_dir():
        packed = _git(repository, "archive", full)
        if packed is None:
            raise UsageError(f"git cannot read the files of commit {full}")
        partial = root.with_suffix(".partial")
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(partial, filter="data")
        partial.rename(root)
    return Revision(full[:12], root)


def _git(repository: Path, *arguments: str) -> bytes | None:
    done = subprocess.run(["git", "-C", str(repository), *arguments], capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else None
