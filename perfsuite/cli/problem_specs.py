"""A problem named on the command line: by its family and shape, or as a call of its class.

gemm:4096x4096x4096:fp32               a family, its shape, and words that the family knows
gemm 4096x4096x4096 float32            the same as a record names it
kernels.py:RMSNorm(8192, 4096)         a class in a file; all arguments must be literals
my_kernels:RMSNorm(8192, 4096)         a class in a module

A call is parsed, and never evaluated.
"""

from __future__ import annotations

import ast
import re
from typing import TypeGuard

from perfsuite.cli.callables import load_module
from perfsuite.outcome import UserError
from perfsuite.problems.base import Problem
from perfsuite.problems.listing import families

FORMS = "FAMILY:SHAPE[:WORD...], such as gemm:4096x4096x4096:bf16, or path.py:Class(...) or module:Class(...)"
_SHAPE = re.compile(r"(?P<family>[a-z][\w-]*)[\s:]+(?P<shape>\d\S*?)(?:[\s:]+(?P<words>.+))?", re.DOTALL)
_CALL = re.compile(r"(?P<place>[^(:]+):(?P<call>[^\W\d]\w*\s*\(.*\))", re.DOTALL)


def problem_of(text: str) -> Problem:
    """The problem that a text names; UserError if the text names no problem."""
    found = problem_if_named(text)
    if found is None:
        raise UserError(f"{text!r} names no problem; write {FORMS}")
    return found


def problem_if_named(text: str) -> Problem | None:
    """The problem that a text names; None if it has the form of neither a shape nor a call."""
    if shape := _SHAPE.fullmatch(text.strip()):
        return _of_family(text, shape["family"], shape["shape"], re.split(r"[\s:]+", shape["words"] or ""))
    if call := _CALL.fullmatch(text.strip()):
        return _of_call(text, call["place"].strip(), call["call"])
    return None


def _of_family(text: str, family: str, shape: str, words: list[str]) -> Problem:
    known = families()
    if family not in known:
        raise UserError(f"{text!r}: there is no family {family}; known are {', '.join(known)}")
    try:
        return known[family].parse(shape, list(filter(None, words)))
    except (TypeError, ValueError) as error:
        raise UserError(f"{text!r}: {error}") from None


def _of_call(text: str, place: str, call: str) -> Problem:
    name, args, kwargs = _parsed(text, call)
    module = load_module(place, text)
    kind = getattr(module, name, None)
    if not _is_family(kind):
        there = ", ".join(key for key, value in vars(module).items() if _is_family(value))
        what = "has no class" if kind is None else "has no subclass of Problem called"
        raise UserError(f"{text}: {place} {what} {name}; subclasses of perfsuite.Problem there: {there or '(none)'}")
    try:
        return kind(*args, **kwargs)
    except (TypeError, ValueError) as error:
        raise UserError(f"{text}: {error}") from None


def _is_family(kind: object) -> TypeGuard[type[Problem]]:
    return isinstance(kind, type) and issubclass(kind, Problem) and kind is not Problem


def _parsed(text: str, call: str) -> tuple[str, list[object], dict[str, object]]:
    """The name of the class, and its arguments."""
    try:
        node = ast.parse(call, mode="eval").body
    except SyntaxError as error:
        raise UserError(f"{text}: {call} is not a call: {error.msg}") from None
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        raise UserError(f"{text}: {call} is not a call of one class")
    kwargs = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise UserError(f"{text}: write each argument by its name; ** is not allowed")
        kwargs[keyword.arg] = _literal(text, keyword.value)
    return node.func.id, [_literal(text, argument) for argument in node.args], kwargs


def _literal(text: str, node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise UserError(
            f"{text}: {ast.unparse(node)} is not a literal; numbers, strings, True, False, None and tuples are allowed"
        ) from None
