"""The gate on ptxas's reports: what it reads, what it fails, and what it answers to wrong use."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from perfsuite.analyze.ptxas import demangle, parse
from perfsuite.cli.commands import kernels
from perfsuite.outcome import UserError

CLEAN = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z5cleanILi3EEvPf' for 'sm_90a'
ptxas info    : Function properties for _Z5cleanILi3EEvPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 14 registers, used 1 barriers, 1024 bytes smem
"""
SPILLING = """\
ptxas info    : Compiling entry function '_Z6spillyPfi' for 'sm_90a'
ptxas info    : Function properties for _Z6helperv
    8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Function properties for _Z6spillyPfi
    416 bytes stack frame, 176 bytes spill stores, 180 bytes spill loads
ptxas info    : Used 64 registers, used 0 barriers, 416 bytes cumulative stack size
"""
ADVISORY = "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine it.\n"


def test_parse_reads_registers_shared_memory_and_spills_of_each_kernel() -> None:
    found, advisories = parse(CLEAN + SPILLING + ADVISORY, source="a.cu", arch="sm_90a")
    assert [(k.symbol, k.registers, k.static_shared, k.stack, k.spill_stores, k.spill_loads) for k in found] == [
        ("_Z5cleanILi3EEvPf", 14, 1024, 0, 0, 0),
        ("_Z6spillyPfi", 64, 0, 416, 176, 180),
    ]
    assert [k.spills for k in found] == [False, True]
    assert [a.code for a in advisories] == ["C7508"]


def test_the_mark_of_an_unnamed_namespace_does_not_tell_two_compilations_apart() -> None:
    unnamed = "_ZN39_GLOBAL__N__{}_7_simt_cu_4c9e34a45cleanIfEEvv"
    found = [
        parse(CLEAN.replace("_Z5cleanILi3EEvPf", unnamed.format(mark)), source="a.cu", arch="sm_90a")
        for mark in ("23752f44", "abd63305")
    ]
    assert found[0] == found[1]
    assert found[0][0][0].symbol == "_ZN39_GLOBAL__N__00000000_7_simt_cu_000000005cleanIfEEvv"


def test_names_are_readable() -> None:
    names = demangle(["_Z5cleanILi3EEvPf", "_ZN12_GLOBAL__N_14gemmILb1ELi64EEEvPKf"])
    if names["_Z5cleanILi3EEvPf"] == "_Z5cleanILi3EEvPf":
        pytest.skip("no c++filt here: names stay mangled")
    assert list(names.values()) == ["clean<3>", "gemm<true, 64>"]


@pytest.fixture
def fake_nvcc(tmp_path: Path) -> Path:
    """A compiler that prints the source itself as ptxas's report, and refuses a source that says so."""
    script = tmp_path / "nvcc"
    script.write_text(
        '#!/bin/sh\nfor last; do :; done\n[ "$last" = --version ] && echo 1 && exit\n'
        'grep -q REFUSED "$last" && exit 1\necho "$last" >>"$0.log"\ncat "$last" >&2\n'
    )
    script.chmod(0o755)
    return script


def command(fake_nvcc: Path, *words: str | Path) -> int:
    parser = argparse.ArgumentParser()
    kernels.add_arguments(parser)
    arguments = ["--nvcc", fake_nvcc, "--arch", "90a", *words]
    return kernels.run(parser.parse_args([str(word) for word in arguments]))


def test_a_clean_source_passes_and_its_registers_are_printed(
    fake_nvcc: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "clean.cu").write_text(CLEAN)
    assert command(fake_nvcc, tmp_path) == 0
    assert "14" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("report", "named"), [(SPILLING, "416 bytes of stack"), (ADVISORY, "C7508"), ("REFUSED", "sm_90a")]
)
def test_a_spill_an_advisory_and_a_refusal_fail(
    fake_nvcc: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], report: str, named: str
) -> None:
    (tmp_path / "bad.cu").write_text(report)
    assert command(fake_nvcc, tmp_path) == 1
    assert named in capsys.readouterr().out


