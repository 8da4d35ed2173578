"""The HTML page: what it says of a record and its history, what it draws, and that nothing of a record gets out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from perfsuite.cli.main import main
from perfsuite.exporters import html
from perfsuite.history.record_versions import test_lines as lines_of_tests
from perfsuite.history.record_versions import versions_of
from perfsuite.record.case import Case
from perfsuite.report.page import libraries
from perfsuite.report.page.cards import cards, sentence
from perfsuite.report.page.data import Links, page_data, report_of
from perfsuite.report.page.render import render, unpacked
from perfsuite.report.page.timeline import Version
from perfsuite.report.values import gated

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "records" / "h200" / "gates.jsonl"


def case(test: str, speed: float | None = 1.25, **changes: Any) -> Case:
    """A case that is timed against sdpa; its interval is 1 % to each side."""
    params = {"batch": 2, "heads": 8, "seq_q": 512, "seq_kv": 512, "head_dim": 64, "dtype": "float16"}
    line: dict[str, Any] = {"schema": 1, "case": "ops.flash attention 512 vs sdpa", "test": f"test_a.py::{test}"}
    line |= {"family": "attention", "name": "2x8x512x64 float16", "params": params, "candidate": "ops.flash"}
    line |= {"rival": "sdpa", "verdict": "MET", "reason": "fast-enough", "sentence": "fine", "target": 1.1}
    line |= {"speed": speed, "speed_low": speed and speed * 0.99, "speed_high": speed and speed * 1.01}
    line |= {"candidate_seconds": speed and 1e-5 / speed, "rival_seconds": 1e-5, "clock": "graph", "harness": "2"}
    line |= {"gpu": "NVIDIA H200", "torch": "2.11", "cuda": "13.0", "commit": "a" * 40, "dirty": False, "aspect": None}
    line |= {"candidate_error": 1e-4, "rival_error": 2e-4, "error_limit": 1e-3, "measured": {"peak_bytes": 4096.0}}
    return Case.of_json(line | {"telemetry": {"sm_clock_hz": 1.98e9, "power_watts": 500.0}} | changes, test)


def share(test: str, seconds: float, ceiling: float, verdict: str = "MET", **changes: Any) -> Case:
    """A case under a ceiling, of 1e9 FLOPs."""
    measured = {"seconds": seconds, "attainable_flops": ceiling, "share": 1e9 / seconds / ceiling}
    bare = {"speed": None, "speed_low": None, "speed_high": None, "target": None, "rival": None, "aspect": "roofline"}
    text = f"{measured['share']:.1%} of the attainable, at least 97.0% asked"
    return case(test, **{**bare, "measured": measured, "verdict": verdict, "sentence": text, **changes})


def version(letter: str, *cases: Case) -> Version:
    return Version([one.changed(commit=letter * 40) for one in cases], "2026-01-01")


HISTORY = (
    version("a", case("slow"), case("missed"), case("long", 1.0, verdict="MISSED"), case("wrong"), case("fine")),
    version("b", case("slow"), case("missed"), case("long", 1.0, verdict="MISSED"), case("wrong"), case("fine")),
    version(
        "c",
        case("fine"),
        case("unsure", 1.1, verdict="UNDECIDED"),
        case("long", 1.0, verdict="MISSED"),
        case("missed", 1.09, verdict="MISSED"),
        case("slow", 1.15),
        case("wrong", None, verdict="WRONG"),
    ),
)


def test_what_needs_attention_comes_in_the_order_of_urgency() -> None:
    report = report_of(HISTORY, title="t")
    shown = cards(report)
    assert [card.test for card in shown] == [
        f"test_a.py::{name}" for name in ("wrong", "slow", "missed", "long", "unsure")
    ]
    by_name = {card.test.rpartition(":")[2]: card for card in shown}
    assert by_name["missed"].badge == "newly missed, was MET at bbbbbbbbb"
    assert by_name["slow"].badge == "regressed since ccccccccc"
    assert by_name["slow"].gap == "+8.7 %"
    assert by_name["slow"].why.startswith("the kernel accounts for +8.7 %, sdpa for +0.0 %")
    assert [fact.name for fact in by_name["slow"].facts] == ["time", "sdpa's time", "speed", "to target", "clock, GHz"]
    assert by_name["long"].badge == "long missed since aaaaaaaaa"
    assert by_name["long"].gap == "-9.1 %"
    assert by_name["unsure"].command == "pytest --gpu test_a.py::unsure"
    assert sentence(report) == (
        "2 of 6 gates met; 1 wrong, all of them new; 2 missed, 1 of them new; 1 undecided; 1 case got slower"
    )


def test_a_risen_ceiling_is_told_from_a_slower_kernel() -> None:
    before = version("a", share("ceiling", 1.000e-4, 1e13), share("kernel", 1.000e-4, 1e13))
    after = version("b", share("ceiling", 0.999e-4, 1.05e13, "MISSED"), share("kernel", 1.100e-4, 1e13, "MISSED"))
    report = report_of([before, after], title="t")
    why = {one.line.last.test: one.why for one in report.standings}
    assert why["test_a.py::ceiling"].startswith("not the kernel, but its yardstick")
    assert "under a ceiling of 10 TFLOPS" in why["test_a.py::ceiling"]
    assert not why["test_a.py::kernel"].startswith("not the kernel")
    ceiling = next(card for card in cards(report) if card.test.endswith("ceiling"))
    assert ("ceiling, TFLOPS", "10", "10.5", "+5.0 %") in ceiling.facts
    assert ceiling.gap == "-1.7 %", "95.3 % of 97 % asked; the target stands in the sentence alone"
    told = share("x", 1e-4, 1e13, sentence="no share is named here")
    assert gated(told.changed(measured={**(told.measured or {}), "asked_share": 0.9})).target == 0.9


def test_runs_of_another_card_or_harness_are_no_history() -> None:
    other = Version([case("fine", 9.0, gpu="NVIDIA H100 80GB HBM3", commit="d" * 40)])
    old = Version([case("fine", 9.0, harness="1", commit="e" * 40)])
    report = report_of([HISTORY[0], other, old, HISTORY[1]], title="t")
    assert report.base == 0
    assert {tuple(one.line.versions) for one in report.standings} == {(0, 3)}
    with pytest.raises(ValueError, match="base is 3; it must be the index of an earlier version, 0 to 2"):
        report_of([HISTORY[0], other, old, HISTORY[1]], title="t", base=3)


def test_the_step_of_each_case_lies_between_two_recorded_commits() -> None:
    data = page_data(report_of(HISTORY, title="t"))
    slow = next(one for one in data["cases"] if one["test"].endswith("slow"))
    assert slow["history"]["run"] == [0, 1, 2]
    assert slow["history"]["steps"] == [[1, 2, pytest.approx(0.087, abs=1e-3)]]
    assert slow["history"]["verdicts"] == "MMM"
    assert [run["commit"][0] for run in data["runs"]] == ["a", "b", "c"]
    assert "steps" not in next(one for one in data["cases"] if one["test"].endswith("long"))["history"]


def test_the_committed_history_names_the_commits_of_its_steps() -> None:
    versions = versions_of(RECORD)
    if "d224bf9" not in {(version.commit or "")[:7] for version in versions}:
        pytest.skip("this checkout has too little history")
    found = {one["case"] + one["rival"]: one for one in page_data(report_of(versions, title="t"))["cases"]}
    runs = [version.commit or "" for version in versions]
    for name, before, after in (("1x8192x28672", 105.6e-6, 121.3e-6), ("4x57344x8192", 207e-6, 236e-6)):
        past = found[f"gemm {name} fp16 nt(roofline)"]["history"]
        first, last, growth = past["steps"][-1]
        assert (runs[first][:7], runs[last][:7]) == ("d224bf9", "391aabb")
        assert past["seconds"][-2:] == [pytest.approx(before, rel=5e-3), pytest.approx(after, rel=5e-3)]
        assert growth == pytest.approx(after / before - 1, abs=5e-3)
    missed = found["flash_decode 8x64/8x8192x128 fp16(roofline)"]
    assert missed["state"] == "newly missed"
    assert missed["history"]["ceiling"][-2:] == [pytest.approx(35.01e12, rel=1e-3), pytest.approx(35.49e12, rel=1e-3)]
    assert missed["why"].startswith("not the kernel")
    assert "steps" not in missed["history"]


def test_slow_downs_are_grouped_by_commits_and_told_as_new_accepted_mended_or_standing() -> None:
    def times(**speeds: tuple[float, ...]) -> list[Version]:
        return [
            version(letter, *(case(name, each[index]) for name, each in speeds.items()))
            for index, letter in enumerate("abcd")
        ]

    versions = times(
        mended=(1.25, 1.15, 1.25, 1.25),
        standing=(1.25, 1.15, 1.15, 1.15),
        accepted=(1.25, 1.25, 1.1, 1.1),
        new=(1.25, 1.25, 1.25, 1.1),
        steady=(1.25, 1.25, 1.25, 1.25),
    )

    def accepted(before: Case, after: Case) -> str | None:
        return "needed" if (before.commit, after.commit) == ("b" * 40, "c" * 40) else None

    data = page_data(report_of(versions, title="t", accepted=accepted))
    told = [
        (
            group["before"],
            group["after"],
            [(data["cases"][one["id"]]["test"].rpartition(":")[2], one["state"]) for one in group["cases"]],
        )
        for group in data["regressions"]
    ]
    assert told == [
        (2, 3, [("new", "new")]),
        (1, 2, [("accepted", "accepted")]),
        (0, 1, [("mended", "mended"), ("standing", "standing")]),
    ]
    assert data["regressions"][1]["cases"][0]["reason"] == "needed"


def test_other_cards_stand_beside_the_history() -> None:
    other = Version([case("fine", 2.0, gpu="NVIDIA H100 80GB HBM3", commit="d" * 40)])
    data = page_data(report_of([other, HISTORY[1], HISTORY[2]], title="t"))
    fine = next(one for one in data["cases"] if one["test"].endswith("fine"))
    assert [row["value"] for row in fine["elsewhere"]] == [2.0]
    assert data["runs"][fine["elsewhere"][0]["run"]]["card"] == "NVIDIA H100 80GB HBM3"


HOSTILE = "</script><img src=x onerror=alert(1)>\u001b[31m"


def test_nothing_of_a_record_is_markup() -> None:
    one = case("bad", name=HOSTILE, sentence=HOSTILE, candidate=HOSTILE, verdict="MISSED", reason=HOSTILE, gpu=HOSTILE)
    made = html.text([one.changed(test=f"test_a.py::test[{HOSTILE}]")], title=HOSTILE)
    assert "<img" not in made
    assert made.count("</script>") == made.count("<script")
    assert unpacked(made)["cases"][0]["sentence"] == HOSTILE


def test_a_page_asks_for_nothing() -> None:
    made = html.text(HISTORY[-1].cases, title="run")
    assert not re.search(r"""(src|href)=["'](?!#)""", made.split("<script id=")[0])
    assert "@import" not in made
    assert "url(http" not in made


