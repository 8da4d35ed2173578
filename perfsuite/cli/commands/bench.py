"""Measure attention or GEMM against a library, side by side: a table, and a record where --output names one.

Both sides are checked against a float64 reference and timed in turn, as a gated test times them. Without a GPU the
portable kernels are measured against torch's CPU library by the host's clock, which the first line says.

exit codes: 0 measured, and met where --at-least asks; 1 wrong or missed; 20 undecided; 21 nothing was measured.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfsuite.cli.bench_table import print_table
from perfsuite.cli.callables import load_callable
from perfsuite.cli.errors import UsageError
from perfsuite.cli.places import check_place
from perfsuite.problems import Attention, Gemm
from perfsuite.problems.rivals import ATTENTION_NAMES, GEMM_NAMES
from perfsuite.record.case import Case as Recorded
from perfsuite.record.case import case_record
from perfsuite.report import units
from perfsuite.settings import DeviceKind, Settings

HELP = "measure attention or GEMM against a library: table, record"
EXAMPLE = """example:
  perfsuite bench attention --seq-lengths 512 1024 2048 4096 8192 --batch-size 2 --num-heads 8 --head-dim 64 \\
      --dtype fp16 --against sdpa sdpa:flash --output results.json
  perfsuite bench gemm --sizes 512x512x512 1024x1024x1024 --dtype fp16 --output results.json
  perfsuite bench attention --seq-lengths 2048 --batch-size 16 --num-heads 16 --head-dim 128 129    # the alignment trap
  perfsuite bench gemm --sizes 64x64x64 --candidate my_kernels:matmul --against torch:mm

