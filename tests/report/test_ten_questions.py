"""The ten questions of docs/report.md: each answer is read from the page after at most four actions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perfsuite.exporters.html import costs_of
from perfsuite.record.case import Case
from perfsuite.report.page.data import report_of
from perfsuite.report.page.render import render
from perfsuite.report.page.timeline import Version
from perfsuite.report.values import gated
from tests.report import chromium

MOST_ACTIONS = 4
FIRST_ROW = "#compare-table tbody tr >> nth=0"
pytestmark = pytest.mark.skipif(bool(chromium.skipped()), reason=f"nox -s dashboard runs it: {chromium.skipped()}")


@dataclass
class Reader:
    """Somebody who reads the page, and acts on it as little as possible."""

    page: Any
    actions: int = 0

    def click(self, place: str) -> None:
        self._act()
        self.page.locator(place).first.click()

    def fill(self, place: str, text: str) -> None:
        self._act()
        self.page.fill(place, text)

    def choose(self, place: str, value: str) -> None:
        self._act()
        self.page.select_option(place, value)

    def read(self, place: str) -> str:
        """The text of the first such element."""
        return str(self.page.locator(place).first.text_content()).replace("\u00a0", " ")

    def column(self, field: str) -> list[str]:
        """The cells of a column of the grid that are drawn."""
        return list(
            self.page.locator(f"#live .tabulator-row .tabulator-cell[tabulator-field={field}]").all_text_contents()
        )

    def _act(self) -> None:
        self.actions += 1
        assert self.actions <= MOST_ACTIONS


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium.browser() as started:
        yield started


@pytest.fixture(scope="module")
def opened(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return open_page(browser, tmp_path_factory.mktemp("page") / "report.html", chromium.whole_page())


@pytest.fixture
def reader(opened: Any) -> Reader:
    opened.keyboard.press("Escape")
    opened.evaluate("history.replaceState(null, '', location.pathname); dispatchEvent(new Event('hashchange'))")
    opened.wait_for_function("document.getElementById('count').textContent.startsWith('408 of')")
    return Reader(opened)


def open_page(browser: Any, file: Path, text: str) -> Any:
    file.write_text(text, encoding="utf-8")
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(file.as_uri())
    page.wait_for_selector("body[data-page=ready]")
    return page


def last_cases() -> list[Case]:
    return list(chromium.past_versions()[-1].cases)


def test_1_which_case_needs_attention_first(reader: Reader) -> None:
    assert "gemm 1x8192x28672" in reader.read("#now .card h3")


def test_2_which_case_lost_most_since_the_base(reader: Reader) -> None:
    row = reader.read(FIRST_ROW)
    assert "gemm 1x8192x28672" in row
    assert "105.1 %, 106 us" in row
    assert "91.7 %, 121 us" in row
    assert "+14.9 % largest growth of a time" in reader.read(".tiles li")


def test_3_was_it_the_kernel_or_the_ceiling(reader: Reader) -> None:
    assert "the kernel accounts for +14.9 %, the ceiling for -0.2 %" in reader.read("#now .card .why")
    missed = ".card:has-text('8x64/8x8192x128')"
    assert "not the kernel, but its yardstick" in reader.read(f"{missed} .why")
    assert "ceiling, TFLOPS35.0135.49" in reader.read(f"{missed} tr:has-text('ceiling')")


def test_4_since_which_commits_is_it_slower(reader: Reader) -> None:
    reader.click("#now .card .open")
    assert "+14.9 % from 106 us to 121 us, between d224bf986 and 391aabba6" in reader.read("dialog[open] .steps")


def test_5_which_cases_of_decode_are_missed_and_by_how_much(reader: Reader) -> None:
    reader.fill("#search", "flash_decode missed")
    expected = [gated(case).to_target for case in last_cases() if case.verdict == "MISSED" and case.family == "decode"]
    reader.page.wait_for_function(f"document.getElementById('count').textContent.startsWith('{len(expected)} of')")
    assert sorted(reader.column("toTarget")) == sorted(f"{100 * (one or 0):+.1f} %" for one in expected)


def test_6_which_rival_is_hardest_for_attention_at_8192_tokens(reader: Reader) -> None:
    speeds = {}
    for row in reader.page.locator(".heat tbody tr", has_text="flash_attention /").all():
        cell = re.search(r"\d\.\d\d", row.locator("td").nth(4).text_content())
        if cell and "roofline" not in (name := row.locator("th").text_content()):
            speeds[name] = float(cell[0])
    assert reader.read(".heat thead th >> nth=5") == "8k"
    assert min(speeds, key=lambda name: speeds[name]) == "flash_attention / flash-attn"
    assert len(speeds) == 3


def test_7_is_flash_attn_faster_than_sdpa_and_by_how_much(reader: Reader) -> None:
    reader.choose("#compare-kind", "rivals")
    reader.choose("#compare-from", "sdpa")
    reader.choose("#compare-to", "flash-attn")
    found = re.search(
        r"geometric mean of the speed of flash-attn against sdpa: (\d\.\d+)", reader.read("#compare-table p")
    )
    assert found is not None
    assert 1.0 < float(found[1]) < 1.5


def test_8_which_case_comes_nearest_to_its_limit_of_error(reader: Reader) -> None:
    reader.choose("#set", "accuracy")
    for _ in range(2):  # ascending, then descending
        reader.click("#live .tabulator-col[tabulator-field=errorShare] .tabulator-col-title")
    shares = [
        case.candidate_error / case.error_limit for case in last_cases() if case.candidate_error and case.error_limit
    ]
    assert reader.column("errorShare")[0] == f"{100 * max(shares):.1f} %"


def test_9_where_is_one_card_behind_another_by_share_of_peak(browser: Any, tmp_path: Path) -> None:
    """The other card is made up: it takes twice as long in one case."""
    name = "attention 2x8x8192x64 float16 vs sdpa:flash"
    other = [
        case.changed(
            gpu="NVIDIA H100 80GB HBM3",
            candidate_seconds=(case.candidate_seconds or 0) * (2.0 if case.case.endswith(name) else 1.0) or None,
        )
        for case in last_cases()
    ]
    versions = [chromium.past_versions()[-1], Version(other)]
    page = render(report_of(versions, title="two cards", base=0, costs=costs_of))
    row = Reader(open_page(browser, tmp_path / "two.html", page)).read(FIRST_ROW)
    assert "flash_attention 2x8x8192x64" in row
    assert "60.6 % of peak, 459 us" in row
    assert "30.3 % of peak, 917 us" in row


def test_10_which_command_measures_a_case_again(reader: Reader) -> None:
    command = reader.read("#now .card .command")
    assert command == "pytest --gpu 'tests/perf/hopper/test_gemm_shapes.py::test_weights[8192x28672-1]'"
