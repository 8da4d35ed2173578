"""The options of all commands: one name for one thing, and JSON wherever a command prints results."""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from perfsuite.cli.main import commands, main
from perfsuite.cli.parsers import parser_of
from perfsuite.exporters.listing import exporters, load
from perfsuite.problems.listing import families
from perfsuite.record.case import Case
from perfsuite.record.store import read_record, write_record

GATES = Path(__file__).resolve().parents[2] / "records" / "h200" / "gates.jsonl"
NO_RESULTS = {
    "asv": "writes what asv reads",
    "comment": "writes to a pull request",
    "export": "writes another format; `export json` is one",
    "init": "writes files",
    "schema": "prints JSON always",
    "serve": "answers over HTTP, with JSON always",
    "site": "writes pages",
}
"""Commands without --json, and the reason."""
JSON_OF_FAMILY = {"bench"}
"""Commands whose first word decides which options there are; `bench` has --json with any of them."""
SYNONYMS = {
    "--num-heads": {"--heads", "--n-heads", "--nheads"},
    "--batch-size": {"--batch", "--batches"},
    "--seq-lengths": {"--lengths", "--seqs", "--seq-lens"},
    "--seq-length": {"--seq", "--length", "--seq-len"},
    "--head-dim": {"--dim", "--head-size"},
    "--kv-heads": {"--num-kv-heads", "--heads-kv"},
    "--dtype": {"--type", "--data-type", "--precision"},
    "--output": {"--out", "--to", "--file", "-o"},
    "--against": {"--rival", "--base", "--baseline", "--reference"},
    "--candidate": {"--ours", "--function"},
    "--seconds": {"--time", "--duration", "--budget"},
    "--at-least": {"--target", "--minimum", "--min"},
    "--repository": {"--repo-url", "--url"},
    "--portable": {"--cpu", "--host"},
    "--gpus": {"--devices", "--cards"},
    "--jobs": {"-j", "--parallel", "--threads"},
}
"""The name that every command uses -> names that would say the same."""


def options(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The options that a help shows, those of a first word's parsers too."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for one in action.choices.values():
                yield from options(one)
        elif action.option_strings and action.help != argparse.SUPPRESS:
            yield action


def parsers() -> dict[str, argparse.ArgumentParser]:
    """Command -> its parser, with those of the exporters and the families."""
    found: dict[str, argparse.ArgumentParser] = {}
    for name in commands():
        module = import_module(f"perfsuite.cli.commands.{name}")
        found[name] = parser_of(f"perfsuite {name}", module)
        module.add_arguments(found[name])
    for name in exporters():
        found[f"export {name}"] = argparse.ArgumentParser()
        getattr(load(name), "add_arguments", lambda parser: None)(found[f"export {name}"])
    for name, family in families().items():
        found[f"bench {name}"] = argparse.ArgumentParser()
        family.add_options(found[f"bench {name}"])
    return found


def test_one_thing_has_one_name_in_all_commands() -> None:
    wrong = {other: name for name, others in SYNONYMS.items() for other in others}
    assert set(wrong).isdisjoint(SYNONYMS)
    found = [
        f"perfsuite {command}: {word} is called {wrong[word]} elsewhere"
        for command, parser in parsers().items()
        for action in options(parser)
        for word in action.option_strings
        if word in wrong
    ]
    assert not found


def test_an_option_of_one_name_takes_numbers_everywhere_or_nowhere() -> None:
    kinds: dict[str, dict[str, str]] = defaultdict(dict)
    for command, parser in parsers().items():
        for action in options(parser):
            number = "a number" if action.type in (int, float) else "no number"
            for word in action.option_strings:
                kinds[word][command] = number if action.nargs != 0 else "nothing"
    for word in (
        "--json",
        "--num-heads",
        "--batch-size",
        "--seq-lengths",
        "--head-dim",
        "--seconds",
        "--gpus",
        "--portable",
    ):
        assert len(set(kinds[word].values())) == 1, (word, kinds[word])


def test_every_command_that_prints_results_prints_json() -> None:
    found = {
        name
        for name, parser in parsers().items()
        if any("--json" in action.option_strings for action in options(parser))
    }
    assert set(commands()) - found - JSON_OF_FAMILY == set(NO_RESULTS)


def recorded() -> list[Case]:
    """Two cases that are met."""
    return [case for case in read_record(GATES) if case.verdict == "MET" and case.speed is not None][:2]


@pytest.fixture
def record(tmp_path: Path) -> Path:
    place = tmp_path / "gates.jsonl"
    first, second = recorded()
    write_record(place, [first, second.changed(verdict="MISSED", speed=0.5)])
    return place


def test_the_jsons_hold_what_the_texts_say(
    tmp_path: Path, record: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    better = tmp_path / "before.jsonl"
    write_record(better, recorded())

    def said(code: int, *words: object) -> dict[str, object]:
        assert main(list(map(str, words))) == code
        made = json.loads(capsys.readouterr().out)
        assert isinstance(made, dict)
        return made

    compared = said(1, "compare", better, record, "--json")
    worse = [one for one in compared["changes"] if one["kind"] == "worse verdict"]  # type: ignore[attr-defined]
    told = [(one["regression"], one["after"]["value"], one["before"]["verdict"]) for one in worse]
    assert told == [(True, 0.5, "MET")]
    verified = said(1, "verify", record, "--any-commit", "--json")
    assert (verified["holds"], verified["counts"]) == (False, "1 met, 1 missed")
    part = record.rename(tmp_path / "gates.partial.jsonl")
    assert list(said(0, "partial", tmp_path, "--json")["partial"]) == [str(part)]  # type: ignore[call-overload]
    assert said(0, "partial", "--join", tmp_path / "whole.jsonl", part, "--json")["cases"] == 2
    assert said(0, "partial", tmp_path, "--clean", "0", "--json") == {"removed": [str(part)]}
    page = tmp_path / "page.md"
    page.write_text("text\n")
    assert said(0, "table", page, "--json") == {str(page): "up to date"}


def test_a_former_name_of_an_option_still_works(capsys: pytest.CaptureFixture[str]) -> None:
    main(["memory", "attention", "--seq-lengths", "512", "--heads", "3", "--batch", "2"])
    former = capsys.readouterr().out
    main(["memory", "attention", "--seq-lengths", "512", "--num-heads", "3", "--batch-size", "2"])
    assert capsys.readouterr().out == former
