"""Runs the test suites of pytest, pytest-xdist and pytest-benchmark with the plugin and without, test by test.

Each suite comes from the source distribution of the version that is installed beside this program. Both runs use one
environment. In one of them the plugin's entry point is on the path, so every inner run of a suite loads it too. A test
that fails only with the plugin runs again alone, in both ways, before it counts.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from .written import ROOT, join, update

OWN = ("filelock", "nvidia-ml-py", "Jinja2")
"""What the plugin itself needs."""
AGAIN = 3


@dataclass(frozen=True)
class Suite:
    """A suite: its distribution, what its tests need, and the words for pytest."""

    distribution: str
    needs: tuple[str, ...]
    words: tuple[str, ...] = ()
    alone: bool = False
    """In one process, since in a worker of pytest-xdist the plugin that the suite tries is off."""


SUITES = {
    "pytest": Suite(
        "pytest",
        (
            "attrs",
            "argcomplete",
            "hypothesis",
            "mock",
            "numpy",
            "pexpect",
            "pyyaml",
            "requests",
            "setuptools",
            "xmlschema",
        ),
        ("testing",),
    ),
    "pytest-xdist": Suite("pytest-xdist", ("filelock",), ("testing",)),
    "pytest-benchmark": Suite(
        "pytest-benchmark",
        ("aspectlib", "elasticsearch", "pygal", "pygaljs", "freezegun", "nbmake"),
        ("tests",),
        alone=True,
    ),
}


def main() -> int:
    """Run the suites, print a line of each, and write the figures; 1 if a test fails only with the plugin."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("suites", nargs="*", choices=[*SUITES, []], help="default: all")
    parser.add_argument("--files", nargs="+", metavar="FILE", help="only these of the suite's files")
    parser.add_argument("--workers", default="2", help="processes of pytest-xdist (default 2)")
    parser.add_argument("--venv", type=Path, help="keep the environment in this folder, and use it again")
    parser.add_argument("--output", type=Path, default=ROOT / "records" / "nightly" / "peer-suites.json")
    parser.add_argument("--join", nargs="+", type=Path, metavar="FILE", help="instead: put these results together")
    given = parser.parse_args()
    if given.join:
        join(given.output, given.join, key="key")
        return 0
    rows = []
    with tempfile.TemporaryDirectory(prefix="perfsuite-suites-") as folder:
        python = environment(given.venv or Path(folder, "venv"))
        plugin = entry_point(Path(folder, "plugin"))
        for name in given.suites or SUITES:
            rows.append(compared(name, python, plugin, Path(folder), given))
            update(given.output, [rows[-1]], key="key")
            print(*rows[-1].values(), sep="; ", flush=True)
    return int(any(row["fail only with it"] != "none" for row in rows))


def environment(folder: Path) -> Path:
    """An environment with the three distributions and what their suites need, without perfsuite."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pinned = [f"{suite.distribution}=={version(suite.distribution)}" for suite in SUITES.values()]
    needed = [name for suite in SUITES.values() for name in suite.needs]
    subprocess.run([python, "-m", "pip", "install", "-q", *pinned, *needed, *OWN], check=True)
    return python


def entry_point(folder: Path) -> Path:
    """A folder that makes the plugin installed for those that have it on their path."""
    facts = folder / "pytest_perfsuite-0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: pytest-perfsuite\nVersion: 0\n")
    (facts / "entry_points.txt").write_text("[pytest11]\nperfsuite.plugin = perfsuite.plugin\n")
    (folder / "perfsuite").symlink_to(ROOT / "perfsuite")
    return folder


def source_of(suite: Suite, folder: Path) -> Path:
    """The unpacked source distribution."""
    place = folder / suite.distribution
    line = ["-m", "pip", "download", "-q", "--no-deps", "--no-binary=:all:"]
    place.mkdir()
    subprocess.run(
        [sys.executable, *line, "-d", place, f"{suite.distribution}=={version(suite.distribution)}"], check=True
    )
    with tarfile.open(next(place.glob("*.tar.gz"))) as archive:
        archive.extractall(place, filter="data")
    return next(one for one in place.iterdir() if one.is_dir())


def compared(name: str, python: Path, plugin: Path, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """The row of a suite."""
    suite = SUITES[name]
    source = source_of(suite, folder)
    words = given.files or suite.words
    sides = {
        side: outcomes(python, source, [*words, "-n", "0" if suite.alone else given.workers], path)
        for side, path in (("without", None), ("with", plugin))
    }
    suspects = [test for test, said in sides["with"].items() if _bad(said) and not _bad(sides["without"].get(test, ""))]
    suspects += [test for test in sides["without"] if test not in sides["with"]]
    failing = [test for test in suspects if _fails_again(test, python, source, plugin)]
    called, files = f"{suite.distribution} {version(suite.distribution)}", "all"
    if given.files:
        first, last = (Path(one).stem for one in (given.files[0], given.files[-1]))
        files = f"{len(given.files)}: {first} to {last}"
    return {
        "key": f"{called}, {files}",
        "suite": called,
        "files": files,
        "tests": len(sides["without"]),
        **{side: _counted(found) for side, found in sides.items()},
        "failed once with it, not again": str(len(suspects) - len(failing)),
        "fail only with it": ", ".join(failing) or "none",
    }


def outcomes(python: Path, source: Path, words: list[str], plugin: Path | None) -> dict[str, str]:
    """Test -> "passed", "failed", "error", "skipped". Expected failures count as skipped, as JUnit has them."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "junit.xml")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "PYTHON", "NOX"))}
        # Its own temporary folder, since pytest removes all but the newest three folders of runs in one place.
        kept |= {"COLUMNS": "80", "TMPDIR": folder} | ({} if plugin is None else {"PYTHONPATH": str(plugin)})
        line = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *words]
        done = subprocess.run(line, cwd=source, env=kept, capture_output=True, text=True, errors="replace", check=False)
        if not report.exists():
            raise SystemExit(f"{' '.join(words)}: no report: {(done.stdout + done.stderr)[-600:]}")
        cases = ElementTree.parse(report).getroot().iter("testcase")
        return {f"{case.get('classname')}::{case.get('name')}": _outcome(case) for case in cases}


def _outcome(case: ElementTree.Element) -> str:
    found = {child.tag for child in case}
    return next((said for tag, said in _SAID.items() if tag in found), "passed")


_SAID = {"error": "error", "failure": "failed", "skipped": "skipped"}


def _bad(said: str) -> bool:
    return said in ("failed", "error", "")


def _fails_again(test: str, python: Path, source: Path, plugin: Path) -> bool:
    """True if the test fails with the plugin each time, and passes without it at least once."""
    words = ["-k", test.rpartition("::")[2].partition("[")[0], _file_of(test, source)]
    wide = [outcomes(python, source, words, plugin).get(test, "") for _ in range(AGAIN)]
    if not all(map(_bad, wide)):
        return False
    return any(not _bad(outcomes(python, source, words, None).get(test, "")) for _ in range(AGAIN))


def _file_of(test: str, source: Path) -> str:
    parts = test.partition("::")[0].split(".")
    for end in range(len(parts), 0, -1):
        file = Path(*parts[:end]).with_suffix(".py")
        if (source / file).is_file():
            return str(file)
    return "."


def _counted(found: dict[str, str]) -> str:
    return ", ".join(f"{count} {said}" for said, count in sorted(Counter(found.values()).items()))


if __name__ == "__main__":
    sys.exit(main())
