"""Reads the name of a workload on the command line: a problem, or a function of the user's.

A problem is named as in `problem_specs`. A function takes no arguments, or returns a function that takes none.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

from perfsuite.analyze.workload import Workload, of_function, of_problem
from perfsuite.cli import problem_specs
from perfsuite.cli.callables import load_callable
from perfsuite.outcome import UserError
from perfsuite.problems.base import Problem

FORMS = f"{problem_specs.FORMS}, or module:function"


def add_workload(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    parser.add_argument("workload", nargs="?" if optional else None, metavar="CASE", help=FORMS)
    parser.add_argument(
        "--candidate",
        metavar="KERNEL",
        help="the kernel for a problem: module:function, path.py:function, or a library (cublas, sdpa:flash, ...); "
        "default: this project's",
    )


def workload(text: str, candidate: str | None) -> Workload:
    """The workload that `text` names; UserError names the fault."""
    problem = problem_specs.problem_if_named(text)
    if problem is not None:
        return of_problem(problem, partial(candidate_of, text=candidate))
    if ":" not in text:
        raise UserError(f"{text!r} is no case and no function; write {FORMS}")
    if candidate is not None:
        raise UserError(f"--candidate runs a case, and {text} is a function by itself")
    return of_function(load_callable(text), text)


def candidate_of(problem: Problem, text: str | None) -> Callable[..., Any]:
    """The function that --candidate names for a problem, or without --candidate the family's own."""
    if text is not None:
        return named_side(problem, text, "--candidate")
    if problem.candidate is None:
        raise UserError(f"{problem.family} names no kernel: give one by --candidate module:function")
    return load_callable(problem.candidate)


def named_side(problem: Problem, text: str, flag: str) -> Callable[..., Any]:
    """The function that an option names for a problem: one of its libraries, or a function of the user's."""
    names = problem.rival_names()
    if text in names:
        return problem.rival(text)
    try:
        return load_callable(text)
    except UserError as error:
        known = f"the libraries for {problem.family} are {', '.join(names)}" if names else "no library serves it"
        raise UserError(f"{flag} {error}; {known}") from None
