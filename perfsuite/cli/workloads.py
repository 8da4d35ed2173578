"""What to look at, as it is named on the command line: a case by its shape, or a function of the user's.

attention:2x8x4096x64            batch x heads x length x head_dim; float16 unless said
attention:8x32/8x1/4096x128:bf16:causal     heads of q / of k and v, lengths of q / of k and v
gemm:4096x4096x4096:fp32         m x n x k
"2x8x4096x64 float16"            a case's name as it stands in a record, after its family: "attention 2x8x..."
module:function                  a function without arguments, or one that returns such a function
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from perfsuite.analyze.workload import Workload, WorkloadError, of_function, of_problem
from perfsuite.cli.callables import load_callable
from perfsuite.cli.errors import UsageError
from perfsuite.problems import Attention, Gemm
from perfsuite.problems.rivals import ATTENTION_NAMES, GEMM_NAMES
from perfsuite.report import units

FORMS = "attention:BxHxSxD[:DTYPE][:causal], gemm:MxNxK[:DTYPE] or module:function"
CANDIDATES = {"attention": "cuda_llm_ops:flash_attention", "gemm": "cuda_llm_ops:gemm"}
LIBRARIES = {"attention": ATTENTION_NAMES, "gemm": GEMM_NAMES}
_CASE = re.compile(r"(attention|gemm)[\s:]+(\d.*)", re.DOTALL)


def add_workload(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """Declare the arguments that name a workload."""
    parser.add_argument("workload", nargs="?" if optional else None, metavar="CASE", help=FORMS)
    parser.add_argument(
        "--candidate",
        metavar="KERNEL",
        help="what runs a case: module:function, or a library (cublas, cublas:tuned, sdpa, sdpa:flash, ...); "
        "default: this project's",
    )


def workload(text: str, candidate: str | None) -> Workload:
    """What `text` names; UsageError says what is wrong with it."""
    problem = case(text)
    try:
        if problem is None:
            if candidate is not None:
                raise UsageError(f"--candidate runs a case, and {text} is a function by itself")
            return of_function(load_callable(text), text)
        return of_problem(problem, partial(kernel, text=candidate))
    except WorkloadError as error:
        raise UsageError(str(error)) from None


def kernel(problem: Attention | Gemm, *, text: str | None) -> Callable[..., Any]:
    """The function that --candidate names for a problem."""
    if text is None:
        return load_callable(CANDIDATES[problem.family])
    if text in LIBRARIES[problem.family]:
        return problem.rival(text)
    if text.startswith(("sdpa", "cublas")):
        known = ", ".join(LIBRARIES[problem.family])
        raise UsageError(f"--candidate {text}: the libraries for {problem.family} are {known}")
    return load_callable(text)


def case(text: str) -> Attention | Gemm | None:
    """The problem that a text describes; None where it is the name of a function."""
    found = _CASE.fullmatch(text.strip())
    if found is None:
        if ":" not in text:
            raise UsageError(f"{text!r} is no case and no function; write {FORMS}")
        return None
    shape, *rest = re.split(r"[\s:]+", found[2])
    options: dict[str, Any] = {"dtype": "float16"}
    for word in rest:
        if word == "causal" and found[1] == "attention":
            options["causal"] = True
        elif word in units.LONG_NAMES or word in units.LONG_NAMES.values():
            options["dtype"] = units.LONG_NAMES.get(word, word)
        else:
            known = f"{', '.join(units.LONG_NAMES)}{', causal' if found[1] == 'attention' else ''}"
            raise UsageError(f"{text!r}: {word!r} is not known; after the shape there may be {known}")
    try:
        return _attention(shape, options) if found[1] == "attention" else _gemm(shape, options)
    except ValueError as error:
        raise UsageError(f"{text!r}: {error}") from None


def _attention(shape: str, options: dict[str, Any]) -> Attention:
    parts = shape.split("x")
    if len(parts) != 4:
        raise ValueError(f"the shape is {shape!r}; it must be batch x heads x length x head_dim, such as 2x8x4096x64")
    (heads, kv_heads), (length, keys) = _pair(parts[1]), _pair(parts[2])
    return Attention(_whole(parts[0]), heads, length, _whole(parts[3]), kv_heads=kv_heads, seq_kv=keys, **options)


def _gemm(shape: str, options: dict[str, Any]) -> Gemm:
    sizes = shape.split("x")
    if len(sizes) != 3:
        raise ValueError(f"the shape is {shape!r}; it must be m x n x k, such as 4096x4096x4096")
    m, n, k = map(_whole, sizes)
    return Gemm(m, n, k, **options)


def _pair(text: str) -> tuple[int, int | None]:
    first, slash, second = text.partition("/")
    return _whole(first), _whole(second) if slash else None


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)
