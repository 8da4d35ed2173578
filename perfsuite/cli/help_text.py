"""Fits the text of a command's help to the terminal."""

from __future__ import annotations

import argparse
import re
import textwrap


class HelpFormatter(argparse.HelpFormatter):
    """Paragraphs are filled; examples and lists keep their lines, and long lines go on under their text."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(self._block(block, width) for block in text.split("\n\n"))

    @staticmethod
    def _block(block: str, width: int) -> str:
        lines = block.splitlines()
        if any(line.startswith(" ") for line in lines) or re.match(r"(examples?|exit codes?):", block):
            return "\n".join(_hanging(line, width) for line in lines)
        return textwrap.fill(" ".join(lines), width)


def _hanging(line: str, width: int) -> str:
    """A line, continued under its text: after the gap of a list, else four columns further in."""
    if len(line) <= width:
        return line
    entry = re.match(r"( *\S.*?\s{2,})\S", line)
    margin = len(line) - len(line.lstrip()) + 4
    under = len(entry[1]) if entry and len(entry[1]) < width // 2 else margin
    return textwrap.fill(line, width, subsequent_indent=" " * under, break_long_words=False, break_on_hyphens=False)
