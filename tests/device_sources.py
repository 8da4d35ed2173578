"""The extension's sources for tests that compile device code for the host, where no PTX instruction exists."""

from __future__ import annotations

import shutil
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[1] / "ext/csrc"


def copy_without_ptx(folder: Path, ptx: str = "") -> Path:
    """Copy all sources to `folder`, with every header of cuda/ptx/ replaced by `ptx`; the copy.

    The program that includes the device code defines the instructions that it uses itself.
    """
    shutil.copytree(SOURCES, folder)
    for header in (folder / "cuda/ptx").iterdir():
        header.write_text(ptx)
    return folder
