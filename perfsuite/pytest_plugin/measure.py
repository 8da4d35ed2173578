"""Measures the cases of one test, as its markers require for each call of `perf`, and keeps them for the record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import pytest

from perfsuite.analyze.takes import takes
from perfsuite.case.ask import Ask
from perfsuite.case.comparison import Comparison
from perfsuite.case.run import run_case
from perfsuite.outcome import Reason, Verdict
from perfsuite.problems.base import Problem
from perfsuite.pytest_plugin import marks
from perfsuite.pytest_plugin.fresh import measure_afresh, prepare_ahead
from perfsuite.pytest_plugin.marker import Finding, Marker, Subject
from perfsuite.pytest_plugin.outcome import CASES, CAUSE
from perfsuite.pytest_plugin.present import write_live
from perfsuite.pytest_plugin.run import RUN, Run
from perfsuite.pytest_plugin.xdist import workers_in
from perfsuite.record.case import Case, case_name, case_record
from perfsuite.settings import CacheMode, Settings, cache_modes

Candidate = Callable[..., Any]
Rival = str | Candidate | None

_SHOWN = (
    *("case", "rival", "verdict", "reason", "speed", "speed_low", "speed_high", "target"),
    *("candidate_seconds", "rival_seconds"),
)
"""Fields of a case that JUnit and other reporters get."""


def compare(run: Run, ask: Ask) -> Comparison:
    """Measure and judge one case; under --perf-isolate, and as source text, the candidate runs in another process."""
    from perfsuite.isolate import compare_isolated, source_in

    if run.options.isolate or source_in(ask.candidate) is not None:
        return compare_isolated(ask, run.options.isolate_seconds)
    return run_case(ask)


class Gate:
    """Measures the cases of one test and keeps their results."""

    def __init__(self, item: pytest.Item) -> None:
        self.item = item
        self.run: Run = item.config.stash[RUN]
        self.comparisons: list[Comparison] = []
        self.calls = 0
        """Calls of `perf` so far; the cases of a call have its number."""
        self._label: str | None = None
        self._of_label: Counter[str | None] = Counter()
        self._costs_of_call: dict[str, float] | None = None
        """Those of the candidate in the call of `perf` at hand, once they are known: the same for all rivals."""

    def measure(
        self,
        problem: Problem,
        candidate: Candidate,
        against: Rival,
        *,
        label: str | None = None,
        cache: str | None = None,
        as_rival: Callable[[Candidate], Candidate] | None = None,
    ) -> Comparison:
        """Check the candidate, time it against each rival that a marker names; return the first comparison.

        cache: "cold", "hot" or "both", instead of the run's; each state of the cache is a case of its own.
        as_rival: makes a rival of a function that a marker names.
        """
        self.begin_call(label)
        if reason := self.run.too_long(problem):
            pytest.skip(reason)
        targets: list[tuple[Rival, float | None]] = [
            (_rival(target.against, against), float(target.at_least)) for target in self._values("perf_target")
        ]
        if as_rival is not None:
            targets = [(as_rival(rival) if callable(rival) else rival, share) for rival, share in targets]
        candidate = problem.called(candidate)
        modes = cache_modes(cache or self.run.options.cache or Settings.cache)
        planned = [
            (*target, mode)
            for target in targets or [(None, None)]
            for mode in (modes if targets else modes[:1])  # a call that is not timed has no state of the cache
        ]
        # A fresh process judges no limits, so it counts comparisons alone.
        before = sum(case.aspect is None for case in self.item.stash[CASES])
        suspect = self.run.suspect
        if suspect is not None and before <= suspect < before + len(planned):
            self._one(problem, candidate, *planned[suspect - before], before, suspect)
            pytest.skip("the suspect is measured")
        made = [self._one(problem, candidate, *one, before, before + place) for place, one in enumerate(planned)]
        if not self.run.fresh:
            self._judge(problem, candidate, made)
        return made[0]

    def begin_call(self, label: str | None = None) -> None:
        """Count a call of `perf`; its cases carry its number and its label."""
        self.calls += 1
        self._costs_of_call = None
        self._label = label
        self._of_label[label] += 1

    @property
    def test(self) -> str:
        """The test's name, without its parameters."""
        return str(getattr(self.item, "originalname", None) or self.item.name)

    def marked_rivals(self) -> list[Candidate]:
        """The functions that the markers name as rivals, the nearest first."""
        return [target.against for target in self._values("perf_target") if callable(target.against)]

    def _values(self, marker: str) -> list[Any]:
        values = marks.values_of(self.item, marker)
        return [self.run.override(marker, value, self.item.nodeid) for value in values]

    def _one(
        self,
        problem: Problem,
        candidate: Candidate,
        against: Rival,
        at_least: float | None,
        cache: CacheMode,
        before: int,
        number: int,
    ) -> Comparison:
        """Measure one comparison, of that number in its test. before: the number of its call's first one."""
        named = marks.values_of(self.item, "correctness")
        repeat = None if at_least is None or self.run.fresh else partial(measure_afresh, self.item, number, before)
        ask = Ask(
            problem,
            candidate,
            against=against,
            correctness=(named[0].against if named else None) or True,
            deterministic=named[0].deterministic if named else True,
            at_least=at_least,
            label=self._label,
            test=self.test,
            settings=replace(self.run.settings(), cache=cache),
            remeasure=repeat,
            examined=number == self.run.suspect,
        )
        comparison: Comparison = self.run.config.hook.pytest_perfsuite_compare(config=self.run.config, ask=ask)
        if self.run.config.getoption("usepdb", False) and comparison.error is not None:
            self.item.stash[CAUSE] = comparison.error
        # Frames of the exception hold the candidate's tensors.
        comparison = replace(comparison, error=None)
        self.keep(comparison, measured=self._costs(ask, comparison))
        if repeat is not None:
            prepare_ahead(self.run.config)
        return comparison

    def _costs(self, ask: Ask, comparison: Comparison) -> dict[str, float] | None:
        """The costs of a call of a timed case besides time; None if no CUDA graph holds the call."""
        wrong = comparison.verdict is Verdict.WRONG
        if comparison.clock != "graph" or wrong or self.run.fresh or self.run.options.isolate:
            return None
        if self._costs_of_call is None:
            self._costs_of_call = takes(ask.problem, ask.candidate, seed=ask.settings.seed)
        return dict(self._costs_of_call)

    def _judge(self, problem: Problem, candidate: Candidate, made: list[Comparison]) -> None:
        """Check the markers' limits besides speed. Each finding becomes a case."""
        unseen = []
        cases = self.item.stash[CASES][-len(made) :]
        last = len(self.item.stash[CASES]) - 1
        for name in marks.on(self.item):
            kind = marks.kind(name)
            if kind.judge is Marker.judge:
                continue
            if kind.needs_gpu and not self.run.options.gpu:
                unseen.append(f"{name} is looked at on a GPU only")
                continue
            if kind.needs_gpu and made[0].reason in (Reason.CANDIDATE_FAILED, Reason.OUT_OF_MEMORY):
                continue
            looked_at = list(zip(made, cases, strict=True))[: None if kind.each_rival else 1]
            for value, (comparison, case) in product(self._values(name), looked_at):
                for finding in value.judge(self._subject(problem, candidate, comparison, case)):
                    limit = _limit(finding, comparison, comparison.rival if kind.each_rival else None)
                    self.keep(limit, aspect=finding.aspect, measured=finding.measured)
        if unseen:
            # A reader must not take an unchecked limit for one that holds.
            case = self.item.stash[CASES][last]
            self.item.stash[CASES][last] = case.changed(warnings=[*case.warnings, *unseen])

    def _subject(self, problem: Problem, candidate: Candidate, comparison: Comparison, case: Case) -> Subject:
        config, settings = self.run.config, self.run.settings()
        given = {"config": config, "candidate": candidate, "settings": settings}
        return Subject(
            *(problem, comparison, case, settings, config.rootpath),
            measure=lambda name, at: config.hook.pytest_perfsuite_resource(resource=name, problem=at, **given),
            side_by_side=lambda *both: config.hook.pytest_perfsuite_side_by_side(problems=both, **given),
        )

    def keep(
        self, comparison: Comparison, *, aspect: str | None = None, measured: dict[str, float] | None = None
    ) -> None:
        """Put a comparison on record. aspect: the limited quantity other than time, with its values in `measured`."""
        name, cases = case_name(comparison, aspect), self.item.stash[CASES]
        earlier = {one.call for one in cases if (one.case, one.label) == (name, self._label)}
        case = case_record(
            comparison,
            test=self.item.nodeid,
            fingerprint=self.run.fingerprint,
            workers=workers_in(self.run.config),
            aspect=aspect,
            measured=measured,
            label=self._label,
            call=self.calls,
            alike=len(earlier | {self.calls}),
            order=self._of_label[self._label],
        )
        self.comparisons.append(comparison)
        cases.append(case)
        write_live(self.run, case)
        number, line = len(self.comparisons), case.as_json()
        prefix = "perf_" if number == 1 else f"perf_{number}_"
        self.item.user_properties += [(prefix + name, line[name]) for name in _SHOWN if line[name] is not None]


def _limit(finding: Finding, checked: Comparison, rival: str | None) -> Comparison:
    """A finding in the form of a comparison."""
    return Comparison(
        family=checked.family,
        name=checked.name,
        params=checked.params,
        candidate=checked.candidate,
        rival=rival,
        verdict=Verdict.MISSED if finding.broken else Verdict.UNDECIDED if finding.unsure else Verdict.MET,
        reason=finding.broken or finding.unsure or Reason.CHECKED,
        warnings=(finding.warning,) if finding.warning else (),
        sentence=finding.sentence,
        cache=checked.cache,
        distribution=checked.distribution,
        seed=checked.seed,
    )


def _rival(marked: Rival, called: Rival) -> Rival:
    if marked is not None and called is not None and marked != called:
        raise two_rivals(marked, called)
    return called if marked is None else marked


def two_rivals(marked: object, called: object) -> ValueError:
    """The error of a call that names another rival than its marker."""
    return ValueError(
        f"two rivals: the marker perf_target(against={marked!r}) and perf(..., against={called!r}); name it once"
    )
