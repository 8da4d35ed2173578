"""perf_targets.toml: which number counts where, and what is refused."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from perfsuite.pytest_plugin.markers.perf_target import PerfTarget
from perfsuite.pytest_plugin.targets import fits, load_targets

from .conftest import Suite

GATES = """
@TARGET
@pytest.mark.perf_target(against="sdpa", at_least=1.5)
@pytest.mark.parametrize("n", [8, 16])
def test_it(n, perf): perf(Gemm(n, 8, 8), met)
"""


def targets(suite: Suite, *arguments: str) -> dict[tuple[str, str], float]:
    outcome = suite.run(*arguments)
    assert outcome.code == 0, outcome.out
    return {(case["test"].partition("::")[2], case["rival"]): case["target"] for case in outcome.cases}


def test_overrides_by_card_test_and_rival(suite: Suite) -> None:
    suite.write(GATES)
    (suite.path / "perf_targets.toml").write_text(
        """
        ["Fake H200"]
        "test_kernels.py::*" = { perf_target = { against = "cublas", at_least = 0.7 } }
        "test_kernels.py::test_it[8]" = { perf_target = [{ against = "cublas", at_least = 0.8 }] }
        ["Another card"]
        "*" = { perf_target = { at_least = 9 } }
        [portable]
        "*test_i?[16]" = { perf_target = { at_least = 0.01 } }
        """
    )
    assert targets(suite, "--gpu") == {
        ("test_it[8]", "cublas"): 0.8,
        ("test_it[8]", "sdpa"): 1.5,
        ("test_it[16]", "cublas"): 0.7,
        ("test_it[16]", "sdpa"): 1.5,
    }
    assert targets(suite, "--perf-portable")["test_it[16]", "cublas"] == 0.01
    assert targets(suite, "--perf-portable")["test_it[8]", "cublas"] == 0.9


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[", "not readable as TOML"),
        ("portable = 3", "'portable' must be a table of a GPU model"),
        ("[portable]\n'*' = 3", "'*' must be a table of markers, not 3"),
        ("[portable]\n'*' = {}", "'*' must be a table of markers"),
        (
            "[portable]\n'*' = { gpu = {} }",
            "marker 'gpu' cannot be overridden; allowed: alignment, launches, memory_target,",
        ),
        ("[portable]\n'*' = { perf_target = 0.9 }", "perf_target must be a table with at_least, against, not 0.9"),
        ("[portable]\n'*' = { perf_target = { most = 1 } }", "perf_target has no 'most'; known are at_least, against"),
        ("[portable]\n'*' = { perf_target = { at_least = 'x' } }", "at_least is 'x'; it must be a number over 0"),
        ("[portable]\n'*' = { perf_target = { at_least = inf } }", "at_least is inf; it must be a number over 0"),
        ("[portable]\n'*' = { perf_target = {} }", "at_least is None; it must be a number over 0"),
        ("[portable]\n'*' = { perf_target = { at_least = 1, against = 1 } }", "against is 1; it must be a name"),
        ("[portable]\n'*' = { launches = { at_most = 1.5 } }", "at_most is 1.5; it must be a whole number of kernels"),
        ("[portable]\n'*' = { roofline_target = { at_least = 2 } }", "at_least is 2; it must be a share over 0 and at"),
        ("[portable]\n'*' = { alignment = { max_drop = 0 } }", "max_drop is 0; it must be a number over 0"),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "perf_targets.toml"
    path.write_text(text)
    with pytest.raises(pytest.UsageError) as caught:
        load_targets(path)
    assert sentence in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_bad_file_stops_the_run(suite: Suite) -> None:
    suite.write(GATES)
    (suite.path / "perf_targets.toml").write_text("[portable]\n'*' = 3")
    assert suite.run().code == 4


def test_a_rival_given_as_a_callable_is_known_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text("[card]\n'*' = { perf_target = { against = 'len', at_least = 0.5 } }")
    targets = load_targets(path)
    given = [PerfTarget(against=one, at_least=1.0) for one in (len, max)]
    applied = [targets.apply("perf_target", one, nodeid="a::b", model="card").at_least for one in given]
    assert applied == [0.5, 1.0]


@pytest.mark.parametrize("mode", [["-p", "no:xdist"], ["-p", "xdist", "-n1"]], ids=["plain", "n1"])
def test_an_override_that_names_no_test_is_reported_when_all_tests_are_there(suite: Suite, mode: list[str]) -> None:
    suite.write(GATES)
    (suite.path / "perf_targets.toml").write_text(
        "[portable]\n'*::test_it[8]' = { perf_target = { at_least = 1 } }\n"
        "'*::test_gone*' = { perf_target = { at_least = 1 } }"
    )
    outcome = suite.run(*mode, subprocess="-n1" in mode)
    assert outcome.code == 4
    outcome.has("perf_targets.toml: no test is named by '*::test_gone*'")


@pytest.mark.parametrize(
    ("override", "lacking"),
    [
        ("perf_target = { against = 'cubals', at_least = 1 }", "perf_target(against='cubals')"),
        ("launches = { at_most = 2 }", "launches"),
    ],
)
def test_an_override_of_what_no_test_asks_is_reported(suite: Suite, override: str, lacking: str) -> None:
    suite.write(GATES)
    (suite.path / "perf_targets.toml").write_text(f"[portable]\n'*::test_it*' = {{ {override} }}")
    outcome = suite.run()
    assert outcome.code == 4
    outcome.has(f"perf_targets.toml: no test that '*::test_it*' names has {lacking}")


def test_an_override_may_name_a_test_outside_what_was_asked_for(suite: Suite) -> None:
    suite.write(GATES)
    suite.write("def test_other(): pass", name="test_other.py")
    (suite.path / "perf_targets.toml").write_text("[portable]\n'*::test_it[8]' = { perf_target = { at_least = 1 } }")
    assert suite.run("test_other.py").code == 0
    assert suite.run("-k", "test_other").code == 0


@pytest.mark.parametrize(
    ("glob", "text", "fit"),
    [
        ("a*b", "ab", True),
        ("a*b", "a[1]b", True),
        ("a*b", "a", False),
        ("*", "", True),
        ("a?c*", "abcd", True),
        ("a?c", "ac", False),
        ("*b*b", "b", False),
        ("*[512*]", "test[512-x]", True),
        ("ab*ba", "aba", False),
        ("*ab*", "xxaxab", True),
    ],
)
def test_a_glob_fits_as_its_words_say(glob: str, text: str, fit: bool) -> None:
    assert fits(glob, text) is fit


def test_a_glob_of_many_stars_takes_no_longer(suite: Suite) -> None:
    (suite.path / "conftest.py").unlink()
    suite.write(f"@TARGET\ndef test_{'a' * 300}(perf): perf(Gemm(8, 8, 8), lambda a, b: a @ b)\n")
    (suite.path / "perf_targets.toml").write_text('[portable]\n"*a*a*a*a*a*a*b" = { perf_target = { at_least = 2 } }\n')
    line = [sys.executable, "-m", "pytest", "-q", "-p", "perfsuite.plugin", "--perf-portable", "--perf-seconds=0.02"]
    limits = (20, 20)  # seconds of a processor
    done = subprocess.run(
        line, cwd=suite.path, capture_output=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, limits),
    )  # fmt: skip
    assert done.returncode >= 0, "it was ended for the time that it took"
    assert b"no test is named by '*a*a*a*a*a*a*b'" in done.stdout + done.stderr
