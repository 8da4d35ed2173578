"""The constants of a cost model: structs of doubles in a C++ header, one `double name = value;` a line."""

from __future__ import annotations

import re
from pathlib import Path

from cost_models.errors import UsageError

_CONSTANT = re.compile(r"^(  double (\w+) = )([^;]+);", re.MULTILINE)


def read(header: Path, struct: str) -> dict[str, float]:
    """The constants of a struct, by name, in their order."""
    return {match[2]: float(match[3]) for match in _CONSTANT.finditer(_body(header.read_text(), header, struct)[1])}


def write(header: Path, struct: str, values: dict[str, float]) -> None:
    """Replace the values of a struct, to four significant digits; comments stay as they are."""
    before, body, after = _body(header.read_text(), header, struct)
    known = {match[2] for match in _CONSTANT.finditer(body)}
    if unknown := sorted(set(values) - known):
        raise UsageError(f"{struct} of {header} has no {', '.join(unknown)}; it has {', '.join(sorted(known))}")

    def replaced(match: re.Match[str]) -> str:
        return f"{match[1]}{values[match[2]]:.4g};" if match[2] in values else match[0]

    header.write_text(before + _CONSTANT.sub(replaced, body) + after)


def _body(text: str, header: Path, struct: str) -> tuple[str, str, str]:
    begin = text.find(f"struct {struct} {{\n")
    end = text.find("\n};", begin)
    if begin < 0 or end < 0:
        raise UsageError(f"{header} has no struct {struct}")
    return text[:begin], text[begin:end], text[end:]
