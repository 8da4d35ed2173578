"""What becomes of a page that names other hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsuite.history import page
from perfsuite.history.commits import HistoryError
from perfsuite.report.npm import NpmError

INDEX = """<script src="https://code.example/jquery-3.3.1.min.js" integrity="sha256-x" crossorigin="anonymous"></script>
<link rel="stylesheet" href="https://cdn.example/bootstrap.min.css" integrity="sha256-y">
<script src="asv.js"></script><a href="https://example.org/">a link stays</a>
"""


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    for package, inside in page.LIBRARIES.values():
        kept = tmp_path / "cache" / package.replace("@", "-") / inside
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(package)
    return tmp_path / "cache"


def test_the_libraries_lie_beside_the_page(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "index.html").write_text(INDEX)
    assert page.settle(tmp_path, cache) == 2
    text = (tmp_path / "index.html").read_text()
    assert '<script src="libraries/jquery-3.3.1.min.js"></script>' in text
    assert '<link rel="stylesheet" href="libraries/bootstrap.min.css">' in text
    assert "integrity" not in text
    assert '<a href="https://example.org/">' in text
    assert (tmp_path / "libraries" / "bootstrap.min.css").read_text() == "bootstrap@3.1.1"
    assert page.settle(tmp_path, cache) == 0


def test_an_unknown_library_leaves_the_page_as_it_was(tmp_path: Path, cache: Path) -> None:
    text = INDEX.replace("jquery-3.3.1", "jquery-9")
    (tmp_path / "index.html").write_text(text)
    with pytest.raises(HistoryError, match=r"asks for jquery-9\.min\.js"):
        page.settle(tmp_path, cache)
    assert (tmp_path / "index.html").read_text() == text


def test_without_npm_and_without_a_copy_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "index.html").write_text(INDEX)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NpmError, match=r"npm is needed to fetch jquery@3\.3\.1"):
        page.settle(tmp_path, tmp_path / "empty")


def test_a_folder_without_a_page_is_told(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="holds no page that asv published"):
        page.settle(tmp_path, tmp_path)
