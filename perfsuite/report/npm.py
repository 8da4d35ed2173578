"""Fetches files of npm's packages, for pages that must not load anything from elsewhere."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path

from perfsuite.outcome import UserError


class NpmError(UserError):
    """A file of a package cannot be had; one sentence with the cause."""


def fetched(package: str, inside: str, cache: Path) -> Path:
    """The file `inside` of a package such as "uplot@1.6.32", from `cache`, or else by npm. Raises NpmError."""
    kept = cache / package.replace("@", "-") / inside
    if kept.is_file():
        return kept
    npm = shutil.which("npm")
    if npm is None:
        raise NpmError(f"npm is needed to fetch {package} for the page, and is not installed")
    cache.mkdir(parents=True, exist_ok=True)
    line = [npm, "pack", "--silent", "--ignore-scripts", package]
    done = subprocess.run(line, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, cwd=cache)
    packed = cache / (done.stdout.strip().splitlines() or [""])[-1]
    if done.returncode != 0 or not packed.is_file():
        said = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
        raise NpmError(f"npm cannot fetch {package}: {said}")
    with tarfile.open(packed) as archive:
        member = archive.extractfile(f"package/{inside}")
        assert member is not None
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(member.read())
    return kept
