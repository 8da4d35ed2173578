"""Markers and perf_targets.toml with arguments of any kind: taken, or refused in one short line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from perfsuite.outcome import MOST_CHARACTERS
from perfsuite.pytest_plugin import marker_names, marks
from perfsuite.pytest_plugin.marker import MarkerError
from perfsuite.pytest_plugin.targets import load_targets

from .fuzzing import fuzz, texts, values


def names(*known: str) -> st.SearchStrategy[str]:
    return st.one_of(st.sampled_from(known), texts())


def short(sentence: str) -> None:
    assert len(sentence) <= MOST_CHARACTERS
    assert sentence.isprintable()


ARGUMENTS = {marker: sorted(vars(marks.kind(marker))["__dataclass_fields__"]) for marker in marker_names()}


class Unprintable:
    """An object whose description is long; users pass arrays and tensors."""

    def __repr__(self) -> str:
        return "array([\n" * 10_000


def test_marks_of_any_arguments() -> None:
    odd = st.one_of(values(), st.sampled_from([Unprintable(), len, int, (8, 0), (8,), {1: 2}, b"x", 1j]))

    def check(call: tuple[str, dict[str, Any]], args: list[Any]) -> None:
        name, kwargs = call
        try:
            marks.parse(pytest.Mark(name, tuple(args), kwargs, _ispytest=True))
        except MarkerError as error:
            short(str(error))

    def calls(name: str) -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
        known = st.fixed_dictionaries({}, optional=dict.fromkeys(ARGUMENTS[name], odd))
        return st.tuples(st.just(name), st.one_of(known, known, st.dictionaries(texts(), odd, max_size=3)))

    marks_and_arguments = st.sampled_from(list(marker_names())).flatmap(calls)
    positional = st.one_of(st.just([]), st.just([]), st.lists(odd, max_size=1))
    assert fuzz(check, call=marks_and_arguments, args=positional)


def toml_key(text: str) -> str:
    return json.dumps(text.encode(errors="replace").decode())


def toml_value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml_key(name)} = {toml_value(part)}" for name, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, str):
        return toml_key(value)
    return "1979-05-27" if value is None else str(value).lower()


def test_overrides_of_any_content(tmp_path: Path) -> None:
    path = tmp_path / "perf_targets.toml"
    numbers = st.one_of(values(), st.floats(0.01, 2))
    entries = st.one_of(values(), st.dictionaries(names("at_least", "against", "factor"), numbers, max_size=2))
    markers = st.dictionaries(names(*marker_names()), st.one_of(entries, st.lists(entries, max_size=2)), max_size=2)
    tests = st.dictionaries(names("tests/test_a.py::*", "*a*a*a*a*a*b"), st.one_of(markers, values()), max_size=2)
    documents = st.dictionaries(names("NVIDIA H200", "portable"), st.one_of(tests, values()), max_size=2)
    target = marks.kind("perf_target")(against="cublas", at_least=0.9)

    def check(document: dict[str, Any], cut: int, junk: bytes) -> None:
        lines = "\n".join(f"{toml_key(model)} = {toml_value(tests)}" for model, tests in document.items()).encode()
        path.write_bytes(lines if cut < 0 else lines[:cut] + junk + lines[cut:])
        try:
            targets = load_targets(path)
        except pytest.UsageError as error:
            short(str(error))
            return
        for one in targets.overrides:
            targets.apply("perf_target", target, nodeid="tests/test_a.py::" + "a" * 300, model=one.model)

    assert fuzz(check, document=documents, cut=st.integers(-60, 60), junk=st.binary(max_size=8))
