"""Candidates as text: their files, language and form, read from files, from JSON or from a FlashInfer solution."""

from __future__ import annotations

import ast
import hashlib
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfsuite.outcome import UserError, one_line

LANGUAGES = {".py": "python", ".cpp": "c++", ".cc": "c++", ".cu": "cuda"}
FORMS = ("python", "pointers", "kernel", "tensors")
"""python: a function or a class of Python. pointers: an extern "C" function over pointers. kernel: a __global__ one.
tensors: a C++ function over torch tensors."""
MOST_BYTES = 1 << 22
"""Bytes of all files of one candidate."""
_KEYS = ("files", "main", "function", "form", "grid", "block", "shared", "arguments", "name", "sources", "spec")
_FROM_FLASHINFER = ("name", "definition", "author", "description", "spec", "sources")


@dataclass(frozen=True)
class Candidate:
    """A candidate as text. `candidate_of` makes one."""

    files: Mapping[str, str]
    """Name -> text of every file."""
    main: str
    """The name of the file that holds the function."""
    function: str | None = None
    """The function's name; None for the one that the problem names."""
    form: str = "python"
    """One of FORMS."""
    grid: tuple[str, ...] = ()
    """Of a kernel: the blocks along each axis, as C expressions of the parameters."""
    block: tuple[str, ...] = ()
    """Of a kernel: the threads along each axis."""
    shared: str = "0"
    """Of a kernel: its bytes of dynamic shared memory."""
    arguments: tuple[str, ...] = ()
    """Of a compiled function: what each parameter gets; empty for the automatic order."""
    name: str = "candidate"
    destination: bool | None = None
    """True if the function writes results that it gets as its last arguments (FlashInfer's destination passing)."""
    language: str = field(default="python")

    def as_json(self) -> dict[str, Any]:
        """The candidate as a JSON object that `candidate_of` reads."""
        found: dict[str, Any] = {"files": dict(self.files), "main": self.main, "form": self.form, "name": self.name}
        if self.function is not None:
            found["function"] = self.function
        for key in ("grid", "block", "arguments"):
            if getattr(self, key):
                found[key] = list(getattr(self, key))
        if self.shared != "0":
            found["shared"] = self.shared
        if self.destination is not None:
            found["destination"] = self.destination
        return found

    @property
    def digest(self) -> str:
        """A hash of all that the candidate is."""
        return hashlib.sha256(json.dumps(self.as_json(), sort_keys=True).encode(errors="surrogatepass")).hexdigest()


def candidate_of(given: Any) -> Candidate:
    """The candidate of a path, of Python source text with a line break, or of a JSON object; UserError for others.

    A path ends with .py, .cpp, .cc, .cu or .json. An object has `files` (name -> text), or is a FlashInfer solution.
    """
    if isinstance(given, Candidate):
        return given
    if isinstance(given, Path) or (isinstance(given, str) and "\n" not in given):
        return _of_file(Path(given))
    if isinstance(given, str):
        return _checked({"files": {"candidate.py": given}})
    if isinstance(given, Mapping):
        return _checked(dict(given))
    raise UserError(
        f"the candidate is a {type(given).__name__}; it must be a path, source text with a line break, or an object"
    )


def _of_file(path: Path) -> Candidate:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"the candidate {str(path)!r} cannot be read: {error}") from None
    if path.suffix == ".json":
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UserError(f"the candidate {str(path)!r} is no JSON: {error}") from None
        if not isinstance(value, dict):
            raise UserError(f"the candidate {str(path)!r} holds a {type(value).__name__}; it must hold one object")
        return _checked({"name": path.stem, **value})
    return _checked({"files": {path.name: text}, "name": path.stem})