def test_links_lead_to_the_line_of_the_test() -> None:
    links = Links("https://code.example/o/r", {"test_a.py::slow": 12})
    made = render(report_of(HISTORY, title="t", links=links))
    assert f'<a href="https://code.example/o/r/blob/{"c" * 40}/test_a.py#L12">' in made
    assert f'<a href="https://code.example/o/r/commit/{"b" * 40}">against bbbbbbbbb</a>' in made
    assert Links().test("test_a.py::slow", "c" * 40) is None


def test_the_lines_of_tests_are_read_at_their_commit() -> None:
    head = case("x").changed(test="tests/report/test_page.py::test_links_lead_to_the_line_of_the_test")
    stored = "0" * 40
    assert lines_of_tests(ROOT, [head.changed(commit=stored)]) == {}, "an unknown commit has no lines"


def test_a_page_without_libraries_says_how_to_add_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "texts", lambda names: [])
    made = html.text(HISTORY[-1].cases, title="t")
    assert "perfsuite report --fetch-libraries" in made
    assert made.partition('<table id="plain">')[2].count("<tr>") == 7, "the plain table has every case"
    assert "<noscript>" not in made


def test_cases_that_were_not_timed_have_a_page() -> None:
    bare = {"speed_low": None, "speed_high": None, "target": None, "rival": None, "error_limit": None, "measured": None}
    made = html.text([case("x", None, **bare, telemetry={})], title="t")
    assert "1 of 1 gate met" in made
    assert "Nothing: every case reached its target" in made


