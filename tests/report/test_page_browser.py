"""The HTML page in Chromium: four widths, both colour schemes, accessibility, filters, address, drawer, keyboard."""

from __future__ import annotations

import json
import os
import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perfsuite.cli.main import main
from perfsuite.report.npm import NpmError, fetched
from tests.history.browser import served
from tests.report import chromium, pictures
from tests.report.chromium import RECORD, ROOT, SCHEMES, WIDTHS
from tests.report.test_page import HISTORY

AXE = "axe-core@4.10.3", "axe.min.js"
CUT = """() => [...document.querySelectorAll('main *, dialog[open] *')].filter(one => one.offsetParent
    && !one.children.length && !one.classList.contains('unseen') && one.textContent.trim() && one.clientWidth > 0
    && one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).overflowX !== 'visible')
    .map(one => one.textContent.trim())"""
FAULTS = """async (part) => (await axe.run(part, { runOnly: ['wcag2a', 'wcag2aa'], resultTypes: ['violations'] }))
    .violations.map(one => `${one.id}: ${one.help}: ${one.nodes.map(node => node.target).join(' ')}`)"""
VIEWS = ("now", "heat", "grid", "compare", "regressions")
"""The sections of the page; the drawer of a case is the sixth view."""
SECONDS = {400: 1.0, 4000: 2.0}
"""Cases of a page -> most seconds until the first row is painted."""
LOADS = 5
MOST_PAGES = 10

pytestmark = pytest.mark.skipif(bool(chromium.skipped()), reason=f"nox -s dashboard runs it: {chromium.skipped()}")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium.browser() as started:
        yield started


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the committed record."""
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(chromium.whole_page(), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def small(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The page of a few cases, opened once."""
    file = tmp_path_factory.mktemp("page") / "small.html"
    file.write_text(chromium.small_page(), encoding="utf-8")
    with Shown(browser, file) as shown:
        yield shown.page


class Shown:
    """A page in the browser; it notes what the page asks for and what fails."""

    def __init__(self, browser: Any, file: Path, fragment: str = "", width: int = 1280) -> None:
        self.asked: list[str] = []
        self.errors: list[str] = []
        self.file = file
        self.page = browser.new_page(viewport={"width": width, "height": WIDTHS[width]}, color_scheme="light")
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(file.as_uri() + fragment)
        self.page.wait_for_selector("body[data-page=ready]")

    def __enter__(self) -> Shown:
        return self

    def __exit__(self, *_: object) -> None:
        self.page.close()
        assert self.errors == []
        asked = {url.partition("#")[0] for url in self.asked if not url.startswith("data:font/")}
        assert asked <= {self.file.as_uri()}, "the page asks for nothing else"

    def count(self) -> str:
        return str(self.page.text_content("#count"))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_nothing_is_cut_off_and_everybody_can_read_it(small: Any, scheme: str) -> None:
    """All six views at four widths: nothing is wider than the window, no text is hidden, and axe finds no fault."""
    try:
        axe = fetched(*AXE, ROOT / ".perfsuite" / "npm").read_text(encoding="utf-8")
    except NpmError as error:
        pytest.skip(str(error))
    small.emulate_media(color_scheme=scheme)
    if not small.evaluate("typeof axe !== 'undefined'"):
        small.evaluate(axe)
    for width, height in WIDTHS.items():
        small.set_viewport_size({"width": width, "height": height})
        for opened in (False, True):
            if opened:
                chromium.show_case(small)
            else:
                assert [small.locator(f"#{view}").is_visible() for view in VIEWS] == [True] * len(VIEWS)
            where = f"{width} wide, {scheme}, {'case' if opened else 'page'}"
            assert small.evaluate("document.documentElement.scrollWidth") <= width, where
            assert small.evaluate(CUT) == [], where
            assert small.evaluate(FAULTS, "#case" if opened else "body") == [], where
        small.keyboard.press("Escape")
    ground = small.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(255, 255, 255)") == (scheme == "light")


