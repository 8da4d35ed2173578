"""What docs/mission.md shows of commands that only reckon is what they print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from perfsuite.cli.main import main

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "mission.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ perfsuite ((?:memory|roofline --walk).*)\n((?:(?!\$ |```|\n).*\n)+)", PAGE, re.MULTILINE)
SHOWN = [(command, output) for command, output in COMMANDS if "--measure" not in command]  # those need a card


def test_the_page_shows_the_commands() -> None:
    kinds = {command.split()[1] for command, _ in SHOWN}
    assert kinds == {"attention", "inference", "training", "kv-cache", "--walk"}


@pytest.mark.parametrize(("command", "output"), SHOWN, ids=[command for command, _ in SHOWN])
def test_a_command_prints_what_the_page_shows(command: str, output: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(shlex.split(command)) == 0
    assert capsys.readouterr().out == output


def test_links_within_the_page_lead_somewhere() -> None:
    headings = {
        re.sub(r"[^\w\- ]", "", line.lstrip("# ")).strip().lower().replace(" ", "-")
        for line in PAGE.splitlines()
        if line.startswith("#")
    }
    assert set(re.findall(r"\]\(#([\w-]+)\)", PAGE)) <= headings
    folder = Path(__file__).resolve().parents[2] / "docs"
    files = set(re.findall(r"\]\(([\w-]+\.md)", PAGE))
    assert files
    assert all((folder / name).is_file() for name in files)
