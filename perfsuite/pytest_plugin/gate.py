"""One gated test: what its markers ask, what its calls of `perf` came to, and how that becomes its outcome."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from perfsuite.pytest_plugin.markers import LIMIT_MARKERS, MarkerError, Need, announced, parse, parse_all, targets_of
from perfsuite.pytest_plugin.run import CONCERNED, DEVICE_FIXTURES, HELD, NO_DEVICE, PERF_MARKERS, RUN, Run

if TYPE_CHECKING:
    from perfsuite.case.comparison import Comparison
    from perfsuite.clock.rounds import Round
    from perfsuite.problems.base import Problem
    from perfsuite.record.case import Case

PORTABLE_FIXTURES = frozenset({"perf"})
"""Fixtures that also work without a GPU, under --perf-portable."""
WORST_FIRST = ("WRONG", "MISSED", "UNDECIDED", "MET")


class GateFailure(pytest.fail.Exception):  # type: ignore[name-defined]  # mypy sees no class there
    """A case of the test did not meet what its markers ask."""

    __module__ = "builtins"  # as pytest's own outcomes: summaries then show the bare name

    def __init__(self, sentence: str, verdict: str) -> None:
        super().__init__(sentence, pytrace=False)
        self.verdict = verdict


class Unmeasured(pytest.fail.Exception):  # type: ignore[name-defined]
    """The test needs a GPU that was promised by --gpu and is not there."""

    __module__ = "builtins"

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(f"nothing measured ({code}): {sentence}", pytrace=False)
        self.code, self.sentence = code, sentence


_NO_ANSWER = ("candidate-failed", "out-of-memory")
CASES = pytest.StashKey["list[Case]"]()


class Gate:
    """What `perf` is made of: measures cases for one test and keeps what they came to."""

    def __init__(self, item: pytest.Item) -> None:
        self.item = item
        self.run: Run = item.config.stash[RUN]
        mark = item.get_closest_marker("correctness")
        named = parse(mark).against if mark else None
        self.correctness: bool | str = named or True
        self.comparisons: list[Comparison] = []
        item.stash[CASES] = []

    def measure(
        self, problem: Problem, candidate: Callable[..., Any], against: str | Callable[..., Any] | None
    ) -> Comparison:
        """Check the candidate and time it against each rival that a marker names; the first comparison is returned."""
        if reason := self.run.too_long(problem):
            pytest.skip(reason)
        targets = targets_of(self.item)
        if targets:
            targets = [self.run.override("perf_target", target, self.item.nodeid) for target in targets]
            made = [
                self._one(problem, candidate, _rival(target.against, against), target.at_least) for target in targets
            ]
        else:
            made = [self._one(problem, candidate, None, None)]
        self._look_back(made)
        self._check_limits(problem, candidate, made[0])
        return made[0]

    def marked_rivals(self) -> list[Callable[..., Any]]:
        """The callables that the markers name as rivals, the nearest first."""
        return [target.against for target in targets_of(self.item) if callable(target.against)]

    def note(self, comparison: Comparison, *, aspect: str, measured: dict[str, float]) -> Comparison:
        """Put on record what was found without measuring a call."""
        self._keep(comparison, aspect=aspect, measured=measured)
        return comparison

    def _look_back(self, made: list[Comparison]) -> None:
        """Judge what was timed against its history, where the marker asks for it."""
        mark = self.item.get_closest_marker("regression")
        if mark is None or self.run.fresh:
            return
        from perfsuite.pytest_plugin.limits import comparison_of
        from perfsuite.pytest_plugin.regression import against_history

        asked, settings, cases = parse(mark), self.run.settings(), self.item.stash[CASES]
        for comparison, case in zip(made, cases[-len(made) :], strict=True):
            limit = against_history(asked, case, root=self.item.config.rootpath, settings=settings)
            looked = replace(comparison_of(limit, comparison), rival=comparison.rival)
            self._keep(looked, aspect=limit.aspect, measured=limit.measured)

    def _check_limits(self, problem: Problem, candidate: Callable[..., Any], checked: Comparison) -> None:
        """Check what the markers limit besides time; on a card alone, and not of a candidate that fails."""
        asked = [mark for name in LIMIT_MARKERS if (mark := self.item.get_closest_marker(name))]
        if not self.run.options.gpu:
            # Said with the case: a limit that nobody looked at must not be taken for one that is kept.
            case = self.item.stash[CASES][-1]
            unseen = (f"{mark.name} is looked at on a GPU only" for mark in asked)
            self.item.stash[CASES][-1] = case.changed(warnings=[*case.warnings, *unseen])
            return
        if not asked or checked.reason in _NO_ANSWER:
            return
        from perfsuite.pytest_plugin import limits

        config, settings = self.run.config, self.run.settings()

        def measure(resource: str, at: Problem) -> float:
            value: float = config.hook.pytest_perfsuite_resource(
                config=config, resource=resource, problem=at, candidate=candidate, settings=settings
            )
            return value

        def side_by_side(one: Problem, other: Problem) -> tuple[float, float]:
            times: tuple[float, float] = config.hook.pytest_perfsuite_side_by_side(
                config=config, problems=(one, other), candidate=candidate, settings=settings
            )
            return times

        values = [self.run.override(mark.name, parse(mark), self.item.nodeid) for mark in asked]
        timed = checked.candidate_seconds if checked.clock == "graph" and checked.cache == "cold" else None
        for limit in limits.check(values, problem, measure, side_by_side, seconds=timed):
            self._keep(limits.comparison_of(limit, checked), aspect=limit.aspect, measured=limit.measured)

    def _one(
        self,
        problem: Problem,
        candidate: Callable[..., Any],
        against: str | Callable[..., Any] | None,
        at_least: float | None,
    ) -> Comparison:
        from perfsuite.case.ask import Ask

        run = self.run
        ask = Ask(
            problem,
            candidate,
            against=against,
            correctness=self.correctness,
            at_least=at_least,
            settings=run.settings(),
            remeasure=None if at_least is None or run.fresh else self._measure_afresh,
        )
        comparison: Comparison = run.config.hook.pytest_perfsuite_compare(config=run.config, ask=ask)
        self._keep(comparison, measured=self._taken(problem, candidate, comparison))
        return comparison

    def _taken(
        self, problem: Problem, candidate: Callable[..., Any], comparison: Comparison
    ) -> dict[str, float] | None:
        """What a call of a timed case takes besides time, for the record; None where it was not captured on a card."""
        if comparison.clock != "graph" or comparison.verdict == "WRONG" or self.run.fresh or self.run.options.isolate:
            return None
        from perfsuite.analyze.takes import takes

        return takes(problem, candidate, seed=self.run.settings().seed)

    def _keep(
        self, comparison: Comparison, *, aspect: str | None = None, measured: dict[str, float] | None = None
    ) -> None:
        from perfsuite.pytest_plugin.workers import workers_in
        from perfsuite.record.case import case_record

        case = case_record(
            comparison,
            test=self.item.nodeid,
            fingerprint=self.run.fingerprint(),
            workers=workers_in(self.run.config),
            aspect=aspect,
            measured=measured,
        )
        self.comparisons.append(comparison)
        self.item.stash[CASES].append(case)
        self._tell(case, len(self.comparisons))

    def _measure_afresh(self) -> list[Round]:
        """The case that is being measured, in a fresh process."""
        from perfsuite.pytest_plugin.fresh import measure_afresh

        return measure_afresh(self.item, len(self.comparisons))

    def _tell(self, case: Case, number: int) -> None:
        """Put the case's figures where JUnit and other reporters find them."""
        prefix = "perf_" if number == 1 else f"perf_{number}_"
        shown = ("case", "rival", "verdict", "reason", "speed", "speed_low", "speed_high", "target")
        timed = ("candidate_seconds", "rival_seconds")
        self.item.user_properties += [
            (prefix + name, case[name]) for name in (*shown, *timed) if case[name] is not None
        ]


