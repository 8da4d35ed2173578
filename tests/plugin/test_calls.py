"""The number and the label of each call of `perf` in its test, and a config that was never configured."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from perfsuite.history import series
from perfsuite.history.series_names import name_of, older_name_of

from .conftest import Suite


def test_each_case_carries_its_call_and_label(suite: Suite) -> None:
    suite.write(
        "@TARGET\n@pytest.mark.perf_target(against='cudnn', at_least=0.9)\n"
        "def test_it(perf):\n"
        "    perf(Gemm(8, 8, 8), met)\n"
        "    perf(Gemm(8, 8, 8), met)\n"
        "@pytest.mark.perf_target(against=max, at_least=0.9)\ndef test_labels(perf):\n"
        "    perf(met, args=(1,), label='one')\n"
    )
    suite.run("--perf-portable")
    lines = (suite.path / "out" / "record.jsonl").read_text()
    found = [(case.test.split("::")[1], case.call, case.label, case.rival) for case in suite.cases_of(lines)]
    assert found == [
        *[("test_it", 1, None, "cudnn"), ("test_it", 1, None, "cublas")],
        *[("test_it", 2, None, "cudnn"), ("test_it", 2, None, "cublas")],
        ("test_labels", 1, "one", "max"),
    ]


def test_calls_that_are_alike_have_series_of_their_own(suite: Suite) -> None:
    suite.write(
        "@TARGET\ndef test_it(perf):\n"
        "    perf(Gemm(8, 8, 8), met)\n    perf(Gemm(8, 8, 8), missed)\n"
        "    perf(Gemm(8, 8, 8), met)\n    perf(Gemm(8, 8, 8), met, label='cold')\n"
    )
    suite.run("--perf-portable")
    lines = (suite.path / "out" / "record.jsonl").read_text()
    cases = suite.cases_of(lines)
    assert [case.alike for case in cases] == [1, 1, 2, 1]
    assert [case.order for case in cases] == [1, 2, 3, 1]
    names = [f"test_it{part} vs cublas" for part in ("", " #2", " #3", " (cold)")]
    assert [name_of(case) for case in cases] == names
    pooled = series.values([*cases, *cases])["kernels"]["time_ratio"]
    assert len(pooled) == 4  # the samples of two processes, each call by itself
    assert len({older_name_of(case) for case in cases}) == 4
    unnumbered = [case.changed(order=None) for case in cases]  # as older versions wrote them
    assert [name for _, name in series.named(unnumbered)] == names
    uncounted = [case.changed(order=None, call=None, alike=None, label=None) for case in cases[:2]]
    assert [name for _, name in series.named([*uncounted, *uncounted])] == [*names[:2]] * 2


def test_a_series_goes_on_under_another_kernel_and_not_under_other_conditions(suite: Suite) -> None:
    suite.write("@TARGET\ndef test_it(perf):\n    perf(Gemm(8, 8, 8), met)\n")
    suite.run("--perf-portable")
    (case,) = suite.cases_of((suite.path / "out" / "record.jsonl").read_text())
    assert name_of(case.changed(case="other", candidate="other", name="16x16x16")) == name_of(case)
    others = [{"cache": "hot"}, {"distribution": "cancelling"}, {"rival": "cudnn"}, {"test": "t.py::test_other"}]
    assert len({name_of(case.changed(**one)) for one in [{}, *others]}) == 5
    assert name_of(case.changed(test=None)) == case.case


def test_a_config_that_was_parsed_and_never_configured_is_left_alone(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    plugins = ("xdist", "perfsuite.plugin", "perfsuite.pytest_plugin.hooks")
    config = pytester.parseconfig(*(word for name in plugins for word in ("-p", name)))
    node = SimpleNamespace(config=config, workerinput={}, workeroutput={})
    config.hook.pytest_configure_node(node=node)
    config.hook.pytest_testnodedown(node=node, error=None)
    assert node.workerinput == {}


def test_costs_of_a_call_are_measured_once_for_all_rivals(suite: Suite) -> None:
    suite.add_hooks("""
import dataclasses
from perfsuite.pytest_plugin import measure
fake = pytest_perfsuite_compare

def pytest_perfsuite_compare(ask):
    return dataclasses.replace(fake(ask), clock="graph")

def takes(problem, candidate, *, seed=0):
    with open("taken", "a") as taken:
        print(problem.m, file=taken)
    return {"launches": float(problem.m)}

measure.takes = takes
""")
    suite.write(
        "@TARGET\n@pytest.mark.perf_target(against='cudnn', at_least=0.9)\n"
        "def test_it(perf):\n    perf(Gemm(8, 8, 8), met)\n    perf(Gemm(9, 8, 8), met)\n    perf(Gemm(9, 8, 8), met)\n"
    )
    outcome = suite.run("--gpu", subprocess=True)
    assert outcome.code == 0, outcome.out
    assert (suite.path / "taken").read_text().split() == ["8", "9", "9"]
    assert [case["measured"] for case in outcome.cases] == [{"launches": m} for m in (8.0, 8.0, 9.0, 9.0, 9.0, 9.0)]
