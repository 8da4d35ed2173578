"""The projects that a tree is built from: the tree itself, or the folders that its own pyproject.toml names.

    [tool.perfsuite]
    build = [".", "kernels"]

The setting is that of the commit that is built, so commits before and after a change of layout build alike. This file
needs only the standard library: asv runs it as a program, `python projects.py TREE WHEELS`, where perfsuite is not
installed.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check")


def projects(tree: Path) -> list[Path]:
    """The folders to build in a tree. Raises ValueError, with one sentence, for a setting that is none."""
    named = _table(tree).get("tool", {}).get("perfsuite", {}).get("build", ["."])
    if not isinstance(named, list) or not named or not all(isinstance(name, str) for name in named):
        raise ValueError(f"[tool.perfsuite] build is {named!r}; it must be a list of folders, such as ['.', 'kernels']")
    for name in named:
        folder = (tree / name).resolve()
        if not folder.is_dir() or not folder.is_relative_to(tree.resolve()):
            raise ValueError(f"[tool.perfsuite] build names {name!r}, which is no folder of the project")
    return [tree / name for name in named]


def has_build(project: Path) -> bool:
    """True if pip can build the folder; False if its modules are used where they lie."""
    return (project / "setup.py").is_file() or not _table(project).keys().isdisjoint({"build-system", "project"})


def requirements(project: Path) -> list[str]:
    """The requirements of its build."""
    return list(_table(project).get("build-system", {}).get("requires", ["setuptools"]))


def import_folders(project: Path) -> list[Path]:
    """The folders from which the tests of a project without a build import: itself, and pytest's `pythonpath`."""
    named = _table(project).get("tool", {}).get("pytest", {}).get("ini_options", {}).get("pythonpath", [])
    named = named.split() if isinstance(named, str) else named
    return [project, *(project / name for name in named if (project / name).resolve() != project.resolve())]


def _table(folder: Path) -> dict[str, Any]:
    file = folder / "pyproject.toml"
    try:
        return tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"pyproject.toml cannot be read: {error}") from None


def main(tree: str, wheels: str) -> None:
    """Build the wheels of a tree with the packages that are installed."""
    for folder in projects(Path(tree)):
        line = [sys.executable, *PIP, "wheel", "--no-build-isolation", "--no-deps", "-w", wheels, str(folder)]
        subprocess.run(line, check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
