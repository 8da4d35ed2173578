"""The comment on a pull request: its text, and that it is written once and edited from then on."""

from __future__ import annotations

import http.server
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perfsuite.cli.main import main
from perfsuite.report.comment import MARKER, MOST_CHARACTERS, comment, spark
from perfsuite.report.page.data import Links, report_of

from .test_page import HISTORY, HOSTILE, case, version


def test_regressions_and_new_misses_stand_first_and_old_misses_are_folded() -> None:
    links = Links("https://code.example/o/r", {"test_a.py::slow": 7})
    made = comment(report_of(HISTORY, title="t", links=links), page="https://pages.example/")
    assert made.startswith(f"{MARKER}\n\n**2 of 6 gates met; 1 wrong, all of them new")
    assert "[The whole report](https://pages.example/)" in made
    slower, missed, folded = (made.index(text) for text in ("### Wrong, or slower", "### Newly missed", "<details>"))
    assert slower < missed < folded
    assert "Already missed before this change: 1" in made[folded:]
    assert f"(https://code.example/o/r/blob/{'c' * 40}/test_a.py#L7)" in made
    assert "| +8.7 % time |" in made


def test_a_thousand_cases_fit_and_tables_have_twenty_rows() -> None:
    before = version("a", *(case(f"t{number}") for number in range(1000)))
    after = version("b", *(case(f"t{number}", 0.9, verdict="MISSED") for number in range(1000)))
    made = comment(report_of([before, after], title="t"))
    assert len(made) < MOST_CHARACTERS
    assert made.count("\n| ▼") == 20
    assert "and 980 more" in made


def test_nothing_of_a_record_is_markup_a_mention_or_a_link() -> None:
    evil = f"@team [x](https://evil.example) `{HOSTILE}` | www.evil.example\n# head"
    one = case("bad", name=evil, candidate=evil, verdict="WRONG", reason=evil, gpu=evil, rival=evil)
    ab = [{"verdict": "MISSED", "name": evil, "sentence": evil}]
    made = comment(report_of([version("a", one)], title="t"), ab=ab)
    assert "<img" not in made
    assert "\x1b" not in made
    assert "@team" not in made
    assert "](https" not in made
    assert not re.search(r"^# head", made, re.MULTILINE)
    assert "://evil" not in made
    assert "www.evil" not in made


def test_ab_is_told_with_its_counts() -> None:
    ab = [{"verdict": "MISSED", "name": "k a", "sentence": "-4 % speed"}, {"verdict": "MET", "name": "k b"}]
    made = comment(report_of(HISTORY, title="t"), ab=ab)
    assert "Head against base, measured in turn on one machine: 1 slower, 1 no slower." in made
    assert "k a | -4 % speed |" in made


def test_sparklines_have_eight_heights() -> None:
    assert spark([1.0, 2.0, None, 3.0]) == "▁▅█"  # half of seven steps is rounded to the even one
    assert spark([1.0]) == ""
    assert spark([2.0, 2.0]) == "▁▁"


class Service:
    """A service that answers as recorded: a list of comments, which requests change."""

    def __init__(self) -> None:
        self.comments: list[dict[str, Any]] = []
        self.requests: list[tuple[str, str, Any]] = []
        self.tokens: set[str] = set()

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        self.requests.append((method, path, body))
        if path == "/user":
            return 200, {"id": 5}
        if path.endswith("/check-runs"):
            return 201, {"html_url": "https://code.example/check/1"}
        if method == "GET":
            return 200, self.comments
        number = int(path.rpartition("/")[2]) if method in ("PATCH", "PUT") else len(self.comments) + 1
        if method == "POST":
            self.comments.append({"id": number, "user": {"type": "Bot"}, "author": {"id": 5}})
        one = next(one for one in self.comments if one["id"] == number)
        one |= {"body": body["body"], "html_url": f"https://code.example/comment/{number}"}
        return 200, one


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    made = Service()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            made.tokens.add(self.headers.get("Authorization") or self.headers.get("PRIVATE-TOKEN") or "")
            code, found = made.answer(self.command, self.path.partition("?")[0], body)
            text = json.dumps(found).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PATCH = do_PUT = do

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    for name, value in {"GITHUB_API_URL": address, "GITHUB_TOKEN": "t1", "CI_API_V4_URL": address}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GITLAB_TOKEN", "t2")
    yield made
    server.shutdown()
    server.server_close()


@pytest.fixture
def records(tmp_path: Path) -> list[str]:
    found = []
    for name, shown in (("base", HISTORY[1]), ("new", HISTORY[2])):
        file = tmp_path / f"{name}.jsonl"
        file.write_text("".join(json.dumps(one.as_json()) + "\n" for one in shown.cases))
        found.append(str(file))
    return [found[1], "--against", found[0]]


def test_github_gets_one_comment_which_is_edited(
    service: Service, records: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    # A stranger wrote the marker first: that comment stays as it is.
    service.comments.append({"id": 1, "user": {"type": "User"}, "body": f"{MARKER} mine"})
    for _ in range(2):
        assert main(["comment", *records, "--github", "owner/name", "--pull", "12", "--check"]) == 0
    changes = [(method, path) for method, path, _ in service.requests if method != "GET"]
    assert changes == [
        ("POST", "/repos/owner/name/issues/12/comments"),
        ("POST", "/repos/owner/name/check-runs"),
        ("PATCH", "/repos/owner/name/issues/comments/2"),
        ("POST", "/repos/owner/name/check-runs"),
    ]
    assert service.comments[0]["body"] == f"{MARKER} mine"
    assert service.comments[1]["body"].startswith(MARKER)
    check = next(body for method, path, body in service.requests if path.endswith("check-runs"))
    assert (check["conclusion"], check["head_sha"]) == ("failure", "c" * 40)
    assert service.tokens == {"Bearer t1"}
    assert capsys.readouterr().out.count("https://code.example/comment/2") == 2


def test_gitlab_gets_one_note_which_is_edited(service: Service, records: list[str]) -> None:
    for _ in range(2):
        assert main(["comment", *records, "--gitlab", "group/name", "--pull", "3"]) == 0
    changes = [(method, path) for method, path, _ in service.requests if method != "GET"]
    notes = "/projects/group%2Fname/merge_requests/3/notes"
    assert changes == [("POST", notes), ("PUT", f"{notes}/1")]
    assert service.tokens == {"t2"}


def test_refusals_and_misuse_are_sentences(
    service: Service, records: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "answer", lambda *_: (403, {"message": "Resource not accessible"}))
    assert main(["comment", *records, "--github", "owner/name", "--pull", "12"]) == 2
    assert "was refused with 403" in capsys.readouterr().err
    monkeypatch.delenv("GITHUB_TOKEN")
    for words, said in (
        (["--github", "owner/name", "--pull", "1"], "GITHUB_TOKEN is not set"),
        (["--github", "owner", "--pull", "1"], "it must be owner/name"),
        (["--pull", "1"], "must be given together"),
        (["--check"], "--check needs --github"),
        (["--page", "javascript:alert(1)"], "it must be an address"),
        (["--ab", records[0]], "which cannot be read"),
    ):
        assert main(["comment", *records, *words]) == 2
        assert said in capsys.readouterr().err
