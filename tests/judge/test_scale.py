"""One card against several: the program that measures it, with processors in the place of cards."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import scaled_judge
import scaled_same
import scaled_suite
import thousand_scale
from drawn import drawn
from fed import Ended, Fed
from host_watch import Cards
from scaled_judge import Asked, Node, language
from scaled_same import same
from scaled_suite import suites
from thousand_perfray import Suite
from thousand_scale import main

from perfsuite.calibrate import running
from perfsuite.calibrate.parts import head
from perfsuite.calibrate.running import Order
from perfsuite.device.cards import Device, Devices
from perfsuite.judge.engine import Terms
from perfsuite.judge.jobs import Job
from perfsuite.report.scaled import picture, scale_block
from perfsuite.workers.child import DiedError

LONG = "600"
"""Seconds that no part of these tests needs."""


def asked(**more: Any) -> Asked:
    given: dict[str, Any] = {"jobs": 12, "seconds": 600.0, "warm_seconds": 600.0, "counts": [1, 2], "beside": 1}
    return Asked(**{**given, **more})


def test_the_judge_loses_no_job_on_one_card_on_two_and_with_one_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaled_judge, "JOB_SECONDS", 600.0)  # a busy machine may take a minute to load torch
    record = tmp_path / "scale.json"
    words = ["--parts", "judge", "--cards", "2", "--counts", "1,2", "--jobs", "12", "--untimed"]
    words += ["--seconds", LONG, "--warm-seconds", LONG, "--output", str(record)]
    assert main(words) == 0
    found = json.loads(record.read_text())
    for name in ("cards-1", "cards-2", "removed"):
        part = found[name]
        assert (part["jobs"], part["not_begun"], part["faults"]) == (12, 0, []), part["faults"]
        assert part["host_busy"] is None or 0.0 <= part["host_busy"] <= 1.0
        assert part["jobs_per_hour"] > 0.0
        assert {"asked", "run", "right", "whole"} <= set(part["stages"])
    assert "| all, one taken away in the middle | 2 | 12 |" in scale_block(record, {"table": "judge"})
    assert "<svg" in str(picture(record))


EXPECTED = {one.id: one.expected for device in ("cpu", "cuda") for one in drawn(60, device=device)}
"""A drawn job -> its verdict."""


class Fake:
    """A process of a pool that answers as it should; or one that waits with its first job until it is ended."""

    def __init__(self, place: str, *, waits: bool = False, behind: Sequence[Fake] = ()) -> None:
        """behind: those that must have a job before this one answers."""
        self.place, self.pid, self.starts, self._waits, self._behind = place, 1, 1, waits, behind
        self.ids: list[str] = []
        self._asked, self._ended = threading.Event(), threading.Event()

    def prepare(self) -> bool:
        return True

    def ask(self, request: bytes, seconds: float | None = None) -> bytes:
        job = json.loads(request)["job"]
        self._asked.set()
        assert all(other._asked.wait(600.0) for other in self._behind)
        if self._waits:
            assert self._ended.wait(600.0)
            raise DiedError("ended")
        self.ids.append(job["id"])
        verdict = (*EXPECTED[job["id"].partition("-")[2]], "x", "right")[:3]
        answer = dict(zip(("verdict", "reason", "stage"), verdict, strict=True))
        return json.dumps({**answer, "id": job["id"], "sentence": "", "seconds": {"whole": 0.0}}).encode()

    def end(self) -> None:
        self._ended.set()

    def close(self) -> None:
        self.end()


def node(monkeypatch: pytest.MonkeyPatch, places: int, children: Sequence[Fake], **more: Any) -> Node:
    monkeypatch.setattr(scaled_judge, "_local", lambda *_: children)
    return Node(asked(**more), [], places, "cpu")


def test_a_job_of_the_card_that_is_taken_away_gets_its_verdict_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others may have ended all that they had when its processes die; each of these has a job then."""
    last = [Fake("1", waits=True), Fake("1", waits=True)]
    children = [Fake("0", behind=last), last[0], Fake("0", behind=last), last[1]]
    with node(monkeypatch, 2, children, jobs=200, beside=2) as there:
        found = there.removed()
    assert (found["jobs"], found["not_begun"], found["faults"], found["deaths"]) == (200, 0, [], 2)
    assert found["taken_away"] == 1


