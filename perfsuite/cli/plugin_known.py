"""Commands for pytest that work whether the distribution that announces the plugin is installed or not."""

from __future__ import annotations

import json
import shlex
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

import perfsuite

DISTRIBUTION, FOLDER = "pytest-perfsuite", "plugin"
"""The distribution that has the entry point, and its folder in the repository of perfsuite."""


def known() -> bool:
    """True if pytest loads the plugin by itself."""
    return bool(metadata.entry_points(group="pytest11", name="perfsuite.plugin"))


def pytest_words() -> str:
    """The words that start pytest with the plugin."""
    return "pytest" if known() else "pytest -p perfsuite.plugin"


def install_words() -> str:
    """The command that tells pytest of the plugin, from the folder, address or index that perfsuite came from."""
    checkout = Path(perfsuite.__file__).resolve().parents[1]
    try:
        origin = json.loads(metadata.distribution("perfsuite").read_text("direct_url.json") or "{}")  # PEP 610
    except metadata.PackageNotFoundError:  # found by PYTHONPATH, or beside the current folder
        if (checkout / FOLDER / "pyproject.toml").is_file():
            return shlex.join(["pip", "install", str(checkout), str(checkout / FOLDER)])
        return f"pip install {DISTRIBUTION}"
    url = origin.get("url", "")
    if vcs := origin.get("vcs_info"):
        return shlex.join(["pip", "install", f"{vcs['vcs']}+{url}@{vcs['commit_id']}#subdirectory={FOLDER}"])
    place = Path(unquote(urlsplit(url).path)) if url.startswith("file:") else None
    if place and (place / FOLDER / "pyproject.toml").is_file():
        return shlex.join(["pip", "install", str(place / FOLDER)])
    if place and any(place.parent.glob(f"{DISTRIBUTION.replace('-', '_')}-*")):
        return shlex.join(["pip", "install", "--find-links", str(place.parent), DISTRIBUTION])
    return f"pip install {DISTRIBUTION}"
