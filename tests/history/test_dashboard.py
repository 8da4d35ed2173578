"""The published page in a browser: graphs drawn, cases listed, no script error, nothing asked of other hosts."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from .browser import chromium, look
from .conftest import Repository, case
from .test_export import RATIO, asv, configure

REASONS = {
    "playwright is not installed": importlib.util.find_spec("playwright") is None,
    "asv is not installed": importlib.util.find_spec("asv") is None,
    "no Chromium on PATH": chromium() is None,
}
LACKING = [reason for reason, holds in REASONS.items() if holds]
REQUIRED = "PERFSUITE_BROWSER"
"""Set by `nox -s dashboard`: what is lacking is then a failure."""
PAGE = Path(__file__).resolve().parents[2] / ".perfsuite/asv/libraries"

pytestmark = pytest.mark.skipif(bool(LACKING) and REQUIRED not in os.environ, reason="; ".join(LACKING))


def test_the_page_draws_graphs_and_lists_the_cases(tmp_path: Path, repository: Repository) -> None:
    from perfsuite.history.asv_export import export
    from perfsuite.history.commits import HistoryError
    from perfsuite.history.page import settle
    from perfsuite.history.page_words import make_readable

    folder = tmp_path / "benchmarks_asv"
    configure(folder, repository)
    for commit, ratio in zip(repository.commits, (1.25, 1.26, 1.5), strict=True):
        cases = [case("gemm 64", commit=commit, ratio=ratio), case("gemm 128", commit=commit)]
        export(cases, folder / "results", repository.path)
    asv(folder, "publish", "--no-pull")
    try:
        assert settle(folder / "html", PAGE) == 10
    except HistoryError as error:
        if REQUIRED in os.environ:
            raise
        pytest.skip(str(error))
    assert make_readable(folder / "html", "https://code.example/o/r") == 2
    assert "https://code.jquery" not in (folder / "html" / "index.html").read_text()

    seen = look(folder / "html", [RATIO], tmp_path / "page.png")
    assert seen.errors == []
    assert "kernels: time over the rival's" in seen.listed
    assert {"test_it[gemm 64] vs library", "test_it[gemm 128] vs library"} <= set(seen.cases[RATIO])
    assert seen.points[RATIO] == 6  # two cases at three commits
    assert seen.pixels[RATIO] > 1000
    assert (tmp_path / "page.png").stat().st_size > 10_000
