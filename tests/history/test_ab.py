"""Two commits side by side: the statistics by simulation, the loop with made-up processes, bad input by the command."""

from __future__ import annotations

import json
import math
import random
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from perfsuite.history import ab
from perfsuite.history.builds import same_contents
from perfsuite.history.children import signals_as_interrupts
from perfsuite.history.processes import Process, difference, process_of, t_quantile
from perfsuite.outcome import Verdict
from perfsuite.verdict.noise import Noise

from .conftest import Repository, case, write

NOISE = Noise(setup=0.0015, process=0.001, source="made up")
Command = Callable[..., tuple[int, str, str]]


def made_up(
    slowdown: dict[str, float], *, spread: float, seed: int, cases: int = 20, test: str = "test_it"
) -> ab.Measure:
    """Processes whose ratios scatter by `spread` between processes; in the head some cases are slower."""
    draw = random.Random(seed)

    def measure(side: str, tests: Sequence[str]) -> list[dict[str, Any]]:
        found = []
        for name in (f"gemm {number}" for number in range(cases)):
            own = f"tests/perf/test_kernels.py::{test}[{name}]"
            if tests and own not in tests:
                continue
            slower = slowdown.get(name, 0.0) if side == ab.HEAD else 0.0
            ratio = 1.25 * (1.0 + slower) * math.exp(draw.gauss(0.0, spread))
            found.append(case(name, commit=side, ratio=ratio, seed=draw.random(), test=own))
        return found

    return measure


def compare(measure: ab.Measure, **changes: Any) -> list[ab.Pair]:
    values: dict[str, Any] = {"slower": 0.01, "alpha": 0.05, "most_pairs": 6, "noise_of": lambda _: NOISE}
    return ab.compare(measure, **(values | changes))


def test_equal_builds_raise_no_alarm_and_are_decided() -> None:
    verdicts = [pair.verdict for seed in range(20) for pair in compare(made_up({}, spread=0.0015, seed=seed))]
    assert len(verdicts) == 400
    assert Verdict.MISSED not in verdicts
    assert verdicts.count(Verdict.MET) > 0.95 * len(verdicts)


def test_equal_builds_raise_no_alarm_on_a_card_three_times_noisier_than_its_calibration() -> None:
    verdicts = [pair.verdict for seed in range(20) for pair in compare(made_up({}, spread=0.005, seed=seed))]
    assert verdicts.count(Verdict.MISSED) <= 1  # of 400 verdicts in 20 runs; each run may be wrong 1 time in 20


def test_two_percent_in_one_case_fail_and_are_named() -> None:
    found = 0
    for seed in range(20):
        pairs = compare(made_up({"gemm 7": 0.02}, spread=0.0015, seed=seed))
        missed = [pair.name for pair in pairs if pair.verdict is Verdict.MISSED]
        assert set(missed) <= {"kernels.gemm 7 vs library"}
        found += missed == ["kernels.gemm 7 vs library"]
        assert not missed or ab.exit_code(pairs) == 1
        assert not missed or ab.lines(pairs, 0.01)[0].startswith("slower      kernels.gemm 7")
    assert found >= 18


@pytest.mark.parametrize(("calls", "decided"), [(3, False), (7, True)])
def test_what_was_decided_before_an_interrupt_stands(calls: int, decided: bool) -> None:
    inner, done = made_up({"gemm 3": 0.0095, "gemm 7": 0.05}, spread=0.001, seed=1), []

    def measure(side: str, tests: Sequence[str]) -> Sequence[Any]:
        if len(done) == calls:
            raise KeyboardInterrupt
        done.append(side)
        return inner(side, tests)

    told: list[str] = []
    pairs = {pair.name: pair for pair in compare(measure, interrupted=lambda: told.append("early"))}
    assert (len(pairs), told) == (20, ["early"])
    missed = [name for name, pair in pairs.items() if pair.verdict is Verdict.MISSED]
    assert missed == (["kernels.gemm 7 vs library"] if decided else [])
    if decided:
        assert ab.exit_code(list(pairs.values())) == 1
    else:
        assert {pair.verdict for pair in pairs.values()} == {Verdict.UNDECIDED}
        assert ab.exit_code(list(pairs.values())) == 20
        assert all("1/2 processes, before the first look" in pair.sentence for pair in pairs.values())


