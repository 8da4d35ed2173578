"""Pictures of the page that are kept, and how one is compared with them: `python tests/report/pictures.py` renews all.

A kept picture has few colours, so that it is small. The tolerance is for that, and for the edges of letters and lines,
which versions of Chromium draw a little differently.
"""

from __future__ import annotations

import io
import itertools
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.report import chromium

COLOURS = 32
"""Colours of a kept picture."""
FAR = 48
"""A pixel differs if one of its colours is further away than this, of 255."""
MOST_DIFFERENT = 0.005
"""The tolerance: the share of pixels that may differ."""
KEPT = tuple(itertools.product(("now", "case"), (390, 1280), chromium.SCHEMES))
"""(view, width, scheme) of each kept picture."""


def place(view: str, width: int, scheme: str) -> Path:
    """The file of a kept picture."""
    return chromium.PICTURES / f"{view}-{width}-{scheme}.png"


def different(one: bytes, two: bytes) -> float:
    """The share of pixels that differ; 1.0 for pictures of unlike size."""
    from PIL import Image, ImageChops

    first, second = (Image.open(io.BytesIO(data)).convert("RGB") for data in (one, two))
    if first.size != second.size:
        return 1.0
    bands = ImageChops.difference(first, second).split()
    largest = ImageChops.lighter(ImageChops.lighter(bands[0], bands[1]), bands[2])
    return sum(largest.histogram()[FAR + 1 :]) / (first.width * first.height)


def small(picture: bytes, colours: int = COLOURS) -> bytes:
    """The picture with few colours."""
    from PIL import Image

    made = io.BytesIO()
    reduced = Image.open(io.BytesIO(picture)).convert("RGB").quantize(colours, dither=Image.Dither.NONE)
    reduced.save(made, "PNG", optimize=True)
    return made.getvalue()


def main() -> None:
    """Take all pictures again."""
    with tempfile.TemporaryDirectory() as folder, chromium.browser() as browser:
        file = Path(folder) / "page.html"
        file.write_text(chromium.small_page(), encoding="utf-8")
        page = browser.new_page()
        page.goto(file.as_uri())
        page.wait_for_selector("body[data-page=ready]")
        for kept in KEPT:
            place(*kept).write_bytes(small(chromium.picture(page, *kept)))
            print(place(*kept).relative_to(chromium.ROOT))


if __name__ == "__main__":
    main()
