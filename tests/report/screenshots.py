"""Take the pictures of the documents: `python tests/report/screenshots.py docs` writes them into the folder docs."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from perfsuite.report.comment import comment
from perfsuite.report.page.data import Links, report_of
from tests.report import chromium
from tests.report.pictures import small

WIDTH, HEIGHT = 1200, 860
COLOURS = 128
COMMENT_STYLE = """body { margin: 24px; max-width: 900px; font: 14px/1.5 sans-serif; color: #1f2328 }
article { border: 1px solid #d1d9e0; border-radius: 6px; padding: 12px 16px }
table { border-collapse: collapse } th, td { border: 1px solid #d1d9e0; padding: 4px 10px }
a { color: #0550ae; text-decoration: none } h3 { margin: 18px 0 8px } summary { font-weight: 600 }"""


def comment_page() -> str:
    """The comment as a service of code would show it."""
    from markdown_it import MarkdownIt

    shown = report_of(chromium.past_versions(), title="gates.jsonl", links=Links(chromium.REPOSITORY))
    body = MarkdownIt("commonmark", {"html": True}).enable("table").render(comment(shown))
    return (
        f"<!doctype html><meta charset=utf-8><style>{COMMENT_STYLE} {chromium.fonts()}</style><article>{body}</article>"
    )


def main(folder: Path) -> None:
    """Write the pictures of the page's first screen, of a case, of the heat map with the grid, and of the comment."""
    with tempfile.TemporaryDirectory() as place, chromium.browser() as browser:
        report, said = Path(place) / "report.html", Path(place) / "comment.html"
        report.write_text(chromium.whole_page(), encoding="utf-8")
        said.write_text(comment_page(), encoding="utf-8")
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto(report.as_uri())
        page.wait_for_selector("body[data-page=ready]")
        taken = {"report.png": page.screenshot()}
        page.locator("#heat-title").scroll_into_view_if_needed()
        page.evaluate("document.getElementById('heat').scrollIntoView()")
        taken["report-grid.png"] = page.screenshot()
        chromium.show_case(page)
        taken["report-case.png"] = page.screenshot()
        page.goto(said.as_uri())
        taken["report-comment.png"] = page.locator("article").screenshot()
        for name, picture in taken.items():
            (folder / name).write_bytes(small(picture, COLOURS))
            print(folder / name)


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        sys.exit(f"usage: {__doc__}")
    main(Path(sys.argv[1]))
