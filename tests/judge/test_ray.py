"""Judging on a Ray cluster of two local nodes: each job has one right verdict, whatever dies in between."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from beside import cluster_starts

from perfsuite.cli.main import main
from perfsuite.judge.engine import Terms
from perfsuite.judge.jobs import Job
from perfsuite.judge.pool import WORKER, Pool
from perfsuite.judge.ray_pool import answers
from perfsuite.outcome import UserError
from perfsuite.workers import ray_child, ray_cluster
from perfsuite.workers.ray_child import RayChild
from perfsuite.workers.ray_cluster import connected

pytest.importorskip("ray", reason="Ray is not installed: pip install perfsuite[ray]")

from drawn import drawn
from thousand_ray import judge_all, places_of, two_nodes

GEMM = {"family": "gemm", "m": 32, "n": 24, "k": 16, "dtype": "float32"}
RIGHT = "def run(a, b):\n    return a @ b\n"
TOKENS = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""

Nodes = tuple[str, Callable[[], None]]


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """The address of a cluster, and a function that removes its second node."""
    with contextlib.ExitStack() as stack:
        with cluster_starts():
            made = stack.enter_context(two_nodes())
        yield made


def judged(*words: str, files: list[Path], address: str) -> int:
    line = ["judge", *map(str, files), "--problem", json.dumps(GEMM), "--no-timing", "--ray", address, *words]
    return main(line)


@pytest.mark.parametrize(
    ("cards", "seen", "processors"),
    [
        ([], [None, None], [1, 1]),
        (["3"], ["3", "3"], [6, 6]),
        (["3", "7"], ["3", "7"], [6, 6]),
        (["1", "2", "3"], ["1,2", "3"], [8, 4]),
    ],
)
def test_nodes_share_the_cards_and_the_processors(
    cards: list[str], seen: list[str | None], processors: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(12)))
    made = places_of(cards)
    assert [one.get("env_vars", {}).get("CUDA_VISIBLE_DEVICES") for one in made] == seen
    assert [one["num_gpus"] for one in made] == [len((one or "").split(",")) if one else 0 for one in seen]
    assert [one["num_cpus"] for one in made] == processors


@pytest.fixture
def candidates(tmp_path: Path) -> list[Path]:
    """A right one and a wrong one."""
    for name, end in (("right", ""), ("wrong", " + 1")):
        (tmp_path / f"{name}.py").write_text(f"{RIGHT.rstrip()}{end}\n")
    return [tmp_path / "right.py", tmp_path / "wrong.py"]


def test_the_command_prints_answers_alone(
    nodes: Nodes, candidates: list[Path], capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    kept = tmp_path / "answers.jsonl"
    assert judged("--json", "--output", str(kept), files=candidates, address=nodes[0]) == 1
    told = capfd.readouterr()
    found = {one["id"]: one for one in map(json.loads, told.out.splitlines())}
    assert [found[str(file)]["verdict"] for file in candidates] == ["MET", "WRONG"]
    assert "2 workers on 2 nodes" in told.err
    assert {one["id"] for one in map(json.loads, kept.read_text().splitlines())} == set(found)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--ray", "nowhere"), "'nowhere'; it must be HOST:PORT, auto or local"),
        (("--ray", "ray://127.0.0.1:1"), "give HOST:PORT of its head"),
        (("--card-model", "H100"), "card model 'H100' is asked for, and the Ray cluster at"),
        (("--card-model", "H100,,"), "must be different names"),
        (("--card-model", "H100", "--device", "cpu"), "exclude each other"),
        (("--device", "cuda"), "a card is asked for"),
        (("--jobs", "0"), "jobs is 0; it must be at least 1"),
    ],
)
def test_bad_input_is_one_sentence(
    nodes: Nodes, candidates: list[Path], capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    assert judged(*words, files=candidates, address=nodes[0]) == 2
    assert said in capsys.readouterr().err


def test_card_models_without_ray_and_a_missing_ray_are_errors(
    candidates: list[Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = ["judge", str(candidates[0]), "--problem", json.dumps(GEMM)]
    assert main([*problem, "--card-model", "H100"]) == 2
    assert "--card-model needs --ray" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main([*problem, "--ray", "auto"]) == 2
    assert "pip install perfsuite[ray]" in capsys.readouterr().err


def test_a_machine_with_other_versions_or_files_is_refused(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, digest = tmp_path / "problem.py", ray_cluster._digest
    own.write_text("x = 1\n")
    with connected(nodes[0]) as cluster:
        cluster.check(cluster.machines, [own], sandboxed=True)
        machine = cluster.machines[:1]
        with monkeypatch.context() as patch:
            patch.setattr("platform.python_version", lambda: "3.9.1")
            with pytest.raises(UserError, match=r"has Python 3\.\d+\.\d+, and this machine has 3\.9\.1"):
                cluster.check(machine)
        with monkeypatch.context() as patch:
            patch.setattr(ray_cluster, "_digest", lambda files: "other" if len(files) > 1 else digest(files))
            with pytest.raises(UserError, match=r"has perfsuite .* and this machine has .*source other"):
                cluster.check(machine)
        with monkeypatch.context() as patch:
            patch.setattr(ray_cluster, "_digest", lambda files: digest(files) if len(files) > 1 else "other")
            with pytest.raises(UserError, match=r"has .*problem\.py \w+, and this machine has other"):
                cluster.check(machine, [own])


def test_another_machines_cluster_must_ask_for_a_token(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "is_own", lambda host: False)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(UserError, match=r"another machine's, and RAY_AUTH_MODE is not 'token'.*--ray-open"):
        ray_cluster._check_access(nodes[0], False)
    ray_cluster._check_access(nodes[0], True)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "t" * 32)
    with pytest.raises(UserError, match="lets in callers without a token"):
        ray_cluster._check_access(nodes[0], False)


def test_own_addresses() -> None:
    assert ray_cluster.is_own("127.0.0.1")
    assert ray_cluster.is_own("localhost")
    assert not ray_cluster.is_own("198.51.100.1")
    assert not ray_cluster.is_own("name.invalid")


def test_a_cluster_with_a_token_and_without_a_sandbox(candidates: list[Path], tmp_path: Path) -> None:
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "right" * 8}
    own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    line = [sys.executable, "-m", "perfsuite", "judge", str(candidates[0]), "--problem", json.dumps(GEMM)]
    line += ["--no-timing", "--json", "--ray"]
    # No bubblewrap on this PATH.
    log = tmp_path / "head.log"
    with log.open("w") as said:
        head = subprocess.Popen(
            [sys.executable, "-c", TOKENS],
            env={**own, **token, "PATH": "/nowhere"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        )
    try:
        assert head.stdout is not None
        address = next((said for said in head.stdout if said[0].isdigit()), "").strip()
        with cluster_starts():
            assert address, log.read_text()

        def ran(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
            given = {**own, **token, **environment}
            return subprocess.run([*line, address, *words], env=given, capture_output=True, text=True)

        wrong = ran(RAY_AUTH_TOKEN="wrong" * 8)
        assert wrong.returncode == 2
        assert "refuses this process's token" in wrong.stderr
        bare = ran()
        assert bare.returncode == 2
        assert "has no sandbox (bubblewrap" in bare.stderr
        assert "--trust-candidates" in bare.stderr
        trusted = ran("--trust-candidates")
        assert trusted.returncode == 0, trusted.stderr
        assert "no sandbox" in json.loads(trusted.stdout)["workloads"][0]["isolation"]
    finally:
        head.communicate("")


def test_each_card_model_gives_a_verdict_and_a_column(
    capsys: pytest.CaptureFixture[str], candidates: list[Path]
) -> None:
    """The cards are made up, so each verdict is UNDECIDED. They show the placement, and where a worker finds none."""
    from ray.cluster_utils import Cluster

    made = {"num_cpus": 1, "include_dashboard": False}
    with cluster_starts():
        cluster = Cluster(initialize_head=True, head_node_args=made)
    try:
        for model in ("H100", "H200"):
            with cluster_starts():
                cluster.add_node(num_cpus=1, num_gpus=1, resources={f"accelerator_type:{model}": 1})
        assert judged("--card-model", "H100,H200", files=candidates, address=cluster.address) == 20
        told = capsys.readouterr().out
        assert {line.split()[0] for line in told.splitlines() if line} == {
            "UNDECIDED",
            "candidate",
            *map(str, candidates),
        }
        assert "H100" in told.splitlines()[-3]
        assert "H200" in told.splitlines()[-3]
        assert judged("--card-model", "B200", files=candidates, address=cluster.address) == 2
        assert "'B200' is asked for, and the Ray cluster" in (said := capsys.readouterr().err)
        assert "1 H100, 1 H200" in said
    finally:
        cluster.shutdown()


def test_jobs_end_although_no_worker_finds_a_place(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_child, "WAIT_SECONDS", 1.0)
    jobs = [Job.of(RIGHT, GEMM, id=name) for name in "ab"]
    with connected(nodes[0]):
        child = RayChild(("-m", WORKER), "H100", cards=True)
        with Pool(Terms(device="cuda", timed=False), children=[child]) as pool:
            found = list(answers({"H100": pool}, jobs))
    assert [(model, one["verdict"], one["reason"], one["card"]) for model, one in found] == [
        ("H100", "UNDECIDED", "worker-lost", "H100")
    ] * 2


def test_a_job_whose_worker_died_three_times_is_undecided(nodes: Nodes, tmp_path: Path) -> None:
    problem = tmp_path / "problem.py"
    problem.write_text("import os\nos._exit(3)\n")
    with connected(nodes[0]) as cluster:
        children = cluster.workers(("-m", WORKER), cards=False)
        with Pool(Terms(timed=False), children=children) as pool:
            (answer,) = pool.answers([Job.of(RIGHT, str(problem))])
    assert (answer["verdict"], answer["reason"]) == ("UNDECIDED", "worker-lost")
    assert "exit code 3" in answer["sentence"]


def test_a_hundred_jobs_each_get_one_right_verdict_whatever_dies(nodes: Nodes) -> None:
    """The last test of the cluster: one of its nodes goes."""
    address, remove = nodes
    jobs = drawn(100, seed=1)
    found, workers = judge_all(jobs, address, kill_every=20, midway=remove)
    assert found.faults(jobs) == []
    assert workers == 2
    assert found.killed == 4