def _checked(value: dict[str, Any]) -> Candidate:
    """The candidate of an object, every value looked at."""
    if "sources" in value and "spec" in value:
        from perfsuite.judge.flashinfer import solution

        value = solution(value)
    if unknown := sorted(set(value) - {*_KEYS, "destination"}):
        raise UserError(one_line(f"the candidate has {unknown[0]!r}; allowed are {', '.join(_KEYS[:-2])}"))
    files = value.get("files")
    if not isinstance(files, dict) or not files or not all(isinstance(text, str) for text in files.values()):
        raise UserError("the candidate's files must be an object with at least one file, name -> text")
    for name in files:
        inside = name.isprintable() and not name.startswith("/") and ".." not in Path(name).parts
        if not inside or Path(name).suffix not in (*LANGUAGES, ".h", ".hpp", ".cuh", ".txt", ".json"):
            raise UserError(one_line(f"a file is named {name!r}; allowed are names such as kernel.py, inside a folder"))
    if (size := sum(len(text.encode(errors="surrogatepass")) for text in files.values())) > MOST_BYTES:
        raise UserError(f"the candidate has {size} bytes; at most {MOST_BYTES} are taken")
    code = [name for name in files if Path(name).suffix in LANGUAGES]
    main = value.get("main", code[0] if len(code) == 1 else None)
    if not isinstance(main, str) or main not in code:
        raise UserError(one_line(f"main is {main!r}; it must be one of the candidate's files: {', '.join(code)}"))
    language = LANGUAGES[Path(main).suffix]
    form = value.get("form", "python" if language == "python" else _form_of(files[main]))
    if form not in FORMS or (form == "python") is not (language == "python"):
        raise UserError(one_line(f"form is {form!r} for {main}; allowed are {', '.join(FORMS)}, python for .py alone"))
    if language == "python" and (Path(main).stem in {*sys.stdlib_module_names, "torch", "triton", "numpy"}):
        raise UserError(f"main is {main!r}, the name of another module; give the file another name")
    function = value.get("function")
    if function is not None and not (isinstance(function, str) and re.fullmatch(r"[A-Za-z_]\w*(\.\w+)*", function)):
        raise UserError(one_line(f"function is {function!r}; it must be the name of a function"))
    lists = {key: _words(key, value.get(key, ())) for key in ("grid", "block", "arguments")}
    if form == "kernel" and not (lists["grid"] and lists["block"]):
        raise UserError('a __global__ kernel needs grid and block, such as "grid": ["(n + 255) / 256"], "block": [256]')
    name, shared, destination = value.get("name", Path(main).stem), value.get("shared", "0"), value.get("destination")
    if not isinstance(name, str) or not name.isprintable() or len(name) > 200:
        raise UserError(one_line(f"name is {name!r}; it must be printable text of at most 200 characters"))
    return Candidate(
        dict(files), main, function, form, **lists, shared=str(shared), name=name, destination=destination,
        language=language,
    )  # fmt: skip


def _form_of(text: str) -> str:
    """The form of a C++ or CUDA source, as far as it can be seen."""
    if 'extern "C"' in text and "__global__" not in text.partition('extern "C"')[2].partition("(")[0]:
        return "pointers"
    return "tensors" if re.search(r"\b(torch|at)::Tensor\b", text) else "kernel" if "__global__" in text else "pointers"


def _words(key: str, given: Any) -> tuple[str, ...]:
    given = [given] if isinstance(given, str | int) else given
    if not isinstance(given, list | tuple) or not all(isinstance(one, str | int) for one in given):
        raise UserError(one_line(f"{key} is {given!r}; it must be a list of texts or whole numbers"))
    return tuple(map(str, given))


def parse_fault(candidate: Candidate, function: str) -> str | None:
    """The reason why the candidate's Python files do not parse or lack the function; None if there is no such reason.

    Nothing of the candidate is run.
    """
    for name, text in candidate.files.items():
        if not name.endswith(".py"):
            continue
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
            return f"{name}{line} does not parse: {getattr(error, 'msg', None) or error or type(error).__name__}"
        first = function.partition(".")[0]
        if name == candidate.main and candidate.form == "python" and first not in (names := _names(tree)) | {"*"}:
            if "*" in names:
                return None
            shown = ", ".join(sorted(names)[:8]) or "nothing"
            return f"{name} defines no {first}; it defines {shown}"
    return None


def _names(tree: ast.Module) -> set[str]:
    """Names that a module may define; "*" if it imports all of another module, or defines names at run time."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Name) and node.id in ("globals", "exec", "setattr"):
            found.add("*")
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name)
    return found