def _rival(
    marked: str | Callable[..., Any] | None, called: str | Callable[..., Any] | None
) -> str | Callable[..., Any] | None:
    if marked is not None and called is not None and marked != called:
        raise two_rivals(marked, called)
    return called if marked is None else marked


def two_rivals(marked: object, called: object) -> ValueError:
    """The error of a call that names another rival than the marker does."""
    return ValueError(
        f"two rivals: the marker perf_target(against={marked!r}) and perf(..., against={called!r}); name it once"
    )


def needs_device(item: pytest.Item) -> bool:
    """Whether the test has the `gpu` marker or asks for a fixture that works on a device."""
    asked = getattr(item, "fixturenames", ())
    return item.get_closest_marker("gpu") is not None or not DEVICE_FIXTURES.isdisjoint(asked)


def is_gated(item: pytest.Item) -> bool:
    """Whether the test has a perf marker or asks for `perf`."""
    marked = any(item.get_closest_marker(name) for name in PERF_MARKERS)
    return marked or "perf" in getattr(item, "fixturenames", ())


def require_device(item: pytest.Item) -> None:
    """Skip a test that needs a device where none was asked for; fail it where one was and there is none."""
    try:
        parse_all(item)  # once more: those of a unittest.TestCase, or of a hook, were not there when it was collected
    except MarkerError as error:
        pytest.fail(str(error), pytrace=False)
    if not needs_device(item):
        return
    run = item.config.stash[RUN]
    asked = DEVICE_FIXTURES.intersection(getattr(item, "fixturenames", ()))
    if run.options.portable and asked and asked <= PORTABLE_FIXTURES:
        return
    admit(run, item)
    if not run.fresh:
        _hold_cards(run, item)


