"""What the `perfsuite` command says where it cannot do what it is asked: one sentence, and nothing is written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from perfsuite.cli.callables import load_callable
from perfsuite.cli.commands import report
from perfsuite.cli.main import commands, main
from perfsuite.exporters.listing import exporters
from perfsuite.outcome import UserError
from perfsuite.problems.listing import families

GATES = Path(__file__).resolve().parents[2] / "records" / "h200" / "gates.jsonl"


@pytest.mark.parametrize("word", ["\ud800", "a\0b"])
@pytest.mark.parametrize("words", [["report"], ["compare", str(GATES)], ["table", "--check"], ["schema", "--output"]])
def test_a_word_that_can_name_no_file_is_one_sentence(
    words: list[str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, word]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert "which no file's name can have" in said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["report", GATES, "--html", "folder"], "report: --html is 'folder', which cannot be written: it is a folder"),
        (["report", GATES, "--html", "pipe"], "--html is 'pipe', which cannot be written: it is a device or a pipe"),
        (["report", GATES, "--html", "no/x.html"], "--html is 'no/x.html', which cannot be written: there is no fold"),
        (["roofline", GATES, "--svg", "folder"], "folder cannot be written: it is a folder"),
        (["calibrate", "--output", "folder"], "calibrate: --output is 'folder', which cannot be written: it is a fold"),
        (["bench", "gemm", "--output", "pipe"], "bench: --output is 'pipe', which cannot be written: it is a device"),
        (["ab", "HEAD", "--markdown", "no/x.md"], "--markdown is 'no/x.md', which cannot be written: there is no fold"),
        (["ab", "HEAD", "--markdown", "folder"], "--markdown is 'folder', which cannot be written: it is a folder"),
        (["history", "--asv"], "history: --config is 'benchmarks_asv/asv.conf.json'; there is no such file"),
        (["kernels", "a.cu", "--output", "folder"], "--output is 'folder', which cannot be written: it is a folder"),
    ],
    ids=str,
)
def test_a_place_that_does_not_fit_is_named_and_nothing_is_left(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str | Path],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    os.mkfifo("pipe")
    assert main(list(map(str, words))) == 2
    said = capsys.readouterr()
    assert (sentence in said.err, said.out) == (True, ""), said.err
    assert sorted(os.listdir()) == ["folder", "pipe"]


@pytest.mark.parametrize(
    ("raised", "code", "sentence"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (ModuleNotFoundError("No module named 'torch'", name="torch"), 2, "pip install torch"),
        (FileNotFoundError(2, "No such file or directory", "git"), 2, "No such file or directory: 'git'"),
    ],
    ids=["Ctrl-C", "no torch", "no git"],
)
def test_what_ends_a_command_from_outside_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], raised: BaseException, code: int, sentence: str
) -> None:
    def run(arguments: object) -> int:
        raise raised

    monkeypatch.setattr(report, "run", run)
    assert main(["report"]) == code
    said = capsys.readouterr().err
    assert said.startswith("perfsuite report: ")
    assert sentence in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x = 1 / 0", "ZeroDivisionError: division by zero ("),
        ("def f(:", "SyntaxError: invalid syntax (broken_module.py, line 1)"),
        ("raise SystemExit(3)", "SystemExit: 3 ("),
        ("import no_such_module", "cannot be imported: No module named 'no_such_module'"),
    ],
)
def test_a_module_that_cannot_be_imported_is_named_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, sentence: str
) -> None:
    (tmp_path / "broken_module.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UserError) as caught:
        load_callable("broken_module:f")
    assert str(caught.value).startswith("broken_module:f: module broken_module cannot be imported: ")
    assert sentence in str(caught.value)


def test_a_record_is_shown_in_one_form(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["report", str(GATES), "--markdown", "--json"])
    assert "argument --json: not allowed with argument --markdown" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--flops", "1e12", "--bandwidth", "0"], "--bandwidth is 0; it must be a positive number of bytes a second"),
        (["--flops", "1e12", "--bandwidth", "nan"], "--bandwidth is nan; it must be a positive number"),
        (["--flops", "-1", "--bandwidth", "1"], "--flops is -1; it must be a positive number of FLOPs a second"),
        (["--flops", "float16=inf", "--bandwidth", "1"], "--flops is float16=inf; it must be a positive number"),
        (["--walk", "8x8"], "--walk takes no record, and "),
    ],
)
def test_a_roof_that_makes_no_sense_is_named_by_its_option(
    capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    assert main(["roofline", str(GATES), *words]) == 2
    assert sentence in capsys.readouterr().err


def test_help_fits_100_columns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    lines = [["--help"], *([name, "--help"] for name in commands())]
    lines += [["export", name, "--help"] for name in exporters()] + [["bench", name, "--help"] for name in families()]
    lines += [["memory", "attention", "--help"], ["asv", "cases", "--help"], ["bench", "gemm:8x8x8", "--help"]]
    for words in lines:
        with pytest.raises(SystemExit, match="0"):
            main(words)
        shown = capsys.readouterr().out.splitlines()
        assert not [line for line in shown if len(line) > 100], words


def test_plain_perfsuite_answers_with_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    said = capsys.readouterr().out
    assert all(f"\n  {name}" in said for name in commands())


def test_help_fits_80_columns_and_names_the_exit_codes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for words in ([], *([name] for name in commands())):
        with pytest.raises(SystemExit, match="0"):
            main([*words, "--help"])
        said = capsys.readouterr().out
        assert not [line for line in said.splitlines() if len(line) > 80], words
        assert "exit code" in said.lower(), words


@pytest.mark.parametrize(
    ("line", "words"), [("perfsuite comp", ["compare"]), ("perfsuite export mark", ["markdown"])], ids=str
)
def test_words_are_completed(tmp_path: Path, line: str, words: list[str]) -> None:
    pytest.importorskip("argcomplete")
    shell = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_STDOUT_FILENAME": str(tmp_path / "words")}
    shell |= {"COMP_LINE": line, "COMP_POINT": str(len(line)), "PYTHONPATH": str(GATES.parents[2])}
    subprocess.run([sys.executable, "-m", "perfsuite"], env=os.environ | shell, check=True, capture_output=True)
    assert (tmp_path / "words").read_text().split() == words