def test_numbers_are_short_and_samples_few() -> None:
    many = {"candidate_seconds": [1.23456789e-5] * 500, "rival_seconds": [1e-5] * 500, "first": ["rival"] * 500}
    data = page_data(report_of([Version([case("x", samples=many)])], title="t"))
    assert data["cases"][0]["samples"]["own"] == [1.2346e-5] * 40


def test_the_command_compares_with_a_record_or_a_commit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, shown in (("old", HISTORY[1]), ("new", HISTORY[2])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(one.as_json()) + "\n" for one in shown.cases))
    new, made = str(tmp_path / "new.jsonl"), tmp_path / "page.html"
    assert main(["report", new, "--against", str(tmp_path / "old.jsonl"), "--html", str(made)]) == 0
    data = unpacked(made.read_text())
    assert (data["base"], data["now"]) == (0, 1)
    assert main(["report", new, "--against", "feedbeef", "--html", str(made)]) == 2
    assert "'feedbeef' is no recorded commit" in capsys.readouterr().err
    assert main(["report", new, "--against", "feedbeef"]) == 2
    assert "give --html FILE or --markdown too" in capsys.readouterr().err
    assert main(["report", new, "--html", str(tmp_path / "no" / "page.html")]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_four_hundred_cases_fit_into_a_megabyte(tmp_path: Path) -> None:
    made = tmp_path / "page.html"
    assert main(["report", str(RECORD), "--html", str(made)]) == 0
    with_libraries = 0 if libraries.texts(libraries.SCRIPTS) else 530_000
    assert made.stat().st_size + with_libraries < 1_000_000
