"""The page's libraries: package data of a release, put beside the page's own files by `fetch`.

Tabulator is the grid (filters, groups, a phone's layout), uPlot draws the plots. Both are under the MIT licence.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from perfsuite.report.npm import NpmError, fetched

TABULATOR, UPLOT = "tabulator-tables@6.5.3", "uplot@1.6.32"
FILES = {
    "tabulator.min.js": (TABULATOR, "dist/js/tabulator.min.js"),
    "tabulator.min.css": (TABULATOR, "dist/css/tabulator.min.css"),
    "tabulator-licence.txt": (TABULATOR, "LICENSE"),
    "uPlot.iife.min.js": (UPLOT, "dist/uPlot.iife.min.js"),
    "uPlot.min.css": (UPLOT, "dist/uPlot.min.css"),
    "uPlot-licence.txt": (UPLOT, "LICENSE"),
}
SCRIPTS = ("tabulator.min.js", "uPlot.iife.min.js")
STYLES = ("tabulator.min.css", "uPlot.min.css")
LACKING = (
    "This page was made without its libraries: the table cannot be filtered or sorted, and there are no plots. "
    "`perfsuite report --fetch-libraries` fetches them by npm."
)


def web() -> Traversable:
    """The folder of the page's own files."""
    return resources.files("perfsuite.report.page") / "web"


def texts(names: Sequence[str]) -> list[str]:
    """The contents of these libraries; none if one of them is missing."""
    folder = web() / "libraries"
    found = [file.read_text(encoding="utf-8") for name in names if (file := folder / name).is_file()]
    return found if len(found) == len(names) else []


def fetch(cache: Path) -> Path:
    """Put the libraries beside the page's own files, by npm and `cache`; return their folder. Raises NpmError."""
    place = Path(str(web())) / "libraries"
    files = {name: fetched(package, inside, cache) for name, (package, inside) in FILES.items()}
    try:
        place.mkdir(exist_ok=True)
        for name, file in files.items():
            shutil.copyfile(file, place / name)
    except OSError as error:
        raise NpmError(f"{place} cannot be written: {error.strerror}; the page stays without its libraries") from None
    return place
