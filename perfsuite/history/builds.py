"""A commit, built: its wheel unpacked in a folder of its own, to be put in front of what is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from perfsuite.history.commits import HistoryError, git

HARNESS_PACKAGE = "perfsuite"
"""Taken out of a build where it is in it: the suite that measures is the same for every commit."""


class BuildError(HistoryError):
    """A commit does not build; one sentence with the compiler's or pip's words."""


def build(root: Path, commit: str, store: Path) -> Path:
    """The folder with the packages of `commit`; made by pip, once, in a worktree that is removed afterwards."""
    target = store / f"{commit[:12]}-{sys.implementation.cache_tag}"
    if target.is_dir():
        return target
    store.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=store) as folder:
        tree, wheels, made = (Path(folder, name) for name in ("tree", "wheels", "made"))
        git(root, "worktree", "add", "--quiet", "--detach", "--force", str(tree), commit)
        try:
            quiet = ("--quiet", "--no-deps", "--disable-pip-version-check")
            _pip(commit, "wheel", *quiet, "--no-build-isolation", "--wheel-dir", str(wheels), str(tree))
            built = [str(wheel) for wheel in wheels.glob("*.whl")]
            _pip(commit, "install", *quiet, "--no-compile", "--target", str(made), *built)
        finally:
            git(root, "worktree", "remove", "--force", str(tree))
        for path in [made / HARNESS_PACKAGE, *made.glob(f"{HARNESS_PACKAGE}-*.dist-info")]:
            shutil.rmtree(path, ignore_errors=True)
        os.replace(made, target)
    return target


def _pip(commit: str, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", *arguments], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    if done.returncode != 0:
        raise BuildError(f"{commit[:12]} does not build: {_essence(done.stdout + done.stderr)}")


def _essence(text: str) -> str:
    """The line that says most: a compiler's first error, or the last line there is."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"(?:\berror:|Error:|failed to compile)", line)]
    compiler = [line for line in telling if re.search(r":\d+(?::\d+)?: .*error:|\(\d+\): error", line)]
    return next(iter(compiler or telling), lines[-1] if lines else "pip said nothing")[:300]
