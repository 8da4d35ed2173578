"""The words of a page that asv published: names of cases, links to commits, regressions of today's harness."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfsuite.cli.main import main
from perfsuite.history.commits import HistoryError
from perfsuite.history.page_words import make_readable

SHA = "d224bf986ad25e6956589fa1ab8e55595faa73d9"
LONG = "'ops.gemm gemm 64x64 vs cublas'"
ALIKE = ["'ops.gemm gemm 8 vs a'", "'kernels.gemm gemm 8 vs a'"]
OTHERS = ["'kernels.gemm 64 vs library'", "'f vs library'", "'gemm sm90 kk'"]
FEED = """<?xml version='1.0' encoding='utf-8'?><feed xmlns="http://www.w3.org/2005/Atom">{}</feed>"""
ENTRY = (
    """<entry><title>9% gates.gemm.track_launches('ops.gemm gemm 64x64 vs cublas')</title><link href="index.html#x?"""
    """harness={0}&amp;p-case=%27ops.gemm+gemm+64x64+vs+cublas%27"/><content type="html">&lt;a href="#"""
    f"""{SHA}"&gt;d224bf98&lt;/a&gt;</content></entry>"""
)


def regression(harness: str | None) -> list[Any]:
    named = {} if harness is None else {"harness": harness}
    return [f"gates.gemm.track_launches({LONG})", "graphs/x.json", named, 0, 2.0, 1.0, [[1, 2, 1.0, 2.0]]]


@pytest.fixture
def html(tmp_path: Path) -> Path:
    benchmarks = {"gates.gemm.track_launches": {"params": [[LONG, *ALIKE, *OTHERS]]}}
    index = {"show_commit_url": "#", "project_url": "#", "params": {"harness": ["2", "10"]}, "benchmarks": benchmarks}
    (tmp_path / "index.json").write_text(json.dumps(index))
    found = [regression("2"), regression("10"), regression(None)]
    (tmp_path / "regressions.json").write_text(json.dumps({"regressions": found}))
    (tmp_path / "regressions.xml").write_text(FEED.format(ENTRY.format(2) + ENTRY.format(10)))
    (tmp_path / "graphs" / "a").mkdir(parents=True)
    (tmp_path / "graphs" / "a" / "summary.json").write_text(json.dumps([{"pretty_name": f"gemm: launches({LONG})"}]))
    return tmp_path


def test_names_are_short_where_they_stay_apart(html: Path) -> None:
    for _ in range(2):  # a second time changes nothing
        assert make_readable(html, None) == 2
    index = json.loads((html / "index.json").read_text())
    assert index["benchmarks"]["gates.gemm.track_launches"]["params"] == [["'gemm 64x64 vs cublas'", *ALIKE, *OTHERS]]
    assert index["show_commit_url"] == "#"
    summary = json.loads((html / "graphs" / "a" / "summary.json").read_text())
    assert summary == [{"pretty_name": "gemm: launches('gemm 64x64 vs cublas')"}]


def test_commits_are_links_and_old_harnesses_have_no_regressions(html: Path) -> None:
    assert make_readable(html, "https://code.example/o/r") == 2
    assert json.loads((html / "index.json").read_text())["show_commit_url"] == "https://code.example/o/r/commit/"
    kept = json.loads((html / "regressions.json").read_text())["regressions"]
    assert [one[2] for one in kept] == [{"harness": "10"}, {}]
    assert kept[0][0] == "gates.gemm.track_launches('gemm 64x64 vs cublas')"
    feed = (html / "regressions.xml").read_text()
    assert feed.count("<entry>") == 1
    assert "p-case=%27gemm+64x64+vs+cublas%27" in feed
    assert f'href="https://code.example/o/r/commit/{SHA}"' in feed


def test_a_folder_without_a_page_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(HistoryError, match="holds no page that asv published"):
        make_readable(tmp_path, None)
    assert main(["asv", "page", str(tmp_path)]) == 2
    assert "holds no page that asv published" in capsys.readouterr().err
