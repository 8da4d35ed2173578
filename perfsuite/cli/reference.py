"""Reference of classes, fixtures, hooks, options, reasons and record fields, from signatures and docstrings."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import perfsuite
from perfsuite.cli.tables_of_text import first_paragraph, table
from perfsuite.outcome import Reason
from perfsuite.pytest_plugin import ELSEWHERE, SWITCHES, VALUES, WRITTEN, hookspec
from perfsuite.pytest_plugin.facts import Gpu, MemoryUse
from perfsuite.record.json_schema import json_schema, texts_below

_RETURNED = (perfsuite.Comparison, Gpu, MemoryUse)
"""Classes that users read and do not make."""
_DEFINED = re.compile(r"((?:[a-z_]\w*)(?:, [a-z_]\w*)*): (.*)")
"""A line of a docstring that begins the text of one or more arguments."""


def classes() -> str:
    """Every public class and function: its signature, its docstring, its fields and methods."""
    public = [getattr(perfsuite, name) for name in dir(perfsuite) if name != "__version__"]
    first = [perfsuite.Perf, perfsuite.Comparison, perfsuite.Problem]
    rest = [one for one in public if one not in first and one is not Reason]
    return "\n\n".join("\n\n".join(_described(one)) for one in [*first, *rest, Gpu, MemoryUse])


def fixtures() -> str:
    """One row a fixture, read from the file that defines them: the plugin comes after the command."""
    tree = ast.parse(Path(perfsuite.__file__).with_name("plugin.py").read_text(encoding="utf-8"))
    functions = [one for one in tree.body if isinstance(one, ast.FunctionDef)]
    made = [one for one in functions if "pytest.fixture" in map(ast.unparse, one.decorator_list)]
    return table(("fixture", "gives"), ((f"`{one.name}`", ast.get_docstring(one) or "") for one in made))


def hooks() -> str:
    """One row a hook, with its arguments."""
    found = {name: one for name, one in vars(hookspec).items() if name.startswith("pytest_")}
    rows = (
        (f"`{name}({', '.join(inspect.signature(one).parameters)})`", _one_line(one)) for name, one in found.items()
    )
    return table(("hook", "purpose"), rows)


def options() -> str:
    """One row an option of pytest, with its ini option."""
    given = [("--gpu", "", "run the tests that need a GPU; they fail without one"), *((f, "", t) for f, t in SWITCHES)]
    rows = []
    for flag, value, text in (*given, *VALUES, *WRITTEN, *ELSEWHERE):
        ini = "" if flag == "--gpu" else f"`{flag.removeprefix('--').replace('-', '_')}`"
        rows.append((f"`{flag} {value}`".replace(" `", "`"), ini, text))
    return table(("option", "ini option", "meaning"), rows)


def reasons() -> str:
    """One row a reason: its code, the verdict, the meaning and the remedy."""
    rows, texts = [], texts_below(Reason)
    for reason in Reason:
        verdict, _, rest = texts[reason.name].partition(": ")
        meaning, _, remedy = rest.partition(" Remedy: ")
        verdict = verdict if verdict.isupper() else "(none)"
        rows.append((f"`{reason}`", verdict, _sentence(meaning), _sentence(remedy)))
    return table(("code", "verdict", "meaning", "remedy"), rows)


def record_fields() -> str:
    """One row a field of a case's line, with its JSON type."""
    schema = json_schema()["anyOf"][1]
    needed = set(schema["required"])
    texts = texts_below(perfsuite.Comparison)
    rows = (
        (f"`{name}`", _type_of(one), "yes" if name in needed else "", one.get("description") or texts.get(name, ""))
        for name, one in schema["properties"].items()
    )
    return table(("field", "type", "always", "meaning"), rows)


def _type_of(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_type_of(one) for one in schema["anyOf"])
    if "enum" in schema:
        return "text"
    kind = schema.get("type", "any value")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _one_line(documented: object) -> str:
    return " ".join((inspect.getdoc(documented) or "").split())


def _described(one: Any) -> Iterator[str]:
    yield f"### {one.__name__}"
    call = one.__call__ if one is perfsuite.Perf else one
    built = one not in (perfsuite.Problem, perfsuite.Verdict, *_RETURNED)
    if built:
        yield _signature("perf" if one is perfsuite.Perf else one.__name__, call)
    yield from _prose(inspect.getdoc(one) or "")
    if call is not one:
        yield from _prose(inspect.getdoc(call) or "")
    if one is perfsuite.Verdict:
        yield f"Its members are {', '.join(f'`{member}`' for member in one)}."
    if dataclasses.is_dataclass(one) and (rows := _fields(one, every=not built)):
        yield table(("field", "type", "meaning"), rows)
    of_a_family = inspect.isclass(one) and issubclass(one, perfsuite.Problem) and one is not perfsuite.Problem
    if inspect.isclass(one) and not of_a_family and (methods := _methods(one)):
        yield table(("method or property", "does"), methods)


def _signature(name: str, call: Any) -> str:
    """The whole signature, one parameter a line."""
    shown, named = [], False
    for one in inspect.signature(call).parameters.values():
        if one.name == "self":
            continue
        if one.kind is one.KEYWORD_ONLY and not named:
            shown.append("*")
        named = named or one.kind in (one.KEYWORD_ONLY, one.VAR_POSITIONAL)
        default = "" if one.default is one.empty else f" = {one.default!r}".replace("<factory>", "...")
        stars = "*" if one.kind is one.VAR_POSITIONAL else ""
        shown.append(f"{stars}{one.name}: {_type_text(one.annotation)}{default}")
    inside = "".join(f"\n    {text}," for text in shown)
    returned = inspect.signature(call).return_annotation
    result = "" if inspect.isclass(call) or returned is inspect.Signature.empty else f" -> {_type_text(returned)}"
    return f"```text\n{name}({inside}\n){result}\n```"


def _type_text(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\bperfsuite(?:\.\w+)*\.(?=[A-Z])", "", text)


def _prose(doc: str) -> Iterator[str]:
    """The paragraphs of a docstring; lines such as `args: the arguments` become a table."""
    for paragraph in doc.split("\n\n"):
        lines, defined = [], []
        for line in paragraph.splitlines():
            if match := _DEFINED.fullmatch(line.strip()):
                defined.append([match[1], match[2]])
            elif defined:
                defined[-1][1] += f" {line.strip()}"
            else:
                lines.append(line.strip())
        if lines:
            yield " ".join(lines)
        if defined:
            rows = ((", ".join(f"`{name}`" for name in names.split(", ")), text) for names, text in defined)
            yield table(("argument", "meaning"), rows)


def _fields(kind: Any, *, every: bool) -> list[tuple[str, str, str]]:
    """(name, type, text) of the fields that have a text, or of every field."""
    texts = texts_below(kind)
    return [
        (f"`{one.name}`", f"`{_type_text(one.type)}`", texts.get(one.name, ""))
        for one in dataclasses.fields(kind)
        if every or one.name in texts
    ]


def _methods(kind: Any) -> list[tuple[str, str]]:
    """The public methods and properties that the class itself defines."""
    found = []
    for name, one in vars(kind).items():
        if name.startswith("_") or not (inspect.isfunction(one) or isinstance(one, property)):
            continue
        function: Any = one.fget if isinstance(one, property) else one
        if text := first_paragraph(function):
            parameters = [key for key in inspect.signature(function).parameters if key != "self"]
            shown = name if isinstance(one, property) else f"{name}({', '.join(parameters)})"
            found.append((f"`{shown}`", text))
    return found
