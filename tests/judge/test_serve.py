"""The service over HTTP: who may do what, limits, waiting, cancelling, and a store that fails."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from served import START_SECONDS, Served, Within

from perfsuite.cli.main import main
from perfsuite.judge.answer import answer_schema
from perfsuite.judge.clients import Clients, Rates, add_client
from perfsuite.judge.stored import Limits
from perfsuite.outcome import UserError

for name in ("fastapi", "uvicorn", "prometheus_client"):
    pytest.importorskip(name, reason="needs pip install perfsuite[serve]")
PROBLEM = {"family": "gemm", "m": 8, "n": 8, "k": 8, "dtype": "float32"}
RIGHT = "def run(a, b):\n    return a @ b\n"
HANGS = "import time\ntime.sleep(600)\ndef run(a, b):\n    return a @ b\n"


def sent(id: str, candidate: Any = RIGHT, problem: Any = PROBLEM, **terms: Any) -> dict[str, Any]:
    return {"id": id, "candidate": candidate, "problem": problem, "terms": {"timed": False, **terms}}


@pytest.fixture
def within(tmp_path: Path) -> Iterator[Within]:
    limits = Limits(queued_per_client=3, queued=4, kept_per_client=2)
    problems = tmp_path / "problems"
    (problems / "level1").mkdir(parents=True)
    (problems / "level1" / "relu.py").write_text("raise SystemExit\n")
    (tmp_path / "secret.py").write_text("")
    with Within(tmp_path, limits=limits, problems=problems) as service:
        yield service


def test_each_client_sees_its_own_jobs_only(within: Within) -> None:
    for client in (None, "x" * 43, "", "Bearer"):
        got = within.ask("GET", "/v1/jobs", client=client)
        assert (got.status, got.value["error"], got.headers["www-authenticate"]) == (401, "unauthorised", "Bearer")
    assert within.ask("POST", "/v1/jobs", sent("x"), client=None).status == 401
    assert within.ask("GET", "/metrics", client=None).status == 401
    assert within.ask("GET", "/health", client=None).status == 200
    assert within.ask("POST", "/v1/jobs", sent("x")).status == 202
    for method, path, body in (
        ("GET", "/v1/jobs/x", None),
        ("DELETE", "/v1/jobs/x", None),
        ("POST", "/v1/jobs/wait", {"ids": ["x"], "seconds": 0}),
    ):
        got = within.ask(method, path, body, client="other")
        assert (got.status, got.value) == (404, {"error": "not-found", "message": "you have no job 'x'"})
    assert within.ask("GET", "/v1/jobs", client="other").value == {"jobs": []}
    assert within.ask("POST", "/v1/jobs", sent("x", "def run(a, b):\n    return b\n"), client="other").status == 202
    assert [one["id"] for one in within.ask("GET", "/v1/jobs").value["jobs"]] == ["x"]


def test_the_same_job_is_one_job(within: Within) -> None:
    first = within.ask("POST", "/v1/jobs", sent("x"))
    again = within.ask("POST", "/v1/jobs", sent("x"))
    assert (first.status, again.status, first.headers["location"]) == (202, 200, "/v1/jobs/x")
    assert first.value["made"] == again.value["made"]
    got = within.ask("POST", "/v1/jobs", sent("x", seconds=1.0))
    assert (got.status, got.value["error"]) == (409, "conflict")
    assert within.pool.answer() == "x"
    assert within.ask("POST", "/v1/jobs", sent("x")).value["answer"]["verdict"] == "MET"
    nameless = {key: value for key, value in sent("").items() if key != "id"}
    ids = {within.ask("POST", "/v1/jobs", nameless).value["id"] for _ in range(2)}
    ids.add(within.ask("POST", "/v1/jobs", {**nameless, "terms": {}}).value["id"])
    assert len(ids) == 2


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "candidate: Field required"),
        ([], "the body is []"),
        (sent("a/b"), "id is 'a/b'"),
        (sent("x" * 201), "id is 'xxx"),
        (sent("x", 7), "candidate is 7"),
        (sent("x", "/etc/passwd"), None),  # text, and not a path: it is judged, as Python that does not parse
        (sent("x", {"files": {"../a.py": ""}}), "'../a.py'"),
        (sent("x", {"files": {"a.py": ""}, "grids": 1}), "'grids'"),
        (sent("x", {"files": {"\ud800.py": ""}}), r"\ud800"),
        (sent("x", {"sources": 1, "spec": {}}), "sources, a list"),
        (sent("x", {"spec": {"entry_point": []}, "sources": []}), "entry_point is '[]'"),
        (sent("x", problem=7), "problem is 7"),
        (sent("x", problem={"family": "gem"}), "family is 'gem'; allowed are"),
        (sent("x", problem={"family": ["gemm"]}), "family is ['gemm']"),
        (sent("x", problem={**PROBLEM, "m": "8"}), "m"),
        (sent("x", problem={**PROBLEM, "against": 3}), "'3'"),
        (sent("x", problem=[]), "the problem is []"),
        (sent("x", problem="../secret.py"), "'../secret.py'; allowed are the names of /v1/problems: level1/relu.py"),
        (sent("x", problem="level1/relu.py::a\nb"), "allowed are the names"),
        (sent("x", problem={"module": "/etc/passwd"}), "'module', a path"),
        (sent("x", problem={"definition": {}, "workloads": []}), "outside of the sandbox"),
        (sent("x", seconds=3.0), "seconds is 3; this service allows at most 2"),
        (sent("x", seconds=-1.0), "terms.seconds is -1.0"),
        (sent("x", timed="yes"), "terms.timed is 'yes'"),
        (sent("x", device="cuda"), "terms.device is 'cuda'"),
        (sent("x", one_in=2.1), "terms.one_in is 2.1"),
        (sent("x", at_least=float("nan")), "terms.at_least is nan"),
        (sent("x", problem={**PROBLEM, "weight": float("inf")}), "weight is inf"),
        (b"{", "the header Content-Type: application/json"),
        (b'{"id": "\xff"}', "the body"),
        (b"[" * 50_000, "the body"),
    ],
)
def test_bad_input_is_one_sentence_and_nothing_is_queued(within: Within, body: Any, said: str | None) -> None:
    raw = body if isinstance(body, bytes) else None
    got = within.ask("POST", "/v1/jobs", None if raw else body, raw=raw)
    if said is None:
        assert got.status == 202, got
        return
    assert got.status in (400, 422), got
    assert got.value["error"] == "bad-request"
    assert said in got.value["message"]
    assert "\n" not in got.value["message"]
    assert within.ask("GET", "/v1/jobs").value == {"jobs": []}


def test_other_requests_that_do_not_fit(within: Within) -> None:
    assert within.ask("GET", "/v2").value == {"error": "not-found", "message": "Not Found"}
    assert within.ask("PUT", "/v1/jobs").value["error"] == "not-allowed"
    assert "most is '0'" in within.ask("GET", "/v1/jobs?most=0").value["message"]
    assert "state is 'gone'" in within.ask("GET", "/v1/jobs?state=gone").value["message"]
    assert "wait is '61'" in within.ask("GET", "/v1/jobs/x?wait=61").value["message"]
    got = within.ask("POST", "/v1/batches", {"jobs": [sent("a"), sent("b", problem={})]})
    assert (got.status, got.value["message"][:22]) == (422, "jobs[1]: family is Non")
    assert within.ask("GET", "/v1/problems").value == {"problems": ["level1/relu.py"]}
    got = within.ask("POST", "/v1/jobs", raw=json.dumps(sent("x")).encode(), headers={"Content-Type": "text/plain"})
    assert (got.status, "Content-Type" in got.value["message"]) == (422, True)


def test_a_full_queue_and_a_fast_client_are_asked_to_wait(within: Within) -> None:
    for id in "abcd":
        assert within.ask("POST", "/v1/jobs", sent(id)).status == 202  # one of them runs
        while id == "a" and not within.pool.held:
            time.sleep(0.01)
    got = within.ask("POST", "/v1/jobs", sent("e"))
    assert (got.status, got.value["error"], got.headers["retry-after"]) == (429, "queue-full", "5")
    assert "at most 3 jobs of one client" in got.value["message"]
    assert within.ask("POST", "/v1/jobs", sent("a")).status == 200
    got = within.ask("POST", "/v1/batches", {"jobs": [sent("a"), sent("b")]}, client="other")
    assert (got.status, got.value["message"]) == (429, "at most 4 jobs may wait")
    assert within.ask("GET", "/v1/jobs", client="other").value == {"jobs": []}
    within.pool.answer()
    assert within.insist("POST", "/v1/jobs", sent("e")).status == 202


def test_rate_and_size_are_limited(tmp_path: Path) -> None:
    now = [0.0]
    rates = Rates(2.0, now=lambda: now[0])
    assert [rates.wait("a") for _ in range(10)] == [0.0] * 10
    assert rates.wait("a") == pytest.approx(0.5)
    assert rates.wait("b") == 0.0
    now[0] = 0.5
    assert (rates.wait("a"), rates.wait("a") > 0) == (0.0, True)
    with Within(tmp_path, rate=0.1) as service:
        assert service.ask("GET", "/v1/jobs").status == 200
        got = service.ask("GET", "/v1/jobs")
        assert (got.status, got.value["error"]) == (429, "too-many-requests")
        assert 8 <= int(got.headers["retry-after"]) <= 10
        assert service.ask("GET", "/v1/jobs", client="other").status == 200
    (tmp_path / "size").mkdir()
    with Within(tmp_path / "size") as service:
        large = json.dumps(sent("x", RIGHT + "#" * 200_000)).encode()
        assert service.ask("POST", "/v1/jobs", raw=large).value["error"] == "too-large"
        first = f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {service.tokens['local']}\r\n".encode()
        first += b"Content-Type: application/json\r\n"
        # A body in pieces says nothing of its size before.
        with socket.create_connection(("127.0.0.1", service.port), timeout=60) as line:
            line.sendall(first + b"Transfer-Encoding: chunked\r\n\r\n")
            for _ in range(25):
                line.sendall(b"1000\r\n" + b" " * 4096 + b"\r\n")
            assert line.recv(100).startswith(b"HTTP/1.1 413")
        whole = json.dumps(sent("x")).encode()
        with socket.create_connection(("127.0.0.1", service.port), timeout=60) as line:  # it goes before it has ended
            line.sendall(first + f"Content-Length: {len(whole) + 1}\r\n\r\n".encode() + whole)
        assert service.ask("GET", "/v1/jobs").value == {"jobs": []}


def test_a_wait_ends_with_the_job(within: Within) -> None:
    for id in ("x", "y"):
        within.ask("POST", "/v1/jobs", sent(id))
    begin = time.monotonic()
    got = within.ask("GET", "/v1/jobs/x?wait=0.3").value
    assert time.monotonic() - begin >= 0.3
    assert (got["answer"], got["state"]) == (None, "running")
    assert within.ask("POST", "/v1/jobs/wait", {"ids": ["x", "y"], "seconds": 0}).value == {"jobs": []}
    begin = time.monotonic()
    threading.Timer(0.3, within.pool.answer).start()
    (one,) = within.ask("POST", "/v1/jobs/wait", {"ids": ["y", "x"], "seconds": 60}).value["jobs"]
    assert time.monotonic() - begin >= 0.3
    assert (one["id"], one["state"], one["answer"]["verdict"]) == ("x", "done", "MET")
    assert within.ask("GET", "/v1/jobs/x?wait=60").value == one
    begin = time.monotonic()
    threading.Timer(0.3, within.service.stop_waiting).start()  # a service that stops keeps nobody waiting
    assert within.ask("GET", "/v1/jobs/y?wait=60").value["answer"] is None
    assert time.monotonic() - begin < 60
    assert not within.service._waiting
    assert within.ask("POST", "/v1/jobs", sent("z")).status == 503
    assert within.ask("GET", "/health").value["status"] == "stopping"


def test_waiting_and_running_jobs_are_cancelled(within: Within) -> None:
    for id in ("x", "y"):
        within.ask("POST", "/v1/jobs", sent(id))
    while not within.pool.held:
        time.sleep(0.01)
    assert within.ask("DELETE", "/v1/jobs/y").value["state"] == "cancelled"
    assert within.pool.ended == []
    got = within.ask("DELETE", "/v1/jobs/x").value
    assert (got["state"], got["answer"], len(within.pool.ended)) == ("cancelled", None, 1)
    assert within.ask("DELETE", "/v1/jobs/x").value == got
    within.ask("POST", "/v1/jobs", sent("z"))
    assert within.pool.answer() == "z"
    done = within.ask("GET", "/v1/jobs/z?wait=60").value
    assert within.ask("DELETE", "/v1/jobs/z").value == done
    counts = within.ask("GET", "/health").value
    assert counts == {"status": "ok", "queued": 0, "running": 0, "workers": 1, "busy": 0, "restarts": 1}


def test_old_jobs_are_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("perfsuite.judge.service.PRUNE_SECONDS", 0.05)
    with Within(tmp_path, limits=Limits(kept_per_client=2)) as service:
        for id in "abc":
            service.ask("POST", "/v1/jobs", sent(id))
            assert service.pool.answer() == id
        end = time.monotonic() + START_SECONDS
        while len(service.ask("GET", "/v1/jobs").value["jobs"]) > 2 and time.monotonic() < end:
            time.sleep(0.05)
        assert [one["id"] for one in service.ask("GET", "/v1/jobs?state=done").value["jobs"]] == ["b", "c"]
        assert [one["id"] for one in service.ask("GET", "/v1/jobs?after=b").value["jobs"]] == ["c"]
        assert service.ask("GET", "/v1/jobs/a").status == 404


def test_a_store_that_fails_loses_nothing(within: Within, tmp_path: Path) -> None:
    within.queue._connection.execute("PRAGMA busy_timeout = 50")
    assert within.ask("POST", "/v1/jobs", sent("x")).status == 202
    while not within.pool.held:
        time.sleep(0.01)
    other = sqlite3.connect(tmp_path / "queue.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    got = within.ask("POST", "/v1/jobs", sent("y"))
    assert (got.status, got.value["error"], got.headers["retry-after"]) == (503, "store-unavailable", "5")
    answering = threading.Thread(target=within.pool.answer)
    answering.start()  # the answer waits for the store
    time.sleep(0.3)
    assert within.ask("GET", "/v1/jobs/x").value["state"] == "running"
    other.execute("ROLLBACK")
    answering.join(timeout=START_SECONDS)
    assert within.ask("GET", "/v1/jobs/x?wait=60").value["answer"]["verdict"] == "MET"
    pages = within.queue._connection.execute("PRAGMA page_count").fetchone()[0]
    within.queue._connection.execute(f"PRAGMA max_page_count = {pages}")  # a disk that is full
    wide = RIGHT + "#" * 50_000
    assert within.ask("POST", "/v1/jobs", sent("z", wide)).status == 503
    assert [one["id"] for one in within.ask("GET", "/v1/jobs").value["jobs"]] == ["x"]
    within.queue._connection.execute("PRAGMA max_page_count = 1000000")
    assert within.ask("POST", "/v1/jobs", sent("z", wide)).status == 202
    assert within.pool.answer() == "z"
    within.service.fault = "the store failed: the disk is malformed"
    assert within.ask("GET", "/health").status == 503


def test_the_description_is_valid_and_has_the_schema_of_answers(within: Within) -> None:
    validator = pytest.importorskip("openapi_spec_validator")
    jsonschema = pytest.importorskip("jsonschema")
    described = within.ask("GET", "/openapi.json", client=None).value
    validator.validate(described)
    answer, null = described["components"]["schemas"]["JobForm"]["properties"]["answer"]["anyOf"]
    assert {"$schema": answer_schema()["$schema"], **answer} == answer_schema()
    assert null == {"type": "null"}
    within.ask("POST", "/v1/jobs", sent("x"))
    within.pool.answer()
    resolved = {"$ref": "#/components/schemas/JobForm", "components": described["components"]}
    jsonschema.validate(within.ask("GET", "/v1/jobs/x?wait=60").value, resolved)
    for path, methods in described["paths"].items():
        for method, one in methods.items():
            assert one.get("security") or path in ("/health",), f"{method} {path}"


def test_metrics_are_those_of_the_jobs(within: Within) -> None:
    for id in ("x", "y"):
        within.ask("POST", "/v1/jobs", sent(id))
    within.pool.answer()
    within.ask("GET", "/v1/jobs/x?wait=60")
    while not within.pool.held:
        time.sleep(0.01)
    within.ask("DELETE", "/v1/jobs/y")
    got = within.ask("GET", "/metrics")
    assert got.headers["content-type"].startswith("text/plain")
    lines = dict(line.rsplit(" ", 1) for line in got.value.splitlines() if not line.startswith("#"))
    assert lines['perfsuite_verdicts_total{reason="checked",verdict="MET"}'] == "1.0"
    assert lines['perfsuite_stage_seconds_sum{stage="whole"}'] == "0.5"
    assert lines['perfsuite_jobs{state="queued"}'] == "0.0"
    assert lines["perfsuite_worker_restarts_total"] == "1.0"
    assert lines['perfsuite_requests_total{status="202"}'] == "2.0"
    assert lines["perfsuite_wait_seconds_count"] == "1.0"


def test_clients_are_read_again_and_bad_files_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "clients.toml"
    token = add_client(file, "a")
    clients = Clients(file)
    assert (clients.named(token), clients.named(token[:-1]), clients.named("")) == ("a", None, None)
    second = add_client(file, "b")
    assert (clients.named(second), clients.named(token)) == ("b", "a")
    with pytest.raises(UserError, match="has a client a already"):
        add_client(file, "a")
    with pytest.raises(UserError, match="named 'a b'"):
        add_client(file, "a b")
    for text, said in (
        ("a = 'short'", "the token of a must be a text of at least 20"),
        (f"a = '{token}'\nb = '{token}'", "two clients have the same token"),
        ("a = ", "cannot be read"),
        ("", "has no client"),
        ("'a b' = 'x'", "'a b'"),
        (f"[a]\nb = '{token}'", "the token of a must be"),
    ):
        file.write_text(text)
        with pytest.raises(UserError, match=said) as raised:
            Clients(file)
        assert token not in str(raised.value)
        assert clients.named(token) == "a"  # the clients stay as they were
    assert "the clients stay as they were" in capsys.readouterr().err
    file.write_text(f"a = '{token}'")
    file.chmod(0o640)  # as Kubernetes mounts a secret
    assert Clients(file).named(token) == "a"
    file.chmod(0o644)
    with pytest.raises(UserError, match="mode 644, so others can read"):
        Clients(file)


def test_bad_starts_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "serve"
    words = ["serve", "--folder", str(folder), "--device", "cpu", "--trust-candidates", "--port", "0"]
    taken = socket.create_server(("127.0.0.1", 0))
    port = str(taken.getsockname()[1])
    for more, said in (
        (["--port", port], f"--port {port} cannot be used: Address already in use"),
        (["--bind", "0.0.0.0"], "--bind is '0.0.0.0', which other machines reach; name the clients' file"),
        (["--bind", "::"], "which other machines reach"),
        (["--bind", "192.0.2.1"], "which other machines reach"),
        (["--bind", "no such host"], "'no such host', which is no address"),
        (["--problems", str(tmp_path / "nowhere")], "it must be a folder"),
        (["--clients", str(tmp_path / "nowhere")], "nowhere cannot be read"),
        (["--bind", "192.0.2.1", "--clients", str(folder / "clients.toml")], "192.0.2.1 --port 0 cannot be used"),
        (["--device", "cuda"], "--device cuda, but"),
    ):
        assert main([*words, *more]) == 2, more
        assert said in capsys.readouterr().err
    taken.close()
    for flag, value in (("--port", "70000"), ("--jobs", "0"), ("--one-in", "1"), ("--seconds", "nan")):
        assert main([*words, flag, value]) == 2
        assert f"{flag} is {value}; it must be a number from" in capsys.readouterr().err
    assert main(["serve", "--folder", str(folder), "--new-client", "ci"]) == 0
    assert capsys.readouterr().out.strip() in (folder / "clients.toml").read_text()
    assert [os.stat(path).st_mode & 0o077 for path in (folder, folder / "clients.toml")] == [0, 0]
    monkeypatch.setattr("perfsuite.isolate.sandbox.why_not", lambda: "it is a test")
    words.remove("--trust-candidates")
    assert main(words) == 2
    assert "no sandbox for source text (it is a test); --trust-candidates judges" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(words) == 2
    assert "pip install 'perfsuite[serve]'" in capsys.readouterr().err


def test_the_examples_of_the_page_run(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "judge.md").read_text().partition("## Over HTTP")[2]
    (python,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    shell = re.search(r"```bash\n(.*?)```", text, re.DOTALL)
    assert shell is not None
    found: dict[str, Any] = {}
    exec(python, found)
    with Served(tmp_path / ".perfsuite" / "serve", "--run-seconds", "60", "--trust-candidates") as served:
        where = {"token": served.tokens["local"], "url": f"http://127.0.0.1:{served.port}"}
        jobs = [sent("right"), sent("wrong", "def run(a, b):\n    return b\n"), sent("broken", "def run(a, b)")]
        ended = {job["id"]: job["answer"]["verdict"] for job in found["judged"](jobs, **where)}
        assert ended == {"right": "MET", "wrong": "WRONG", "broken": "WRONG"}
        if shutil.which("curl") is None:
            pytest.skip("the other example needs curl")
        code = shell[1].replace(":8421", f":{served.port}")
        done = subprocess.run(["bash", "-ec", code], cwd=tmp_path, capture_output=True, text=True, check=True)
        _, answer = map(json.loads, done.stdout.replace("}{", "}\n{").splitlines())
        assert answer["state"] == "done"
        assert answer["answer"]["reason"] in ("checked", "rival-slowed")  # times are other tests' too here


def test_web_code_is_imported_on_use() -> None:
    code = "import sys, perfsuite.cli.commands.serve\nfound = {'fastapi', 'uvicorn', 'prometheus_client', 'torch'}"
    done = subprocess.run([sys.executable, "-c", f"{code} & set(sys.modules)\nassert not found, found"], check=False)
    assert done.returncode == 0


def test_the_service_judges_cancels_and_keeps_its_tokens_to_itself(tmp_path: Path) -> None:
    """The whole of it: the command, its pool, and a definition of a trusted client."""
    definition = {
        "name": "twice", "axes": {"n": {"type": "var"}}, "outputs": {"y": {"shape": ["n"], "dtype": "float32"}},
        "inputs": {"x": {"shape": ["n"], "dtype": "float32"}}, "reference": "def run(x):\n    return 2 * x\n",
    }  # fmt: skip
    workloads = [{"axes": {"n": 64}, "inputs": {"x": {"type": "random"}}}]
    solution = {
        "name": "s", "spec": {"language": "python", "entry_point": "s.py::run", "destination_passing_style": False},
        "sources": [{"path": "s.py", "content": "def run(x):\n    return x + x\n"}],
    }  # fmt: skip
    (tmp_path / "problems").mkdir()
    (tmp_path / "problems" / "relu.py").write_text(
        "import torch\nModel = torch.nn.ReLU\ndef get_inputs():\n    return [torch.randn(64, 64)]\n"
    )
    options = ("--trust-candidates", "--problems", str(tmp_path / "problems"), "--drain", "0")
    with Served(tmp_path / "serve", *options) as served:
        jobs = [
            sent("hangs", HANGS),
            sent("family"),
            sent("model", "import torch\nModelNew = torch.nn.ReLU\n", "relu.py"),
            sent("definition", solution, {"definition": definition, "workloads": workloads}),
        ]
        reads = [{"axes": {"n": 64}, "inputs": {"x": {"type": "safetensors", "path": "/etc/passwd"}}}]
        bad = sent("bad", solution, {"definition": definition, "workloads": reads})
        assert "reads a file" in served.ask("POST", "/v1/jobs", bad).value["message"]
        assert served.ask("POST", "/v1/batches", {"jobs": jobs}).status == 202
        while served.ask("GET", "/v1/jobs/hangs").value["state"] != "running":
            time.sleep(0.05)
        assert served.ask("DELETE", "/v1/jobs/hangs").value["state"] == "cancelled"
        found = [served.ask("GET", f"/v1/jobs/{job['id']}?wait=60").value["answer"] for job in jobs[1:]]
        assert [one and one["verdict"] for one in found] == ["MET"] * 3, found
        assert served.ask("POST", "/v1/jobs", sent("left", HANGS)).status == 202
        assert served.end(signal.SIGTERM) == 0
        served.start()  # the job that ran is there again, and no death is counted
        left = served.ask("GET", "/v1/jobs/left").value
        assert (left["deaths"], left["ended"]) == (0, None)
        served.end(signal.SIGTERM)
    logs = "".join(path.read_text() for path in tmp_path.glob("log*"))
    assert "http://127.0.0.1:" in logs
    assert served.tokens["local"] not in logs
