"""Plain English: patterns that this project does not write, and lines that are too long."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LONGEST_LINE = 120
LONGEST_SENTENCE = 40
"""Words; the aim is 25. A sentence beyond this number is certainly too long."""
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
MODULES = sorted((ROOT / "perfsuite").rglob("*.py"))
BANNED = {
    r"\b(is|are|was|were) told\b": "name what is reported, printed or returned",
    r"\btells? of\b": "reports, describes",
    r"\bcomes? to\b(?! (the|a|an|rest)\b)": "results in, amounts to",
    r"\bof (its|their|his|our|your) own\b(?= )(?! (process|code|name|type|kind)\b)": "its own X",
    r"\bso (many|much) \w+ (that|as)\b": "give the number, or 'enough ... to'",
    r"\bwhat (is|was) (asked|said) of\b": "name the request",
    r"\bwhat becomes of\b": "name the outcome",
    r"\bwhere there (is|are) (none|one)\b": "if there is no X",
}
"""Pattern -> what to write in its place."""
HEADLESS = re.compile(r"(What|Whether|How) ")
"""A docstring that begins so has no subject: name the thing."""


def prose_of(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of every docstring and comment of a module."""
    source = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not re.match(r"#\s*(type:|noqa|fmt:)", token.string):
            yield token.start[0], token.string.lstrip("# ")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_docstrings_and_comments_are_plain(path: Path) -> None:
    wrong = []
    for line, text in prose_of(path):
        if HEADLESS.match(text.strip()):
            wrong.append(f"{line}: begins with {text.split()[0]!r}: name the thing")
        for pattern, advice in BANNED.items():
            wrong += [f"{line}: {found[0]!r}: {advice}" for found in re.finditer(pattern, text, re.IGNORECASE)]
        for sentence in re.split(r"(?<=[.!?:;])\s+|\n\s*\n", text):
            if len(sentence.split()) > LONGEST_SENTENCE:
                wrong.append(f"{line}: a sentence of {len(sentence.split())} words: {sentence.split()[0]} ...")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_lines_of_pages_fit(path: Path) -> None:
    """Tables, generated blocks, code and lone links may be longer."""
    text = re.sub(r"^```.*?^```|^<!-- perfsuite:.*?^<!-- /perfsuite.*?$", "", path.read_text(), flags=re.DOTALL | re.M)
    long = [line for line in text.splitlines() if len(line) > LONGEST_LINE and not line.startswith(("|", "["))]
    assert not long, "\n".join(long)
