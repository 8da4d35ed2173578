"""Measures what the plugin adds to a suite that has nothing to do with GPUs, beside what pytest-xdist adds.

    nox -s nightly -- load_time

Each side is an environment of its own: pytest alone, with the built wheels, with pytest-xdist, each plugin
with its dependencies. A round runs the same suite of one test once on every side, in turn. Only processor time counts:
a busy machine delays a process, but adds little to its processor time.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from .written import ROOT, update

OUTPUT = ROOT / "records" / "nightly" / "load-time.json"
PYTEST = ("pytest", "pluggy", "iniconfig", "packaging", "Pygments")
NEEDED = ("filelock", "nvidia-ml-py", "Jinja2", "MarkupSafe")
SIDES = {"pytest": (), "pip": NEEDED, "uv": NEEDED, "xdist": ("pytest-xdist", "execnet")}
"""Side -> what its environment has besides pytest. Two have the wheels of perfsuite and pytest-perfsuite.

pip lists each file's bytecode among the files of a distribution, and pytest reads that list; uv does not list it.
"""
INSTALLED = {"pip": ("--compile",), "uv": ("--no-compile",)}
MOST_OF_XDIST = 0.42
MOST_WITHOUT_BYTECODE_SECONDS = 0.006
RESAMPLES = 4000


def copy_distribution(name: str, site: Path) -> None:
    """Copy an installed distribution into another folder of packages, without its bytecode."""
    found = metadata.distribution(name)
    for file in found.files or ():
        source = Path(str(found.locate_file(file)))
        if ".." not in file.parts and "__pycache__" not in file.parts and source.is_file():
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, site / file)


def make_sides(folder: Path) -> dict[str, Path]:
    """The interpreter of each side."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    wheels = folder / "wheels"
    subprocess.run(
        [*pip, "wheel", "--no-build-isolation", "--no-deps", "-w", wheels, ROOT, ROOT / "plugin"], check=True
    )
    made = {}
    for side, more in SIDES.items():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / side], check=True)
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        site = folder / side / "lib" / version / "site-packages"
        for name in (*PYTEST, *more):
            copy_distribution(name, site)
        if side in INSTALLED:
            line = ["install", "--no-deps", *INSTALLED[side], "--target", site, *wheels.iterdir()]
            subprocess.run([*pip, *line], check=True)
        made[side] = folder / side / "bin" / "python"
    return made


def processor_seconds(python: Path, suite: Path, *, bytecode: bool) -> float:
    """The processor time of one run of the suite."""
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    environment |= {"PYTHONHASHSEED": "0"} | ({} if bytecode else {"PYTHONDONTWRITEBYTECODE": "1"})
    line = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_unrelated.py"]
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(line, cwd=suite, env=environment, stdout=said, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            said.seek(0)
            raise SystemExit(f"the suite failed on {python}:\n{said.read().decode()}")
    return used.ru_utime + used.ru_stime


def without_bytecode(folder: Path) -> None:
    """Remove the bytecode of the plugins' environments: a package that is installed with --no-compile has none."""
    for package in ("perfsuite", "xdist"):
        for cache in [*folder.rglob(f"site-packages/{package}/**/__pycache__")]:
            shutil.rmtree(cache, ignore_errors=True)


def measure(sides: dict[str, Path], suite: Path, pairs: int, *, bytecode: bool) -> dict[str, list[float]]:
    """Side -> the processor time of each round; the order of a round changes."""
    for python in sides.values():  # writes the bytecode, fills the file cache
        for _ in range(2):
            processor_seconds(python, suite, bytecode=bytecode)
    order, found = list(sides), {side: [] for side in sides}
    for number in range(pairs):
        order = order[1:] + order[:1] if number % 2 else order[::-1]
        for side in order:
            found[side].append(processor_seconds(sides[side], suite, bytecode=bytecode))
    return found


def added(samples: dict[str, list[float]], side: str, chosen: Sequence[int]) -> float:
    """The median over rounds of what a side takes more than pytest alone."""
    return statistics.median(samples[side][one] - samples["pytest"][one] for one in chosen)


def row(samples: dict[str, list[float]], side: str) -> tuple[dict[str, Any], bool]:
    """The row of an installer, and whether the 95 % upper bound, from resampled rounds, holds the goal."""
    draw, rounds = random.Random(0), range(len(samples["pytest"]))
    ratios = []
    for _ in range(RESAMPLES):
        chosen = draw.choices(rounds, k=len(rounds))
        ratios.append(added(samples, side, chosen) / max(added(samples, "xdist", chosen), 1e-9))
    ours, of_xdist = added(samples, side, rounds), added(samples, "xdist", rounds)
    most = sorted(ratios)[int(0.95 * RESAMPLES)]
    made = {
        "case": f"{side}, with bytecode",
        "pairs": len(rounds),
        "perfsuite adds": f"{ours * 1e3:.1f} ms",
        "pytest-xdist adds": f"{of_xdist * 1e3:.1f} ms",
        "ratio": f"{ours / of_xdist:.2f}, at most {most:.2f}",
        "goal": f"at most {MOST_OF_XDIST:.2f}",
    }
    return made, most <= MOST_OF_XDIST


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=40, help="rounds (default 40)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="perfsuite-load-") as folder:
        sides, suite = make_sides(Path(folder)), Path(folder, "suite")
        suite.mkdir()
        (suite / "test_unrelated.py").write_text("def test_it():\n    assert 1 + 1 == 2\n")
        with_bytecode = measure(sides, suite, arguments.pairs, bytecode=True)
        without_bytecode(Path(folder))
        bare = {side: sides[side] for side in ("pytest", "uv")}
        without = measure(bare, suite, arguments.pairs, bytecode=False)
    found = [row(with_bytecode, side) for side in INSTALLED]
    seconds = added(without, "uv", range(arguments.pairs))
    last = found[-1][0] | {"case": "uv, without bytecode", "perfsuite adds": f"{seconds * 1e3:.1f} ms"}
    last |= {"pytest-xdist adds": "-", "ratio": "-", "goal": f"at most {MOST_WITHOUT_BYTECODE_SECONDS * 1e3:.0f} ms"}
    found.append((last, seconds <= MOST_WITHOUT_BYTECODE_SECONDS))
    update(OUTPUT, [one for one, _ in found], key="case")
    for one, _ in found:
        print(", ".join(f"{name}: {value}" for name, value in one.items()))
    return 0 if all(held for _, held in found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
