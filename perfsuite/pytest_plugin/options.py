"""The command line and ini options of the plugin, made once into one value."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from perfsuite.settings import Settings

MOST_SHARDS = 10_000
PORTABLE = "portable"
"""The name of the CPU backend in perf_targets.toml."""


class Options(NamedTuple):
    """The options of a run; paths are absolute, and None leaves the choice to `Settings` or to the run."""

    gpu: bool
    portable: bool
    allow_shared: bool
    isolate: bool
    ci: bool
    seconds: float | None
    cache: str | None
    seed: int
    distribution: str | None
    isolate_seconds: float
    targets: Path | None
    calibration: Path | None
    record: Path | None
    markdown: Path | None
    ray: str | None
    ray_open: bool
    card_model: str | None
    shard: tuple[int, int] | None
    """(number, from 1; count) of the part of the suite that runs."""
    shard_times: Path | None

    @property
    def gating(self) -> bool:
        """True if gates run: on a GPU or on the portable backend."""
        return self.gpu or self.portable

    def settings(self, *, cases: int) -> "Settings":
        """The instrument's settings for a run of `cases` timed cases."""
        from perfsuite.settings import Settings, cache_modes

        cache = cache_modes(self.cache)[0] if self.cache else None
        given: dict[str, Any] = {"seconds": self.seconds, "cache": cache, "distribution": self.distribution}
        return Settings(
            device="cpu" if self.portable else "cuda",
            seed=self.seed,
            cases=max(cases, 1) * (2 if self.cache == "both" else 1),
            allow_shared=self.allow_shared,
            calibration=self.calibration,
            **{name: value for name, value in given.items() if value is not None},
        )


def build_options(config: pytest.Config) -> Options:
    """The options of this run; UsageError names a bad value and what is allowed."""
    gpu, portable = bool(config.getoption("gpu")), _switch(config, "perf_portable")
    if gpu and config.getoption("perf_portable"):
        raise bad_option("--gpu and --perf-portable exclude each other: gate on the GPU or on the CPU")
    return Options(
        gpu=gpu,
        portable=portable and not gpu,
        allow_shared=_switch(config, "perf_allow_shared"),
        isolate=_switch(config, "perf_isolate"),
        ci=takes_ci_sizes(config),
        seconds=_seconds(config, "perf_seconds"),
        cache=_cache(config),
        seed=_seed(config),
        distribution=_distribution(config),
        isolate_seconds=_seconds(config, "perf_isolate_seconds") or 30.0,
        targets=_existing(config, "perf_targets"),
        calibration=_existing(config, "perf_calibration"),
        record=_path(config, "perf_record"),
        markdown=_path(config, "perf_markdown"),
        ray=_ray(config, gpu=gpu, gating=gpu or portable),
        ray_open=_switch(config, "perf_ray_open"),
        card_model=_text(config, "perf_card_model"),
        shard=_shard(config, gating=gpu or portable),
        shard_times=_existing(config, "perf_shard_times"),
    )


def bad_option(sentence: str) -> pytest.UsageError:
    """The error for a bad option, whatever its value is."""
    from perfsuite.outcome import one_line

    return pytest.UsageError(one_line(sentence))


def takes_ci_sizes(config: pytest.Config) -> bool:
    """True under --perf-ci: tests then take the second set of the sizes that `perf_sizes` declares."""
    return _switch(config, "perf_ci")


def _switch(config: pytest.Config, key: str) -> bool:
    given = config.getoption(key)
    if given is not None:
        return bool(given)
    try:
        return bool(config.getini(key))
    except (ValueError, pytest.UsageError) as error:  # pytest's sentence does not name the option
        raise bad_option(f"ini option {key}: {error}; allowed are true and false") from None


def _text(config: pytest.Config, key: str) -> str | None:
    given = config.getoption(key)
    return str(config.getini(key) if given is None else given) or None


def _name(config: pytest.Config, key: str) -> str:
    """The option as the user wrote it: the flag, or the ini option."""
    return f"ini option {key}" if config.getoption(key) is None else "--" + key.replace("_", "-")


def _checked(config: pytest.Config, key: str, field: str, value: Any) -> Any:
    """The value if Settings allows it in that field; UsageError if not."""
    if value is None:
        return None
    from perfsuite.settings import Settings

    try:
        return getattr(Settings(**{field: value}), field)
    except ValueError as error:
        allowed = str(error).partition("; ")[2]
        raise bad_option(f"{_name(config, key)} is {_text(config, key)!r}; {allowed}") from None


