"""Which command begins on which card."""

from __future__ import annotations

from made_up import job

from records.make.job import Job, Piece
from records.make.schedule import Card, Running, choose

END, PROCESSORS = 1000.0, 16


def piece(seconds: float = 10.0, *, times: bool = True) -> Piece:
    return Piece(name="part", words=(), seconds=seconds, times=times)


def busy(card: Card, of: Job, one: Piece, until: float) -> None:
    card.running.append(Running(of, one, [card], 0.0, until))


def cards(number: int = 2) -> list[Card]:
    return [Card(str(one)) for one in range(number)]


def test_a_job_that_times_has_its_card_for_itself() -> None:
    here = cards(1)
    first = job("first")
    busy(here[0], first, piece(), 10.0)
    for other in (job("second"), job("third", times=False)):
        assert choose([(other, piece(times=other.times))], here, 0.0, END, PROCESSORS) is None
    here = cards(1)
    busy(here[0], job("bits", times=False), piece(times=False), 10.0)
    assert choose([(first, piece())], here, 0.0, END, PROCESSORS) is None


def test_jobs_that_time_nothing_share_a_card_while_processors_last() -> None:
    here = cards(1)
    busy(here[0], job("many", times=False, processors=10), piece(times=False), 50.0)
    fits, not_any_more = job("fits", times=False, processors=6), job("large", times=False, processors=7)
    assert choose([(not_any_more, piece(times=False))], here, 0.0, END, PROCESSORS) is None
    chosen = choose([(fits, piece(times=False))], here, 0.0, END, PROCESSORS)
    assert chosen is not None
    assert chosen.cards == here


def test_a_job_with_more_processors_than_there_are_runs_alone() -> None:
    large = job("large", times=False, processors=99)
    assert choose([(large, piece(times=False))], cards(1), 0.0, END, PROCESSORS) is not None


def test_a_job_has_as_many_commands_on_a_card_as_it_says() -> None:
    here, exploits = cards(1), job("exploits", beside=2)
    busy(here[0], exploits, piece(), 10.0)
    assert choose([(exploits, piece())], here, 0.0, END, PROCESSORS) is not None
    busy(here[0], exploits, piece(), 10.0)
    assert choose([(exploits, piece())], here, 0.0, END, PROCESSORS) is None


def test_what_may_share_leaves_a_card_to_what_may_not() -> None:
    here = cards()
    busy(here[1], job("bits", times=False), piece(times=False), 10.0)
    chosen = choose([(job("more", times=False), piece(times=False))], here, 0.0, END, PROCESSORS)
    assert chosen is not None
    assert chosen.cards == [here[1]]


def test_a_later_job_begins_on_a_reserved_card_only_if_it_ends_before() -> None:
    here = cards(1)
    busy(here[0], job("sanitizers", times=False), piece(100.0, times=False), 100.0)
    gates = job("gates")
    for seconds, begins in ((100.0, True), (101.0, False)):
        bits = job("bits", times=False)
        waiting = [(gates, piece()), (bits, piece(seconds, times=False))]
        chosen = choose(waiting, here, 0.0, END, PROCESSORS)
        assert (chosen is not None and chosen.job.name == "bits") is begins


def test_a_job_of_two_cards_is_not_overtaken_for_ever() -> None:
    here, both = cards(), job("both", cards=2)
    busy(here[0], job("gates"), piece(100.0), 100.0)
    for seconds, begins in ((100.0, True), (101.0, False)):
        chosen = choose([(both, piece()), (job("one"), piece(seconds))], here, 0.0, END, PROCESSORS)
        assert (chosen is not None and list(chosen.cards) == [here[1]]) is begins


def test_a_job_of_two_cards_takes_both() -> None:
    here = cards(3)
    chosen = choose([(job("both", cards=2), piece())], here, 0.0, END, PROCESSORS)
    assert chosen is not None
    assert len(chosen.cards) == 2
    assert choose([(job("four", cards=4), piece())], here, 0.0, END, PROCESSORS) is None


def test_what_cannot_be_cut_begins_only_if_it_is_expected_to_end() -> None:
    whole, parts = job("whole", resumes=False), job("parts", least=25.0)
    for seconds, begins in ((100.0, True), (99.0, False)):
        assert (choose([(whole, piece(100.0))], cards(1), 0.0, seconds, PROCESSORS) is not None) is begins
    for seconds, begins in ((25.0, True), (24.0, False)):
        assert (choose([(parts, piece(100.0))], cards(1), 0.0, seconds, PROCESSORS) is not None) is begins
    assert choose([(whole, piece(100.0)), (parts, piece(100.0))], cards(1), 0.0, 50.0, PROCESSORS).job is parts  # type: ignore[union-attr]