`perfsuite bench KIND --help` lists each kind's options. The record that --output writes is one as pytest writes it:
`perfsuite report`, `compare` and `roofline` read it."""
KNOWN_RIVALS = {"attention": ATTENTION_NAMES, "gemm": GEMM_NAMES}
LEAST_SECONDS, MOST_SECONDS = 0.05, 600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND")

    def kind(name: str, text: str, example: str) -> argparse.ArgumentParser:
        return kinds.add_parser(name, help=text, description=text, epilog=f"example: perfsuite bench {name} {example}")

    attention = kind("attention", "attention by sequence length", "--seq-lengths 512 1024 --output results.json")
    attention.add_argument("--seq-lengths", type=int, nargs="+", default=[512, 1024, 2048, 4096, 8192], metavar="N")
    attention.add_argument("--batch-size", type=int, default=2)
    attention.add_argument("--num-heads", type=int, default=8)
    attention.add_argument(
        "--head-dim", type=int, nargs="+", default=[64], metavar="D", help="several are compared, such as 128 129"
    )
    attention.add_argument("--causal", action="store_true")
    gemm = kind("gemm", "matrix products by size", "--sizes 512x512x512 1024x1024x1024 --dtype fp16")
    sizes = ["512x512x512", "1024x1024x1024", "2048x2048x2048"]
    gemm.add_argument("--sizes", nargs="+", default=sizes, metavar="MxNxK")
    gemm.add_argument("--out-dtype", choices=sorted(units.LONG_NAMES), help="of the result (default: the operands')")
    for one, function, rival in ((attention, "flash_attention", "sdpa"), (gemm, "gemm", "cublas")):
        one.add_argument("--candidate", default=f"cuda_llm_ops:{function}", metavar="MODULE:FUNCTION")
        known = ", ".join(KNOWN_RIVALS["attention" if rival == "sdpa" else "gemm"])
        one.add_argument("--against", nargs="+", default=[rival], metavar="RIVAL", help=f"{known}, or module:function")
        one.add_argument("--dtype", choices=sorted(units.LONG_NAMES), default="fp16")
        one.add_argument("--warmup", type=int, default=3, metavar="N", help="calls of each side before (default 3)")
        one.add_argument("--iterations", type=int, metavar="N", help="spend the time of N calls of each side on a case")
        one.add_argument("--seconds", type=float, default=1.0, help="time for a case, without --iterations (default 1)")
        one.add_argument("--at-least", type=float, metavar="SPEED", help="least share of the rival's speed to be met")
        one.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
        one.add_argument("--max-flops", type=float, metavar="N", help="on the CPU, leave out cases that cost more")
        one.add_argument("--output", type=Path, metavar="FILE", help="write the record (JSON lines)")
        one.add_argument("--json", action="store_true", help="print JSON, one case a line, without samples")


@dataclass(frozen=True)
class Case:
    """One problem and one rival."""

    problem: Attention | Gemm
    against: str | Callable[..., Any]


def run(arguments: argparse.Namespace) -> int:
    """Measure every case, print the table, write the record."""
    from perfsuite import outcome
    from perfsuite.record.store import Journal

    _check(arguments)
    try:
        problems = _problems(arguments)
        device, why = _device(arguments.device)
        settings = Settings(device=device, seconds=arguments.seconds, cases=len(problems) * len(arguments.against))
    except ValueError as error:
        raise UsageError(str(error)) from None
    candidate = load_callable(arguments.candidate)
    rivals = [_rival(arguments.kind, text) for text in arguments.against]
    problems, left_out = _affordable(problems, settings, arguments.max_flops)
    _tell(why or f"measuring on {device}")
    rows: list[Recorded] = []
    with ExitStack() as held:
        if device == "cuda":
            _lock(held)
        journal = held.enter_context(Journal(arguments.output)) if arguments.output else None
        cases = [Case(problem, rival) for problem in problems for rival in rivals]
        for number, case in enumerate(cases, start=1):
            _tell(f"[{number}/{len(cases)}] {case.problem.family} {case.problem.name}")
            rows.append(_measure(case, candidate, settings, arguments))
            if journal is not None:
                journal.add(rows[-1])
    for sentence in left_out:
        _tell(f"left out: {sentence}")
    if arguments.json:
        for row in rows:
            print(json.dumps(row.as_json(samples=False)))
    elif rows:
        print_table(rows)
    if not rows:
        return outcome.EXIT_NOTHING_MEASURED
    if arguments.output:
        _tell(f"record: {arguments.output}")
    verdicts = {row.verdict for row in rows}
    if verdicts & {"WRONG", "MISSED"}:
        return outcome.EXIT_MISSED
    return outcome.EXIT_UNDECIDED if "UNDECIDED" in verdicts else outcome.EXIT_MET


def _tell(words: str) -> None:
    """Progress goes beside the results."""
    print(words, file=sys.stderr, flush=True)


def _check(arguments: argparse.Namespace) -> None:
    """What can be known to be wrong before anything is measured."""
    if arguments.warmup < 0:
        raise UsageError(f"--warmup is {arguments.warmup}; it must be 0 or more")
    if arguments.iterations is not None and arguments.iterations < 1:
        raise UsageError(f"--iterations is {arguments.iterations}; it must be at least 1")
    if arguments.at_least is not None and not 0 < arguments.at_least < float("inf"):
        raise UsageError(f"--at-least is {arguments.at_least:g}; it must be a positive number")
    output = arguments.output
    if output is None:
        return
    if output.is_file() and output.stat().st_size:
        from perfsuite.record.schema import RecordError
        from perfsuite.record.store import read_record

        try:
            read_record(output)
        except RecordError as error:
            raise UsageError(f"--output would overwrite what is not a record: {error}") from None
    check_place("--output", output)


def _problems(arguments: argparse.Namespace) -> list[Attention | Gemm]:
    dtype = units.LONG_NAMES[arguments.dtype]
    if arguments.kind == "attention":
        return [
            Attention(
                arguments.batch_size,
                arguments.num_heads,
                seq,
                head_dim,
                causal=arguments.causal,
                dtype=dtype,
            )
            for seq in arguments.seq_lengths
            for head_dim in arguments.head_dim
        ]
    out = units.LONG_NAMES[arguments.out_dtype] if arguments.out_dtype else None
    made: list[Attention | Gemm] = []
    for text in arguments.sizes:
        sizes = text.lower().split("x")
        if len(sizes) != 3 or not all(size.isdecimal() for size in sizes):
            raise UsageError(f"--sizes has {text!r}; a size must be MxNxK, such as 512x512x512")
        m, n, k = map(int, sizes)
        made.append(Gemm(m, n, k, dtype=dtype, out_dtype=out))
    return made


def _device(asked: str) -> tuple[DeviceKind, str | None]:
    """What to measure on, and the sentence that is to be said of it where that is no GPU."""
    if asked == "cpu":
        return "cpu", "on the CPU, as asked: torch's CPU library is the rival, the host's clock the timer"
    from perfsuite.device.cards import usable_devices

    missing = usable_devices(os.environ).missing
    if missing is None:
        return "cuda", None
    if asked == "cuda":
        raise UsageError(f"--device cuda, but {missing}")
    return "cpu", f"no GPU ({missing}): the portable kernels against torch's CPU library, by the host's clock"


def _rival(kind: str, text: str) -> str | Callable[..., Any]:
    known = KNOWN_RIVALS[kind]
    if text in known:
        return text
    if ":" not in text or text.startswith(("sdpa:", "cublas:")):
        raise UsageError(f"--against {text}: a rival is one of {', '.join(known)}, or module:function")
    return load_callable(text)


def _affordable(
    problems: Sequence[Attention | Gemm], settings: Settings, asked: float | None
) -> tuple[list[Attention | Gemm], list[str]]:
    """On the CPU, the problems that cost no more than the limit; and a sentence for each that is left out."""
    most = settings.portable_max_flops if asked is None else asked
    if settings.device == "cuda":
        return list(problems), []
    kept = [problem for problem in problems if problem.flops <= most]
    return kept, [
        f"{problem.name} costs {problem.flops:.3g} FLOPs, over the {most:.3g} for a CPU (--max-flops)"
        for problem in problems
        if problem not in kept
    ]


def _lock(held: ExitStack) -> None:
    """Keep other runs off the card."""
    from perfsuite.device.cards import usable_devices
    from perfsuite.device.locks import CardBusy, hold

    try:
        held.enter_context(hold([usable_devices(os.environ).cards[0].uuid], "run", tell=_tell))
    except CardBusy as error:
        raise UsageError(str(error)) from None


def _measure(case: Case, candidate: Callable[..., Any], settings: Settings, arguments: argparse.Namespace) -> Recorded:
    """One case of the record."""
    from dataclasses import replace

    from perfsuite import __version__
    from perfsuite.case.run import compare
    from perfsuite.record.fingerprint import fingerprint
    from perfsuite.settings import HARNESS

    rival = case.problem.rival(case.against) if isinstance(case.against, str) else case.against
    try:
        a_round = _warm_up(case.problem, (candidate, rival), settings, arguments.warmup)
    except Exception as error:  # of the user's function or the library: compare() makes a verdict of it
        _tell(f"  warm-up ended with {type(error).__name__}: {str(error).partition(chr(10))[0]}")
        a_round = 0.0
    if arguments.iterations is not None:
        settings = replace(settings, seconds=min(MOST_SECONDS, max(LEAST_SECONDS, arguments.iterations * a_round)))
    comparison = compare(case.problem, candidate, against=case.against, at_least=arguments.at_least, settings=settings)
    facts = {"harness": HARNESS, "perfsuite": __version__} | fingerprint(Path.cwd(), device=settings.device)
    measured = _memory(case.problem, candidate, rival) if settings.device == "cuda" and comparison.speed else None
    return case_record(comparison, test=None, fingerprint=facts, measured=measured)


def _warm_up(problem: Attention | Gemm, sides: Sequence[Callable[..., Any]], settings: Settings, calls: int) -> float:
    """Call each side so often, and once more for the clock: seconds of one call of each, together."""
    import torch

    inputs = problem.inputs(torch.Generator(device=settings.device).manual_seed(settings.seed))
    wait = torch.cuda.synchronize if settings.device == "cuda" else lambda: None
    for side in sides:
        for _ in range(calls):
            inputs.call(side)
    wait()
    begun = time.perf_counter()
    for side in sides:
        inputs.call(side)
    wait()
    return time.perf_counter() - begun


def _memory(problem: Attention | Gemm, candidate: Callable[..., Any], rival: Callable[..., Any]) -> Mapping[str, float]:
    """Output and scratch of both sides at their peak, by torch's allocator."""
    from perfsuite.analyze.resources import peak_bytes

    return {
        "peak_bytes": float(peak_bytes(problem, candidate)),
        "rival_peak_bytes": float(peak_bytes(problem, rival)),
    }