@pytest.mark.parametrize(("view", "width", "scheme"), pictures.KEPT)
def test_the_page_looks_as_it_did(small: Any, tmp_path: Path, view: str, width: int, scheme: str) -> None:
    """`nox -s pictures` takes the kept pictures again, after a change that is meant."""
    taken, kept = chromium.picture(small, view, width, scheme), pictures.place(view, width, scheme)
    (tmp_path / kept.name).write_bytes(taken)
    different = pictures.different(kept.read_bytes(), taken)
    assert different <= pictures.MOST_DIFFERENT, f"{different:.2%} of the pixels differ: {tmp_path / kept.name}"


def test_a_kept_picture_shows_a_change(small: Any) -> None:
    kept = pictures.place("now", 1280, "light").read_bytes()
    style = small.add_style_tag(content=".why { display: none }")
    changed = chromium.picture(small, "now", 1280, "light")
    style.evaluate("one => one.remove()")
    assert pictures.different(kept, changed) > pictures.MOST_DIFFERENT


@pytest.fixture(scope="module")
def opened(browser: Any, page_file: Path) -> Iterator[Any]:
    """The page of all cases, opened once."""
    with Shown(browser, page_file) as shown:
        yield shown.page


@pytest.fixture
def whole(opened: Any) -> Any:
    """The page of all cases, as a new reader sees it."""
    opened.keyboard.press("Escape")
    opened.evaluate("history.replaceState(null, '', location.pathname); dispatchEvent(new Event('hashchange'))")
    opened.wait_for_function("document.getElementById('count').textContent.startsWith('408 of')")
    return opened


def test_filters_and_the_view_are_in_the_address(browser: Any, page_file: Path) -> None:
    with Shown(browser, page_file) as shown:
        assert shown.count() == "408 of 408 cases"
        shown.page.fill("#search", "flash_decode missed")
        shown.page.wait_for_function("document.getElementById('count').textContent.startsWith('4 of')")
        shown.page.select_option("#set", "memory")
        shown.page.select_option("#group", "verdict")
        shown.page.locator("#live .tabulator-col[tabulator-field=peakBytes]").click()
        address = shown.page.evaluate("location.hash")
        assert "search=flash_decode+missed" in address
        assert "columns=memory" in address
        assert "sort=peakBytes" in address
    with Shown(browser, page_file, address) as again:
        again.page.wait_for_function("document.getElementById('count').textContent.startsWith('4 of')")
        assert again.page.input_value("#set") == "memory"
        assert again.page.locator(".tabulator-group").count() == 1
        again.page.get_by_role("button", name="Clear filters").click()
        again.page.wait_for_function("document.getElementById('count').textContent.startsWith('408')")


def test_a_case_opens_by_keyboard_and_has_an_address(whole: Any) -> None:
    whole.locator("#now .open").first.focus()
    whole.keyboard.press("Enter")
    whole.wait_for_selector("dialog[open] canvas")
    assert "case=" in whole.evaluate("location.hash")
    assert whole.locator("dialog[open] figure").count() >= 3
    assert "between d224bf986 and 391aabba6: new" in whole.text_content("dialog[open] .steps")
    whole.keyboard.press("Escape")
    whole.wait_for_selector("dialog:not([open])", state="attached")
    assert "case=" not in whole.evaluate("location.hash")


def test_a_plot_names_what_its_points_share_and_has_a_table_of_numbers(whole: Any) -> None:
    chromium.show_case(whole)
    assert "undefined" not in whole.text_content("dialog[open]")
    figures = whole.locator("dialog[open] figure")
    names = figures.locator("figcaption").all_text_contents()
    assert "Time by tokens; batch 2, heads 8, kv heads 8, head dim 64, dtype float16" in names
    curve = figures.nth(next(index for index, name in enumerate(names) if name.startswith("Time by tokens")))
    assert curve.locator(".key li").all_text_contents()[:2] == ["━ flash_attention ", "━ sdpa:flash "]
    assert curve.locator("tbody tr").count() == 5
    assert "459 us" in curve.locator("tbody tr").last.text_content()
    past = figures.nth(names.index("History"))
    past.locator(".u-over").hover()
    assert "at recorded run" in past.locator(".key").text_content()


def test_a_link_within_the_page_leaves_the_view_as_it_is(whole: Any) -> None:
    whole.fill("#search", "flash_decode")
    whole.get_by_role("link", name="Compare").click()
    assert "search=flash_decode" in whole.evaluate("location.hash")
    assert whole.evaluate("document.activeElement.id") == "compare"


