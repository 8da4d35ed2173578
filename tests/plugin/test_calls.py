"""The number and the label of each call of `perf` in its test, and a config that was never configured."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from perfsuite.history import series

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
    first = cases[0].case
    assert [series.name_of(case) for case in cases] == [first, cases[1].case, f"{first} #2", f"{first} (cold)"]
    pooled = series.values([*cases, *cases])["kernels"]["time_ratio"]
    assert len(pooled) == 4  # the samples of two processes, each call by itself
    old = [case.changed(alike=None, call=None, label=None) for case in cases]
    assert {series.name_of(case) for case in old} == {case.case for case in cases}  # as older perfsuites wrote them


def test_a_config_that_was_parsed_and_never_configured_is_left_alone(pytester: pytest.Pytester) -> None:
    from perfsuite.pytest_plugin import hooks as plugin

    node = SimpleNamespace(config=pytester.parseconfig(), workerinput={}, workeroutput={})
    plugin.pytest_configure_node(node)
    plugin.pytest_testnodedown(node)
    assert node.workerinput == {}
