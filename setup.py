"""Adds to a distribution's metadata what depends on where the repository lies: addresses, and the links of its README.

It serves perfsuite and, by a link in the folder `plugin`, pytest-perfsuite.

It builds in a temporary folder. What an earlier build left in the tree would get into the wheel again.

An index page shows the README, where links to files of the repository lead nowhere. They become addresses of the
repository that git knows as `origin` (or that PERFSUITE_URL names). Without one they become plain text.
"""

import os
import re
import subprocess
import tempfile
from email import message_from_string
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent
"""The repository; in a source distribution the same as FOLDER."""
FOLDER = Path(__file__).absolute().parent
"""The folder of the distribution."""
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|mailto:)([^)\s]+)\)")
"""A link to another place of the repository or of the page, or a picture there."""


def address() -> str:
    """The repository's page, "" if it is unknown; a source distribution has it in its metadata."""
    given = os.environ.get("PERFSUITE_URL", "")
    if not given and (ROOT / ".git").exists():
        line = ["git", "-c", "safe.directory=*", "-C", str(ROOT), "remote", "get-url", "origin"]
        given = subprocess.run(line, capture_output=True, text=True, check=False).stdout.strip()
    if not given and (FOLDER / "PKG-INFO").is_file():
        urls = message_from_string((FOLDER / "PKG-INFO").read_text(encoding="utf-8")).get_all("Project-URL", [])
        given = next((url.partition(", ")[2] for url in urls if url.startswith("Source, ")), "")
    given = re.sub(r"^git@([^:/]+):", r"https://\1/", given).removesuffix("/").removesuffix(".git")
    return given if given.startswith("https://") else ""


def readme(url: str) -> str:
    """The README with links that work on any page."""

    def link(found: re.Match[str]) -> str:
        picture, text, target = found.groups()
        if not url or target.startswith("#"):
            return "" if picture else text
        return f"{picture}[{text}]({url}/{'raw' if picture else 'blob'}/HEAD/{target})"

    return LINK.sub(link, (FOLDER / "README.md").read_text(encoding="utf-8"))


def main() -> None:
    url = address()
    pages = {
        "Source": "",
        "Documentation": "/tree/HEAD/docs",
        "Changelog": "/blob/HEAD/CHANGELOG.md",
        "Issues": "/issues",
    }
    with tempfile.TemporaryDirectory(prefix="perfsuite-build-") as folder:
        setup(
            long_description=readme(url),
            long_description_content_type="text/markdown",
            project_urls={name: url + page for name, page in pages.items()} if url else {},
            options={"build": {"build_base": folder}, "egg_info": {"egg_base": folder}},
        )


if __name__ == "__main__":
    main()
