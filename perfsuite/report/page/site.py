"""Writes a static site: a page for each record, with data, styles and scripts beside them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from perfsuite.outcome import UserError
from perfsuite.record.atomic_write import write_whole
from perfsuite.report.page.data import Report, page_data
from perfsuite.report.page.render import Site, render, scripts, style
from perfsuite.report.page.timeline import Version

OWN_MARK = ".perfsuite-site"
"""A file that marks a folder as a site, so that no other folder is written over."""


def write_site(
    folder: Path,
    records: Sequence[tuple[str, Sequence[Version]]],
    report_of: Callable[[Sequence[Version], str], Report],
    asv: Path | None = None,
) -> list[Path]:
    """Write the site of the records, each a title and its versions, oldest first; return its pages.

    report_of: makes the report of versions and a title. asv: a page that asv published, copied to `asv/`.
    Raises UserError for a folder that holds anything but a site.
    """
    _claim(folder)
    assets, data = folder / "assets", folder / "data"
    for place in (assets, data):
        place.mkdir(parents=True, exist_ok=True)
    write_whole(assets / "style.css", style())
    for number, text in enumerate(scripts(), start=1):
        write_whole(assets / f"{number}.js", text)
    names = _names([title for title, _ in records])
    pages = []
    for index, (title, versions) in enumerate(records):
        # The newest run of every other record stands beside this one's history, for comparisons across cards.
        others = [other[-1] for _, other in records if other[-1].setting != versions[-1].setting]
        report = report_of([*others, *versions], title)
        name = names[index]
        text = json.dumps(page_data(report), separators=(",", ":"), ensure_ascii=False)
        write_whole(data / f"{name}.json", text)
        up = "." if index == 0 else ".."
        addresses = [up + "/" if at == 0 else f"{up}/{other}/" for at, other in enumerate(names)]
        links = [(records[at][0], "" if at == index else address) for at, address in enumerate(addresses)]
        if asv is not None:
            links.append(("asv", f"{up}/asv/"))
        page = folder / "index.html" if index == 0 else folder / name / "index.html"
        page.parent.mkdir(exist_ok=True)
        write_whole(page, render(report, Site(f"{up}/assets", f"{up}/data/{name}.json", tuple(links))))
        pages.append(page)
    if asv is not None:
        if not (asv / "index.html").is_file():
            raise UserError(f"--asv is {str(asv)!r}, which holds no page that asv published")
        shutil.copytree(asv, folder / "asv", dirs_exist_ok=True)
    return pages


def _claim(folder: Path) -> None:
    if folder.exists() and not (folder / OWN_MARK).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is no site of perfsuite; name an empty or a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / OWN_MARK).touch()


def _names(titles: Sequence[str]) -> list[str]:
    """A name for each title that is safe in a path and an address."""
    found: list[str] = []
    for title in titles:
        plain = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:60] or "record"
        name, number = plain, 2
        while name in found or name in ("assets", "data", "asv"):
            name, number = f"{plain}-{number}", number + 1
        found.append(name)
    return found