def test_a_cell_of_the_heat_map_filters_the_grid(whole: Any) -> None:
    cell = whole.locator(".heat button[aria-label*='not met']").first
    count = cell.locator("small").text_content()
    cell.click()
    whole.wait_for_function(f"document.getElementById('count').textContent.startsWith('{count} of')")
    assert "size=" in whole.evaluate("location.hash")


def test_any_two_runs_or_rivals_are_compared_and_the_address_holds_them(whole: Any) -> None:
    assert "1x8192x28672" in whole.locator("#compare-table tbody tr").first.text_content()
    whole.select_option("#compare-kind", "rivals")
    whole.select_option("#compare-to", "flash-attn")
    said = whole.text_content("#compare-table")
    assert "geometric mean of the speed of flash-attn against" in said
    address = whole.evaluate("location.hash")
    whole.select_option("#compare-kind", "runs")
    whole.evaluate("address => { location.hash = address; }", address)
    whole.wait_for_function("document.getElementById('compare-kind').value === 'rivals'")
    assert whole.text_content("#compare-table") == said


def test_the_table_is_printed_whole_on_few_pages(browser: Any, page_file: Path) -> None:
    with Shown(browser, page_file) as shown:
        shown.page.emulate_media(media="print")
        shown.page.wait_for_selector("#plain")
        assert shown.page.locator("#plain tbody tr:visible").count() == 408
        assert shown.page.locator("#live:visible").count() == 0
        printed = shown.page.pdf(format="A4")
        assert len(re.findall(rb"/Type\s*/Page\b", printed)) <= MOST_PAGES


def test_a_site_asks_its_own_origin_alone(browser: Any, tmp_path: Path) -> None:
    records = []
    for card in ("NVIDIA H200", "NVIDIA H100 80GB HBM3"):
        lines = [json.dumps(one.changed(gpu=card).as_json()) + "\n" for one in HISTORY[2].cases]
        records.append(tmp_path / f"{len(records)}.jsonl")
        records[-1].write_text("".join(lines))
    assert main(["site", str(tmp_path / "site"), *map(str, records)]) == 0
    with served(tmp_path / "site") as address:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address)
        page.wait_for_selector("body[data-page=ready]")
        assert page.text_content("#count") == "6 of 6 cases"
        page.get_by_role("link", name="NVIDIA H100 80GB HBM3").click()
        page.wait_for_selector("body[data-page=ready]")
        assert page.locator(".where").text_content().startswith("NVIDIA H100")
        page.close()
    assert len(asked) > 6
    assert all(url.startswith(address) for url in asked)


@pytest.mark.parametrize("cases", SECONDS)
def test_the_first_row_is_painted_soon(browser: Any, tmp_path: Path, cases: int) -> None:
    """The median of five loads; the page's own processor time must hold on a busy machine too."""
    lines = [json.loads(line) for line in RECORD.read_text().splitlines()]
    record, file = tmp_path / "many.jsonl", tmp_path / "many.html"
    with record.open("w") as many:
        for number in range(cases):
            line = lines[number % len(lines)]
            many.write(json.dumps(line | {"test": f"{line['test']}-{number // len(lines)}"}) + "\n")
    assert main(["report", str(record), "--html", str(file)]) == 0
    painted, own = [], []
    for _ in range(LOADS):
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        page.goto(file.as_uri())
        page.wait_for_selector("body[data-page=ready]")
        painted.append(page.evaluate("performance.getEntriesByName('grid')[0].startTime") / 1e3)
        metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
        own.append(metrics["TaskDuration"])
        page.close()
    said = f"{cases} cases: painted after {statistics.median(painted):.2f} s, own time {statistics.median(own):.2f} s"
    print(said)
    assert statistics.median(own) < SECONDS[cases], said
    if statistics.median(painted) >= SECONDS[cases] and os.getloadavg()[0] > (os.cpu_count() or 1):
        pytest.skip(f"other processes keep this machine busy, load {os.getloadavg()[0]:.1f}; {said}")
    assert statistics.median(painted) < SECONDS[cases], said
