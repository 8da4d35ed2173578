"""`python -m cost_models.pictures` draws the pictures of records in docs/; `--check` only compares them.

`levers` draws docs/levers.svg, `training` draws docs/training.svg; without a name both are drawn.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cost_models import host_library, levers_picture, training_picture
from cost_models.errors import UsageError
from perfsuite.report import svg

MARGIN = 14
"""Pixels below the last element."""


@dataclass(frozen=True)
class Picture:
    """Of a record: `drawn` makes its elements from what the record holds."""

    name: str
    label: str
    drawn: Callable[[Any, str], list[tuple[float, str]]]

    @property
    def record(self) -> Path:
        return host_library.ROOT / "records" / "h200" / f"{self.name}.json"

    @property
    def file(self) -> Path:
        return host_library.ROOT / "docs" / f"{self.name}.svg"

    def svg(self, record: Path) -> str:
        """The SVG. UsageError names a file that is no such record."""
        try:
            found = json.loads(record.read_text(encoding="utf-8"))
            about = found["environment"]
            where = f"{about['card']}, torch {about['torch']}, commit {str(about['commit'])[:10]}"
            drawn = self.drawn(found, where)
            height = max(bottom for bottom, _ in drawn) + MARGIN
        except OSError as error:
            raise UsageError(f"{record} cannot be read: {error.strerror}") from None
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise UsageError(f"{record} is no record of {self.name}: {type(error).__name__}, {error}") from None
        ground = f'<rect width="{svg.WIDTH}" height="{height:g}" fill="#fff"/>'
        return svg.document(height, [ground, *(element for _, element in drawn)], label=self.label, size=13) + "\n"


PICTURES = {
    one.name: one
    for one in (
        Picture("levers", levers_picture.LABEL, levers_picture.drawn),
        Picture("training", training_picture.LABEL, training_picture.drawn),
    )
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw or compare: 0 done, 1 `--check` finds another picture, 2 bad input."""
    parser = argparse.ArgumentParser(prog="cost_models.pictures", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{' or '.join(PICTURES)} (default: all)")
    parser.add_argument("--record", type=Path, metavar="FILE", help="of the one picture that is named")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="where the one picture that is named goes")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a picture is out of date")
    given = parser.parse_args(arguments)
    for name in given.names:
        if name not in PICTURES:
            parser.error(f"{name} is no picture; there are {' and '.join(PICTURES)}")
    if (given.record or given.picture) and len(given.names) != 1:
        parser.error("--record and --picture are for one picture; name it")
    stale = 0
    for name in given.names or PICTURES:
        one = PICTURES[name]
        file = given.picture or one.file
        try:
            made = one.svg(given.record or one.record)
        except UsageError as error:
            print(f"cost_models.pictures: {error}", file=sys.stderr)
            return 2
        if not given.check:
            file.write_text(made, encoding="utf-8")
        elif not file.is_file() or file.read_text(encoding="utf-8") != made:
            print(f"{file}: out of date")
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main())
