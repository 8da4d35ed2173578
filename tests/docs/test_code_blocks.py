"""The code of the pages is true: Python runs, commands and options exist, settings can be parsed.

The Python blocks of a page are one file, in their order, so a later block may use names of an earlier one. They run as
a stranger's tests would, with a short budget and without a card. A gate may then be missed or undecided, but no answer
may be wrong and no test may fail for another reason.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from perfsuite.cli.main import commands
from perfsuite.outcome import EXIT_MET, EXIT_MISSED, EXIT_UNDECIDED, Reason, Verdict
from perfsuite.pytest_plugin import ELSEWHERE, SWITCHES, VALUES, WRITTEN
from perfsuite.record.store import read_record

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
EXPECTED = re.compile(r"^def (test_\w+)\(.*\):  # (WRONG)$", re.MULTILINE)
"""A test of a page that shows a verdict other than MET says so."""
FAST, SLOW = {Reason.FAST_ENOUGH, Reason.CHECKED}, {Reason.TOO_SLOW, Reason.BUDGET_SPENT, Reason.PROCESSES_DISAGREE}
TARGETS = '[portable]\n"*" = { perf_target = { at_least = 0.001 } }\n'
"""A target that a portable run of a page meets: on a busy processor its speed says nothing."""


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a language on a page, without their indentation."""
    text = page.read_text(encoding="utf-8")
    found = [match for match in FENCE.finditer(text) if match[2] == language]
    return [re.sub(rf"^{match[1]}", "", match[3], flags=re.MULTILINE) for match in found]


def needs(code: str) -> set[str]:
    """Top-level packages that the code imports and this environment lacks."""
    names = set(re.findall(r"^\s*(?:import|from) (\w+)", code, re.MULTILINE))
    return {name for name in names if importlib.util.find_spec(name) is None}


def pages_with_python() -> dict[str, str]:
    """Page -> the code of all its Python blocks; of pages with the same code, the first."""
    code = {str(page.relative_to(ROOT)): "\n\n".join(blocks(page, "python")) for page in PAGES}
    alike: set[str] = set()
    return {page: text for page, text in sorted(code.items()) if text and not (text in alike or alike.add(text))}


