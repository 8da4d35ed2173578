"""Candidates as source text. A worker imports them, from a private folder; the parent never runs a line of them."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import io
import os
import pickle
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfsuite.outcome import Reason, UnjudgeableError, UserError, one_line

MOST_SOURCE_BYTES = 1 << 24
"""Bytes of all files of one candidate."""


class Source:
    """A candidate as Python source and the name of its function. It always runs isolated, in a process of its own."""

    def __init__(
        self,
        text: str,
        function: str,
        *,
        name: str = "candidate.py",
        files: Mapping[str, str] | None = None,
        folder: str | os.PathLike[str] | None = None,
        made: Collection[str] = (),
    ) -> None:
        """text: the source. function: the name of a callable in it, which may have dots.

        name: its file in tracebacks and in records. files: further files, name -> text, that it may import or read.
        folder: a folder on disk from which it may import as well. made: names of files that no candidate has written.
        UserError for names that cannot be used.
        """
        if not isinstance(text, str):
            raise UserError(f"the source is a {type(text).__name__}; it must be text")
        if not isinstance(function, str) or not all(part.isidentifier() for part in function.split(".")):
            raise UserError(one_line(f"the function is {function!r}; it must be the name of a function in the source"))
        if not isinstance(name, str) or not name.endswith(".py") or not name[:-3].isidentifier():
            raise UserError(one_line(f"the file is {name!r}; it must be the name of a module, such as kernel.py"))
        self._files = {**(files or {}), name: text}
        for path, content in self._files.items():
            _check_file(path, content)
        if (size := sum(len(one.encode(errors="surrogatepass")) for one in self._files.values())) > MOST_SOURCE_BYTES:
            raise UserError(f"the source has {size} bytes; at most {MOST_SOURCE_BYTES} are taken")
        self._file, self._folder = name, None if folder is None else os.path.abspath(folder)
        self._made = frozenset(made)
        self.text, self.function = text, function
        self.__module__ = name[:-3]
        self.__name__ = self.__qualname__ = function

    @classmethod
    def file(cls, path: str | os.PathLike[str], function: str) -> Source:
        """The source in a file, as it is now. It may import from the file's folder. UserError if it cannot be read."""
        place = Path(path)
        try:
            text = place.read_text(encoding="utf-8")
        except OSError as error:
            raise UserError(one_line(f"the source file {str(path)!r} cannot be read: {error.strerror}")) from None
        except UnicodeDecodeError as error:
            raise UserError(one_line(f"the source file {str(path)!r} is not UTF-8: {error}")) from None
        return cls(text, function, name=place.name, folder=place.parent)

    @property
    def digest(self) -> str:
        """A digest of the candidate's text; empty if it may import other text from a folder."""
        if self._folder is not None:
            return ""
        text = hashlib.sha256()
        for path, content in sorted(self._files.items()):
            if path not in self._made:
                text.update(hashlib.sha256(path.encode()).digest())
                text.update(hashlib.sha256(content.encode(errors="surrogatepass")).digest())
        return text.hexdigest()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raise UnjudgeableError: this process must not run the source."""
        raise UnjudgeableError(
            f"{self.function} is source text, which this process never runs: perf(problem, source) "
            "judges its answer and its time; for anything else import its module and pass the function"
        )

    def placed(self) -> tuple[tempfile.TemporaryDirectory[str], PlacedSource]:
        """(a private folder that holds the files until it is cleaned up, the candidate for a worker)."""
        folder = tempfile.TemporaryDirectory(prefix="perfsuite-source-")
        for path, content in self._files.items():
            place = Path(folder.name, path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(content, encoding="utf-8", errors="surrogatepass")
        return folder, PlacedSource(folder.name, self._file, self.function, self._folder)


def source_in(candidate: Any) -> Source | None:
    """The source that a candidate is, or that it wraps (`functools.partial`, a call with its backward); else None."""
    while not isinstance(candidate, Source):
        inner = candidate.func if isinstance(candidate, functools.partial) else vars_of(candidate).get("__wrapped__")
        if inner is None:
            return None
        candidate = inner
    return candidate


def vars_of(value: Any) -> dict[str, Any]:
    """The attributes of an object itself, without running code of its class."""
    found = getattr(value, "__dict__", {})
    return found if isinstance(found, dict) else {}


class Sent(pickle.Pickler):
    """Pickles a candidate, with what `placed` holds in the place of its source."""

    def __init__(self, file: io.BytesIO, placed: PlacedSource | None) -> None:
        super().__init__(file)
        self._placed = placed

    def persistent_id(self, value: Any) -> PlacedSource | None:
        """The source as the worker finds it; None for all else."""
        return self._placed if isinstance(value, Source) else None


class Received(pickle.Unpickler):
    """Reads such a candidate, in the worker, and imports its source."""

    def persistent_load(self, placed: PlacedSource) -> Callable[..., Any]:
        """The function of the source."""
        return placed.load()


class SourceError(Exception):
    """The source gives no candidate; the message says why."""

    def __init__(self, reason: Reason, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


@dataclass(frozen=True)
class PlacedSource:
    """Source that lies in a folder: its file's name, its function's name, and a further folder to import from."""

    folder: str
    file: str
    function: str
    beside: str | None

    def load(self) -> Callable[..., Any]:
        """Import the file and find the function. Only a worker calls this. SourceError if there is none."""
        path = os.path.join(self.folder, self.file)
        with open(path, encoding="utf-8", errors="surrogatepass") as opened:
            text = opened.read()
        try:
            code = compile(text, path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
            told = getattr(error, "msg", None) or str(error) or type(error).__name__
            raise SourceError(Reason.DOES_NOT_PARSE, f"{self.file}{line} does not parse: {told}") from None
        name = self.file[:-3]
        if name in sys.modules or name in sys.stdlib_module_names:
            name = f"{name}_of_the_candidate"  # a file named torch.py must not replace torch
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        sys.dont_write_bytecode = True
        sys.path[:0] = [self.folder, *([] if self.beside is None else [self.beside])]
        sys.modules[name] = module
        try:
            exec(code, vars(module))
        except (Exception, SystemExit) as error:
            said = SourceError(
                Reason.CANDIDATE_FAILED, f"{self.file} raised {type(error).__name__} when it was imported: {error}"
            )
            raise said.with_traceback(error.__traceback__) from error
        return self._found(module)

    def _found(self, module: Any) -> Callable[..., Any]:
        found = module
        for part in self.function.split("."):
            if not hasattr(found, part):
                names = sorted(key for key, one in vars(module).items() if callable(one) and key[0] != "_")
                known = f"it has {', '.join(names[:10])}" if names else "it has no function"
                raise SourceError(Reason.DOES_NOT_PARSE, f"{self.file} has no {self.function}; {known}")
            found = getattr(found, part)
        if not callable(found):
            said = f"{self.function} of {self.file} is a {type(found).__name__}; it must be callable"
            raise SourceError(Reason.DOES_NOT_PARSE, said)
        return found


def _check_file(name: Any, content: Any) -> None:
    """UserError unless the file lies inside the folder and is text."""
    plain = isinstance(name, str) and name.isprintable() and name and not os.path.isabs(name)
    if not plain or ".." in Path(name).parts or Path(name) == Path("."):
        raise UserError(one_line(f"a file of the source is named {name!r}; it must be a path inside its folder"))
    if not isinstance(content, str):
        raise UserError(one_line(f"the file {name!r} is a {type(content).__name__}; it must be text"))
