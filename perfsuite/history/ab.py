"""Compares two commits: runs processes of both in turn until every case is decided."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from perfsuite.history.processes import Process, difference, process_of, was_shared
from perfsuite.outcome import EXIT_MET, EXIT_MISSED, EXIT_UNDECIDED, Reason, Verdict
from perfsuite.record.case import Case
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

    @property
    def sentence(self) -> str:
        """The result, with the numbers."""
        if self.verdict is Verdict.WRONG:
            both = " (as it is in the base)" if BASE in self.wrong else ""
            return f"wrong{both}: {self.wrong[HEAD]}"
        counts = "/".join(str(len(processes)) for processes in self.sides.values())
        if self.estimate is None and _comparable(self):
            return f"not judged: {counts} processes, before the first look"
        if self.estimate is None:
            lacking = [side for side, processes in self.sides.items() if not processes]
            return f"not compared: nothing was timed in the {' and the '.join(lacking)}{self._left_out}" + (
                f" ({self.wrong[BASE]})" if BASE in self.wrong else ""
            )
        one = self.estimate
        percent = [100.0 * (value - 1.0) for value in (one.speed, one.low, one.high)]
        return f"{percent[0]:+.2f} % speed [{percent[1]:+.2f}, {percent[2]:+.2f}], {counts} processes{self._left_out}"

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
    pairs: dict[tuple[str, str], Pair] = {}
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
            for pair in pairs.values():
                if pair.verdict is None:
                    _decide(pair, slower, spent_at(look, alpha / len(pairs)), noise_of)
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


def lines(pairs: Sequence[Pair]) -> list[str]:
    """One line a case, in the order given, and a count."""
    found = [f"{pair.verdict:<10}{pair.name}: {pair.sentence}" for pair in pairs]
    kinds = [str(pair.verdict) for pair in pairs]
    return [*found, f"{len(pairs)} cases: " + ", ".join(f"{kinds.count(one)} {one}" for one in dict.fromkeys(kinds))]


def markdown(pairs: Sequence[Pair], title: str, *, most: int = 100) -> str:
    """The same as a table of at most `most` rows, worst first."""
    rows = [f"| {pair.verdict} | `{pair.name}` | {pair.sentence} |" for pair in pairs[:most]]
    rest = [f"\n{len(pairs) - most} more cases, all no worse than these."] if len(pairs) > most else []
    return "\n".join([f"### {title}", "", "| verdict | case | head against base |", "|---|---|---|", *rows, *rest, ""])


def _comparable(pair: Pair) -> bool:
    return bool(pair.sides[BASE] and pair.sides[HEAD])


def _concerns_both(pair: Pair) -> bool:
    """True if both sides ran the case, even if other processes used the card."""
    return _comparable(pair) or pair.shared > 0


def _is_open(pair: Pair) -> bool:
    return pair.verdict is None and _concerns_both(pair)


def _take(pairs: dict[tuple[str, str], Pair], side: str, cases: Iterable[Case]) -> None:
    for case in cases:
        if case.target is None and case.verdict != "WRONG":
            continue  # checked, not timed
        test = case.test or ""
        pair = pairs.setdefault((test, case.case), Pair(case.case, test))
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
    if not _comparable(pair):
        return
    noise = noise_of(min(process.seconds for side in pair.sides.values() for process in side))
    pair.estimate = difference(pair.sides[BASE], pair.sides[HEAD], alpha, noise)
    if pair.estimate.low >= 1.0 - slower:
        pair.verdict, pair.reason = Verdict.MET, Reason.FAST_ENOUGH
    elif pair.estimate.high < 1.0 - slower:
        pair.verdict, pair.reason = Verdict.MISSED, Reason.REGRESSED
