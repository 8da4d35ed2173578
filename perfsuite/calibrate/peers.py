"""The same experiment with other people's timers and rules, if they are installed.

Every timer gets replays of our gate's graphs, one sample a call, so no timer is judged by its launch overhead.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import random
import statistics
import time
from collections.abc import Callable
from typing import TextIO

from perfsuite.calibrate import cuda_bench
from perfsuite.calibrate.cases import cases
from perfsuite.calibrate.plan import PLANTED, SIDE_SECONDS, Plan, open_clock, write_row
from perfsuite.verdict.policy import REGRESSION_MARGIN

Replay = Callable[[], None]
Rule = Callable[[Replay, Replay], dict[str, bool]]
"""Times candidate and rival; returns rule -> True for an alarm."""
CUDA_BENCH_SHARE = 0.2
"""Part of the peers' time for cuda-bench, which measures in its own process."""


def run_peers(plan: Plan, output: TextIO) -> None:
    """Gates of all peers over all cases in turn, until the plan's time is spent."""
    alone = plan.device == "cuda" and cuda_bench.installed()
    share = CUDA_BENCH_SHARE * plan.peers_seconds if alone else 0.0
    _in_this_process(plan, output, plan.peers_seconds - share)
    if alone:
        cuda_bench.run_cuda_bench(plan, output, share)


def _in_this_process(plan: Plan, output: TextIO, limit: float) -> None:
    started = time.monotonic()
    rules = installed()
    known = cases(plan.device)
    for number in itertools.count():
        order = [(case, slowdown) for case in known for slowdown in PLANTED]
        random.Random(f"{plan.process} {number}").shuffle(order)
        for case, slowdown in order:
            if time.monotonic() - started > limit:
                return
            clock = open_clock(plan, case, seed=plan.process * 100_000 + number, slowdown=slowdown)
            for rule in rules:
                begun = time.perf_counter()
                found = rule(*clock.replays())
                seconds = time.perf_counter() - begun
                for peer, alarm in found.items():
                    write_row(output, plan.peer_row(case.name, slowdown, peer, alarm=alarm, seconds=seconds))
            clock.close()


def installed() -> list[Rule]:
    """The rules whose packages can be imported."""
    found = []
    for package, rule in _RULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(package)
            found.append(rule)
    return found


def _apart(timer: str, candidate: float, rival: float) -> dict[str, bool]:
    """The rule for a timer without its own rule: slower by more than the margin of our gate."""
    return {f"{timer}, medians {REGRESSION_MARGIN:.1%} apart": candidate > rival * (1.0 + REGRESSION_MARGIN)}


def _do_bench(candidate: Replay, rival: Replay) -> dict[str, bool]:
    from triton.testing import do_bench  # type: ignore[import-untyped, import-not-found, unused-ignore]

    milliseconds = round(SIDE_SECONDS * 1e3)
    ours, theirs = (do_bench(side, warmup=5, rep=milliseconds, return_mode="median") for side in (candidate, rival))
    return _apart("triton do_bench", ours, theirs)


def _torch_benchmark(candidate: Replay, rival: Replay) -> dict[str, bool]:
    from torch.utils.benchmark import Timer

    ours, theirs = (
        # It tries blocks of ten times the size up to this time, then runs one: in all about the time of the others.
        Timer("side()", globals={"side": side}).blocked_autorange(min_run_time=SIDE_SECONDS / 4).median
        for side in (candidate, rival)
    )
    return _apart("torch.utils.benchmark", ours, theirs)


def _host_samples(side: Replay) -> list[float]:
    """Seconds of single calls with a wait for the device, as under pytest-benchmark and asv."""
    import torch

    side()
    torch.cuda.synchronize()
    samples: list[float] = []
    end = time.perf_counter() + SIDE_SECONDS
    while time.perf_counter() < end or len(samples) < 5:
        begun = time.perf_counter()
        side()
        torch.cuda.synchronize()
        samples.append(time.perf_counter() - begun)
    return samples


def _pytest_benchmark(candidate: Replay, rival: Replay) -> dict[str, bool]:
    from pytest_benchmark.utils import parse_compare_fail

    ours, theirs = _host_samples(candidate), _host_samples(rival)
    check = parse_compare_fail("min:5%")
    return {"pytest-benchmark, min:5%": bool(check.fails({"min": min(ours)}, {"min": min(theirs)}))}


def _asv(candidate: Replay, rival: Replay) -> dict[str, bool]:
    from asv._stats import is_different  # type: ignore[import-untyped, import-not-found, unused-ignore]

    ours, theirs = _host_samples(candidate), _host_samples(rival)
    slower = statistics.median(ours) / statistics.median(theirs)
    different = bool(is_different(ours, theirs, None, None))
    return {
        "asv, Mann-Whitney p < 0.002": different and slower > 1.0,
        "asv, Mann-Whitney and factor 1.1": different and slower > 1.1,
    }


_RULES: tuple[tuple[str, Rule], ...] = (
    ("triton.testing", _do_bench),
    ("torch.utils.benchmark", _torch_benchmark),
    ("pytest_benchmark.utils", _pytest_benchmark),
    ("asv._stats", _asv),
)
