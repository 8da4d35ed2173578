"""Runs of made-up jobs on made-up cards: what they leave in their folder, however they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import pytest
from made_up import job, journal

from perfsuite.outcome import UserError
from records.make import kept as folders
from records.make.job import Job
from records.make.kept import Kept
from records.make.run import ROOT, Run
from records.make.schedule import Card

COMMIT = "0123456789abcdef"
CUT = """
def stop(number, frame):
    (place / "interrupted").touch()
    sys.exit(3)
signal.signal(signal.SIGINT, stop)
(place.parent / "ready").touch()
if not (place / "interrupted").exists():
    wait_for("what never comes")
"""
"""Runs until it is interrupted; a second time it ends by itself."""


def made(folder: Path, jobs: Sequence[Job], *, cards: int = 1, **options: object) -> Kept:
    """Run the jobs in a folder, which is new or that of an earlier run."""
    kept = folders.read(folder) if folder.exists() else folders.begin(folder, COMMIT, False, "NVIDIA H200")
    here = [Card(str(number)) for number in range(cards)]
    given = {"seconds": 600.0, "processors": 4, "sanitizer": "none", "tell": lambda text: None, **options}
    Run(kept, "h200", jobs, here, **given).run()  # type: ignore[arg-type]
    return folders.read(folder)


def states(kept: Kept) -> dict[str, str]:
    return {name: state.state for name, state in kept.jobs.items()}


def test_whole_records_lie_in_the_folder_of_the_card(tmp_path: Path) -> None:
    kept = made(tmp_path / "run", [job("one"), job("two", bodies={"a": "", "b": ""})])
    assert states(kept) == {"one": "whole", "two": "whole"}
    assert kept.jobs["two"].found == "2 of 2 parts"
    assert kept.jobs["two"].record == "h200/two.json"
    parts = json.loads((tmp_path / "run" / "h200" / "two.json").read_text())
    assert [one["from"] for one in parts] == ["a", "b"]


def test_a_job_that_fails_stops_no_other_and_its_log_stays(tmp_path: Path) -> None:
    bad = job("bad", bodies="print('the reason'); sys.exit(7)")
    half = job("half", bodies={"good": "", "bad": "sys.exit(7)"})
    kept = made(tmp_path / "run", [bad, half, job("good")])
    assert states(kept) == {"bad": "failed", "half": "failed", "good": "whole"}
    assert kept.jobs["bad"].found == "bad: exit code 7"
    assert kept.jobs["half"].found == "bad: exit code 7; 1 of 2 parts"
    assert "the reason" in (tmp_path / "run" / "logs" / "bad-bad.log").read_text()
    assert not (tmp_path / "run" / "h200" / "half.json").exists()


def test_two_cards_work_at_once_and_jobs_that_time_are_alone_on_theirs(tmp_path: Path) -> None:
    # Each of the first two waits until the other has begun, so both cards must work at once.
    first, second = job("first", bodies="wait_for('second began')"), job("second", bodies="wait_for('first began')")
    shared = [job(name, times=False, beside=2) for name in ("bits", "calls")]
    kept = made(tmp_path / "run", [first, second, *shared, job("third"), job("fourth")], cards=2)
    assert set(states(kept).values()) == {"whole"}
    lines = journal(tmp_path / "run")
    assert {card for _, card, _ in lines} == {"0", "1"}
    spans = {name: (card, lines.index((name, card, "begin")), lines.index((name, card, "end")))
             for name, card, what in lines if what == "end"}  # fmt: skip
    for one, other in combinations(spans, 2):
        (card, begin, end), (other_card, other_begin, other_end) = spans[one], spans[other]
        if card == other_card and begin < other_end and other_begin < end:
            assert {one, other} == {"bits", "calls"}


def test_a_later_turn_waits_for_the_earlier_one_and_is_left_out_if_it_is_not_needed(tmp_path: Path) -> None:
    bodies = {"last": "", "a": "", "b": "", "spare": ""}
    turns = job("turns", bodies=bodies, beside=4, last=("last", "spare"), spare=("spare",))
    kept = made(tmp_path / "run", [turns], cards=2)
    begun = [name for name, _, what in journal(tmp_path / "run") if what == "begin"]
    assert set(begun[:2]) == {"a", "b"}
    assert begun[2:] == ["last"]
    assert sorted(kept.jobs["turns"].ended) == ["a", "b", "last", "spare"]


def test_a_job_of_two_cards_sees_both(tmp_path: Path) -> None:
    both = job("both", cards=2)
    made(tmp_path / "run", [both, job("one")], cards=2)
    assert ("both", "0,1", "begin") in journal(tmp_path / "run")


def test_a_job_says_what_it_lacks(tmp_path: Path) -> None:
    kept = made(tmp_path / "run", [job("both", cards=2), job("sanitizers", needs=("sanitizer",)), job("one")])
    assert kept.jobs["both"].state == "lacks cards: it wants 2"
    assert kept.jobs["sanitizers"].state == "lacks there is no none (--sanitizer FILE)"
    assert kept.jobs["one"].state == "whole"


def cut_when_ready(ready: Path, begun: float = 0.0, then: float = 45.0):  # type: ignore[no-untyped-def]
    """A clock that stands until the file is there, and then says that the time to measure is over."""
    return lambda: then if ready.exists() else begun


def test_what_the_time_cuts_is_kept_and_continued(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    jobs = [job("parts", bodies={"a": "", "b": CUT}, seconds=30.0), job("later", seconds=20.0, least=20.0)]
    kept = made(folder, jobs, seconds=50.0, clock=cut_when_ready(folder / "ready"))
    assert states(kept) == {"parts": "partial", "later": "not begun"}
    assert kept.jobs["parts"].ended == ["a"]
    assert kept.jobs["parts"].found == "1 of 2 parts"
    assert (folder / "parts" / "interrupted").exists()
    assert not (folder / "h200").exists()
    kept = made(folder, jobs)
    assert states(kept) == {"parts": "whole", "later": "whole"}
    begun = [name for name, _, what in journal(folder) if what == "begin"]
    assert begun == ["a", "b", "b", "later"], "what was whole was done again"


def test_a_record_whose_command_was_cut_is_not_whole_though_it_can_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    early = '(place / "cut.part").write_text("{}")' + CUT
    kept = made(folder, [job("cut", bodies=early)], seconds=50.0, clock=cut_when_ready(folder / "ready"))
    assert states(kept) == {"cut": "partial"}
    assert kept.jobs["cut"].found == "1 of 1 parts"


def test_a_command_that_ignores_an_interrupt_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    deaf = (
        "signal.signal(signal.SIGINT, signal.SIG_IGN); (place.parent / 'ready').touch(); wait_for('what never comes')"
    )
    # At second 60 all time is over.
    kept = made(folder, [job("deaf", bodies=deaf)], seconds=50.0, clock=cut_when_ready(folder / "ready", then=60.0))
    assert states(kept) == {"deaf": "partial"}
    assert [what for _, _, what in journal(folder)] == ["begin"]


def test_a_program_learns_the_seconds_that_are_left_for_it(tmp_path: Path) -> None:
    told = "(place.parent / 'told').write_text(sys.argv[3])"
    made(tmp_path / "run", [job("one", bodies=told, closing=30.0)], seconds=1000.0, clock=lambda: 0.0)
    assert (tmp_path / "run" / "told").read_text() == "935"  # less 35 for the end of the call


PROGRAM = """
import sys
sys.path[:0] = sys.argv[1:3]
from pathlib import Path
from made_up import job
from test_record_runs import CUT, made, states
kept = made(Path(sys.argv[3]), [job("first"), job("cut", bodies=CUT), job("never")])
print(states(kept))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_whole_files(tmp_path: Path, number: signal.Signals) -> None:
    folder = tmp_path / "run"
    line = [sys.executable, "-c", PROGRAM, str(ROOT), str(Path(__file__).parent), str(folder)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as program:
        end = time.monotonic() + 60.0
        while not (folder / "ready").exists():
            assert program.poll() is None
            assert time.monotonic() < end
            time.sleep(0.02)
        os.kill(program.pid, number)
        told = program.communicate(timeout=60)[0]
    assert told.strip() == str({"first": "whole", "cut": "partial", "never": "not begun"})
    assert (folder / "cut" / "interrupted").exists()
    assert json.loads((folder / "h200" / "first.json").read_text())[0]["from"] == "first"


def test_a_folder_is_continued_on_the_same_commit_and_card_only(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    made(folder, [job("one")])
    assert folders.resume(folder, COMMIT, False, "NVIDIA H200").jobs["one"].state == "whole"
    for commit, dirty, card, what in (
        ("fedcba", False, "NVIDIA H200", "commit"), (COMMIT, True, "NVIDIA H200", "dirty tree"),
        (COMMIT, False, "NVIDIA H100", "card"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=f"^{what} of .* begin a new folder"):
            folders.resume(folder, commit, dirty, card)


def test_a_folder_with_files_is_not_begun_again(tmp_path: Path) -> None:
    made(tmp_path / "run", [job("one")])
    with pytest.raises(UserError, match="is not an empty folder; --resume continues there"):
        folders.begin(tmp_path / "run", COMMIT, False, "NVIDIA H200")
    with pytest.raises(UserError, match="holds no run of this program"):
        folders.read(tmp_path)
