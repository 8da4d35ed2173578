"""Benchmarks of perfsuite's own work on many cases: records, comparisons, and the look-up of the `regression` marker.

Each class states its law. `nox -s growth` measures the laws up to a million cases.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perfsuite.cli.main import main
from perfsuite.history import series, series_index
from perfsuite.record import index_db
from perfsuite.report import case_index

ROOT = Path(__file__).resolve().parents[2]
GATES = ROOT / "records" / "h200" / "gates.jsonl"
CASES_A_FILE = 400
"""Cases of a made-up result file of asv."""


def write_record(path: Path, cases: int, *, factor: float = 1.0, samples: int = 8) -> Path:
    """A record of so many cases with names of their own, made of the committed gates.

    factor: on all speeds. One case in a thousand is half as fast if it is not 1.
    """
    lines = [json.loads(line) for line in GATES.read_text().splitlines()]
    timed = [line for line in lines if line.get("speed")]
    usual, slow = ([_template(case, share, samples) for case in timed] for share in (factor, 0.5))
    with path.open("w", encoding="utf-8") as file:
        for number in range(cases):
            place = number % len(timed)
            template = (slow if factor != 1.0 and number % 1000 == 0 else usual)[place]
            file.write(template.replace("@round", str(number // len(timed))).replace("@number", str(number)))
    return path


def _template(case: dict[str, Any], share: float, samples: int) -> str:
    """The line of a case at that share of its speed; the marks in its names stand for numbers."""
    case = case | {name: case[name] * share for name in ("speed", "speed_low", "speed_high")}
    case |= {"case": f"{case['case']} @round", "test": f"{case['test']}-@number"}
    case["samples"] = {name: column[:samples] for name, column in case["samples"].items()}
    case["discarded_samples"] = {}
    return json.dumps(case, separators=(",", ":")) + "\n"


def write_results(folder: Path, files: int, *, cases: int = CASES_A_FILE) -> str:
    """So many result files of asv, each of one commit; return the title of their series."""
    title = series.benchmark_name("made_up", series.BY_NAME["time_ratio"])
    names = [repr(f"case {number}") for number in range(cases)]
    columns = ["result", "params", "version", "samples"]
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        samples = [[1.0 + (number * cases + case) % 97 / 1e4] * 8 for case in range(cases)]
        values: dict[str, Any] = {
            "commit_hash": f"{number:040x}",
            "env_name": "virtualenv-py3.11",
            "date": 1_700_000_000_000 + number,
            "params": {"machine": folder.name, "python": "3.11"},
            "python": "3.11",
            "requirements": {},
            "env_vars": {},
            "result_columns": columns,
            "results": {title: [[one[0] for one in samples], [names], series.VERSION, samples]},
            "durations": {},
            "version": 2,
        }
        (folder / f"{number:08x}-virtualenv-py3.11.json").write_text(json.dumps(values))
    return title


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """In a working directory, with an index of its own and nothing printed."""
    before = Path.cwd()
    os.chdir(folder)
    index_db._opened.cache_clear()
    series_index._CHECKED.clear()
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        index_db._opened.cache_clear()
        os.chdir(before)


def export(record: Path, folder: Path) -> None:
    """Add a record to a history below a folder, by the command."""
    main(["export", "asv", str(record), "--results", str(folder / "history"), "--repo", str(ROOT), "--allow-dirty"])


class _InFolder:
    """Makes and removes a folder for each case count."""

    timeout = 600.0
    timer = time.process_time  # which other processes change least
    params = (400, 4000, 40_000)
    param_names = ("cases",)

    def setup(self, cases: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="perfsuite-scale-"))
        self.one = write_record(self.folder / "one.jsonl", cases)
        self.two = write_record(self.folder / "two.jsonl", cases, factor=1.0001)

    def teardown(self, cases: int) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class Compare(_InFolder):
    """Law: linear in the cases, at most 75 us a case cold (with msgspec) and 6 us warm; under 300 MB at 40,000."""

    number = 1

    def setup(self, cases: int) -> None:
        super().setup(cases)
        with inside(self.folder):
            index = index_db.open_index(self.folder)
            case_index.indexed(index, self.one)
            case_index.indexed(index, self.two)

    def time_cold(self, cases: int) -> None:
        """Both records are read into a new index."""
        (self.folder / ".perfsuite" / "index.db").unlink()
        with inside(self.folder):
            self._compare()

    def time_warm(self, cases: int) -> None:
        """Both records are in the index."""
        with inside(self.folder):
            self._compare()

    def peakmem_cold(self, cases: int) -> None:
        self.time_cold(cases)

    def _compare(self) -> None:
        index = index_db.open_index(self.folder)
        sides = [case_index.indexed(index, path) for path in (self.one, self.two)]
        case_index.compared(index, *sides, least=0.03)


class Report(_InFolder):
    """Law: linear in the cases, at most 75 us a case; the lines printed are bounded."""

    number = 1

    def time_terminal(self, cases: int) -> None:
        with inside(self.folder):
            main(["report", str(self.one)])


class Export(_InFolder):
    """Law: linear in the cases, at most 300 us a case and 8 kB of memory."""

    params = (400, 4000)
    number = 1

    def time_asv(self, cases: int) -> None:
        """A record into a new history."""
        with inside(self.folder):
            shutil.rmtree(self.folder / "history", ignore_errors=True)
            export(self.one, self.folder)

    def peakmem_asv(self, cases: int) -> None:
        self.time_asv(cases)


class LookUp:
    """Law: 5 ms for a case whatever the number of result files; reading one file into the index takes 10 ms, once."""

    timeout = 600.0
    timer = time.process_time
    params = (10, 100, 1000)
    param_names = ("files",)

    def setup(self, files: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="perfsuite-scale-"))
        self.title = write_results(self.folder / "machine", files)
        with inside(self.folder):
            self.index = index_db.open_index(self.folder)
            series_index.update(self.index, self.folder / "machine")

    def teardown(self, files: int) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def time_one_case(self, files: int) -> None:
        """The samples of one case at all commits; asv's look-back uses those of the last commits only."""
        series_index.samples_of(self.index, self.folder / "machine", {}, [self.title], [repr("case 7")])

    def time_fill(self, files: int) -> None:
        """All files into a new index."""
        with inside(self.folder):
            series_index.update(index_db.Index(index_db._connected(None), None), self.folder / "machine")
