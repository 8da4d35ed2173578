"""--perf-ray: the verdicts of a plain run, whichever worker runs a test and whatever dies in between."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from beside import cluster_starts

from .conftest import Outcome, Suite

TESTS = """
import os, warnings
from pathlib import Path

HERE = Path(__file__).parent

@pytest.fixture(scope="module")
def log():
    with (HERE / "fixtures.txt").open("a") as file:
        print(os.getpid(), file=file)
    yield

@TARGET
@pytest.mark.parametrize("n", range(8))
def test_met(perf, n, log):
    print("heard of", n)
    warnings.warn("careful")
    perf(Gemm(8, 8, 8 + n), met)

@TARGET
def test_missed(perf): perf(Gemm(8, 8, 8), missed)

@pytest.mark.gpu
def test_wrong(perf): perf(Gemm(8, 8, 8), wrong)

@TARGET
def test_undecided(perf): perf(Gemm(8, 8, 8), undecided)

@TARGET
def test_dies_once(perf):
    mark = HERE / "died.txt"
    if not mark.exists():
        mark.write_text("")
        os._exit(3)
    perf(Gemm(8, 8, 8), met)

@pytest.mark.gpu
def test_skipped(): pytest.skip("for a reason")

@pytest.mark.xfail(strict=True)
@TARGET
def test_expected(perf): perf(Gemm(8, 8, 8), missed)

@pytest.mark.gpu
def test_broken(): assert 1 + 1 == 3

def test_ordinary(): assert os.getpid() == int(os.environ.get("OUTER", os.getpid()))
"""
DIES = """
import os
@TARGET
def test_dies(perf): os._exit(3)
@pytest.mark.gpu
def test_dies_without_a_gate(): os._exit(4)
"""
PORTABLE = """
from perfsuite import Gemm
import pytest

def product(a, b): return a @ b
def thrice(a, b): a @ b; a @ b; return a @ b
def off(a, b): return a @ b * 1.01

@pytest.mark.perf_target(against="cublas", at_least=0.02)
def test_met(perf): perf(Gemm(192, 192, 192, dtype="float32"), product)
@pytest.mark.perf_target(against="cublas", at_least=1000.0)
def test_missed(perf): perf(Gemm(192, 192, 192, dtype="float32"), thrice)
@pytest.mark.correctness(against="cublas")
def test_wrong(perf): perf(Gemm(64, 64, 64, dtype="float32"), off)
"""
PROCESS = ("wall_seconds", "check_seconds", "gpu_seconds", "time", "variables", "process")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A cluster of two nodes with a made-up card each."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install perfsuite[ray]")
    from ray.cluster_utils import Cluster

    node: dict[str, Any] = {"num_cpus": 2, "num_gpus": 1, "resources": {"accelerator_type:H100": 1}}
    with cluster_starts():
        cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        with cluster_starts():
            cluster.add_node(**node)
        yield cluster.address
    finally:
        cluster.shutdown()


def lines(outcome: Outcome) -> list[dict[str, Any]]:
    """The lines of the record, without what differs between processes."""
    return [{name: value for name, value in one.items() if name not in PROCESS} for one in outcome.cases]


def test_verdicts_records_and_reports_are_those_of_a_plain_run(suite: Suite, address: str) -> None:
    suite.write(TESTS)
    words = ("--gpu", "--perf-seed=7", "-rA")
    found = suite.run(*words, f"--perf-ray={address}", "--perf-card-model=H100", subprocess=True)
    assert (suite.path / "died.txt").exists()
    processes = (suite.path / "fixtures.txt").read_text().split()
    plain = suite.run(*words, subprocess=True)
    assert found.code == plain.code == 1, found.out
    assert found.junit == plain.junit
    assert found.properties == plain.properties
    assert lines(found) == lines(plain)
    assert len(found.cases) == 13
    found.has("2 workers on H100 cards", "assert (1 + 1) == 3", "UserWarning: careful", "heard of 7", "12 cases)")
    found.has("9 met, 1 undecided, 2 missed, 1 wrong")
    # How the tests fall to the workers is chance: one may take them all before the other has begun.
    assert len(processes) == len(set(processes)), "a process sets the module's fixture up once"
    assert len(processes) <= 4, "two workers here, one in place of the worker that died, and the plain run's process"


def test_a_test_whose_worker_died_three_times_is_undecided(suite: Suite, address: str) -> None:
    suite.write(DIES)
    found = suite.run("--gpu", f"--perf-ray={address}", "-k", "test_dies", subprocess=True)
    assert found.junit == {"test_dies": "failed", "test_dies_without_a_gate": "failed"}
    (case,) = found.records
    assert (case.verdict, case.reason) == ("UNDECIDED", "worker-lost")
    assert "died 3 times: on " in case.sentence
    assert "exit code 3" in case.sentence
    found.has("worker-lost: its worker died 3 times", "exit code 4")
    only = suite.run("--gpu", f"--perf-ray={address}", "test_kernels.py::test_dies", subprocess=True)
    assert only.code == 20, only.out


def test_the_run_leaves_all_cards_to_its_workers(suite: Suite, address: str) -> None:
    # Else the worker on the card that the run holds itself waits until the others have done everything.
    card = f"GPU-over-ray-{suite.path.name}-{os.getpid()}"
    suite.add_hooks(f"""
def pytest_perfsuite_devices():
    return Devices((Device(0, "Fake H200", "{card}", (9, 0), 8 * 2**30, "0"),), "600.00")
""")
    suite.write(f"""
from perfsuite.device.locks import hold
@pytest.mark.gpu
def test_holds():
    with hold(["{card}"], "run", wait_seconds=0.0): pass
