"""Write the first screen of a page as a picture: `python tests/report/screenshot.py PAGE PICTURE`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from playwright.sync_api import sync_playwright

from tests.history.browser import FLAGS, chromium


def main(page: Path, picture: Path) -> None:
    """Open the page in Chromium, 1200 pixels wide, and write its first screen."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        shown = browser.new_page(viewport={"width": 1200, "height": 1000}, color_scheme="light")
        shown.goto(page.resolve().as_uri())
        shown.screenshot(path=str(picture))
        browser.close()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"usage: {__doc__}")
    main(Path(sys.argv[1]), Path(sys.argv[2]))
