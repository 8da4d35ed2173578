"""A published page in headless Chromium: the series it lists, the graphs it draws, and every script error.

Also a command: `python tests/history/browser.py HTML SERIES... --screenshot FILE`. It fails on a script error and on a
graph without a point.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import json
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--no-first-run",
)
WAIT_MS = 30_000
TEXTS = "all => all.map(one => one.textContent.trim())"
DRAWN = "() => { const plot = $('#main-graph').data('plot'); return plot && plot.getData().length > 0; }"
POINTS = """() => $('#main-graph').data('plot').getData()
    .map(line => line.data.filter(point => point[1] !== null).length).reduce((a, b) => a + b, 0)"""
PIXELS = """() => [...document.querySelectorAll('#main-graph canvas')].map(canvas => {
    const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    let count = 0;
    for (let i = 3; i < data.length; i += 4) count += data[i] > 0;
    return count;
}).reduce((a, b) => a + b, 0)"""


@dataclass
class Seen:
    """What the browser saw."""

    listed: list[str]
    """Names of series on the page's front."""
    points: dict[str, int]
    """Series -> values that its graph has drawn."""
    pixels: dict[str, int]
    """Series -> pixels of the graph's canvas that are not blank."""
    cases: dict[str, list[str]]
    """Series -> what can be chosen beside the graph: machines, cases."""
    errors: list[str]


def chromium() -> str | None:
    """Where the system's Chromium is."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The folder's address while it is served from this machine alone."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()


def look(folder: Path, series: list[str], screenshot: Path | None = None) -> Seen:
    """Open the page that asv published in `folder`, its front and the graph of each of `series`."""
    from playwright.sync_api import sync_playwright

    path = chromium()
    assert path is not None
    seen = Seen([], {}, {}, {}, [])
    with served(folder) as address, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=list(FLAGS))
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.on("pageerror", lambda error: seen.errors.append(str(error)))
        # The page must do without other hosts.
        page.route("**/*", lambda route: route.continue_() if route.request.url.startswith(address) else route.abort())
        page.goto(address)
        page.wait_for_selector("#summarygrid-display .benchmark-text", timeout=WAIT_MS)
        seen.listed = page.eval_on_selector_all("#summarygrid-display .benchmark-text", TEXTS)
        for name in series:
            page.goto(f"{address}#{name}")
            page.wait_for_function(DRAWN, timeout=WAIT_MS)
            seen.points[name] = page.evaluate(POINTS)
            seen.pixels[name] = page.evaluate(PIXELS)
            seen.cases[name] = page.eval_on_selector_all("#graphdisplay-navigation a", TEXTS)
            if screenshot is not None:
                page.screenshot(path=str(screenshot))
                screenshot = None
        browser.close()
    return seen


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("series", nargs="+")
    parser.add_argument("--screenshot", type=Path)
    given = parser.parse_args()
    found = look(given.folder, given.series, given.screenshot)
    print(json.dumps(asdict(found), indent=1))
    sys.exit(1 if found.errors or not all(found.points.values()) else 0)
