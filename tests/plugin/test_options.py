"""Options and their ini twins; a bad value stops the run with pytest's usage error and says what is allowed."""

from __future__ import annotations

import pytest

from perfsuite.history.series_names import name_of

from .conftest import Suite

GATE = "@TARGET\ndef test_it(perf): perf(Gemm(8, 8, 8), met)\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["--perf-seconds", "soon"],
            "--perf-seconds is 'soon'; it must be a number of seconds over 0 and at most 3600",
        ),
        (["--perf-seconds", "0"], "--perf-seconds is '0'; it must be"),
        (["--perf-seconds", "nan"], "--perf-seconds is 'nan'; it must be"),
        (["--perf-cache", "tepid"], "--perf-cache is 'tepid'; allowed are 'cold', 'hot' and 'both'"),
        (["--perf-distribution", "zeros"], "--perf-distribution is 'zeros'; allowed are normal, uniform"),
        (["--perf-seed", "-1"], "--perf-seed is '-1'; it must be a whole number from 0"),
        (["--perf-seed", "1.5"], "--perf-seed is '1.5'; it must be a whole number from 0"),
        (["--gpu", "--perf-portable"], "--gpu and --perf-portable exclude each other"),
        (["--perf-targets", "none.toml"], "none.toml'; there is no such file"),
        (["--perf-calibration", "none.json"], "none.json'; there is no such file"),
        (["--gpu", "--perf-record", "conftest.py/x.jsonl"], "conftest.py/x.jsonl', which cannot be written: "),
        (["--gpu", "--perf-markdown", "conftest.py/x.md"], "--perf-markdown is '"),
        (["--perf-record", "."], "--perf-record is '.', a folder; it must be a file"),
        (["--gpu", "--perf-record=one", "--perf-markdown=./one"], "are both '"),
    ],
)
def test_a_bad_value_is_a_usage_error(suite: Suite, arguments: list[str], sentence: str) -> None:
    suite.write(GATE)
    outcome = suite.run(*arguments)
    assert outcome.code == 4
    outcome.has(sentence)


def test_ini_options_are_taken_and_flags_win(suite: Suite) -> None:
    suite.write(GATE)
    (suite.path / "pytest.ini").write_text("[pytest]\nperf_cache = hot\nperf_seed = 7\n")
    case = suite.run("--gpu").cases[0]
    assert (case["cache"], case["seed"]) == ("hot", 7)
    case = suite.run("--gpu", "--perf-cache=cold", "--perf-seed=8").cases[0]
    assert (case["cache"], case["seed"]) == ("cold", 8)


def test_cold_and_hot_are_two_cases_of_one_run(suite: Suite) -> None:
    suite.write(
        "@TARGET\ndef test_it(perf):\n    perf(Gemm(8, 8, 8), met)\n    perf(Gemm(8, 8, 8), met, cache='hot')\n"
        "def test_untimed(perf):\n    perf(Gemm(8, 8, 8), met)\n"
        "@TARGET\ndef test_asked(perf):\n    perf(Gemm(8, 8, 8), missed, cache='both')\n"
        "@TARGET\ndef test_bad(perf):\n    perf(Gemm(8, 8, 8), met, cache='warm')\n"
    )
    outcome = suite.run("--perf-portable", "--perf-cache=both")
    outcome.has(
        "cold and hot cache", "missed 8x8x8 fp16, hot", "ValueError: cache is 'warm'; allowed are 'cold', 'hot'"
    )
    caches = {test: [case["cache"] for case in outcome.cases if test in case["test"]] for test in outcome.junit}
    assert caches == {
        "test_it": ["cold", "hot", "hot"],
        "test_untimed": ["cold"],
        "test_asked": ["cold", "hot"],
        "test_bad": [],
    }
    assert "(correctness True, 6 cases)" in outcome.cases[0]["sentence"]  # each state of the cache is a chance to err
    names = [name_of(case) for case in outcome.records if "test_it" in (case.test or "")]
    assert names == ["test_it vs cublas", "test_it vs cublas, hot", "test_it #2 vs cublas, hot"]
    plain = suite.run("--perf-portable")
    assert [case["cache"] for case in plain.cases if "test_asked" in case["test"]] == ["cold", "hot"]


