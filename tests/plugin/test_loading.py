"""Every way in which the plugin gets into a run: as an entry point, named by a conftest, with -p; and all at once."""

from __future__ import annotations

import pytest

from .conftest import Suite

DISTRIBUTION = {
    "METADATA": "Metadata-Version: 2.1\nName: pytest-perfsuite\nVersion: 0.1.0\n",
    "entry_points.txt": "[pytest11]\nperfsuite.plugin = perfsuite.plugin\n",
}


@pytest.mark.parametrize("named", [True, False], ids=["-p", "no -p"])
@pytest.mark.parametrize("listed", [True, False], ids=["conftest", "no conftest"])
@pytest.mark.parametrize("installed", [True, False], ids=["installed", "not installed"])
def test_the_plugin_is_loaded_once(
    suite: Suite, monkeypatch: pytest.MonkeyPatch, installed: bool, listed: bool, named: bool
) -> None:
    if not (installed or listed or named):
        pytest.skip("nothing loads it")
    if installed:
        # Only this distribution: others that are installed beside pytest have no part in this.
        folder = suite.path / "site" / "pytest_perfsuite-0.1.0.dist-info"
        folder.mkdir(parents=True)
        for name, text in DISTRIBUTION.items():
            (folder / name).write_text(text)
        monkeypatch.syspath_prepend(suite.path / "site")
        monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    if listed:
        suite.add_hooks("\npytest_plugins = ['perfsuite.plugin']\n")
    suite.write("@TARGET\ndef test_it(perf): perf(Gemm(8, 8, 8), met)\n")
    arguments = ["-p", "perfsuite.plugin"] if named else []
    result = suite.pytester.runpytest_inprocess(*arguments, "--gpu")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["1 met (-v shows all cases); record: *"])
