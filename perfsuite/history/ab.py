"""Compares two commits: runs processes of both in turn until every case is decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from perfsuite.history.processes import Process, difference, process_of, was_shared
from perfsuite.outcome import EXIT_MET, EXIT_MISSED, EXIT_UNDECIDED, Reason, Verdict
from perfsuite.record.case import Case
from perfsuite.report import figures
from perfsuite.report.difference import got_worse
from perfsuite.report.quantities import quantities
from perfsuite.verdict.noise import Noise
from perfsuite.verdict.sequential import Estimate, spent_at

Measure = Callable[[str, Sequence[str]], Sequence[Case]]
"""("base" or "head", tests to run, or () for all) -> the cases of one process."""
BASE, HEAD = "base", "head"
FIRST_PAIRS = 3
"""Processes a side before the first look."""


@dataclass
class Pair:
    """One case on both sides."""

    name: str
    test: str
    sides: dict[str, list[Process]] = field(default_factory=lambda: {BASE: [], HEAD: []})
    wrong: dict[str, str] = field(default_factory=dict)
    """Side -> the sentence of its WRONG verdict."""
    shared: int = 0
    """Processes that do not count, since others used the card."""
    verdict: Verdict | None = None
    reason: Reason = Reason.BUDGET_SPENT
    estimate: Estimate | None = None
    timed: bool = True
    """False for a limit or an error, which one process of each side decides."""
    last: dict[str, Case] = field(default_factory=dict)
    """Side -> the case in its newest process."""
    worse: list[str] = field(default_factory=list)
    """Limits that the head holds less well, and an error that grew."""

    @property
    def sentence(self) -> str:
        """The result, with the numbers."""
        if self.verdict is Verdict.WRONG:
            both = " (as it is in the base)" if BASE in self.wrong else ""
            return f"wrong{both}: {self.wrong[HEAD]}"
        counts = "/".join(str(len(processes)) for processes in self.sides.values())
        if not self.timed and len(self.last) == len(self.sides):
            return "; ".join(self.worse) or "no limit got worse"
        if self.estimate is None and _comparable(self):
            return f"not judged: {counts} processes, before the first look"
        if self.estimate is None:
            lacking = [side for side, processes in self.sides.items() if not processes]
            return f"not compared: nothing was timed in the {' and the '.join(lacking)}{self._left_out}" + (
                f" ({self.wrong[BASE]})" if BASE in self.wrong else ""
            )
        one, grown = self.estimate, "".join(f"; {sentence}" for sentence in self.worse)
        percent = [100.0 * (value - 1.0) for value in (one.speed, one.low, one.high)]
        interval = f"[{percent[1]:+.2f}, {percent[2]:+.2f}]"
        return f"{percent[0]:+.2f} % speed {interval}, {counts} processes{self._left_out}{grown}"

    @property
    def _left_out(self) -> str:
        return f"; {self.shared} more shared the card with other processes" if self.shared else ""


def compare(
    measure: Measure,
    *,
    slower: float,
    alpha: float,
    most_pairs: int,
    noise_of: Callable[[float], Noise],
    given: Iterable[Case] = (),
    interrupted: Callable[[], None] | None = None,
) -> list[Pair]:
    """Measure pairs of processes until each case is decided, or `most_pairs` are spent; worst first.

    slower: the share by which a case may get slower. alpha: probability that any verdict of the run is wrong.
    given: cases of the base from a record, in place of a build. interrupted: called after a KeyboardInterrupt, which
    leaves the other cases undecided; without it the interrupt is raised.
    """
    pairs: Pairs = {}
    given = list(given)
    _take(pairs, BASE, given)
    sides = (HEAD,) if given else (BASE, HEAD)
    try:
        for number in range(most_pairs):
            open_tests = sorted({pair.test for pair in pairs.values() if _is_open(pair)})
            for side in sides if number % 2 == 0 else reversed(sides):
                _take(pairs, side, measure(side, open_tests if number >= FIRST_PAIRS else ()))
            look = number + 2 - min(FIRST_PAIRS, most_pairs)
            if look < 1:
                continue
            timed = sum(pair.timed for pair in pairs.values())
            for pair in pairs.values():
                if pair.verdict is None:
                    _decide(pair, slower, spent_at(look, alpha / max(timed, 1)), noise_of)
            if not any(_is_open(pair) for pair in pairs.values()):
                break
    except KeyboardInterrupt:
        if interrupted is None:
            raise
        interrupted()
    for pair in pairs.values():
        pair.verdict = pair.verdict or Verdict.UNDECIDED
    worst = (Verdict.WRONG, Verdict.MISSED, Verdict.UNDECIDED, Verdict.MET)
    speed = {pair.name: pair.estimate.speed if pair.estimate else 1.0 for pair in pairs.values()}
    return sorted(pairs.values(), key=lambda pair: (worst.index(pair.verdict or Verdict.MET), speed[pair.name]))


def exit_code(pairs: Sequence[Pair]) -> int:
    """1 if a case got slower or is wrong, 20 if a case that both sides ran is undecided, else 0."""
    verdicts = {pair.verdict for pair in pairs if pair.verdict is not Verdict.UNDECIDED or _concerns_both(pair)}
    if verdicts & {Verdict.WRONG, Verdict.MISSED}:
        return EXIT_MISSED
    return EXIT_UNDECIDED if Verdict.UNDECIDED in verdicts else EXIT_MET


WORDS = {Verdict.WRONG: "wrong", Verdict.MISSED: "slower", Verdict.UNDECIDED: "cannot tell", Verdict.MET: "no slower"}
"""The words for a comparison of two commits: MET and MISSED would speak of a target."""


def lines(pairs: Sequence[Pair], slower: float) -> list[str]:
    """One line a case, in the order given, and a sentence. slower: the share by which a case may get slower."""
    found = [f"{_word(pair):<12}{pair.name}: {pair.sentence}{_times(pair)}" for pair in pairs]
    return [*found, conclusion(pairs, slower)]


def conclusion(pairs: Sequence[Pair], slower: float) -> str:
    """The result of the comparison in one sentence, with the threshold and a remedy."""
    kinds = [_word(pair) for pair in pairs]
    counts = ", ".join(f"{kinds.count(one)} {one}" for one in dict.fromkeys(kinds)) or "none was measured"
    said = f"{len(pairs)} cases: {counts}; a case may get {slower:.2%} slower"
    if "wrong" in kinds or "slower" in kinds:
        return f"{said}. The head is worse than the base."
    if any(pair.verdict is Verdict.UNDECIDED and _concerns_both(pair) for pair in pairs):
        return f"{said}. Nothing was shown to be slower, but the noise is too large: quiet the machine or add --pairs."
    return f"{said}. Nothing got slower."


def _word(pair: Pair) -> str:
    return WORDS[pair.verdict or Verdict.UNDECIDED]


def _times(pair: Pair) -> str:
    """The times of a call on both sides, if both have one."""
    times = [pair.last[side].candidate_seconds for side in (BASE, HEAD) if side in pair.last]
    if len(times) < 2 or not all(times):
        return ""
    return f" ({figures.seconds(times[0])} -> {figures.seconds(times[1])})"


def markdown(pairs: Sequence[Pair], title: str, *, most: int = 100) -> str:
    """The same as a table of at most `most` rows, worst first."""
    rows = [f"| {_word(pair)} | `{pair.name}` | {pair.sentence}{_times(pair)} |" for pair in pairs[:most]]
    rest = [f"\n{len(pairs) - most} more cases, all no worse than these."] if len(pairs) > most else []
    return "\n".join([f"### {title}", "", "| result | case | head against base |", "|---|---|---|", *rows, *rest, ""])


def as_json(pairs: Sequence[Pair]) -> list[dict[str, object]]:
    """One object a case, in the order given: name, test, verdict, sentence; speeds where it was timed."""
    found = []
    for pair in pairs:
        one: dict[str, object] = {"name": pair.name, "test": pair.test, "verdict": str(pair.verdict)}
        one["sentence"] = pair.sentence
        if pair.estimate is not None:
            one |= {"speed": pair.estimate.speed, "low": pair.estimate.low, "high": pair.estimate.high}
        found.append(one)
    return found


Pairs = dict[tuple[object, ...], Pair]
"""Pairs by test, case, label, and place among the calls of one process that are alike."""


def _comparable(pair: Pair) -> bool:
    return bool(pair.sides[BASE] and pair.sides[HEAD])


def _concerns_both(pair: Pair) -> bool:
    """True if both sides ran the case, even if other processes used the card."""
    return _comparable(pair) or pair.shared > 0


def _is_open(pair: Pair) -> bool:
    return pair.verdict is None and _concerns_both(pair)


def _take(pairs: Pairs, side: str, cases: Iterable[Case]) -> None:
    """Add the cases of one process. Label and order tell calls alike apart.

    Their number is part of the key: if the sides make other numbers of such calls, the order tells nothing.
    """
    cases = list(cases)
    alike = Counter((case.test, case.case, case.label) for case in cases)
    seen: Counter[tuple[object, ...]] = Counter()
    for case in cases:
        timed = case.target is not None or case.aspect == "roofline"
        if not timed and case.verdict != "WRONG" and not dict(quantities(case)):
            continue  # checked, and nothing was measured
        key = (case.test, case.case, case.label)
        seen[key] += 1
        place = f"call {seen[key]} of {alike[key]}" if alike[key] > 1 else ""
        which = ", ".join(filter(None, (case.label, place)))
        name = f"{case.case} ({which})" if which else case.case
        pair = pairs.setdefault((*key, place), Pair(name, case.test or "", timed=timed))
        pair.last[side] = case
        if case.verdict == "WRONG":
            pair.wrong[side] = case.sentence
        elif (process := process_of(case)) is not None:
            pair.sides[side].append(process)
        else:
            pair.shared += was_shared(case)


def _decide(pair: Pair, slower: float, alpha: float, noise_of: Callable[[float], Noise]) -> None:
    if HEAD in pair.wrong:
        pair.verdict, pair.reason = Verdict.WRONG, Reason.INACCURATE
        return
    if len(pair.last) == len(pair.sides):
        pair.worse = got_worse(pair.last[BASE], pair.last[HEAD])
    if not pair.timed and len(pair.last) == len(pair.sides):
        pair.verdict, pair.reason = Verdict.MET, Reason.CHECKED
    elif _comparable(pair):
        _decide_time(pair, slower, alpha, noise_of)
    if pair.worse and pair.verdict is Verdict.MET:
        pair.verdict, pair.reason = Verdict.MISSED, Reason.REGRESSED


def _decide_time(pair: Pair, slower: float, alpha: float, noise_of: Callable[[float], Noise]) -> None:
    noise = noise_of(min(process.seconds for side in pair.sides.values() for process in side))
    pair.estimate = difference(pair.sides[BASE], pair.sides[HEAD], alpha, noise)
    if pair.estimate.low >= 1.0 - slower:
        pair.verdict, pair.reason = Verdict.MET, Reason.FAST_ENOUGH
    elif pair.estimate.high < 1.0 - slower:
        pair.verdict, pair.reason = Verdict.MISSED, Reason.REGRESSED
