"""The report's page in Chromium, for tests and pictures: a small page, one browser, fonts that come with the tests."""

from __future__ import annotations

import base64
import importlib.util
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from perfsuite.exporters.html import costs_of
from perfsuite.history.record_versions import versions_of
from perfsuite.report.page import libraries
from perfsuite.report.page.attention import standings
from perfsuite.report.page.data import Links, report_of
from perfsuite.report.page.render import render
from perfsuite.report.page.timeline import Version
from tests.history.browser import FLAGS, chromium

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "records" / "h200" / "gates.jsonl"
PICTURES = Path(__file__).parent / "pictures"
WIDTHS = {390: 844, 768: 1024, 1280: 900, 2560: 1440}
"""Width -> height of a window."""
SCHEMES = ("light", "dark")
CASE = "tests/perf/test_attention.py::test_flash_attention[8192-full]"
"""A case that is missed, with a history, a rival and neighbours by size."""
LAST = "391aabb"
"""The commit of the newest version that the tests look at."""
EVERY = 80
"""The small page has each case that needs attention, and one of so many others."""
REPOSITORY = "https://code.example/owner/name"
SAME_PIXELS = ("--font-render-hinting=none", "--disable-lcd-text", "--force-color-profile=srgb")
"""Flags of Chromium that make letters and colours alike on all machines."""


def lacking() -> list[str]:
    """What this machine lacks for tests in a browser, one reason each."""
    reasons = {
        "playwright is not installed": importlib.util.find_spec("playwright") is None,
        "Pillow is not installed": importlib.util.find_spec("PIL") is None,
        "no Chromium on PATH": chromium() is None,
        f"the record's version of {LAST} is not in this checkout": not past_versions(),
        "the page's libraries are not here: perfsuite report --fetch-libraries": not libraries.texts(libraries.SCRIPTS),
    }
    return [reason for reason, holds in reasons.items() if holds]


def skipped() -> str:
    """The reason to skip tests in a browser, or nothing; `nox -s dashboard` asks for them in any case."""
    return "" if "PERFSUITE_BROWSER" in os.environ else "; ".join(lacking())


@contextmanager
def browser() -> Iterator[Any]:
    """Chromium, started once."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=chromium(), args=[*FLAGS, *SAME_PIXELS])
        yield started
        started.close()


@cache
def past_versions() -> tuple[Version, ...]:
    """The versions of the committed record up to LAST, so that later runs do not change the tests; or none."""
    versions = versions_of(RECORD)
    last = [index for index, version in enumerate(versions) if (version.commit or "").startswith(LAST)]
    return tuple(versions[: last[0] + 1]) if last else ()


@cache
def whole_page() -> str:
    """The page of all cases of the record at LAST, with its history."""
    return _page(past_versions())


@cache
def small_page() -> str:
    """The page of a few cases of the record at LAST, with their history, in the tests' own font."""
    versions = past_versions()
    urgent = {id(one.line.last) for one in standings(versions, len(versions) - 2) if one.state != "met"}
    names = {
        (case.case, case.test)
        for index, case in enumerate(versions[-1].cases)
        if index % EVERY == 0 or id(case) in urgent or case.test == CASE
    }
    few = [replace(one, cases=[case for case in one.cases if (case.case, case.test) in names]) for one in versions]
    return _page([one for one in few if one.cases]).replace("</head>", f"<style>{fonts()}</style></head>")


def _page(versions: Sequence[Version]) -> str:
    return render(report_of(versions, title="gates.jsonl", links=Links(REPOSITORY), costs=costs_of))


def fonts() -> str:
    """Styles that set every letter in the tests' own font."""
    faces = ""
    for name, weight in (("DejaVuSans", 400), ("DejaVuSans-Bold", 700)):
        data = base64.b64encode((PICTURES / f"{name}.woff2").read_bytes()).decode()
        faces += f"@font-face{{font-family:Kept;font-weight:{weight};src:url(data:font/woff2;base64,{data})}}"
    return f"{faces}*{{font-family:Kept!important}}"


def show_case(page: Any, test: str = CASE) -> None:
    """Open a case's drawer and wait until its plots are drawn."""
    page.evaluate("test => { location.hash = 'case=' + encodeURIComponent(test); }", test)
    page.wait_for_selector("dialog[open] canvas")


def picture(page: Any, view: str, width: int, scheme: str) -> bytes:
    """The first screen of a view, "now" or "case", as a PNG."""
    page.set_viewport_size({"width": width, "height": WIDTHS[width]})
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    if view == "case":
        show_case(page)
    elif page.locator("dialog[open]").count():
        page.keyboard.press("Escape")
    # Plots follow the width in the frame after; letters come with the font.
    page.evaluate("() => document.fonts.ready.then(() => new Promise(done => requestAnimationFrame(() => "
                  "requestAnimationFrame(() => setTimeout(done, 50)))))")  # fmt: skip
    return bytes(page.screenshot(animations="disabled", caret="hide"))
