"""Command lines of any words: a result, or one short sentence and exit code 2."""

from __future__ import annotations

import argparse
import os
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from perfsuite import pytest_plugin
from perfsuite.cli.main import commands, main
from perfsuite.cli.parsers import parser_of
from perfsuite.outcome import MOST_CHARACTERS
from perfsuite.pytest_plugin import options

from .fuzzing import fuzz, texts

RECORD = Path(__file__).resolve().parents[2] / "records" / "h200" / "gates.jsonl"
RUN = ("compare", "export", "memory", "partial", "report", "roofline", "schema", "table", "verify")
"""Commands that are run. They measure nothing, start no program and reach no host; the others only read their words."""
LEFT_OUT = {"--measure", "--fetch-libraries", "asv", "--help", "-h", "--repository"}


def words_of(parser: argparse.ArgumentParser) -> set[str]:
    """The options of a parser and of the parsers below it, and the words that they take."""
    found: set[str] = set()
    for action in parser._actions:
        found.update(action.option_strings)
        found.update(map(str, action.choices or ()))
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                found |= words_of(inner)
    return found - LEFT_OUT


def own_parser(name: str) -> argparse.ArgumentParser:
    module = import_module(f"perfsuite.cli.commands.{name.replace('-', '_')}")
    own = parser_of(f"perfsuite {name}", module)
    module.add_arguments(own)
    return own


def arguments(known: set[str], files: list[str]) -> st.SearchStrategy[list[str]]:
    # No file outside of the folder is written.
    other = texts().filter(lambda text: ".." not in text and not text.startswith("/"))
    numbers = st.one_of(st.integers(-2, 300), st.floats(), st.sampled_from([10**30, "7B", "8x8", "fp16=1e12"])).map(str)
    word = st.one_of(
        st.sampled_from(sorted(known) or ["-"]), st.sampled_from(files), st.sampled_from(files), numbers, other
    )
    return st.lists(word, max_size=5)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Files of all kinds, in the working directory."""
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    lines = RECORD.read_bytes().splitlines(keepends=True)
    Path("whole.jsonl").write_bytes(b"".join(lines[::40]))
    Path("cut.jsonl").write_bytes(lines[0] + lines[1][:300])
    Path("empty.jsonl").touch()
    Path("bytes.jsonl").write_bytes(bytes(range(256)))
    Path("page.md").write_text("<!-- perfsuite:gates whole.jsonl -->\n<!-- /perfsuite:gates -->\n")
    Path("other.md").write_text("<!-- perfsuite:none ../../x colour=* -->\n")
    Path("folder").mkdir()
    os.mkfifo("pipe")
    return ["whole.jsonl", "cut.jsonl", "empty.jsonl", "bytes.jsonl", "page.md", "other.md", "folder", "missing/x"]


def test_words_that_are_run(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    parsers = {name: words_of(own_parser(name)) for name in RUN}
    parsers["export"] |= {"csv", "html", "json", "markdown", "--output"}

    def check(line: tuple[str, list[str]]) -> None:
        name, rest = line
        code: Any
        try:
            code = main([name, *rest])
        except SystemExit as stop:
            code = stop.code
        said = capsys.readouterr().err.splitlines()
        assert code in (0, 1, 2, 20, 21), code
        assert code != 2 or said
        assert not said or len(said[-1]) <= MOST_CHARACTERS + 50

    lines = st.sampled_from(RUN).flatmap(lambda name: st.tuples(st.just(name), arguments(parsers[name], files)))
    assert fuzz(check, line=lines)


def test_words_that_are_read(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    parsers = {name: own_parser(name) for name in commands()}
    known = {name: words_of(parser) for name, parser in parsers.items()}

    def check(line: tuple[str, list[str]]) -> None:
        name, rest = line
        code: Any = 0
        try:
            parsers[name].parse_args(rest)
        except SystemExit as stop:
            code = stop.code
        said = capsys.readouterr().err.splitlines()
        assert code == 0 or (code == 2 and len(said[-1]) <= MOST_CHARACTERS + 50)

    names = st.sampled_from(sorted(commands()))
    lines = names.flatmap(lambda name: st.tuples(st.just(name), arguments(known[name], files)))
    assert fuzz(check, line=lines)


class Config:
    """The part of pytest's config that reads options."""

    def __init__(self, given: dict[str, Any], folder: Path) -> None:
        self.given, self.rootpath = given, folder
        self.option = argparse.Namespace()
        self.invocation_params = argparse.Namespace(dir=folder)

    def getoption(self, key: str, default: Any = None) -> Any:
        return self.given.get(key, default)

    def getini(self, key: str) -> Any:
        return self.given.get(f"ini {key}", "")


def test_options_of_pytest(files: list[str]) -> None:
    switches = [flag.removeprefix("--").replace("-", "_") for flag, _ in pytest_plugin.SWITCHES]
    keys = [
        flag.removeprefix("--").replace("-", "_")
        for flag, *_ in (*pytest_plugin.VALUES, *pytest_plugin.WRITTEN, *pytest_plugin.ELSEWHERE)
    ]
    values = st.one_of(texts(), st.sampled_from([*files, "cold", "hot", "normal"]), st.floats().map(str))
    given = st.fixed_dictionaries(
        {"gpu": st.booleans()},
        optional={name: st.booleans() for name in switches}
        | dict.fromkeys(keys, values)
        | {f"ini {name}": values for name in keys},
    )

    def check(given: dict[str, Any]) -> None:
        try:
            options.build_options(Config(given, Path.cwd()))  # type: ignore[arg-type]
        except pytest.UsageError as error:
            said = str(error)
        else:
            said = ""
        assert len(said) <= MOST_CHARACTERS
        assert said.isprintable()

    assert fuzz(check, given=given)
