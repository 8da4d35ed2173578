"""The HTML report: its charts, its sections, and the page in a browser, wide and on a phone, without a network."""

from __future__ import annotations

import json
import re
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from perfsuite.cli.main import main
from perfsuite.record.case import Case
from perfsuite.report import charts
from perfsuite.report.charts import Mark, Row, Series
from perfsuite.report.page import page
from perfsuite.report.svg import Axis

RECORD = Path(__file__).resolve().parents[2] / "records" / "h200" / "gates.jsonl"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def numbers(drawn: str, element: str, attribute: str) -> list[float]:
    """An attribute of every element of a picture, which must be well-formed."""
    root = ElementTree.fromstring(drawn)
    return [float(one.attrib[attribute]) for one in root.iter(f"{{http://www.w3.org/2000/svg}}{element}")]


def attention(length: int, **changes: Any) -> Case:
    params = {"batch": 2, "heads": 8, "kv_heads": 8, "seq_q": length, "seq_kv": length, "head_dim": 64}
    params |= {"causal": False, "scale": None, "dtype": "float16"}
    line: dict[str, Any] = {
        "schema": 1,
        "case": f"c{length}",
        "family": "attention",
        "name": f"2x8x{length}x64 float16",
    }
    line |= {"params": params, "candidate": "ops.flash", "rival": "sdpa", "speed": 1.25, "speed_low": 1.2}
    line |= {"speed_high": 1.3, "target": 1.1, "verdict": "MET", "reason": "fast-enough", "sentence": "<1.25> & more"}
    line |= {"candidate_seconds": length * 1e-8, "rival_seconds": length * 2e-8, "commit": "abc", "dirty": False}
    line |= {"gpu": "NVIDIA H200", "torch": "2.11", "cuda": "13.0", "harness": "2", "clock": "graph"}
    line |= {"candidate_error": 1e-4, "rival_error": 2e-4, "error_limit": 1e-3, "aspect": None}
    line |= {"measured": {"peak_bytes": 1e3 * length}, "telemetry": {"sm_clock_hz": 1.98e9, "power_watts": 500.0}}
    return Case.of_json(line | changes, "test")


def test_ticks_are_round_and_few() -> None:
    assert Axis(0.4, 2.2, 0, 1).ticks() == [0.5, 1, 2]
    assert len(Axis(1e-9, 1e9, 0, 1).ticks()) <= 19


def test_rows_place_marks_on_a_common_axis() -> None:
    drawn = charts.rows(
        [
            Row("a & b", (Mark(0.5, "red", "slow", 0.4, 0.6),), tick=0.9),
            Row("c", (Mark(1.0, "green", "even"), Mark(2.0, "blue", "fast", ring=True))),
        ],
        axis="speed",
    )
    slow, even, fast = numbers(drawn, "circle", "cx")
    assert slow < even < fast
    assert fast - even == pytest.approx(even - slow, abs=0.2), "twice as fast is as far as half as fast"
    assert "a &amp; b" in drawn
    assert "<title>slow</title>" in drawn


def test_lines_join_points_in_the_order_of_x() -> None:
    drawn = charts.lines(
        [Series("one", ((2.0, 20.0), (1.0, 10.0))), Series("two", ((1.0, 5.0), (4.0, 80.0)), dashed=True)],
        x_axis="length",
        y_axis="time",
        text=lambda value: f"{value:g} s",
    )
    xs, ys = numbers(drawn, "circle", "cx"), numbers(drawn, "circle", "cy")
    assert xs[0] < xs[1], "sorted"
    assert ys[0] > ys[1], "more is higher"
    assert drawn.count("stroke-dasharray") == 2, "the line and its key"


def test_a_page_has_every_section_and_escapes_what_it_shows() -> None:
    made = page([attention(512), attention(1024), attention(2048, verdict="MISSED")], title="run <1>")
    assert "run &lt;1&gt;" in made
    assert "&lt;1.25&gt; &amp; more" in made
    for anchor in ("verdicts", "speed", "length", "memory", "accuracy", "telemetry", "environment"):
        assert f'id="{anchor}"' in made, anchor
    assert "2 met, 1 missed" in made
    assert made.index("MISSED") < made.index('class="MET"')
    assert not re.search(r"(src|href)=\"(?!#)", made), "nothing is fetched"


def test_lengths_are_joined_where_the_batch_or_the_tokens_agree() -> None:
    def at(length: int, batch: int) -> Case:
        case = attention(length)
        return case.changed(params={**case.params, "batch": batch})

    made = page([at(512, 8), at(1024, 4), at(2048, 2), at(4096, 32)], title="t")
    assert "flash 8x64 fp16, 4096 tokens" in made
    assert "batch 32" not in made, "a single point is no line"
    assert "flash 8x64 fp16, batch 2" in page([attention(512), attention(1024)], title="t")


def test_a_page_of_what_was_not_timed_has_no_empty_charts() -> None:
    bare = {"speed": None, "speed_low": None, "speed_high": None, "target": None, "candidate_seconds": None}
    bare |= {"rival_seconds": None, "rival": None, "error_limit": None, "measured": None, "telemetry": {}}
    made = page([attention(512, **bare)], title="t")
    assert 'id="verdicts"' in made
    assert "<svg" not in made


def test_the_command_writes_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = tmp_path / "run.jsonl"
    record.write_text("".join(json.dumps(attention(length).as_json()) + "\n" for length in (512, 1024)))
    made = tmp_path / "run.html"
    assert main(["report", str(record), "--html", str(made)]) == 0
    assert 'id="roofline"' in made.read_text(), "the card's data sheet is known"
    assert [file.name for file in tmp_path.iterdir() if file.suffix not in (".jsonl", ".html")] == []
    assert main(["report", str(record), "--html", str(tmp_path / "no" / "run.html")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert main(["report", str(record), "--json"]) == 0
    assert [case["case"] for case in json.loads(capsys.readouterr().out)] == ["c512", "c1024"]


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
@pytest.mark.parametrize(("width", "height"), [(1200, 900), (390, 844)], ids=["wide", "phone"])
def test_the_page_opens_in_a_browser(width: int, height: int, tmp_path: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    file = tmp_path / "report.html"
    assert main(["report", str(RECORD), "--html", str(file)]) == 0
    asked: list[str] = []
    errors: list[str] = []
    with playwright.sync_playwright() as driver:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=flags)
        shown = browser.new_page(viewport={"width": width, "height": height})
        shown.on("request", lambda request: asked.append(request.url))
        shown.on("pageerror", lambda error: errors.append(str(error)))
        shown.goto(file.as_uri())
        across = shown.evaluate("document.documentElement.scrollWidth")
        visible = shown.evaluate("[...document.querySelectorAll('svg')].map(one => one.getBoundingClientRect().height)")
        browser.close()
    assert (asked, errors) == ([file.as_uri()], [])
    assert across <= width, "only tables and pictures scroll sideways"
    assert len(visible) >= 4
    assert min(visible) > 50
