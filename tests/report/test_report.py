"""What is read of a record: tables, sentences, markdown, blocks in documents, differences; and the commands for it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from perfsuite.cli.main import main
from perfsuite.record.case import Case
from perfsuite.record.store import write_record
from perfsuite.report import blocks, figures, markdown, step_summary, summary, terminal
from perfsuite.report.difference import differences, lines, unlike

from .conftest import case

ROOT = Path(__file__).resolve().parents[2]


def around(speed: float, **changes: Any) -> Case:
    return case(**{"speed": speed, "speed_low": speed - 0.005, "speed_high": speed + 0.005, **changes})


MIXED = [
    case("1x1x1 float16"),
    case("2x2x2 float16", verdict="MISSED", reason="too-slow", speed=0.7, sentence="0.700 of cublas"),
    case("3x3x3 float16", verdict="MISSED", reason="too-slow", speed=0.5, sentence="0.500 of cublas"),
    case("4x4x4 float16", verdict="UNDECIDED", reason="budget-spent", speed=None, sentence="no round was timed"),
    case("5x5x5 float16", verdict="WRONG", reason="inaccurate", speed=None, sentence="error 1e+00"),
    case("6x6x6 float16", reason="checked", rival=None, target=None, speed=None, speed_low=None, speed_high=None),
]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0.0, "0 s"),
        (2.5, "2.5 s"),
        (0.0123, "12.3 ms"),
        (1.05e-5, "10.5 us"),
        (9.999e-4, "1e+03 us"),
        (3e-9, "3 ns"),
        (2e-10, "0.2 ns"),
        (1234.0, "1234 s"),
    ],
)
def test_seconds(value: float | None, text: str) -> None:
    assert figures.seconds(value) == text.replace("1e+03 us", "1000 us")


def test_what_the_checks_cost_is_told() -> None:
    cases = [
        case(check_seconds=1.0, wall_seconds=6.0),
        case(check_seconds=0.5, wall_seconds=1.5),
        case(aspect="memory"),
    ]
    assert figures.checking(cases) == "; checks took 1.5 s, 25% on top of 6 s"
    assert figures.checking(MIXED) == ""


def test_the_table_is_ordered_from_the_worst() -> None:
    rows = terminal.table(MIXED)
    assert [verdict for verdict, _ in rows] == ["", "WRONG", "MISSED", "MISSED", "UNDECIDED", "MET", "MET"]
    assert "3x3x3" in rows[2][1]
    assert [verdict for verdict, _ in terminal.sentences(MIXED)] == ["WRONG", "MISSED", "MISSED", "UNDECIDED"]
    assert terminal.sentences(MIXED)[0][1] == "WRONG tests/test_it.py::test_it: error 1e+00"
    assert figures.counts(MIXED) == "2 met, 1 undecided, 2 missed, 1 wrong"


@pytest.mark.parametrize("width", [20, 33, 60, 80, 100, 140])
def test_the_table_fits_its_width_whatever_it_holds(width: int) -> None:
    long = [
        case(
            "2x16x131072x256 kv2 bfloat16 causal scale 0.0883883 and more that nobody expected to be here",
            candidate="some.package.with_a_function_of_a_very_long_name_indeed",
            rival="sdpa:efficient_and_then_some_more_of_it",
            verdict="UNDECIDED",
            reason="faster-than-the-card",
            test="tests/test_it.py::test_of_a_name_that_goes_on[2x16x131072x256-bfloat16-causal]",
        )
    ]
    shown = terminal.table(long, width, before=long)
    assert len(shown) == 2
    assert max(len(line) for _, line in shown) <= width
    assert "UNDECIDED" in shown[1][1]
    if width >= 80:
        assert {"test", "case", "value", "to target", "last", "time"} <= set(re.split(r"\s{2,}", shown[0][1]))
    assert "faster-than-the-card" in terminal.table(long, 300)[1][1]


def test_a_row_tells_the_gap_to_the_target_and_the_last_run() -> None:
    old = [case("8x8x8 float16", speed=0.99), case("9x9x9 float16", speed=0.5, gpu="another card")]
    new = [case("8x8x8 float16", verdict="MISSED", speed=0.855), case("9x9x9 float16", speed=1.8)]
    head, *rows = [re.split(r"\s{2,}", line.strip()) for _, line in terminal.table(new, 200, before=old)]
    cells = [dict(zip(head, row, strict=True)) for row in rows]
    assert [(one["test"], one["to target"], one["last"]) for one in cells] == [
        ("test_it", "-5.0 %", "0.990"),
        ("test_it", "+100.0 %", "-"),  # another card tells nothing
    ]


def test_of_a_case_that_is_too_long_the_functions_name_gives_way() -> None:
    long = case(
        "2x8x8192x64 float16 causal", candidate="ops.flash_attention", rival="sdpa:flash", reason="budget-spent"
    )
    (_, line) = terminal.table([long])[1]
    assert "2x8x8192x64 fp16 causal" in line


def test_a_summary_begins_with_what_is_not_met_and_folds_the_rest() -> None:
    page = step_summary.of_cases(MIXED, title="gates", notes=[markdown.environment(MIXED[0])])
    wrong, missed, folded = (
        page.index(text) for text in ("### Wrong (1)", "### Missed", "<details><summary>All cases")
    )
    assert wrong < missed < folded
    assert "| ✗ gemm 5x5x5 fp16 / cublas |" in page[wrong:missed]
    assert "- **WRONG** `kernels.gemm gemm 5x5x5 float16 vs cublas`: error 1e\\+00" in page[missed:folded]
    assert "| gemm 3x3x3 fp16 / cublas | 0.500 x | 0.945-0.955 | 0.9 x | 10.5 us | 10 us | ▼ MISSED |" in page[folded:]
    assert "NVIDIA H200; CUDA 13.0, torch 2.13.0, harness 1; commit c0ffeec0ffee" in page
    assert "nothing was measured" in step_summary.of_cases([], title="gates", notes=["no gate ran"])


def test_a_summary_against_a_base_tells_what_is_new(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    good.write_text(json.dumps(case(commit="a" * 40).as_json()) + "\n")
    bad.write_text(json.dumps(case(commit="b" * 40, verdict="MISSED", speed=0.5).as_json()) + "\n")
    line = ["report", str(bad), "--markdown", "--repository", "https://code.example/o/r"]
    assert main([*line, "--against", str(good)]) == 0
    page = capsys.readouterr().out
    assert "1 missed, all of them new" in page
    assert "### Newly missed (1)" in page
    assert f"[gemm 8x8x8 fp16 / cublas](https://code.example/o/r/blob/{'b' * 40}/tests/test_it.py)" in page


def test_markdown_shows_what_looks_like_a_tag_or_breaks_a_line() -> None:
    odd = case("a|b", rival="<lambda>", verdict="WRONG", sentence="0.5 of <lambda>: no\nkernel image")
    page = step_summary.of_cases([odd], title="gates")
    assert "| ✗ gemm a\\|b / &lt;lambda&gt; | 0.950 x |" in page
    assert "`kernels.gemm gemm a|b vs cublas`: 0.5 of &lt;lambda&gt;: no kernel image\n" in page


def test_of_a_roofline_the_share_is_shown_and_summed_up() -> None:
    shares = [
        case(f"{n}x1x1 float16", rival=None, speed=None, aspect="roofline", measured={"share": share, "seconds": 1e-6})
        for n, share in ((1, 0.5), (2, 0.98))
    ]
    held = case("3x1x1 float16", rival=None, speed=None, aspect="memory", measured={"peak_bytes": 4.0})
    (_, line) = terminal.table([shares[1]])[1]
    assert line.split()[4:6] == ["(roofline)", "0.980"]
    assert "| gemm 2x1x1 fp16 | (roofline) | 0.980 |" in markdown.table(shares)
    made = summary.table([*shares, held]).splitlines()
    assert made[2:] == ["| gemm | (roofline) | 2 | 2 | 0.700 | 0.500 | 1x1x1 fp16 |"]


def test_markdown_is_bounded_and_keeps_the_worst() -> None:
    many = [case(f"{n}x1x1 float16", verdict="MISSED", speed=0.5 + n / 1e5) for n in range(5000)]
    page = step_summary.of_cases([*many, *MIXED], title="gates")
    assert len(page) < 2**17
    assert "5x5x5" in page
    assert "and 4706 more, which the record holds" in page
    assert "- and 4944 more, which the record holds" in page


def test_a_cpu_record_says_that_it_is_not_a_gpus() -> None:
    text = markdown.environment(case(gpu=None, cpu="Some CPU", dirty=True))
    assert text.startswith("CPU (Some CPU), portable backend, not a GPU; ")
    assert text.endswith(" with changes")


@pytest.fixture
def document(tmp_path: Path) -> Path:
    write_record(tmp_path / "records" / "gates.jsonl", [case("1x1x1 float16"), case("2x2x2 float16", family="other")])
    path = tmp_path / "docs" / "page.md"
    path.parent.mkdir()
    path.write_text(
        "# Page\n\n<!-- perfsuite:gates ../records/gates.jsonl -->\nold\n<!-- /perfsuite:gates -->\n\nbetween\n\n"
        "<!-- perfsuite:gates ../records/gates.jsonl family=gem* dtype=float16 -->\n<!-- /perfsuite:gates -->\nend\n"
    )
    return path


def test_tables_in_a_document_are_made_from_the_record(document: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", str(document), "--check"]) == 1
    assert "old" in document.read_text()
    assert main(["table", str(document)]) == 0
    text = document.read_text()
    assert "old" not in text
    assert text.count("gemm 1x1x1 fp16") == 2
    assert text.count("gemm 2x2x2 fp16") == 1
    assert text.startswith("# Page\n")
    assert "\nbetween\n" in text
    assert text.endswith("end\n")
    assert text.count("Measured on one NVIDIA H200") == 2
    assert main(["table", str(document), "--check"]) == 0
    assert "up to date" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("<!-- perfsuite:gates a.jsonl -->\n", "a block has no end"),
        ("<!-- perfsuite:gates -->\n<!-- /perfsuite:gates -->\n", "needs the path of one record, has 0"),
        ("<!-- perfsuite:lore a.jsonl -->\n<!-- /perfsuite:lore -->\n", "there is no such table; known are gates"),
        ("<!-- perfsuite:gates a.jsonl -->\n<!-- /perfsuite:gates -->\n", "a.jsonl: cannot be read as a record"),
        (
            "<!-- perfsuite:gates records/gates.jsonl x=y -->\n<!-- /perfsuite:gates -->\n",
            "no case fits x=y",
        ),
        (
            "<!-- perfsuite:terminal records/gates.jsonl rows=1 -->\n<!-- /perfsuite:terminal -->\n",
            "rows=1 is no number of rows; it must be at least 2",
        ),
        (
            "<!-- perfsuite:gates records/gates.jsonl -->\n<!-- /perfsuite:gates -->\n<!-- perfsuite:gates a -->\n",
            "a block has no end",
        ),
    ],
)
def test_a_block_that_cannot_be_made_is_an_error(
    document: Path, text: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    page = document.parents[1] / "page.md"
    page.write_text(text)
    assert main(["table", str(page)]) == 2
    assert sentence in capsys.readouterr().err
    assert page.read_text() == text


def test_a_block_in_fenced_code_is_an_example(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    text = "```\n<!-- perfsuite:gates none.jsonl -->\n<!-- /perfsuite:gates -->\n```\n"
    page.write_text(text)
    assert blocks.refresh(page) == text


def test_the_end_of_a_run_is_shown_from_its_record(tmp_path: Path) -> None:
    write_record(tmp_path / "gates.jsonl", [*MIXED, *(around(1.0 + number / 100) for number in range(20))])
    page = tmp_path / "page.md"
    page.write_text("<!-- perfsuite:terminal gates.jsonl rows=4 -->\n<!-- /perfsuite:terminal -->\n")
    made = blocks.refresh(page).splitlines()
    assert made[1] == made[-2] == "```"
    rows = [row.split() for row in made[4:8]]
    assert "WRONG" in rows[0]
    assert [row[5] for row in rows[1:]] == ["1.030", "1.110", "1.190"]
    assert made[8].startswith("WRONG tests/test_it.py::test_it: error 1e+00")
    assert made[-3] == "22 met, 1 undecided, 2 missed, 1 wrong"
    assert all(len(line) <= terminal.WIDTH for line in made)
    page.write_text("\n".join(made) + "\n")
    assert blocks.refresh(page) == page.read_text()


def test_tables_of_this_repository_are_as_its_records_say() -> None:
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    assert main(["table", "--check", *map(str, documents)]) == 0


def test_styles_are_for_terminals_alone(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for variable in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(variable, raising=False)
    styles = {"MET": "green"}
    terminal.print_lines([("MET", "one"), ("", "two")], styles)
    assert capsys.readouterr().out == "one\ntwo\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    terminal.print_lines([("MET", "one"), ("", "two")], styles)
    assert capsys.readouterr().out == "\033[32mone\033[0m\ntwo\n"
    monkeypatch.setenv("NO_COLOR", "1")
    terminal.print_lines([("MET", "one")], styles)
    assert capsys.readouterr().out == "one\n"


def kinds(before: list[Case], after: list[Case], **options: float) -> list[str]:
    return [change.kind for change in differences(before, after, **options)]


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (around(0.95), around(0.90), "slower"),
        (around(0.95), around(1.00), "faster"),
        (around(0.95), around(0.949), "same"),
        (around(0.95), case(speed=0.91, speed_low=0.88, speed_high=0.95), "unclear"),
        (around(0.95), case(speed=0.5, speed_low=None, speed_high=None), "unclear"),
        (around(0.95), around(0.95, verdict="MISSED"), "worse verdict"),
        (around(0.95), around(0.95, verdict="WRONG"), "worse verdict"),
        (around(0.95, verdict="UNDECIDED"), around(0.95, verdict="WRONG"), "worse verdict"),
        (around(0.95), around(0.949, verdict="UNDECIDED"), "same"),
        (around(0.95), around(0.5, verdict="UNDECIDED"), "slower"),
        (around(0.95, verdict="MISSED"), around(0.95), "better verdict"),
        (case(speed=None), case(speed=None), "same"),
        (case(speed=None), around(0.9), "unclear"),
    ],
)
def test_kinds_of_change(before: dict[str, Any], after: dict[str, Any], kind: str) -> None:
    assert kinds([before], [after]) == [kind]


def test_cases_come_and_go_and_regressions_come_first() -> None:
    before = [around(0.95), case("2x2x2"), case("3x3x3")]
    after = [around(0.5), case("3x3x3"), case("4x4x4")]
    assert kinds(before, after) == ["slower", "gone", "new", "same"]
    told = lines(differences(before, after))
    assert told[0][1].startswith("slower          -47.4 %  kernels.gemm gemm 8x8x8 float16 vs cublas: MET 0.950")
    assert told[-1][1] == "4 cases: 1 slower, 1 gone, 1 new, 1 same"


def test_a_case_in_two_tests_is_told_apart_by_the_test() -> None:
    before = [around(0.95, test="a"), around(0.95, test="b")]
    after = [around(0.95, test="b"), around(0.5, test="a")]
    changes = differences(before, after)
    assert [(change.kind, change.case.endswith("(a)")) for change in changes] == [("slower", True), ("same", False)]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"gpu": "NVIDIA A100"}, "card is NVIDIA H200 in the first, NVIDIA A100 in the second"),
        ({"gpu": None, "cpu": "Z80"}, "card is NVIDIA H200 in the first, CPU Z80 in the second"),
        ({"harness": "2"}, "harness is 1 in the first, 2 in the second"),
        ({"cache": "hot"}, "cache is cold in the first, hot in the second"),
        ({"clock": "events"}, "was timed by the graph clock, then by events"),
    ],
)
def test_unlike_records_are_refused(
    changes: dict[str, Any], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sentence in "; ".join(unlike([case()], [case(**changes)]))
    for name, one in (("a", case()), ("b", case(**changes))):
        write_record(tmp_path / name, [one])
    both = [str(tmp_path / name) for name in "ab"]
    assert main(["compare", *both]) == 2
    assert sentence in capsys.readouterr().err
    assert main(["compare", *both, "--allow-unlike"]) == 0


def test_compare_exits_1_on_a_regression(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_record(tmp_path / "a", [around(0.95)])
    write_record(tmp_path / "b", [around(0.90)])
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    assert main(["compare", a, b]) == 1
    assert "slower" in capsys.readouterr().out
    assert main(["compare", b, a]) == 0
    assert main(["compare", a, b, "--least", "0.1"]) == 0
    assert main(["compare", a, b, "--least", "2"]) == 2
    assert main(["compare", a, str(tmp_path / "none")]) == 2


def test_report_shows_a_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report"]) == 2
    assert "there is no record under .perfsuite/runs" in capsys.readouterr().err
    write_record(tmp_path / ".perfsuite" / "runs" / "one.jsonl", MIXED)
    assert main(["report"]) == 0
    out = capsys.readouterr().out
    assert out.count("MISSED") == 4
    assert "2 met, 1 undecided, 2 missed, 1 wrong" in out
    assert main(["report", ".perfsuite/runs/one.jsonl", "--markdown"]) == 0
    assert capsys.readouterr().out.startswith("## perfsuite: one.jsonl\n")


def test_every_command_has_help_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    from perfsuite.cli.main import commands

    assert {"report", "table", "compare"} <= set(commands())
    for name in commands():
        with pytest.raises(SystemExit) as caught:
            main([name, "--help"])
        assert caught.value.code == 0
        assert f"perfsuite {name.replace('_', '-')}" in capsys.readouterr().out


def test_an_unknown_command_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["no-such-command"])
    assert caught.value.code == 2
    assert "invalid choice: 'no-such-command'" in capsys.readouterr().err


def test_nothing_of_a_record_is_markup_in_markdown_or_an_escape_in_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = "a\n# head <script>x</script> [b](https://e.example) @team `c` \x1b[31m"
    one = case(evil, case=evil, candidate=evil, rival=evil, verdict="MISSED", sentence=evil, gpu=evil)
    write_record(tmp_path / "record.jsonl", [one])
    assert main(["report", str(tmp_path / "record.jsonl"), "--markdown"]) == 0
    made = capsys.readouterr().out
    assert main(["report", str(tmp_path / "record.jsonl")]) == 0
    shown = capsys.readouterr().out
    for text in (lambda: made, lambda: step_summary.of_cases([one], title=evil, notes=[markdown.environment(one)])):
        left = re.sub("`[^`\n]*`", "", text())  # code is inert
        for part in ("<script", "](https", "@team", "\x1b", "\n# head"):
            assert part not in left, part
    written = [line for _, line in terminal.table([one], 400) + terminal.sentences([one])]
    assert all(line.isprintable() for line in [*written, terminal.brief(one, 400)])  # pytest writes them as they are
    assert "\x1b" not in shown
    assert "\\x1b[31m" in shown
