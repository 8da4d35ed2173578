"""Renders a report as one HTML file that asks for nothing else."""

from __future__ import annotations

import base64
import gzip
import json
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from perfsuite.record.case import Case
from perfsuite.report import figures
from perfsuite.report.page import libraries
from perfsuite.report.page.attention import percent, target_text, value_text
from perfsuite.report.page.cards import brief, cards, sentence, tiles
from perfsuite.report.page.data import Report, page_data
from perfsuite.report.values import gated

SCRIPTS = ("text.js", "plots.js", "case.js", "grid.js", "heat.js", "compare.js", "address.js", "start.js")
"""In this order they make one script; each defines functions that those after it use."""
HEAD = ("case", "rival", "verdict", "value", "target", "to target", "change", "time")
MOST_CARDS = 60
MOST_ROWS = 1000
"""Rows of the table that needs no script. The grid has all cases."""


class Part(NamedTuple):
    """Words of the line below the head, with an address or None."""

    text: str
    link: str | None = None


@dataclass(frozen=True)
class Site:
    """The files beside a page of a site, by their addresses from the page."""

    assets: str
    """The folder of styles and scripts, such as "../assets"."""
    data: str
    """The page's data, such as "../data/nvidia-h200.json"."""
    pages: tuple[tuple[str, str], ...]
    """(name, address) of every page of the site, this one with an empty address."""


def render(report: Report, site: Site | None = None) -> str:
    """The page: one HTML file that holds all it needs, or one of a site, whose files lie beside it."""
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters["whole"] = lambda text: re.sub(r"(?<=\d) (?=%|x\b|[mun]?s\b|TFLOPS|GHz)", "\u00a0", text)
    needed = cards(report)
    by_case = {id(one.line.last): one for one in report.standings}
    order = figures.worst_first([one.line.last for one in report.standings])
    shown = [_row(case, by_case[id(case)].growth) for case in order[:MOST_ROWS]]
    has_libraries = bool(libraries.texts(libraries.SCRIPTS))
    return environment.from_string(_asset("page.html")).render(
        title=report.title,
        sentence=sentence(report),
        where=_where(report),
        tiles=tiles(report),
        cards=needed[:MOST_CARDS],
        more_cards=_more(len(needed) - MOST_CARDS, "cases need attention; the table has them"),
        lacking="" if has_libraries else libraries.LACKING,
        head=HEAD,
        rows=shown,
        more_rows=_more(len(order) - MOST_ROWS, "cases; the record has them"),
        footer=_footer(report, has_libraries),
        site=site,
        style=Markup(style()),
        data="" if site else packed(page_data(report)),
        scripts=[Markup(text) for text in scripts()],
    )


def style() -> str:
    """All styles of a page."""
    return "\n".join([*libraries.texts(libraries.STYLES), _asset("style.css")])


def scripts() -> list[str]:
    """The page's scripts: those of its libraries, then its own."""
    own = "(async () => {\n'use strict';\n" + "\n".join(map(_asset, SCRIPTS)) + "\n})();"
    return [*libraries.texts(libraries.SCRIPTS), own]


def packed(value: Any) -> str:
    """JSON, compressed by gzip, in base64: a fifth of the size, and nothing in it can end the script element."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
    return base64.b64encode(gzip.compress(text, mtime=0)).decode("ascii")


def unpacked(page: str) -> Any:
    """The data of a page that `render` made."""
    found = re.search(r'<script id="data"[^>]*>([^<]*)</script>', page)
    if found is None:
        raise ValueError("this is no page of perfsuite: it has no data")
    return json.loads(gzip.decompress(base64.b64decode(found[1])))


def _where(report: Report) -> list[Part]:
    now, first = report.now, report.now.cases[0]
    found = [Part(now.setting[0] or f"CPU {first.cpu or 'unknown'}: portable kernels, not a GPU")]
    found.append(Part(f"commit {brief(now.commit)}{' with changes' if first.dirty else ''}", _link(report, now.commit)))
    if report.base is not None:
        base = report.versions[report.base]
        found.append(Part(f"against {brief(base.commit)}", _link(report, base.commit)))
    found += [Part(f"{name} {value}") for name, value in _versions(first)]
    runs = len({version for one in report.standings for version in one.line.versions})
    return [*found, Part(f"{runs} recorded runs" if runs > 1 else "no earlier run")]


def _versions(case: Case) -> list[tuple[str, str]]:
    named = {"driver": case.driver, "CUDA": case.cuda, "torch": case.torch, "harness": case.harness}
    return [(name, value) for name, value in named.items() if value]


def _link(report: Report, commit: str | None) -> str | None:
    return report.links.commit(commit)


def _row(case: Case, growth: float | None) -> tuple[str, ...]:
    value = gated(case)
    return (
        figures.label(case),
        figures.rival(case),
        case.verdict,
        value_text(value),
        target_text(value),
        "-" if value.to_target is None else percent(value.to_target),
        "-" if growth is None else percent(growth),
        figures.seconds(value.seconds),
    )


def _more(left_out: int, what: str) -> str:
    return f"and {left_out} more {what}" if left_out > 0 else ""


def _footer(report: Report, with_libraries: bool) -> str:
    licences = " Tabulator and uPlot are under the MIT licence." if with_libraries else ""
    return (
        f"{report.title}. A speed is the rival's time over the candidate's. A share is that of the attainable FLOPs a "
        f"second, measured in the same run. A change is the growth of the candidate's time since the base.{licences}"
    )


def _asset(name: str) -> str:
    return (libraries.web() / name).read_text(encoding="utf-8")
