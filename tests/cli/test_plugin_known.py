"""The commands that are printed work for their reader: where pytest knows the plugin, and where it does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfsuite.cli import plugin_known
from perfsuite.cli.main import main

URL = "https://example.org/owner/perfsuite"
COMMIT = "1a2b3c4d" * 5


def came_from(site: Path, monkeypatch: pytest.MonkeyPatch, origin: dict[str, Any] | None) -> None:
    """Make perfsuite installed from somewhere, without the distribution that tells pytest."""
    facts = site / "site" / "perfsuite-0.1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: perfsuite\nVersion: 0.1.0\n")
    if origin:
        (facts / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.syspath_prepend(facts.parent)
    monkeypatch.setattr(plugin_known.metadata, "entry_points", lambda **given: ())


@pytest.mark.parametrize(
    ("origin", "words"),
    [
        (None, "pip install pytest-perfsuite"),
        ({"url": "file://HERE/a%20tree", "dir_info": {}}, "pip install 'HERE/a tree/plugin'"),
        ({"url": "file://HERE/a%20tree", "dir_info": {"editable": True}}, "pip install 'HERE/a tree/plugin'"),
        ({"url": "file://HERE/gone", "dir_info": {}}, "pip install pytest-perfsuite"),
        ({"url": f"{URL}/perfsuite-0.1.0-py3-none-any.whl", "archive_info": {}}, "pip install pytest-perfsuite"),
        (
            {"url": "file://HERE/wheels/perfsuite-0.1.0-py3-none-any.whl", "archive_info": {}},
            "pip install --find-links HERE/wheels pytest-perfsuite",
        ),
        (
            {"url": URL, "vcs_info": {"vcs": "git", "commit_id": COMMIT}},
            f"pip install 'git+{URL}@{COMMIT}#subdirectory=plugin'",
        ),
    ],
    ids=["index", "folder", "editable", "folder that is gone", "address of a wheel", "wheel", "git"],
)
def test_the_plugin_is_installed_from_where_perfsuite_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: dict[str, Any] | None, words: str
) -> None:
    (tmp_path / "a tree" / "plugin").mkdir(parents=True)
    (tmp_path / "a tree" / "plugin" / "pyproject.toml").write_text("")
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "pytest_perfsuite-0.1.0-py3-none-any.whl").write_text("")
    given = json.loads(json.dumps(origin).replace("HERE", str(tmp_path))) if origin else None
    came_from(tmp_path, monkeypatch, given)
    assert plugin_known.install_words() == words.replace("HERE", str(tmp_path))


def test_a_checkout_on_the_path_installs_both(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise plugin_known.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(plugin_known.metadata, "distribution", missing)
    root = Path(__file__).resolve().parents[2]
    assert plugin_known.install_words() == f"pip install {root} {root}/plugin"


def test_commands_say_what_works_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    came_from(tmp_path, monkeypatch, None)
    monkeypatch.chdir(tmp_path)
    assert main(["verify"]) == 2
    assert "run `pytest -p perfsuite.plugin --gpu`" in capsys.readouterr().err
    main(["doctor", "--extension", "no_such_module"])
    said = capsys.readouterr().out
    assert "does not know the plugin" in said
    assert "pip install pytest-perfsuite; without it, `pytest -p perfsuite.plugin`" in said