def test_an_allowance_covers_its_kernel_and_fails_when_stale(
    fake_nvcc: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    allow = tmp_path / "allowed.toml"
    allow.write_text('[[allowed]]\nkernel = "*spilly*"\nreason = "a test"\n')
    (tmp_path / "bad.cu").write_text(SPILLING)
    assert command(fake_nvcc, tmp_path, "--allow", allow) == 0
    (tmp_path / "bad.cu").write_text(CLEAN)
    assert command(fake_nvcc, tmp_path, "--allow", allow) == 1
    assert "no longer spills" in capsys.readouterr().out


def test_an_allowance_of_an_architecture_that_was_not_asked_for_is_not_stale(
    fake_nvcc: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    allow = tmp_path / "allowed.toml"
    allow.write_text('[[allowed]]\nkernel = "*"\narch = "sm_12[01]"\nreason = "a test"\n')
    (tmp_path / "clean.cu").write_text(CLEAN)
    assert command(fake_nvcc, tmp_path, "--allow", allow) == 0
    allow.write_text(allow.read_text().replace("12[01]", "9*"))
    assert command(fake_nvcc, tmp_path, "--allow", allow) == 1
    assert "no longer spills" in capsys.readouterr().out


def test_the_json_is_all_that_is_printed_and_what_the_file_holds(
    fake_nvcc: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "spilling.cu").write_text(SPILLING)
    made = tmp_path / "kernels.json"
    assert command(fake_nvcc, tmp_path, "--json", "--output", made) == 1
    out, err = capsys.readouterr()
    assert [one["stack"] for one in json.loads(out)] == [416]
    assert "FAILED" in err
    assert made.read_text() == out


def test_a_source_can_be_compiled_for_one_architecture_alone(
    fake_nvcc: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hopper.cu").write_text(CLEAN)
    (tmp_path / "any.cu").write_text(CLEAN)
    assert command(fake_nvcc, tmp_path, "--arch", "80", "--only", "*/hopper*=90a") == 0
    shown = capsys.readouterr().err
    assert "hopper.cu sm_90a" in shown
    assert "hopper.cu sm_80" not in shown
    assert "any.cu sm_80" in shown


def test_wrong_use_names_the_thing(fake_nvcc: Path, tmp_path: Path) -> None:
    with pytest.raises(kernels.UserError, match=r"absent\.cu: no such file"):
        command(fake_nvcc, tmp_path / "absent.cu")
    with pytest.raises(kernels.UserError, match="no nvcc"):
        command(tmp_path / "not-a-compiler", tmp_path)
    with pytest.raises(kernels.UserError, match=r"no \.cu file"):
        command(fake_nvcc, tmp_path)
    (tmp_path / "clean.cu").write_text(CLEAN)
    for only in ("90a", "*/absent*=90a", "*=80"):
        with pytest.raises(kernels.UserError, match="leaves nothing to compile"):
            command(fake_nvcc, tmp_path, "--only", only)
    allow = tmp_path / "allowed.toml"
    allow.write_text('[[allowed]]\nkernel = "*"\n')
    with pytest.raises(kernels.UserError, match="needs kernel and reason"):
        command(fake_nvcc, tmp_path, "--allow", allow)


def test_only_what_changed_since_the_record_is_compiled(fake_nvcc: Path, tmp_path: Path) -> None:
    sources, record = tmp_path / "src", tmp_path / "record.jsonl"
    sources.mkdir()
    (sources / "one.cu").write_text(f'#include "deep.cuh"\n{CLEAN}')
    (sources / "two.cu").write_text(CLEAN)
    (sources / "deep.cuh").write_text('#include "deeper.h"\n')
    (sources / "deeper.h").write_text("// 1\n")
    words = (sources, "--record", record)

    def compiled(*more: str) -> list[str]:
        log = Path(f"{fake_nvcc}.log")
        log.unlink(missing_ok=True)
        assert command(fake_nvcc, *words, *more) == 0
        return sorted(Path(line).name for line in log.read_text().split()) if log.exists() else []

    assert compiled() == ["one.cu", "two.cu"], "no record yet"
    assert compiled("--update") == ["one.cu", "two.cu"]
    assert compiled() == []
    assert len(compiled("--recheck=1")) == 1
    (sources / "deeper.h").write_text("// 2\n")
    assert compiled() == ["one.cu"], "a header of a header changed"
    assert compiled("--arch=80") == ["one.cu", "one.cu", "two.cu"], "for another architecture nothing is known"


def test_a_record_that_says_something_else_fails(
    fake_nvcc: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, record = tmp_path / "spilling.cu", tmp_path / "record.jsonl"
    source.write_text(SPILLING)
    words = (source, "--record", record)
    assert command(fake_nvcc, *words, "--update") == 1
    assert "416 bytes of stack" in capsys.readouterr().out
    assert command(fake_nvcc, *words) == 1, "what spilled before is still a failure"
    record.write_text(record.read_text().replace(",416,176,180]", ",0,0,0]"))
    assert command(fake_nvcc, *words) == 0
    assert command(fake_nvcc, *words, "--recheck=1") == 1
    assert "holds other kernels than its compilation" in capsys.readouterr().out
    record.write_text("{}\n")
    with pytest.raises(UserError, match=r"record\.jsonl:1 is no line"):
        command(fake_nvcc, *words)


def test_an_update_keeps_other_architectures_and_what_a_stopped_run_had_compiled(
    fake_nvcc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources, record = tmp_path / "src", tmp_path / "record.jsonl"
    sources.mkdir()
    for name in ("one.cu", "two.cu"):
        (sources / name).write_text(CLEAN)
    words = (sources, "--record", record, "--update", "--jobs=1")

    def kept() -> list[tuple[str, str]]:
        lines = map(json.loads, record.read_text().splitlines())
        return [(Path(line["source"]).name, line["arch"]) for line in lines]

    assert command(fake_nvcc, *words, "--arch=120") == 0
    assert command(fake_nvcc, *words) == 0
    assert kept() == [("one.cu", "120"), ("one.cu", "90a"), ("two.cu", "120"), ("two.cu", "90a")]
    (sources / "two.cu").unlink()
    assert command(fake_nvcc, *words) == 0
    assert kept() == [("one.cu", "120"), ("one.cu", "90a")], "a source that is gone leaves none"
    (sources / "one.cu").write_text(f"// changed\n{CLEAN}")
    (sources / "three.cu").write_text(CLEAN)
    compile_one, count = kernels.compile_resources, iter(range(9))

    def stopped(*arguments: Any, **options: Any) -> Any:
        if next(count):
            raise KeyboardInterrupt
        return compile_one(*arguments, **options)

    monkeypatch.setattr(kernels, "compile_resources", stopped)
    before = record.read_text()
    with pytest.raises(KeyboardInterrupt):
        command(fake_nvcc, *words)
    assert record.read_text() != before