def test_an_interrupt_goes_through_where_nobody_keeps_what_was_decided() -> None:
    def measure(side: str, tests: Sequence[str]) -> Sequence[Any]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(measure)


def test_sigterm_is_an_interrupt() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with signals_as_interrupts(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_later_processes_run_only_what_is_undecided() -> None:
    asked = []
    inner = made_up({"gemm 3": 0.0095}, spread=0.001, seed=1)

    def measure(side: str, tests: Sequence[str]) -> Sequence[Any]:
        asked.append((side, len(tests)))
        return inner(side, tests)

    pairs = compare(measure)
    assert [count for _, count in asked[:6]] == [0] * 6
    assert [side for side, _ in asked[:6]] == [ab.BASE, ab.HEAD, ab.HEAD, ab.BASE, ab.BASE, ab.HEAD]
    assert all(0 < count < 20 for _, count in asked[6:])
    assert len(asked) > 6
    assert [pair.verdict for pair in pairs if pair.name == "kernels.gemm 3 vs library"] == [Verdict.UNDECIDED]
    assert ab.exit_code(pairs) == 20


def test_a_wrong_head_fails_whatever_its_speed() -> None:
    inner = made_up({}, spread=0.001, seed=0, cases=2)

    def measure(side: str, tests: Sequence[str]) -> Sequence[Any]:
        cases = list(inner(side, tests))
        if side == ab.HEAD and cases:
            cases[0] = cases[0].changed(verdict="WRONG", sentence="off by a lot")
        return cases

    pairs = compare(measure)
    assert pairs[0].verdict is Verdict.WRONG
    assert "off by a lot" in pairs[0].sentence
    assert ab.exit_code(pairs) == 1


@pytest.mark.parametrize(("shared", "code"), [(2, 0), (100, 20)])
def test_processes_that_shared_the_card_do_not_count(shared: int, code: int) -> None:
    inner = made_up({}, spread=0.0005, seed=0, cases=1)
    ran = []

    def measure(side: str, tests: Sequence[str]) -> Sequence[Any]:
        ran.append(side)
        cases = list(inner(side, tests))
        if ran.count(side) <= shared and side == ab.HEAD:
            slower = [2.0 * value for value in cases[0].samples.candidate_seconds]
            samples = cases[0].as_json()["samples"] | {"candidate_seconds": slower}
            cases[0] = cases[0].changed(verdict="UNDECIDED", reason="shared-device", samples=samples)
        return cases

    (pair,) = compare(measure)
    assert ab.exit_code([pair]) == code
    assert f"{min(shared, 6)} more shared the card with other processes" in pair.sentence


def test_a_case_that_the_base_cannot_run_is_shown_and_decides_nothing() -> None:
    inner = made_up({}, spread=0.001, seed=0, cases=2)

    def measure(side: str, tests: Sequence[str]) -> Sequence[Any]:
        return [one for one in inner(side, tests) if side == ab.HEAD or one.name != "gemm 1"]

    pairs = compare(measure)
    assert [pair.verdict for pair in pairs] == [Verdict.UNDECIDED, Verdict.MET]
    assert "nothing was timed in the base" in pairs[0].sentence
    assert ab.exit_code(pairs) == 0


def test_a_record_is_one_process_of_the_base() -> None:
    given = made_up({}, spread=0.0, seed=5, cases=1)(ab.BASE, ())
    measure = made_up({"gemm 0": 0.05}, spread=0.001, seed=6, cases=1)
    sides = []

    def only_head(side: str, tests: Sequence[str]) -> Sequence[Any]:
        sides.append(side)
        return measure(side, tests)

    pairs = compare(only_head, given=given)
    assert set(sides) == {ab.HEAD}
    assert pairs[0].verdict is Verdict.MISSED
    assert "1/3 processes" in pairs[0].sentence


def test_rounds_of_one_process_do_not_make_it_surer_of_the_others() -> None:
    few = [Process(0.0, 1e-3, 1, 1e-4)] * 3
    many = [Process(0.0, 1e-6, 1, 1e-4)] * 3
    wide, narrow = (difference(side, side, 0.01, NOISE) for side in (few, many))
    floor = 2.0 * math.sqrt((NOISE.setup**2 + NOISE.process**2) * 2 / 3)
    assert wide.high > narrow.high > 1.0 + floor


# The values are those of any table of Student's t.
@pytest.mark.parametrize(
    ("alpha", "degrees", "value"), [(0.025, 10, 2.228), (0.005, 10, 3.169), (0.001, 14, 3.787), (0.0005, 30, 3.646)]
)
def test_quantiles_of_t(alpha: float, degrees: float, value: float) -> None:
    assert t_quantile(alpha, degrees) == pytest.approx(value, rel=2e-3)


def test_the_last_sentence_has_the_result_the_threshold_and_a_remedy() -> None:
    quiet, slow = compare(made_up({}, spread=0.001, seed=0)), compare(made_up({"gemm 7": 0.1}, spread=0.001, seed=0))
    assert ab.conclusion(quiet, 0.01) == "20 cases: 20 no slower; a case may get 1.00% slower. Nothing got slower."
    assert ab.conclusion(slow, 0.01).endswith("The head is worse than the base.")
    assert "1 slower, 19 no slower" in ab.conclusion(slow, 0.01)
    noisy = compare(made_up({}, spread=0.5, seed=0))
    assert "too large: quiet the machine or add --pairs." in ab.conclusion(noisy, 0.01)
    assert ab.lines(quiet, 0.01)[0].endswith(")"), "the times of a call on both sides"
    assert " -> " in ab.lines(quiet, 0.01)[0]
    as_json = ab.as_json(slow)
    assert as_json[0]["verdict"] == "MISSED"
    assert float(str(as_json[0]["high"])) < 1


def test_builds_with_the_same_files_are_the_same(tmp_path: Path) -> None:
    for name, text in (("one", "x"), ("two", "x"), ("three", "y")):
        (tmp_path / name / "kernels-1.dist-info").mkdir(parents=True)
        (tmp_path / name / "kernels-1.dist-info" / "RECORD").write_text(name)
        (tmp_path / name / "kernels.py").write_text(text)
    assert same_contents(tmp_path / "one", tmp_path / "two")
    assert not same_contents(tmp_path / "one", tmp_path / "three")
    (tmp_path / "two" / "more.py").write_text("")
    assert not same_contents(tmp_path / "one", tmp_path / "two")


def test_a_wrong_case_is_no_process() -> None:
    assert process_of(case(commit="a", verdict="WRONG")) is None
    assert process_of(case(commit="a", samples={})) is None


def test_the_table_is_bounded() -> None:
    pairs = compare(made_up({}, spread=0.001, seed=0))
    text = ab.markdown(pairs, "head against base", most=5)
    assert text.count("| no slower |") == 5
    assert "15 more cases" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no-such-commit"], "'no-such-commit' names no commit"),
        (["HEAD~1", "no-such-commit"], "'no-such-commit' names no commit"),
        (["HEAD~1", "--pairs", "0"], "--pairs is 0"),
        (["HEAD~1", "--slower", "2"], "--slower is 2"),
        (["HEAD~1", "--calibration", "none.json"], "--calibration is 'none.json'; there is no such file"),
        (["record.jsonl"], "cut off or foreign"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str], said: str, repository: Repository, perfsuite: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository.path / "record.jsonl").write_text('{"schema": 1, "ca')
    monkeypatch.chdir(repository.path)
    code, _, err = perfsuite("ab", *arguments)
    assert code == 2
    assert said in err
    assert len(err.strip().splitlines()) == 1