def _cache(config: pytest.Config) -> str | None:
    text = _text(config, "perf_cache")
    if text is None:
        return None
    from perfsuite.settings import cache_modes

    try:
        cache_modes(text)
    except ValueError as error:
        raise bad_option(f"{_name(config, 'perf_cache')} is {text!r}; {str(error).partition('; ')[2]}") from None
    return text


def _seconds(config: pytest.Config, key: str) -> float | None:
    text = _text(config, key)
    try:
        seconds = None if text is None else float(text)
    except ValueError:
        seconds = float("nan")  # which Settings refuses
    return _checked(config, key, "seconds", seconds)


def _seed(config: pytest.Config) -> int:
    text = _text(config, "perf_seed")
    if text is None:
        # A new seed in every run, so that nobody can prepare for its inputs. All workers of the run share it.
        config.option.perf_seed = str(int.from_bytes(os.urandom(4), "little"))
        return int(config.option.perf_seed)
    if not text.isdecimal() or int(text) >= 2**63:
        name = _name(config, "perf_seed")
        raise bad_option(f"{name} is {text!r}; it must be a whole number from 0 to {2**63 - 1}")
    return int(text)


_OWN_CHOICE = {
    "lf": "--lf and --ff",
    "failedfirst": "--lf and --ff",
    "stepwise": "--stepwise",
    "splits": "--splits of pytest-split",
}
"""Key of an option that chooses tests by the state of one machine, or divides the suite -> the option's name."""


def _shard(config: pytest.Config, *, gating: bool) -> tuple[int, int] | None:
    text = _text(config, "perf_shard")
    if text is None or (config.getoption("perf_shard") is None and not gating):
        return None
    name = _name(config, "perf_shard")
    number, slash, count = text.partition("/")
    if not (slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count) <= MOST_SHARDS):
        allowed = f"it must be a part and the number of parts, such as 3/7, of at most {MOST_SHARDS}"
        raise bad_option(f"{name} is {text!r}; {allowed}")
    if not gating:
        raise bad_option(f"{name} divides a run of gates: add --gpu or --perf-portable")
    for key, option in _OWN_CHOICE.items():
        if config.getoption(key, None):
            raise bad_option(f"{name} needs the same tests on every machine, so it excludes {option}: leave it out")
    return int(number), int(count)


def _distribution(config: pytest.Config) -> str | None:
    name = _text(config, "perf_distribution")
    if name is None:
        return None
    from perfsuite.problems import DISTRIBUTIONS

    if name not in DISTRIBUTIONS:
        allowed = ", ".join(DISTRIBUTIONS)
        raise bad_option(f"{_name(config, 'perf_distribution')} is {name!r}; allowed are {allowed}")
    return name


def _ray(config: pytest.Config, *, gpu: bool, gating: bool) -> str | None:
    """The address of a Ray cluster; UsageError for what it lacks or excludes."""
    address, name = _text(config, "perf_ray"), _name(config, "perf_ray")
    if config.getoption("perf_card_model") and not (address and gpu):
        raise bad_option("--perf-card-model needs --gpu and --perf-ray")
    if address is None or not gating:
        if config.getoption("perf_ray"):
            raise bad_option(f"{name} needs --gpu or --perf-portable")
        return None
    if config.getoption("tx", None) or config.getoption("numprocesses", None):
        raise bad_option(f"{name} and -n exclude each other: Ray runs one worker a card")
    if config.getoption("usepdb", False) or config.getoption("trace", False):
        raise bad_option(f"{name} and --pdb exclude each other: the tests run on other machines")
    return address


def _path(config: pytest.Config, key: str) -> Path | None:
    """The path of a file, below where pytest was started (for an ini option: below the root directory)."""
    text = _text(config, key)
    if text is None:
        return None
    base = config.rootpath if config.getoption(key) is None else config.invocation_params.dir
    path = base / text
    if os.path.isdir(path):  # Path.is_dir raises if a name is too long or a folder may not be read
        raise bad_option(f"{_name(config, key)} is {text!r}, a folder; it must be a file")
    return path


def _existing(config: pytest.Config, key: str) -> Path | None:
    path = _path(config, key)
    if path is not None and not os.path.isfile(path):
        raise bad_option(f"{_name(config, key)} is {str(path)!r}; there is no such file")
    return path