@pytest.mark.parametrize(
    ("places", "counts", "together", "wanted"),
    [
        (8, [1, 2, 4, 8], True, [{8: [*range(8)]}, {4: [0, 1, 2, 3], 2: [4, 5], 1: [6]}]),
        (4, [1, 2, 4], True, [{4: [0, 1, 2, 3]}, {2: [0, 1], 1: [2]}]),
        (3, [1, 2, 3], True, [{3: [0, 1, 2]}, {2: [0, 1], 1: [2]}]),
        (2, [1, 2], True, [{2: [0, 1]}, {1: [0]}]),
        (4, [1, 2, 4], False, [{4: [0, 1, 2, 3]}, {2: [0, 1]}, {1: [0]}]),
        (1, [1], True, [{1: [0]}]),
    ],
)
def test_parts_that_run_at_the_same_time_have_cards_of_their_own(
    places: int, counts: list[int], together: bool, wanted: list[dict[int, list[int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    there = node(monkeypatch, places, [Fake("0")] * places, counts=counts, together=together)
    assert there.groups() == wanted


def test_the_jobs_are_the_same_mixture_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    there = node(monkeypatch, 1, [Fake("0")], jobs=130)
    known = list(there._known.values())
    assert known[:60] == known[60:120]
    assert len({one.id for one in there._jobs}) == 130
    assert sum(one.kind != "plain" for one in known[:60]) == 6


def test_texts_on_a_card_are_few_and_a_process_meets_each_before_it_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    children = [Fake("0"), Fake("1")]
    monkeypatch.setattr(scaled_judge, "_local", lambda *_: children)
    there = Node(asked(jobs=60), [], 2, "cuda")
    texts = {name: [one for one in there._known.values() if language(one) == name] for name in ("triton", "cuda")}
    for name, least in (("triton", 13), ("cuda", 13)):
        assert len(texts[name]) == least
        assert len({json.dumps(one.candidate) for one in texts[name]}) == 4
    told = there.warm()
    for child in children:
        met = {json.dumps(there._known[id].candidate) for id in child.ids}
        assert {json.dumps(one.candidate) for one in texts["triton"]} <= met
        assert {one.problem for one in there._known.values() if one.expected[0] == "MET"} <= {
            there._known[id].problem for id in child.ids
        }
    assert told["jobs"] == 60


def fed_of(times: Sequence[tuple[float, float]]) -> Fed:
    job = Job("1", {}, "gemm")
    made = Fed([job], Terms(), seconds=1.0)
    made.ended = [Ended(job, {}, began, ended, 0) for began, ended in times]
    return made


def test_the_rate_counts_while_all_processes_have_work() -> None:
    """Two processes, a job a second each, a start of ten seconds, and a last job that takes twenty."""
    times = [(0.0, 10.0), (0.0, 10.0), *((10.0 + t, 11.0 + t) for t in range(8) for _ in range(2)), (18.0, 38.0)]
    assert fed_of(times).steady(2) == (16, 8.0)
    assert fed_of(times[:3]).steady(2) == (3, 11.0), "too short: the whole run"
    assert fed_of([]).steady(2) == (0, 0.0)


def test_gates_on_all_cards_take_over_the_noise_of_the_one_card(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    noise, orders = [{"case": "a", "seconds": 1e-5, "setup_noise": 0.01, "process_noise": 0.02}], []

    class Told:
        def __init__(self, order: Order, selectors: Sequence[str], folder: Path) -> None:
            assert folder.is_dir()
            orders.append((len(selectors), order.seconds, [(one.noise, one.gates) for one in order.after]))
            assert order.part is not None
            row = json.dumps({"kind": "gate", "case": "a", "slowdown": 0.0, "process": 0})
            rows = f"{row}\n" if order.seconds > 1.0 else ""
            order.part.write_text(head(1, {"gpu": "H200"}, order.gates, noise) + rows)

        def run(self) -> dict[str, Any]:
            return {"aa": {"gates": 9}, "wall_seconds_per_gate_median": 0.1, "process_noise_seen": 0.0, "cases": []}

    monkeypatch.setattr(scaled_same, "Calibration", Told)
    found = dict(same("cuda", ["0", "1", "2", "3"], 1000, 60.0, 90.0))
    assert orders == [(1, 90.0, []), (4, 60.0, [(noise, [])])]
    assert [found[name]["cards"] for name in ("identical-1", "identical-4")] == [1, 4]
    assert [found[name]["noise"] for name in ("identical-1", "identical-4")] == ["of this run", "known"]
    found = dict(same("cuda", ["0", "1"], 1000, 60.0, 1.0))
    assert orders[2:] == [(1, 1.0, []), (2, 60.0, [])], "the one card had no gate in its time"
    assert found["identical-2"]["noise"] == "of this run"
    part = tmp_path / "part.jsonl"
    row = json.dumps({"kind": "gate", "case": "a", "slowdown": 0.0, "process": 0})
    part.write_text(head(2, {"gpu": "H200"}, {0.0: 1}, noise) + f"{row}\n")
    dict(same("cuda", ["0", "1"], 1000, 60.0, 90.0, part))
    assert orders[4:] == [(1, 90.0, [(noise, [])]), (2, 60.0, [(noise, [])])]


def test_identical_code_is_gated_on_one_processor_and_on_two(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (case, *_) = running.cases("cpu")
    monkeypatch.setattr(running, "cases", lambda _: [case])
    monkeypatch.setattr(running, "NOISE_PROCESSES", 1)
    monkeypatch.setattr(running, "NOISE_SETUPS", 2)
    monkeypatch.setattr(running, "GRACE_SECONDS", 600.0)
    monkeypatch.setattr(scaled_same, "PROCESSES", 1)
    record = tmp_path / "scale.json"
    words = ["--parts", "same", "--cards", "2", "--gates", "2", "--same-seconds", LONG, "--alone-seconds", LONG]
    assert main([*words, "--output", str(record)]) == 0
    found = json.loads(record.read_text())
    assert [found[name]["gates"] for name in ("identical-1", "identical-2")] == [2, 2]
    one, two = ({case["case"]: case["setup_noise"] for case in found[name]["cases"]} for name in found)
    assert one == two, "the same noise figures"
    assert scale_block(record, {"table": "same"}).splitlines()[2].startswith("| 1 | 2 |")


def test_four_cards_are_used_as_they_are_numbered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The whole program, with a library, processes, gates and suites that only say what they were asked for."""
    cards = [Device(at, "H200", f"GPU-{at}", (9, 0), 140 << 30, str(at + 3)) for at in range(4)]
    kept: dict[str, Any] = {}
    children: list[Fake] = []
    asked_for: list[Any] = []

    def local(count: int, selectors: Sequence[str], beside: int) -> list[Fake]:
        asked_for.append((count, selectors, beside))
        children.extend(Fake(selector) for _ in range(beside) for selector in selectors)
        return children

    def suite(name: str, words: Sequence[str], folder: Path, seconds: float, variables: Mapping[str, str]) -> Suite:
        asked_for.append((name, words, variables))
        places = [{"card": card.selector, "tests": ["a"], "first": 1.0, "last": 3.0, "seconds": 2.0} for card in cards]
        return Suite(0, [], 2.0, 3.0, {"begun": 0.0, "last": 3.0, "places": places})

    library = SimpleNamespace(
        NVMLError=RuntimeError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetUtilizationRates=lambda handle: SimpleNamespace(gpu=10 * int(handle[-1])),
    )
    monkeypatch.setitem(sys.modules, "pynvml", library)
    monkeypatch.setattr(Cards, "SECONDS", 0.0)
    monkeypatch.setattr(thousand_scale, "usable_devices", lambda _: Devices(tuple(cards)))
    monkeypatch.setattr(thousand_scale, "kept_in", lambda _, name, values, device: kept.update({name: values}))
    monkeypatch.setattr(thousand_scale, "on_each_card", lambda _: 2)
    monkeypatch.setattr(thousand_scale, "same", lambda *given: asked_for.append(given) or iter([]))
    monkeypatch.setattr(scaled_judge, "_local", local)
    monkeypatch.setattr(scaled_suite, "run", suite)
    words = ["--parts", "judge,same,perf,turns,ray", "--together", "--jobs", "240", "--perf-shard", "1/8", "tests/perf"]
    assert main(words) == 0
    assert [name for name in kept if name.startswith("cards")] == ["cards-4", "cards-2", "cards-1"]
    assert [kept[name]["processes"] for name in ("cards-4", "cards-2", "cards-1", "removed")] == [8, 4, 2, 8]
    assert not [fault for name, part in kept.items() if "suite" not in name for fault in part["faults"]]
    assert kept["cards-2"]["at_the_same_time"] == [1]
    processes, gates, *runs = asked_for
    assert processes == (4, ["3", "4", "5", "6"], 2)
    assert gates[:3] == ("cuda", ["3", "4", "5", "6"], 1000)
    common = ["--gpu", "--perf-seed=0", "--perf-shard", "1/8", "tests/perf"]
    every, first = {"CUDA_VISIBLE_DEVICES": "3,4,5,6"}, {"CUDA_VISIBLE_DEVICES": "3"}
    assert runs == [
        ("plain", common, first),
        ("auto", [*common, "-n", "auto"], every),
        ("turns", [*common, "-n", "8"], every),
        ("ray", [*common, "--perf-ray=local"], every),
    ]
    assert [place["card"] for place in kept["suite-auto"]["places"]] == ["3", "4", "5", "6"]
    seen = [place["kernel_share"] for place in kept["suite-auto"]["places"]]
    assert seen in ([None] * 4, pytest.approx([0.0, 0.1, 0.2, 0.3])), "of each card its own, if there was time to look"


SUITE = """
import pytest
from perfsuite import Gemm

@pytest.mark.gpu
@pytest.mark.perf_target(against="cublas", at_least=0.05)
@pytest.mark.parametrize("n", [16, 24, 32, 40])
def test_product(n, perf):
    perf(Gemm(n, n, n, dtype="float32"), lambda a, b: a @ b)
"""


def test_a_suite_on_two_processes_says_what_each_did(tmp_path: Path) -> None:
    file = tmp_path / "test_products.py"
    file.write_text(SUITE)
    words = ["--perf-portable", "--perf-seconds=0.02", "-p", "no:cacheprovider", str(file)]
    ((name, found),) = suites([], 2, ["auto"], words, 600.0)
    assert name == "suite-auto"
    assert (found["cases"], found["in_one_run_only"]) == (4, 0)
    assert found["equal_verdicts"] + found["interval_holds_target"] + len(found["different"]) == 4
    assert [place["tests"] for place in found["places"]] == [2, 2]
    for place in found["places"]:
        parts = [place[key] for key in ("start", "timed", "checks", "other", "between", "end")]
        assert min(parts) >= 0.0
        assert place["timed"] > 0.0
        assert sum(parts) == pytest.approx(place["whole"], abs=0.05 * place["whole"])


def test_records_are_joined_unless_both_measured_the_same(tmp_path: Path) -> None:
    here, there = tmp_path / "here.json", tmp_path / "there.json"
    here.write_text(json.dumps({"cards-1": {"jobs": 1}}))
    there.write_text(json.dumps({"cards-1": {"jobs": 1}, "cards-2": {"jobs": 2}}))
    words = ["--parts", "", "--output", str(here)]
    assert main([*words, "--join", str(there)]) == 0
    assert json.loads(here.read_text()) == {"cards-1": {"jobs": 1}, "cards-2": {"jobs": 2}}
    there.write_text(json.dumps({"cards-2": {"jobs": 3}}))
    with pytest.raises(SystemExit, match="have both measured cards-2"):
        main([*words, "--join", str(there)])


def test_a_calibration_on_other_cards_is_taken_over(tmp_path: Path) -> None:
    record, file = tmp_path / "scale.json", tmp_path / "calibration.json"
    aa = {"gates": 1000, "false_alarms": 3, "undecided": 0, "lower95": 0.0, "upper95": 0.01}
    summary = {"aa": aa, "wall_seconds_per_gate_median": 0.1, "process_noise_seen": 0.0, "cases": []}
    file.write_text(json.dumps(summary))
    assert main(["--parts", "", "--identical", f"4={file}", "--output", str(record)]) == 0
    assert json.loads(record.read_text())["identical-4"]["aa"] == aa


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--parts", "judge,speed"], "--parts has speed; allowed are judge, same, perf, turns, ray"),
        (["--cards", "9"], "--cards is 9; it must be at most 8"),
        (["--jobs", "0"], "--jobs is 0; it must be at least 1"),
        (["--counts", "1,x"], "--counts is '1,x'"),
        (["--identical", "four=a.json"], "it must be N=FILE"),
        (["--join", "a.json"], "--join needs --output"),
    ],
)
def test_bad_words_are_named(words: Sequence[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert said in capsys.readouterr().err
