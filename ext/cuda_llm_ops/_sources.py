"""The digest of the extension's sources, taken when it is built (setup.py) and again when one asks if it is stale."""

from __future__ import annotations

import hashlib
from pathlib import Path

SUFFIXES = (".cpp", ".cu", ".cuh", ".h")


def digest(csrc: Path, flavour: str) -> str:
    """Sixteen hexadecimal digits that change with any source under `csrc` that the flavour uses, or with its name."""
    total = hashlib.sha256()
    for path in sorted(path for path in csrc.rglob("*") if path.suffix in SUFFIXES):
        name = path.relative_to(csrc).as_posix()
        if name.startswith("cuda/") and flavour != "cuda":
            continue
        total.update(name.encode() + b"\0")
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()[:16]