class Ran:
    """One pytest run of the code of several pages: the outcome of every test, and the record's cases."""

    def __init__(self, folder: Path, code: dict[str, str]) -> None:
        self.files = {page: f"test_{re.sub(r'[^a-z0-9]+', '_', page.lower())}.py" for page in code}
        for page, name in self.files.items():
            (folder / name).write_text(code[page])
        (folder / "conftest.py").write_text('pytest_plugins = ["perfsuite.plugin"]\n')
        (folder / "perf_targets.toml").write_text(TARGETS)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
        command += ["--perf-portable", "--perf-seconds=0.05", "--perf-cache=hot"]
        command += ["--perf-record=run.jsonl", "--junitxml=tests.xml"]
        paths = (str(ROOT), str(ROOT / "ext"), os.environ.get("PYTHONPATH", ""))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        environment |= {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        self.wrong = {name for text in code.values() for name, _ in EXPECTED.findall(text)}
        self.code, self.out = done.returncode, done.stdout[-6000:] + done.stderr[-2000:]
        self.cases = read_record(folder / "run.jsonl") if (folder / "run.jsonl").is_file() else []
        self.tests = [*ElementTree.parse(folder / "tests.xml").iter("testcase")]

    def faults(self) -> Iterator[str]:
        """One sentence for everything that a page may not do."""
        if self.code not in (EXIT_MET, EXIT_MISSED, EXIT_UNDECIDED):
            yield f"pytest ended with {self.code}"
        for test in self.tests:
            name, judged = f"{test.get('classname')}::{test.get('name')}", test.find("properties") is not None
            for end in (*test.iter("failure"), *test.iter("error")):
                if not judged:
                    yield f"{name} failed: {end.get('message')}"
            for end in test.iter("skipped"):
                if "the portable backend stops at" not in str(end.get("message")):
                    yield f"{name} was skipped: {end.get('message')}"
        for case in self.cases:
            expected = str(case.test).partition("::")[2] in self.wrong
            if expected != (case.verdict is Verdict.WRONG) or not (expected or case.reason in FAST | SLOW):
                yield f"{case.test}: {case.verdict} {case.sentence}"


def test_python_of_the_pages_runs(tmp_path: Path) -> None:
    code = pages_with_python()
    assert len(code) > 10
    lacking = {page: found for page, text in code.items() if (found := needs(text))}
    assert set().union(*lacking.values()) <= {"triton"}, lacking
    assert not (lacking and os.environ.get("PERFSUITE_WHOLE")), f"the nightly run needs triton: {lacking}"
    ran = Ran(tmp_path, {page: text for page, text in code.items() if page not in lacking})
    assert not [*ran.faults()], "\n".join([*ran.faults(), ran.out])
    gated = {page for page, text in code.items() if "perf(" in text and page not in lacking}
    measured = {str(case.test).partition("::")[0] for case in ran.cases}
    assert {ran.files[page] for page in gated} <= measured


def command_lines() -> Iterator[tuple[Path, str]]:
    """(page, line) of the shell's lines in fenced blocks; a line that ends with a backslash goes on in the next."""
    for page in PAGES:
        for language in ("", "bash", "console"):
            for block in blocks(page, language):
                for line in block.replace("\\\n", " ").splitlines():
                    yield page, re.split(r" (?:\||&&|>>?) ", line.strip().removeprefix("$ "))[0]


def test_commands_of_the_pages_exist_with_their_options(capsys: pytest.CaptureFixture[str]) -> None:
    known, wrong, count = commands(), [], 0
    for page, line in command_lines():
        words = shlex.split(line, comments=True) if line.startswith("perfsuite ") else []
        if len(words) < 2 or not re.fullmatch(r"[a-z-]+", words[1]):
            continue
        count += 1
        if words[1] not in known:
            wrong.append(f"{page.name}: there is no such command: {line}")
            continue
        module = import_module(f"perfsuite.cli.commands.{words[1].replace('-', '_')}")
        parser = argparse.ArgumentParser(exit_on_error=False)
        module.add_arguments(parser)
        try:
            parser.parse_args(words[2:])
        except (argparse.ArgumentError, SystemExit):
            wrong.append(f"{page.name}: {line}: {capsys.readouterr().err}")
    assert not wrong, "\n".join(wrong)
    assert count > 40


def test_options_and_sessions_that_the_pages_name_exist() -> None:
    options = {flag for flag, *_ in (*SWITCHES, *VALUES, *WRITTEN, *ELSEWHERE)}
    nox = (ROOT / "noxfile.py").read_text()
    sessions = set(re.findall(r"^def (\w+)\(session: nox", nox, re.MULTILINE)) | set(
        re.findall(r'name="([\w-]+)"', nox)
    )
    wrong = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        wrong += [f"{page.name}: {flag}" for flag in re.findall(r"--perf-[a-z-]*[a-z]", text) if flag not in options]
        named = [name for words in re.findall(r"nox -s((?: [a-z][\w-]*)+)", text) for name in words.split()]
        wrong += [f"{page.name}: nox -s {name}" for name in named if name not in sessions]
    assert not wrong, wrong


def test_the_site_lists_every_page() -> None:
    listed = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    docs = ROOT / "docs"
    assert sorted(listed) == sorted(str(page.relative_to(docs)) for page in docs.rglob("*.md"))


def test_settings_on_the_pages_can_be_parsed() -> None:
    found = [tomllib.loads(block) for page in PAGES for block in blocks(page, "toml")]
    assert found


@pytest.mark.parametrize("page", ["quick-start.md", "tutorial.md", "README.md"])
def test_a_translation_has_the_code_of_its_page(page: str) -> None:
    """Comments and strings are the same too: whoever asks for help shows what others know."""
    folder = ROOT if page == "README.md" else ROOT / "docs"
    other = ROOT / "README.zh-CN.md" if page == "README.md" else folder / "zh" / page
    both = [[match[0] for match in FENCE.finditer(path.read_text(encoding="utf-8"))] for path in (folder / page, other)]
    assert both[0] == both[1]
    assert both[0]
