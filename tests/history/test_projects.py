"""What a tree is built from: its root, the folders that it names, or a copy of its modules."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsuite.history import builds, projects
from perfsuite.history.builds import BuildError, Source, build

from .conftest import make_repository

PROJECT = """[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "{name}"
version = "1"
[tool.setuptools]
py-modules = ["{name}"]
"""
SPLIT = '[tool.perfsuite]\nbuild = ["ext"]\n'


def test_commits_before_and_after_a_split_are_built(tmp_path: Path) -> None:
    made = make_repository(tmp_path / "repository")
    old = made.commit("one project", **{"pyproject.toml": PROJECT.format(name="kernels"), "kernels.py": "SIDE = 1\n"})
    (made.path / "ext").mkdir()
    (made.path / "kernels.py").unlink()
    files = {"ext/pyproject.toml": PROJECT.format(name="kernels"), "ext/kernels.py": "SIDE = 2\n"}
    files |= {"pyproject.toml": PROJECT.format(name="plugin") + SPLIT, "plugin.py": ""}
    new = made.commit("two projects", **files)
    folders = [build(Source(made.path, commit), tmp_path / "store") for commit in (old, new)]
    assert [(folder / "kernels.py").read_text() for folder in folders] == ["SIDE = 1\n", "SIDE = 2\n"]
    assert not (folders[1] / "plugin.py").exists(), "only what the commit names is built"


def test_a_flat_folder_is_copied_without_its_tests(tmp_path: Path) -> None:
    made = make_repository(tmp_path / "repository")
    for folder in ("tests", "lib"):
        (made.path / folder).mkdir()
    files = {"kernels.py": "", "test_kernels.py": "", "conftest.py": "", "tests/test_more.py": "", "lib/deep.py": ""}
    files["pyproject.toml"] = '[tool.pytest.ini_options]\npythonpath = ["lib"]\n'
    commit = made.commit(**files)
    folder = build(Source(made.path, commit), tmp_path / "store")
    assert {path.name for path in folder.rglob("*.py")} == {"kernels.py", "deep.py"}
    assert (folder / "deep.py").is_file(), "where the tests import it from"


@pytest.mark.parametrize(
    ("build_setting", "said"),
    [
        ('"ext"', "build is 'ext'; it must be a list of folders"),
        ("[]", "must be a list of folders"),
        ('["nowhere"]', "names 'nowhere', which is no folder of the project"),
        ('["../.."]', "names '../..', which is no folder of the project"),
    ],
)
def test_a_setting_that_is_none_is_one_sentence(tmp_path: Path, build_setting: str, said: str) -> None:
    made = make_repository(tmp_path / "repository")
    commit = made.commit(**{"pyproject.toml": f"[tool.perfsuite]\nbuild = {build_setting}\n"})
    with pytest.raises(BuildError, match="does not build: ") as raised:
        build(Source(made.path, commit), tmp_path / "store")
    assert said in str(raised.value)


def test_tools_that_are_not_installed_are_named_and_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[tuple[str, ...]] = []
    monkeypatch.setattr(builds, "_pip", lambda source, *line, why="": lines.append((*line, why)))
    (tmp_path / "pyproject.toml").write_text('[build-system]\nrequires = ["no-such-tool>=1", "setuptools"]\n')
    source = Source(tmp_path, "a", tmp_path)
    builds._build_wheel(source, tmp_path, tmp_path / "wheels", tmp_path / "made")
    assert "--no-build-isolation" not in lines[0]
    assert "no-such-tool>=1 is required to build it and not installed here" in lines[0][-1]
    (tmp_path / "setup.py").write_text("")  # a compiled extension needs the torch that is installed
    builds._build_wheel(source, tmp_path, tmp_path / "wheels", tmp_path / "made")
    assert "--no-build-isolation" in lines[2]


def test_a_build_of_one_flavour_does_not_stand_for_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(tmp_path, "1a2b")
    monkeypatch.delenv(builds.FLAVOUR_VARIABLE, raising=False)
    default = source.target(tmp_path)
    monkeypatch.setenv(builds.FLAVOUR_VARIABLE, "portable")
    assert source.target(tmp_path) != default


def test_this_repository_builds_its_kernels() -> None:
    root = Path(__file__).resolve().parents[2]
    assert projects.projects(root) == [root / "ext"]
    assert projects.has_build(root / "ext")
