"""Reads git: commits by name, their dates, trailers and order."""

from __future__ import annotations

import subprocess
from pathlib import Path

from perfsuite.outcome import UserError


class HistoryError(UserError):
    """The history cannot be read or extended; one sentence with the cause. Nothing was changed."""


def git(root: Path, *arguments: str) -> str:
    """The output of git. Raises HistoryError with git's message if it fails."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
    except OSError as error:
        raise HistoryError(f"git cannot be run: {error}") from None
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise HistoryError(f"git {' '.join(arguments)} in {root}: {said[-1]}")
    return done.stdout.strip()


def full_commit(root: Path, name: str) -> str:
    """The full hash of a commit, named in any form that git knows. Raises HistoryError for an unknown name."""
    try:
        return git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    except HistoryError:
        raise HistoryError(f"{name!r} names no commit of {root}") from None


def commit_seconds(root: Path, commit: str) -> int:
    """The commit's date, in seconds since 1970."""
    return int(git(root, "show", "-s", "--format=%ct", commit))


def first_parents(root: Path, tip: str, *, most: int = 1000) -> list[str]:
    """Commits on the way to `tip` along first parents, oldest first, `tip` included."""
    return git(root, "rev-list", "--first-parent", f"--max-count={most}", tip).split()[::-1]


def earlier_names(root: Path, file: str, tip: str) -> list[str]:
    """The names that a file had before git's renames up to `tip`, the latest first."""
    line = ("log", "--follow", "--diff-filter=R", "--find-renames", "--name-status", "-z", "--format=", tip, "--", file)
    fields = iter(git(root, *line).split("\0"))
    found = []
    for field in fields:  # "R100", the old name, the new name
        if field.lstrip("\n").startswith("R"):
            found.append(next(fields, ""))
            next(fields, "")
    return found


def between(root: Path, good: str, bad: str) -> list[str]:
    """Commits after `good` up to `bad`, oldest first. Raises HistoryError if `good` is no ancestor of `bad`."""
    base = git(root, "merge-base", good, bad)
    if base != good:
        raise HistoryError(f"{good[:10]} is no ancestor of {bad[:10]}: there is nothing between them to search")
    return git(root, "rev-list", "--ancestry-path", "--reverse", f"{good}..{bad}").split()


def trailers(root: Path, commits: list[str], key: str) -> dict[str, list[str]]:
    """Commit -> the values of its trailers of that name; commits without one are left out."""
    if not commits:
        return {}
    # No message holds a NUL, which ends each entry; unfolded, a value is one line.
    form = f"--format=%H%n%(trailers:key={key},valueonly,unfold)"
    printed = git(root, "log", "-z", "--no-walk=unsorted", form, *commits)
    found = {}
    for entry in printed.split("\0"):
        commit, *values = entry.strip("\n").split("\n")
        if kept := [value.strip() for value in values if value.strip()]:
            found[commit] = kept
    return found
