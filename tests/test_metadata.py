"""What an index page shows: links that lead somewhere, the oldest torch that is tested, and the wheels."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

import perfsuite

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("plugin_setup", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("url", ["", "https://example.org/owner/perfsuite"])
def test_no_link_of_the_readme_is_relative(build: ModuleType, url: str) -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", build.readme(url))
    assert [target for target in targets if not target.startswith("https://")] == []
    assert bool(url) == any(target == f"{url}/blob/HEAD/docs/tutorial.md" for target in targets)


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("git@example.org:owner/name.git", "https://example.org/owner/name"),
        ("https://example.org/owner/name.git", "https://example.org/owner/name"),
        ("/home/somebody/name", ""),
    ],
)
def test_the_address_is_that_of_a_page(
    build: ModuleType, monkeypatch: pytest.MonkeyPatch, given: str, address: str
) -> None:
    monkeypatch.setenv("PERFSUITE_URL", given)
    assert build.address() == address


def test_the_oldest_torch_is_that_which_a_session_tests() -> None:
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["torch"]
    tested = re.search(r'^OLDEST_TORCH = "(.*)"$', (ROOT / "noxfile.py").read_text(), re.MULTILINE)
    assert tested is not None
    assert extra == [f"torch>={tested[1]}"]


def test_wheels_are_built_of_the_tree_as_it_is_and_leave_it_so(tmp_path: Path) -> None:
    pytest.importorskip("setuptools")
    tree = tmp_path / "tree"
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        tree.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tree)
    shutil.copytree(ROOT / "perfsuite", tree / "perfsuite", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "plugin", tree / "plugin", symlinks=True)
    before = {path.relative_to(tree) for path in tree.rglob("*")}
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w"]
    url = os.environ | {"PERFSUITE_URL": "https://example.org/owner/perfsuite"}
    subprocess.run([*pip, tmp_path, tree, tree / "plugin"], check=True, env=url)
    assert {path.relative_to(tree) for path in tree.rglob("*")} == before
    code, announces = held(tmp_path, "perfsuite"), held(tmp_path, "pytest_perfsuite")
    files = {str(path) for path in before if path.parts[0] == "perfsuite" and (tree / path).is_file()}
    assert {name for name in code if ".dist-info/" not in name} == files
    assert {name for name in announces if ".dist-info/" not in name} == set(), "pytest reads this list in every run"
    facts = {Path(name).name: text for name, text in announces.items()}
    assert facts["entry_points.txt"] == "[pytest11]\nperfsuite.plugin = perfsuite.plugin\n"
    assert not any("pytest11" in text for name, text in code.items() if name.endswith("entry_points.txt"))
    assert "Requires-Dist: perfsuite\n" in facts["METADATA"]
    assert "Project-URL: Source, https://example.org/owner/perfsuite\n" in facts["METADATA"]
    versions = {re.search(r"-([\d.]+)-", wheel.name)[1] for wheel in tmp_path.glob("*.whl")}  # type: ignore[index]
    assert versions == {perfsuite.__version__}


def held(folder: Path, distribution: str) -> dict[str, str]:
    """The files of a distribution's wheel."""
    (wheel,) = folder.glob(f"{distribution}-*.whl")
    with zipfile.ZipFile(wheel) as packed:
        return {name: packed.read(name).decode(errors="replace") for name in packed.namelist()}
