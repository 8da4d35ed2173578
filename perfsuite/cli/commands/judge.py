"""Judge source text: is each candidate right, and how fast is it beside its rival?

A FILE is a candidate: Python (.py), C++ (.cpp), CUDA (.cu), or JSON with several files or a
FlashInfer solution. --problem names a .py file with Model and get_inputs, a .json file, or JSON
text such as '{"family": "gemm", "m": 64, "n": 64, "k": 64}'. Candidates run in processes of their
own, in a sandbox if the machine has one. --ray judges on the machines of a Ray cluster, with one
verdict for each card model of --card-model. docs/judge.md describes problems and answers.

exit codes: 0 all met; 1 one is wrong or missed; 2 bad input; 20 one is undecided, none worse;
130 interrupted
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from perfsuite import outcome
from perfsuite.cli.cards import tell
from perfsuite.cli.judge_pools import pools, table
from perfsuite.cli.places import check_place
from perfsuite.judge.answer import answer_schema
from perfsuite.judge.beside import MOST
from perfsuite.judge.jobs import Job
from perfsuite.judge.problem_forms import task_of
from perfsuite.judge.ray_pool import answers
from perfsuite.outcome import UserError, Verdict
from perfsuite.record.atomic_write import write_whole

HELP = "judge source text: right, and how fast"
EXAMPLE = """example:
  perfsuite judge mine.py --problem '{"family": "gemm", "m": 256, "n": 256, "k": 256}' --at-least 0.9
  perfsuite judge tries/*.py --problem level1/softmax.py --json --jobs 4 > answers.jsonl
  perfsuite judge --schema > answer.schema.json

exit codes: 0 all met; 1 one is wrong or missed; 2 bad input; 20 one is undecided, none worse"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="*", metavar="FILE", help="a candidate: .py, .cpp, .cu or .json")
    parser.add_argument("--problem", metavar="P", help="a .py or .json file, or JSON text")
    parser.add_argument("--at-least", type=float, metavar="SHARE", help="the target, a share of the rival's speed")
    parser.add_argument("--no-timing", action="store_true", help="check the answers alone")
    sizes = "ask for right answers at nearby sizes too, drawn in secret and untimed"
    parser.add_argument("--other-sizes", action="store_true", help=sizes)
    parser.add_argument("--why", action="store_true", help="name the first thing to look at")
    tools = "watch the candidate by compute-sanitizer: memcheck, racecheck, synccheck, initcheck (needs a GPU)"
    parser.add_argument("--sanitize", action="store_true", help=tools)
    limit = "limit of one such tool, and of one run that --why needs (default: 120)"
    parser.add_argument("--tool-seconds", type=float, default=120.0, metavar="SECONDS", help=limit)
    parser.add_argument("--seconds", type=float, default=1.0, help="time of a workload's timed rounds (default: 1)")
    parser.add_argument("--run-seconds", type=float, default=30.0, help="limit of one request (default: 30)")
    parser.add_argument("--compile-seconds", type=float, default=120.0, help="limit of a compiler (default: 120)")
    parser.add_argument("--one-in", type=float, default=20.0, metavar="N", help="at most one false verdict in N (20)")
    parser.add_argument("--jobs", type=int, metavar="N", help="processes, or cards (default: 1; over Ray: all)")
    beside = f"processes on each card, in turns (default: what the machine feeds, at most {MOST}; over Ray: 1)"
    parser.add_argument("--beside", type=int, metavar="N", help=beside)
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto", help="default: a GPU if there is")
    parser.add_argument("--ray", metavar="ADDRESS", help="judge on a Ray cluster: HOST:PORT of its head, auto or local")
    parser.add_argument("--card-model", metavar="A,B", help="over Ray: one verdict for each model, such as H100,H200")
    parser.add_argument("--ray-open", action="store_true", help="allow a Ray cluster that asks callers for no token")
    parser.add_argument("--trust-candidates", action="store_true", help="over Ray: allow machines without a sandbox")
    parser.add_argument("--json", action="store_true", help="print one JSON object a candidate, as they are ready")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the answers as JSON lines as well")
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of an answer")


def run(arguments: argparse.Namespace) -> int:
    """Judge every file, print the answers."""
    if arguments.schema:
        text = json.dumps(answer_schema(), indent=1)
        if arguments.output is None:
            print(text)
        else:
            write_whole(arguments.output, f"{text}\n")
        return outcome.EXIT_MET
    if not arguments.files or arguments.problem is None:
        raise UserError("give at least one FILE, and --problem")
    check_place("--output", arguments.output)
    terms = {
        "seconds": arguments.seconds,
        "at_least": arguments.at_least,
        "timed": not arguments.no_timing,
        "other_sizes": arguments.other_sizes,
        "why": arguments.why,
        "sanitize": arguments.sanitize,
        "tool_seconds": arguments.tool_seconds,
        "run_seconds": arguments.run_seconds,
        "compile_seconds": arguments.compile_seconds,
        "one_in": arguments.one_in,
    }
    found: list[tuple[str | None, dict[str, Any]]] = []
    try:
        problem = _problem(arguments.problem)
        jobs = [Job.of(Path(file), problem, id=file) for file in dict.fromkeys(arguments.files)]
        if "::" not in arguments.problem:  # a test may need a card, which the pool's processes get
            task_of(problem, device="cpu")  # a bad problem ends the command before a process starts
        files = [Path(problem.partition("::")[0])] if isinstance(problem, str) else []
        with pools(arguments, terms, files) as made:
            several = None not in made
            for number, (model, answer) in enumerate(answers(made, jobs), start=1):
                found.append((model, answer))
                named = f"{answer['id']}  {model}" if several else answer["id"]
                if arguments.json:
                    print(json.dumps(answer), flush=True)
                else:
                    said = f"{answer['reason']}: {answer['sentence']}"
                    print(f"{answer['verdict']:<9} {named}  {said}", flush=True)
                    if answer["why"]:
                        print(f"{'':<9} look first: {answer['why']}", flush=True)
                if sys.stderr.isatty():
                    tell(f"[{number}/{len(jobs) * len(made)}] {named}")
            if several and not arguments.json:
                print("", *table(found, list(made)), sep="\n")
    except ValueError as error:
        raise UserError(str(error)) from None
    if arguments.output is not None:
        write_whole(arguments.output, "".join(json.dumps(one) + "\n" for _, one in found))
    verdicts = {answer["verdict"] for _, answer in found}
    if verdicts & {Verdict.WRONG, Verdict.MISSED}:
        return outcome.EXIT_MISSED
    return outcome.EXIT_UNDECIDED if Verdict.UNDECIDED in verdicts else outcome.EXIT_MET


def _problem(text: str) -> Any:
    """The problem as the pool's processes get it: JSON, or an absolute path."""
    if text.lstrip().startswith(("{", "[")):
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UserError(f"--problem is no JSON: {error}") from None
    return str(Path(text).resolve())
