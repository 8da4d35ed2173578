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
    spec = importlib.util.spec_from_file_location("extension_setup", ROOT / "ext/setup.py")
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
    with pytest.raises(SystemExit, match="cuda_llm_ops cannot be built: torch cannot be imported"):
        build.make_plan()


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
    with pytest.raises(SystemExit, match="cuda_llm_ops cannot be built with CUDA: nvcc is not found"):
        build.make_plan()


def test_forced_portable_fails_without_torch(build: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_LLM_OPS_BUILD", "portable")
    assert build.make_plan().flavour == "portable", "also where CUDA could be built"
    lacking(build, monkeypatch, torch=True)
    with pytest.raises(SystemExit, match="cuda_llm_ops cannot be built: torch cannot be imported"):
        build.make_plan()


def test_any_other_value_is_an_error(build: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_LLM_OPS_BUILD", "gpu")
    with pytest.raises(SystemExit, match=r"CUDA_LLM_OPS_BUILD='gpu'.*allowed are auto, cuda, portable"):
        build.make_plan()


def test_a_step_down_is_loud(build: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    build.announce(build.Plan("portable", "nvcc is not found", degraded=True))
    said = capsys.readouterr().err
    assert "WITHOUT CUDA: nvcc is not found" in said
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


def test_import_of_a_copy_without_the_extension_names_the_command(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    package = plugin_alone(tmp_path)
    said = import_from(tmp_path)
    assert f"cuda_llm_ops cannot be used: its extension is not built ({package} has no _C" in said
    assert "-m pip install --no-build-isolation" in said


@pytest.mark.parametrize(
    ("noted", "source"),
    [
        ({"url": "https://x.org/a.git", "vcs_info": {"vcs": "git", "commit_id": "1a2b"}, "subdirectory": "ext"},
         "'git+https://x.org/a.git@1a2b#subdirectory=ext'"),
        ({"url": "file:///a/ext", "dir_info": {}}, "file:///a/ext"),
        (None, ". (in the folder ext of a checkout of perfsuite)"),
    ],
)  # fmt: skip
def test_the_command_names_the_place_that_the_copy_came_from(
    tmp_path: Path, noted: dict[str, object] | None, source: str
) -> None:
    plugin_alone(tmp_path)
    described = tmp_path / "cuda_llm_ops-0.1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: cuda_llm_ops\nVersion: 0.1.0\n")
    if noted is not None:
        (described / "direct_url.json").write_text(json.dumps(noted))
    said = import_from(tmp_path, "torch").strip()
    assert said.endswith(f"--no-deps --no-cache-dir --force-reinstall {source}"), said


def test_a_cached_build_without_cuda_is_told_of_beside_a_torch_with_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """pip may take a wheel from its cache that was built beside another torch."""
    torch = pytest.importorskip("torch")
    build_facts = pytest.importorskip("cuda_llm_ops.build")
    facts = {"flavour": "portable", "degraded": False, "reason": "torch is built without CUDA"}
    monkeypatch.setattr(build_facts._C, "build_info", lambda: facts)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    with pytest.warns(UserWarning, match=r"without CUDA: torch is .*CUDA_LLM_OPS_BUILD=cuda .*--no-cache-dir"):
        build_facts.warn_if_degraded()
    facts["reason"] = "CUDA_LLM_OPS_BUILD=portable asked for it"
    build_facts.warn_if_degraded()


def test_import_of_a_broken_extension_is_not_taken_for_a_missing_one(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    package = plugin_alone(tmp_path)
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    (package / f"_C{suffix}").write_bytes(b"not a shared object")
    assert "its extension does not load with torch" in import_from(tmp_path)