def test_inputs_are_drawn_from_what_was_asked(suite: Suite) -> None:
    suite.write(GATE)
    assert suite.run("--gpu").cases[0]["distribution"] == "normal"
    assert suite.run("--gpu", "--perf-distribution=heavy-tails").cases[0]["distribution"] == "heavy-tails"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("perf_seconds = long", "ini option perf_seconds is 'long'"),
        ("perf_portable = maybe", "ini option perf_portable: invalid truth value 'maybe'; allowed are true and false"),
    ],
)
def test_a_bad_ini_value_is_named_as_such(suite: Suite, line: str, sentence: str) -> None:
    suite.write(GATE)
    (suite.path / "pytest.ini").write_text(f"[pytest]\n{line}\n")
    outcome = suite.run()
    assert outcome.code == 4
    outcome.has(sentence)


def test_ini_paths_lie_below_the_root_directory(suite: Suite) -> None:
    suite.write(GATE)
    (suite.path / "pytest.ini").write_text("[pytest]\nperf_markdown = kept/summary.md\n")
    suite.run("--gpu")
    assert "| met 8x8x8 fp16 / cublas | 1.250 x |" in (suite.path / "kept" / "summary.md").read_text()


def test_portable_gates_run_without_a_card_and_say_so(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_CARDS", "0")
    suite.write(
        "@pytest.mark.gpu(min_capability=(9, 0))\n"
        + GATE
        + "@pytest.mark.gpu\ndef test_needs_a_card(): assert 0\n"
        + "def test_facts(gpu): assert 0\n"
        + "@TARGET\ndef test_too_long(perf): perf(Gemm(4096, 4096, 4096), met)\n"
    )
    outcome = suite.run("--perf-portable", "-rs")
    assert outcome.code == 0
    assert outcome.junit == {
        "test_it": "passed",
        "test_needs_a_card": "skipped",
        "test_facts": "skipped",
        "test_too_long": "skipped",
    }
    outcome.has(
        "portable backend: host clock on the CPU, not a GPU",
        "costs 1.37e+11 FLOPs; the portable backend stops at 1.5e+09",
    )


def test_the_case_count_reaches_the_instrument(suite: Suite) -> None:
    suite.write(
        GATE
        + "@pytest.mark.perf_target(against='sdpa', at_least=1)\n@TARGET\n"
        + "@pytest.mark.parametrize('n', [1, 2])\ndef test_more(n, perf): perf(Gemm(n, 8, 8), met)\n"
        + "def test_only_checks(perf): perf(Gemm(4, 8, 8), met)\n"
    )
    outcome = suite.run("--gpu")
    assert {case["sentence"].rpartition(", ")[2] for case in outcome.cases} == {"5 cases)"}


def test_the_record_is_not_written_over_a_foreign_file(suite: Suite) -> None:
    suite.write(GATE)
    (suite.path / "notes.txt").write_text("my notes\n")
    outcome = suite.run("--gpu", "--perf-record=notes.txt")
    assert outcome.code == 4
    outcome.has("--perf-record would overwrite what is not a record", "notes.txt:1")
    assert (suite.path / "notes.txt").read_text() == "my notes\n"


def test_the_default_record_lies_in_a_folder_that_git_ignores(suite: Suite) -> None:
    suite.write(GATE)
    suite.pytester.runpytest_inprocess("-p", "perfsuite.plugin", "--gpu")
    assert (suite.path / ".perfsuite" / ".gitignore").read_text() == "*\n"
    assert len(list((suite.path / ".perfsuite" / "runs").glob("*.jsonl"))) == 1
