"""The build's one switch: what it gives, what it refuses, and that no step down is silent."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """setup.py as a module, on a machine where everything is there."""
    spec = importlib.util.spec_from_file_location("extension_setup", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "extension_setup", module)
    spec.loader.exec_module(module)
    for name in ("CUDA_LLM_OPS_BUILD", "FORCE_CUDA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(module, "why_no_extension", lambda: None)
    monkeypatch.setattr(module, "why_no_cuda", lambda: None)
    return module


def lacking(build: ModuleType, monkeypatch: pytest.MonkeyPatch, *, torch: bool = False, nvcc: bool = False) -> None:
    if torch:
        monkeypatch.setattr(build, "why_no_extension", lambda: "torch cannot be imported")
    if nvcc:
        monkeypatch.setattr(build, "why_no_cuda", lambda: ("nvcc is not found", True))


def test_auto_takes_the_most_there_is(build: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    assert build.make_plan().flavour == "cuda"
    lacking(build, monkeypatch, nvcc=True)
    assert build.make_plan() == build.Plan("portable", "nvcc is not found", degraded=True)
    lacking(build, monkeypatch, torch=True)
    assert build.make_plan() == build.Plan("none", "torch cannot be imported", degraded=True)


def test_portable_is_no_loss_where_torch_has_no_cuda(build: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "why_no_cuda", lambda: ("torch is built without CUDA", False))
    assert build.make_plan() == build.Plan("portable", "torch is built without CUDA", degraded=False)


@pytest.mark.parametrize("switch", [{"CUDA_LLM_OPS_BUILD": "cuda"}, {"FORCE_CUDA": "1"}])
def test_forced_cuda_fails_where_it_cannot_be(
    build: ModuleType, monkeypatch: pytest.MonkeyPatch, switch: dict[str, str]
) -> None:
    for name, value in switch.items():
        monkeypatch.setenv(name, value)
    assert build.make_plan().flavour == "cuda"
    lacking(build, monkeypatch, nvcc=True)
    with pytest.raises(SystemExit, match="CUDA_LLM_OPS_BUILD=cuda cannot be honoured: nvcc is not found"):
        build.make_plan()


def test_forced_portable_fails_without_torch(build: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_LLM_OPS_BUILD", "portable")
    assert build.make_plan().flavour == "portable", "also where CUDA could be built"
    lacking(build, monkeypatch, torch=True)
    with pytest.raises(SystemExit, match="CUDA_LLM_OPS_BUILD=portable cannot be honoured: torch cannot be imported"):
        build.make_plan()


def test_none_is_the_plugin_alone_on_purpose(build: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_LLM_OPS_BUILD", "none")
    plan = build.make_plan()
    assert (plan.flavour, plan.degraded) == ("none", False)


def test_any_other_value_is_an_error(build: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_LLM_OPS_BUILD", "gpu")
    with pytest.raises(SystemExit, match=r"CUDA_LLM_OPS_BUILD='gpu'.*allowed are auto, cuda, portable, none"):
        build.make_plan()


def test_a_step_down_is_loud(build: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    build.announce(build.Plan("none", "torch cannot be imported", degraded=True))
    said = capsys.readouterr().err
    assert "NOT AT ALL: the plugin alone: torch cannot be imported" in said
    assert "CUDA_LLM_OPS_BUILD=cuda" in said


def test_the_commit_touches_the_header_of_one_file_alone() -> None:
    including = [
        path.name for path in (ROOT / "ext/csrc").rglob("*") if path.is_file() and "build_facts.h" in path.read_text()
    ]
    assert including == ["module.cpp"]


def import_from(folder: Path, *blocked: str) -> str:
    """What `import cuda_llm_ops` says from a copy in `folder`, in an interpreter that lacks the modules `blocked`."""
    code = (
        "import sys; sys.modules.update(dict.fromkeys(sys.argv[2:])); sys.path.insert(0, sys.argv[1])\n"
        "sys.meta_path = [finder for finder in sys.meta_path if 'Editable' not in str(finder)]\n"
        "try:\n    import cuda_llm_ops\nexcept ImportError as error:\n    print(type(error).__name__, error)"
    )
    return subprocess.run(
        [sys.executable, "-c", code, str(folder), *blocked], capture_output=True, text=True, check=True
    ).stdout


def plugin_alone(tmp_path: Path) -> Path:
    package = tmp_path / "cuda_llm_ops"
    package.mkdir()
    for source in (ROOT / "ext/cuda_llm_ops").glob("*.py"):
        (package / source.name).write_text(source.read_text())
    return package


def test_import_without_torch_names_the_command(tmp_path: Path) -> None:
    plugin_alone(tmp_path)
    said = import_from(tmp_path, "torch")
    assert said.startswith("ImportError cuda_llm_ops cannot be used: torch cannot be imported")
    assert "-m pip install --no-build-isolation" in said


def test_import_without_the_extension_says_why_it_was_left_out(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    package = plugin_alone(tmp_path)
    assert "cuda_llm_ops cannot be used: its extension is not built" in import_from(tmp_path)
    (package / "_build.json").write_text(json.dumps({"reason": "no C++ compiler is found"}))
    said = import_from(tmp_path)
    assert "its extension is not built (no C++ compiler is found)" in said
    assert "-m pip install --no-build-isolation" in said


def test_import_of_a_broken_extension_is_not_taken_for_a_missing_one(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    package = plugin_alone(tmp_path)
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    (package / f"_C{suffix}").write_bytes(b"not a shared object")
    assert "its extension does not load with torch" in import_from(tmp_path)
