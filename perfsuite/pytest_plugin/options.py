"""The command line and ini options of the plugin, made once into one frozen value."""

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from perfsuite.settings import Settings

CACHES = ("cold", "hot")
DEFAULT_SECONDS = 1.0
DEFAULT_DISTRIBUTION = "normal"
DEFAULT_ISOLATE_SECONDS = 30.0
MOST_SECONDS = 3600.0
DEFAULT_RECORD_DIR = ".perfsuite"
DEFAULT_TARGETS = "perf_targets.toml"
PORTABLE = "portable"
"""The name under which perf_targets.toml knows the CPU backend."""


class Options(NamedTuple):
    """What the user asked of the plugin; paths are absolute.

    A named tuple, here and in the other modules that every suite loads: making a frozen dataclass takes seven times
    as long, a quarter of all the time that loading the plugin may take. (And annotations of a named tuple are evaluated
    either way: from source text, as `from __future__ import annotations` leaves them, that costs as much again.)
    """

    gpu: bool = False
    portable: bool = False
    seconds: float = DEFAULT_SECONDS
    cache: str = "cold"
    seed: int = 0
    distribution: str = DEFAULT_DISTRIBUTION
    allow_shared: bool = False
    isolate: bool = False
    isolate_seconds: float = DEFAULT_ISOLATE_SECONDS
    record: Path | None = None
    """None: a file of its own under `.perfsuite/` in the root directory."""
    markdown: Path | None = None
    targets: Path | None = None
    """None: `perf_targets.toml` in the root directory, where there is one."""
    calibration: Path | None = None

    @property
    def gating(self) -> bool:
        """Whether gates run at all: on a GPU or on the portable backend."""
        return self.gpu or self.portable

    def settings(self, *, cases: int) -> "Settings":
        """The instrument's settings for a run of `cases` timed cases."""
        from perfsuite.settings import Settings

        return Settings(
            device="cpu" if self.portable else "cuda",
            seconds=self.seconds,
            cache="hot" if self.cache == "hot" else "cold",
            seed=self.seed,
            distribution=self.distribution,
            cases=max(cases, 1),
            allow_shared=self.allow_shared,
            calibration=self.calibration,
        )


def add_options(parser: pytest.Parser) -> None:
    """Declare every flag and its ini twin (`--perf-seconds` and `perf_seconds`); the flag wins over the ini."""
    group = parser.getgroup("perfsuite", "GPU kernels: right and fast enough (perfsuite)")
    group.addoption(
        "--gpu", action="store_true", help="use the GPU: run the tests that need one; fail if there is none"
    )
    _flag(
        parser,
        group,
        "--perf-portable",
        "gate the portable kernels on the CPU with a host clock (where there is no GPU)",
    )
    _value(parser, group, "--perf-seconds", "SECONDS", f"time budget a case (default {DEFAULT_SECONDS:g})")
    _value(parser, group, "--perf-cache", "|".join(CACHES), "state of the L2 cache at each launch (default cold)")
    _value(
        parser,
        group,
        "--perf-seed",
        "N",
        "seed of the inputs and of the order of the rounds (default: another in every run; the record says which)",
    )
    drawn = f"what inputs are drawn from, such as cancellation (default {DEFAULT_DISTRIBUTION}); cases carry the name"
    _value(parser, group, "--perf-distribution", "NAME", drawn)
    _flag(parser, group, "--perf-allow-shared", "measure although other processes use the card")
    _flag(parser, group, "--perf-isolate", "run every candidate in a process of its own (it must be importable)")
    isolated = f"how long an isolated candidate may take for one request (default {DEFAULT_ISOLATE_SECONDS:g})"
    _value(parser, group, "--perf-isolate-seconds", "SECONDS", isolated)
    _value(
        parser, group, "--perf-record", "FILE", f"where the record goes (default: a new file in {DEFAULT_RECORD_DIR}/)"
    )
    _value(parser, group, "--perf-markdown", "FILE", "also write the summary as markdown, for a CI step summary")
    _value(parser, group, "--perf-targets", "FILE", f"targets per GPU model (default {DEFAULT_TARGETS}, where present)")
    _value(
        parser,
        group,
        "--perf-calibration",
        "FILE",
        "calibration.json (default: this card's in .perfsuite/ or records/)",
    )