def test_a_commit_that_does_not_build_is_named_and_leaves_nothing(
    repository: Repository, perfsuite: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit("break it", **{"setup.py": "raise SystemExit('kernel.cu:12: error: no such thing')\n"})
    monkeypatch.chdir(repository.path)
    code, _, err = perfsuite("ab", "HEAD", "HEAD", "--anyway")
    assert code == 2
    assert f"{repository.commits[-1][:12]} does not build: " in err
    assert "no such thing" in err
    assert repository.git("worktree", "list").count("\n") == 0
    assert {path.name for path in Path(".perfsuite/ab").iterdir()} <= {".lock", ".objects"}
    assert repository.git("status", "--porcelain") == "", "builds make no changes that a record would tell of"


def test_a_suite_that_measures_nothing_is_told_by_its_reason(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from perfsuite.history.commits import HistoryError
    from perfsuite.history.runs import Runner

    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (repository.path / "test_nothing.py").write_text("def test_ordinary(): pass")
    runner = Runner(repository.path, ["test_nothing.py"], portable=True, seconds=0.1)
    with pytest.raises(
        HistoryError, match=r"did not run on abc \(exit 21\): nothing was measured \(nothing-collected\)"
    ):
        runner.run(tmp_path, "abc")


def test_another_cards_record_is_no_base(
    repository: Repository, perfsuite: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    from perfsuite.history import runs

    head = [case(commit=repository.commits[-1])]
    monkeypatch.setattr("perfsuite.cli.commands.ab.build", lambda *_: Path("nowhere"))
    monkeypatch.setattr(runs.Runner, "run", lambda *_: head)
    monkeypatch.chdir(repository.path)
    write(Path("other.jsonl"), [case(commit=repository.commits[0], gpu="NVIDIA A100")])
    code, _, err = perfsuite("ab", "other.jsonl")
    assert code == 2
    assert "card is NVIDIA A100 in the first, NVIDIA H200 in the second" in err
    write(Path("same.jsonl"), [case(commit=repository.commits[0])])
    code, out, _ = perfsuite("ab", "same.jsonl")
    assert code == 20  # one noise-free process of a made-up base does not decide it
    assert "1/6 processes" in out
    code, out, err = perfsuite("ab", "same.jsonl", "--json", "--output", "ab.json")
    assert code == 20
    assert "1/6 processes" in err, "what is for a reader stands beside the JSON"
    assert [(one["name"], one["verdict"]) for one in json.loads(out)] == [(head[0].case, "UNDECIDED")]
    assert Path("ab.json").read_text() == out


def test_an_end_before_anything_was_compared_is_no_success(
    repository: Repository, perfsuite: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    from perfsuite.history import runs

    def run(*_: object) -> list[dict[str, Any]]:
        signal.raise_signal(signal.SIGTERM)
        raise AssertionError("the signal was lost")

    monkeypatch.setattr("perfsuite.cli.commands.ab.build", lambda *_: Path("nowhere"))
    monkeypatch.setattr(runs.Runner, "run", run)
    monkeypatch.chdir(repository.path)
    code, out, _ = perfsuite("ab", "HEAD", "HEAD", "--anyway")
    assert code == 20
    assert "ended early: cases that were not decided until then are undecided" in out


def test_calls_alike_are_told_apart_and_limits_and_shares_are_known() -> None:
    share = {"seconds": 1e-4, "attainable_flops": 1e12}

    def measure(side: str, tests: Sequence[str]) -> Sequence[Any]:
        head = side == ab.HEAD
        limits = {"target": None, "samples": {}, "speed": None, "rival": None, "candidate_error": None}
        return [
            case("twice", commit=side, ratio=6.4 if head else 1.0, seed=(side, 1), call=1),
            case("twice", commit=side, ratio=1.0, seed=(side, 2), call=2),
            case("roof", commit=side, aspect="roofline", measured=share | {"share": 0.8 if head else 0.9}, **limits),
            case("starts", commit=side, aspect="launches", measured={"launches": 2.0 if head else 1.0}, **limits),
            case("errs", commit=side, target=None, samples={}, candidate_error=9e-4 if head else 2e-4),
            case("checked", commit=side, target=None, samples={}),
        ]

    pairs = {pair.name.removeprefix("kernels.").replace(" vs library", ""): pair for pair in compare(measure)}
    assert {name: str(pair.verdict) for name, pair in pairs.items()} == {
        "twice (call 1 of 2)": "MISSED",
        "twice (call 2 of 2)": "MET",
        "roof": "MISSED",
        "starts": "MISSED",
        "errs": "MISSED",
        "checked": "MET",
    }
    assert pairs["starts"].sentence == "launches: 1 -> 2"
    assert pairs["checked"].sentence == "no limit got worse"


def test_calls_alike_in_other_numbers_are_not_compared() -> None:
    def measure(side: str, tests: Sequence[str]) -> Sequence[Any]:
        return [case("twice", commit=side, seed=number) for number in range(2 if side == ab.BASE else 3)]

    pairs = compare(measure)
    assert {pair.verdict for pair in pairs} == {Verdict.UNDECIDED}
    assert len(pairs) == 5