""")
    found = suite.run("--gpu", f"--perf-ray={address}", subprocess=True)
    assert found.junit == {"test_holds": "passed"}, found.out


def decided(suite: Suite, *words: str) -> Outcome:
    """A run of the suite. What a busy machine leaves undecided is tried twice more."""
    for _ in range(3):
        found = suite.run(*words, subprocess=True)
        if not any(case.verdict == "UNDECIDED" for case in found.records):
            break
    return found


@pytest.mark.parametrize("isolated", [(), ("--perf-isolate",)], ids=["in-process", "isolated"])
def test_portable_gates(suite: Suite, address: str, isolated: tuple[str, ...]) -> None:
    (suite.path / "conftest.py").unlink()
    (suite.path / "test_kernels.py").write_text(PORTABLE)
    words = ("--perf-portable", "--perf-seconds=0.5", *isolated)
    over, plain = decided(suite, *words, f"--perf-ray={address}"), decided(suite, *words)
    for found in (over, plain):
        assert [case.verdict for case in found.records] == ["MET", "MISSED", "WRONG"], found.out
        assert [case.reason for case in found.records] == ["fast-enough", "too-slow", "inaccurate"], found.out
    assert over.junit == plain.junit
    where = {str(case.clock_note) for case in over.records}
    assert all("isolated" in one for one in where) == bool(isolated), where


def test_a_run_stops_at_the_first_failure(suite: Suite, address: str) -> None:
    more = "".join(f"@TARGET\ndef test_{n:02}(perf): perf(Gemm(8, 8, 8), missed)\n" for n in range(30))
    suite.write(more)
    found = suite.run("--gpu", "-x", f"--perf-ray={address}", subprocess=True)
    assert found.code == 1
    assert len(found.junit) == 1
    found.has("stopping after 1 failures")
    ended = json.loads((suite.path / "out" / "record.partial.jsonl").read_text().splitlines()[-1])
    assert ended["end"] == "stopped"


@pytest.mark.skipif("PERFSUITE_WHOLE" not in os.environ, reason="may take minutes: nox -s nightly sets PERFSUITE_WHOLE")
def test_ctrl_c_ends_the_run_and_its_workers(suite: Suite, address: str) -> None:
    mark = suite.path / "began.txt"
    suite.write(
        f"import os, time\n@TARGET\ndef test_long(perf):\n    open({str(mark)!r}, 'w').write(str(os.getpid()))\n"
        "    time.sleep(300)\n"
    )
    line = [sys.executable, "-m", "pytest", "-p", "perfsuite.plugin", "--gpu", f"--perf-ray={address}"]
    run = subprocess.Popen(line, cwd=suite.path, stdout=subprocess.PIPE, text=True)
    until = time.monotonic() + 300
    while not (mark.exists() and mark.read_text()) and time.monotonic() < until:
        time.sleep(0.1)
    run.send_signal(signal.SIGINT)
    told, _ = run.communicate(timeout=180)
    assert run.returncode == 2, told
    assert "KeyboardInterrupt" in told
    worker = int(mark.read_text())
    while time.monotonic() < until:
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail("the worker still runs")


@pytest.mark.parametrize(
    ("hook", "said"),
    [
        (
            "def pytest_collection_modifyitems(config, items):\n    if hasattr(config, 'workerinput'): items.clear()\n",
            "test_it",
        ),
        ("import os\nif 'RAY_JOB_ID' in os.environ: raise ValueError('no such thing here')\n", "no such thing here"),
    ],
)
def test_a_worker_that_collects_other_tests_is_named(suite: Suite, address: str, hook: str, said: str) -> None:
    suite.write("@TARGET\ndef test_it(perf): perf(Gemm(8, 8, 8), met)\n")
    suite.add_hooks(hook)
    found = suite.run("--gpu", f"--perf-ray={address}", subprocess=True)
    assert found.code == 4, found.out
    found.has("the worker on", "collect", said)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-p", "xdist", "-n2"), "--perf-ray and -n exclude each other"),
        (("--pdb",), "--perf-ray and --pdb exclude each other"),
        (("--perf-card-model=B200",), "card model 'B200' is asked for"),
        (("--perf-ray=elsewhere",), "'elsewhere'; it must be HOST:PORT, auto or local"),
    ],
)
def test_bad_options_are_one_sentence(suite: Suite, address: str, words: tuple[str, ...], said: str) -> None:
    suite.write("@TARGET\ndef test_it(perf): perf(Gemm(8, 8, 8), met)\n")
    found = suite.run("--gpu", f"--perf-ray={address}", *words, subprocess=True)
    assert found.code == 4, found.out
    found.has(said)
    assert not found.cases


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--perf-ray=auto",), "--perf-ray needs --gpu or --perf-portable"),
        (("--gpu", "--perf-card-model=H100"), "--perf-card-model needs --gpu and --perf-ray"),
        (("--perf-portable", "--perf-ray=auto", "--perf-card-model=H100"), "--perf-card-model needs --gpu and"),
    ],
)
def test_options_that_lack_another_one_are_named(suite: Suite, words: tuple[str, ...], said: str) -> None:
    suite.write("@TARGET\ndef test_it(perf): perf(Gemm(8, 8, 8), met)\n")
    found = suite.run(*words)
    assert found.code == 4, found.out
    found.has(said)


def test_an_ini_option_waits_for_a_run_that_measures(suite: Suite) -> None:
    suite.write("def test_it(): pass\n")
    (suite.path / "pytest.ini").write_text("[pytest]\nperf_ray = auto\n")
    assert suite.run().junit == {"test_it": "passed"}