def build_options(config: pytest.Config) -> Options:
    """The options of this run; UsageError names a bad value and what is allowed."""
    gpu, portable = bool(config.getoption("gpu")), _switch(config, "perf_portable")
    if gpu and config.getoption("perf_portable"):
        raise pytest.UsageError("--gpu and --perf-portable exclude each other: gate on the GPU or on the CPU")
    cache = _text(config, "perf_cache") or "cold"
    if cache not in CACHES:
        raise pytest.UsageError(f"{_name(config, 'perf_cache')} is {cache!r}; allowed are {' and '.join(CACHES)}")
    return Options(
        gpu=gpu,
        portable=portable and not gpu,
        seconds=_seconds(config, "perf_seconds", DEFAULT_SECONDS),
        cache=cache,
        seed=_seed(config),
        distribution=_distribution(config),
        allow_shared=_switch(config, "perf_allow_shared"),
        isolate=_switch(config, "perf_isolate"),
        isolate_seconds=_seconds(config, "perf_isolate_seconds", DEFAULT_ISOLATE_SECONDS),
        record=_path(config, "perf_record"),
        markdown=_path(config, "perf_markdown"),
        targets=_existing(config, "perf_targets"),
        calibration=_existing(config, "perf_calibration"),
    )


def _flag(parser: pytest.Parser, group: Any, flag: str, text: str) -> None:
    group.addoption(flag, action="store_true", default=None, help=text)
    parser.addini(_key(flag), text, type="bool", default=False)


def _value(parser: pytest.Parser, group: Any, flag: str, metavar: str, text: str) -> None:
    group.addoption(flag, metavar=metavar, default=None, help=text)
    parser.addini(_key(flag), text, default="")


def _key(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def _switch(config: pytest.Config, key: str) -> bool:
    given = config.getoption(key)
    if given is not None:
        return bool(given)
    try:
        return bool(config.getini(key))
    except (ValueError, pytest.UsageError) as error:  # whose sentence does not say which option it is
        raise pytest.UsageError(f"ini option {key}: {error}; allowed are true and false") from None


def _text(config: pytest.Config, key: str) -> str | None:
    given = config.getoption(key)
    return str(config.getini(key) if given is None else given) or None


def _name(config: pytest.Config, key: str) -> str:
    """How the user wrote it: the flag, or the ini key."""
    return f"ini option {key}" if config.getoption(key) is None else "--" + key.replace("_", "-")


def _seconds(config: pytest.Config, key: str, default: float) -> float:
    text = _text(config, key)
    try:
        seconds = default if text is None else float(text)
    except ValueError:
        seconds = math.nan
    if not 0.0 < seconds <= MOST_SECONDS:
        name = _name(config, key)
        raise pytest.UsageError(
            f"{name} is {text!r}; it must be a number of seconds, over 0 and at most {MOST_SECONDS:g}"
        )
    return seconds


def _seed(config: pytest.Config) -> int:
    text = _text(config, "perf_seed")
    if text is None:
        # Fresh in every run, and the same in all of its workers: what was learnt of the inputs of earlier runs is of no
        # use in this one.
        config.option.perf_seed = str(int.from_bytes(os.urandom(4), "little"))
        return int(config.option.perf_seed)
    if not text.isdecimal() or int(text) >= 2**63:
        name = _name(config, "perf_seed")
        raise pytest.UsageError(f"{name} is {text!r}; it must be a whole number from 0 to {2**63 - 1}")
    return int(text)


def _distribution(config: pytest.Config) -> str:
    name = _text(config, "perf_distribution")
    if name is None or name == DEFAULT_DISTRIBUTION:
        return DEFAULT_DISTRIBUTION
    from perfsuite.problems import DISTRIBUTIONS

    if name not in DISTRIBUTIONS:
        raise pytest.UsageError(
            f"{_name(config, 'perf_distribution')} is {name!r}; allowed are {', '.join(DISTRIBUTIONS)}"
        )
    return name


def _path(config: pytest.Config, key: str) -> Path | None:
    """The path of a file to be written, below where pytest was started (ini: below the root directory)."""
    text = _text(config, key)
    if text is None:
        return None
    base = config.rootpath if config.getoption(key) is None else config.invocation_params.dir
    path = base / text
    if os.path.isdir(path):  # Path.is_dir raises where a name is too long or a folder may not be read
        raise pytest.UsageError(f"{_name(config, key)} is {text!r}, a folder; it must be a file")
    return path


def _existing(config: pytest.Config, key: str) -> Path | None:
    path = _path(config, key)
    if path is not None and not os.path.isfile(path):
        raise pytest.UsageError(f"{_name(config, key)} is {str(path)!r}; there is no such file")
    return path