def admit(run: Run, item: pytest.Item) -> None:
    """Let the test pass to the GPU: skip without --gpu and on a card that is too small, fail closed without a card."""
    item.stash[CONCERNED] = True  # also where a fixture was asked for only at run time, by getfixturevalue
    if not run.options.gpu:
        pytest.skip("needs a GPU: run pytest --gpu")
    if trouble := run.cannot_measure():
        raise Unmeasured(*trouble)
    for mark in item.iter_markers("gpu"):
        if lack := _lack(parse(mark), run):
            pytest.skip(lack)


def require_torch() -> None:
    """Fail closed where the portable backend has nothing to measure with: torch is an extra of the package."""
    from importlib.util import find_spec

    if find_spec("torch") is None:
        told = "--perf-portable measures with torch, which is not installed: pip install 'perfsuite[torch]'"
        raise Unmeasured(NO_DEVICE, told)


def _lack(need: Need, run: Run) -> str | None:
    card = run.card
    if need.min_capability is not None and card.capability < tuple(need.min_capability):
        asked, has = (".".join(map(str, pair)) for pair in (need.min_capability, card.capability))
        return f"needs compute capability {asked}; {card.name} has {has}"
    if need.min_memory is not None and card.memory_bytes < need.min_memory:
        return f"needs {need.min_memory / 2**30:.3g} GiB of memory; {card.name} has {card.memory_bytes / 2**30:.3g}"
    return None


def decide(item: pytest.Item) -> None:
    """Fail a test that passed by itself where a case of it did not meet its target, or where none was measured."""
    run = item.config.stash[RUN]
    if not run.options.gating:
        return
    cases = item.stash.get(CASES, None)
    if not cases:
        asked = [name for name in PERF_MARKERS if item.get_closest_marker(name)]
        if asked and (run.options.gpu or needs_device(item)):
            names = " and ".join(asked)
            pytest.fail(f"the test has {names} but never called perf(): nothing was measured", pytrace=False)
        return
    bad = [case for case in cases if case["verdict"] != "MET"]
    if bad:
        verdict = min((case["verdict"] for case in bad), key=WORST_FIRST.index)
        raise GateFailure("\n".join(case["sentence"] for case in bad), verdict)


def annotate(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """Hang what was measured on the report, as plain values: it may travel to another process."""
    error = call.excinfo.value if call.excinfo else None
    if report.when == "call":
        if report.outcome != "skipped" and item.config.stash[RUN].options.gpu and needs_device(item):
            report.perfsuite_on_device = True  # type: ignore[attr-defined]
        cases = item.stash.get(CASES, [])
        if cases:
            report.perfsuite_cases = [case.as_json() for case in cases]  # type: ignore[attr-defined]
        if isinstance(error, GateFailure) and report.failed:
            report.perfsuite_verdict = error.verdict  # type: ignore[attr-defined]
    if report.skipped and is_gated(item):
        report.perfsuite_skipped = True  # type: ignore[attr-defined]
    if isinstance(error, Unmeasured) and report.failed:
        report.perfsuite_unmeasured = [error.code, error.sentence]  # type: ignore[attr-defined]


def _hold_cards(run: Run, item: pytest.Item) -> None:
    """Keep other workers off the cards until the test has ended."""
    from perfsuite.device.locks import CardBusy, hold

    cards = run.devices().cards
    mine = cards if "gpus" in getattr(item, "fixturenames", ()) else cards[:1]
    held = item.stash.setdefault(HELD, ExitStack())
    try:
        held.enter_context(hold((card.uuid for card in mine), "case"))
    except CardBusy as error:
        raise Unmeasured("shared-device", str(error)) from None


def check_markers(item: pytest.Item) -> None:
    """Fail the collection of a test whose markers have unknown arguments or bad values."""
    try:
        parse_all(item)
    except MarkerError as error:
        raise pytest.Collector.CollectError(f"{item.nodeid}: {error}") from None


def planned_cases(items: list[pytest.Item]) -> int:
    """Timed cases that these tests announce by their markers."""
    return sum(len(announced(item)) for item in items if is_gated(item))
