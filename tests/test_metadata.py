"""What an index page shows of the plugin: links that lead somewhere, the oldest torch that is tested, and the wheel."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

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


def test_a_wheel_is_built_of_the_tree_as_it_is_and_leaves_it_so(tmp_path: Path) -> None:
    pytest.importorskip("setuptools")
    tree = tmp_path / "tree"
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        tree.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tree)
    shutil.copytree(ROOT / "perfsuite", tree / "perfsuite", ignore=shutil.ignore_patterns("__pycache__"))
    before = {path.relative_to(tree) for path in tree.rglob("*")}
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w"]
    subprocess.run([*pip, tmp_path, tree], check=True)
    assert {path.relative_to(tree) for path in tree.rglob("*")} == before
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        held = {Path(name) for name in packed.namelist() if name.startswith("perfsuite/")}
    assert held == {path for path in before if path.parts[0] == "perfsuite" and (tree / path).is_file()}
