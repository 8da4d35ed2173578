"""Makes a page that asv published readable: short names of cases, links to commits, regressions of today's harness.

asv's page names a case without a test by its whole key, `module.function family shape vs rival`, links commits to "#",
and lists the regressions of every harness that ever measured.
"""

from __future__ import annotations

import json
import re
import urllib.parse
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfsuite.history.commits import HistoryError
from perfsuite.history.machines import HARNESS_KEY

_KEY = re.compile(r"'(?:[A-Za-z_]\w*\.)+(?P<function>\w+) (?!vs )[A-Za-z_]\w* (?P<rest>.*)'")
_NAMED = re.compile(r"(?P<before>.*?\()?(?P<name>'.*')(?P<after>\))?", re.S)
_CASE = re.compile(r"(?<=p-case=)[^&\"]+")
_COMMIT = re.compile(r'href="#([0-9a-f]{40})"')
_ATOM = "http://www.w3.org/2005/Atom"


def make_readable(html: Path, repository: str | None) -> int:
    """Change the page's words in place; return the number of regressions that it lists.

    repository: address of the repository's page, for links to commits. Raises HistoryError without a page of asv.
    """
    try:
        index = _read(html / "index.json")
        found = _read(html / "regressions.json")["regressions"]
    except (OSError, ValueError, KeyError) as error:
        raise HistoryError(f"{html} holds no page that asv published: {type(error).__name__}: {error}") from None
    names = _short_names(index)
    if repository:
        index["project_url"], index["show_commit_url"] = repository, f"{repository}/commit/"
    harnesses = sorted(filter(None, index["params"].get(HARNESS_KEY, [])), key=_number)
    newest = harnesses[-1] if harnesses else None
    kept = [one for one in found if one[2].get(HARNESS_KEY) in (None, newest)]
    _write(html / "index.json", _renamed(index, names))
    _write(html / "regressions.json", {"regressions": _renamed(kept, names)})
    for summary in sorted(html.glob("graphs/**/summary.json")):
        _write(summary, _renamed(_read(summary), names))
    if (feed := html / "regressions.xml").is_file():
        _change_feed(feed, names, newest, index["show_commit_url"])
    return len(kept)


def _short_names(index: Mapping[str, Any]) -> dict[str, str]:
    """A case's key -> the function and the rest of it, where no other case of its series has the same."""
    found: dict[str, str] = {}
    for benchmark in index["benchmarks"].values():
        for values in benchmark["params"]:
            short = {value: _KEY.sub(r"'\g<function> \g<rest>'", value) for value in values}
            count = Counter(short.values())
            found |= {value: name if count[name] == 1 else value for value, name in short.items()}
    return found


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    """The value with short names, in lists and objects too."""
    if isinstance(value, str):
        parts = _NAMED.fullmatch(value)
        if parts is None:
            return value
        return f"{parts['before'] or ''}{names.get(parts['name'], parts['name'])}{parts['after'] or ''}"
    if isinstance(value, list):
        return [_renamed(item, names) for item in value]
    return {key: _renamed(item, names) for key, item in value.items()} if isinstance(value, dict) else value


def _change_feed(feed: Path, names: Mapping[str, str], newest: str | None, commits: str) -> None:
    """The same for the feed of regressions."""

    def address(found: re.Match[str]) -> str:
        name = urllib.parse.unquote_plus(found[0])
        return urllib.parse.quote_plus(names.get(name, name))

    ElementTree.register_namespace("", _ATOM)
    tree = ElementTree.parse(feed)
    root = tree.getroot()
    for entry in root.findall(f"{{{_ATOM}}}entry"):
        link = entry.find(f"{{{_ATOM}}}link")
        asked = urllib.parse.parse_qs((link.get("href") or "").partition("?")[2]) if link is not None else {}
        if asked.get(HARNESS_KEY, [newest]) != [newest]:
            root.remove(entry)
            continue
        for part in entry:
            if "href" in part.attrib:
                part.set("href", _CASE.sub(address, part.attrib["href"]))
            if part.text:
                text = _CASE.sub(address, _renamed(part.text, names))
                part.text = _COMMIT.sub(lambda found: f'href="{commits}{found[1]}"', text)
    tree.write(feed, encoding="utf-8", xml_declaration=True)


def _number(harness: str) -> tuple[int, str]:
    return (int(harness), "") if harness.isdigit() else (0, harness)


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, separators=(",", ":")), encoding="utf-8")
