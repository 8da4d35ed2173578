"""Everything that talks to pytest: options, markers, fixtures, gates, the run and its exit code.

This file holds what every suite loads where the plugin is installed: the options, and which tests concern perfsuite.
The other files are imported when a run measures, or when a test concerns perfsuite.
"""

from __future__ import annotations

import os
import sys

import pytest

TARGETS = "perf_targets.toml"
SWITCHES = (
    ("--perf-portable", "gate the portable kernels on the CPU with a host clock (where there is no GPU)"),
    ("--perf-allow-shared", "measure although other processes use the card"),
    ("--perf-isolate", "run every candidate in a separate process (it must be importable)"),
    ("--perf-ray-open", "allow a Ray cluster that asks its callers for no token"),
    ("--perf-ci", "take the second set of the sizes that perf_sizes declares, the small one"),
)
VALUES = (
    ("--perf-seconds", "SECONDS", "time budget a case (default 1)"),
    ("--perf-cache", "cold|hot|both", "state of the L2 cache at each launch (default cold); both measures twice"),
    ("--perf-seed", "N", "seed of the inputs and of the rounds' order (default: new in every run, and recorded)"),
    ("--perf-distribution", "NAME", "the inputs' distribution (default normal; cancellation, ...), named in the case"),
    ("--perf-isolate-seconds", "SECONDS", "longest time of one request to an isolated candidate (default 30)"),
    ("--perf-targets", "FILE", f"targets per GPU model (default {TARGETS}, if present)"),
    ("--perf-calibration", "FILE", "calibration.json (default: this card's in .perfsuite/ or records/)"),
)
"""Options of the measurement. The process that measures a suspect again gets them too."""
WRITTEN = (
    ("--perf-record", "FILE", "the record's file (default: a new file in .perfsuite/)"),
    ("--perf-markdown", "FILE", "also write the summary as markdown, for a CI step summary"),
)
"""Options that name a file to write. The process that measures a suspect again does not get them."""
ELSEWHERE = (
    ("--perf-ray", "ADDRESS", "run the gated tests on a Ray cluster: HOST:PORT of its head, auto or local"),
    ("--perf-card-model", "NAME", "the card model that --perf-ray uses, as Ray names it, such as H100"),
    ("--perf-shard", "K/N", "run part K of N of the suite; `perfsuite merge` joins the records of all parts"),
    ("--perf-shard-times", "RECORD", "balance the parts by this record's times (default: by the number of gates)"),
)
"""Options that spread a suite over machines. The process that measures a suspect again does not get them."""

START_PATH = tuple(sys.path)
"""sys.path before pytest adds folders of tests to it. The process that measures a suspect again begins with it."""
DEVICE_FIXTURES = frozenset({"perf", "gpu", "gpu_memory", "gpu_rng", "gpus"})
CONCERNED = pytest.StashKey[bool]()
_names: list[str] = []


def add_options(parser: pytest.Parser) -> None:
    """Declare every flag and its ini option (`--perf-seconds` and `perf_seconds`); the flag wins."""
    group = parser.getgroup("perfsuite", "GPU kernels: right and fast enough (perfsuite)")
    # With `dest` pytest does not compare each of these with every option of every plugin.
    text = "run the tests that need a GPU; they fail without one"
    group.addoption("--gpu", dest="gpu", action="store_true", help=text)
    for flag, text in SWITCHES:
        key = option_key(flag)
        group.addoption(flag, dest=key, action="store_true", default=None, help=text)
        parser.addini(key, text, type="bool", default=False)
    for flag, metavar, text in VALUES + WRITTEN + ELSEWHERE:
        key = option_key(flag)
        group.addoption(flag, dest=key, metavar=metavar, default=None, help=text)
        parser.addini(key, text, default="")


def option_key(flag: str) -> str:
    """The name of a flag's value and of its ini option."""
    return flag.removeprefix("--").replace("-", "_")


def uses_options(config: pytest.Config) -> bool:
    """True if an option of perfsuite is given, on the command line or in the ini file, or a file of targets exists."""
    keys = [option_key(flag) for flag, *_ in (*SWITCHES, *VALUES, *WRITTEN, *ELSEWHERE)]
    if config.option.gpu or any(getattr(config.option, key) is not None for key in keys):
        return True
    try:
        given = any(config.getini(key) for key in keys)
    except (ValueError, pytest.UsageError):  # a bad value, which the run refuses
        given = True
    return given or os.path.isfile(config.rootpath / TARGETS)


def marker_names() -> list[str]:
    """The names of all markers, in alphabetical order; their files are listed, not imported."""
    if not _names:
        files = os.listdir(os.path.join(os.path.dirname(__file__), "markers"))
        _names.extend(sorted(file[:-3] for file in files if file.endswith(".py") and not file.startswith("_")))
    return _names


def concerns(item: pytest.Item) -> bool:
    """True if a test has one of our markers or asks for one of our fixtures."""
    if CONCERNED not in item.stash:
        marked = any(mark.name in marker_names() for mark in item.iter_markers())
        item.stash[CONCERNED] = marked or needs_device(item)
    return item.stash[CONCERNED]


def needs_device(item: pytest.Item) -> bool:
    """True if the test has the `gpu` marker or asks for a fixture that works on a device."""
    asked = getattr(item, "fixturenames", ())
    return item.get_closest_marker("gpu") is not None or not DEVICE_FIXTURES.isdisjoint(asked)
