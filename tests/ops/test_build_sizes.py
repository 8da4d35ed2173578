"""The sizes and times of a build: from what it leaves behind, and the limits of the record."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "ext"))  # the package is not installed: it belongs to the tree, not to the wheel

from machine_code import sizes  # noqa: E402


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """A build of three sources: two of gemm, at once, then one of the host."""
    objects = tmp_path / "cuda-x"
    lines = ["# ninja log v7"]
    made = {
        "csrc/cuda/gemm/sm90/a.o": (0, 4000, 30),
        "csrc/cuda/gemm/b.o": (0, 1000, 10),
        "csrc/x_ops.o": (4000, 6000, 2),
    }
    for name, (begin, end, size) in made.items():
        (objects / name).parent.mkdir(parents=True, exist_ok=True)
        (objects / name).write_bytes(b"x" * size)
        lines += [f"0\t99000\t1\t{objects / name}\tff", f"{begin}\t{end}\t1\t{objects / name}\tff"]  # built again
    (objects / ".ninja_log").write_text("\n".join(lines))
    (objects / "generated").mkdir()
    (objects / sizes.FACTS).write_text('#pragma once\n#define BUILD_ARCHITECTURES "sm_80 sm_90a"\n')
    (tmp_path / "_C.so").write_bytes(b"x" * 50)
    return tmp_path


def run(build: Path, *more: str) -> int:
    return sizes.main(["--objects", str(build / "cuda-x"), "--module", str(build / "_C.so"), "--cores", "2", *more])


def test_a_build_is_measured_by_family(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(build, "--record", str(build / "build.json")) == 0
    record = json.loads((build / "build.json").read_text())
    assert record["families"] == {
        "gemm": {"sources": 2, "object_bytes": 40, "seconds": 5.0},
        "host": {"sources": 1, "object_bytes": 2, "seconds": 2.0},
    }
    assert record["architectures"] == "sm_80 sm_90a"
    assert (record["module_bytes"], record["seconds"], record["longest_seconds"], record["cores"]) == (50, 6.0, 4.0, 2)
    out = capsys.readouterr().out
    assert out.index("| gemm | 2 |") < out.index("| host | 1 |")
    assert "The build took 6 s on 2 cores, its longest source 4.0 s" in out


def test_the_seconds_on_more_cores_are_those_of_the_work_or_of_the_longest_source(build: Path) -> None:
    record = sizes.measured(build / "_C.so", build / "cuda-x", 2)
    assert sizes.seconds_on(record, 2) == sizes.seconds_on(record, 1) == 6.0
    assert sizes.seconds_on(record, 32) == 4.0
    record["families"]["gemm"]["seconds"] = 640.0
    assert sizes.seconds_on(record, 32) == pytest.approx(642 / 32)


def test_a_build_beyond_a_limit_fails(
    build: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sizes, "MOST_BYTES", 49)
    assert run(build) == 1
    assert "MISSED the module has 0 MB" in capsys.readouterr().out
    monkeypatch.setattr(sizes, "MOST_BYTES", 50)
    monkeypatch.setattr(sizes, "MOST_SECONDS", 3.9)
    assert run(build) == 1
    assert "MISSED the build takes 4 s on 32 cores" in capsys.readouterr().out


def test_a_build_that_is_not_whole_is_explained(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (build / "cuda-x/csrc/y.o").write_bytes(b"x")
    assert run(build) == 2
    assert ".ninja_log does not name csrc/y.o" in capsys.readouterr().err
    assert sizes.main(["--objects", str(build / "none")]) == 2
    assert "build the extension first" in capsys.readouterr().err


@pytest.mark.skipif(not sizes.RECORD.exists(), reason="no build is on record")
def test_the_build_on_record_is_within_the_limits_and_has_every_family() -> None:
    record = json.loads(sizes.RECORD.read_text())
    assert sizes.misses(record) == []
    families = {path.name for path in (ROOT / "ext/csrc/cuda").iterdir() if path.is_dir() and any(path.rglob("*.cu"))}
    assert families <= set(record["families"])
