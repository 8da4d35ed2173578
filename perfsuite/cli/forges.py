"""GitHub and GitLab: finds, writes and edits perfsuite's comment, and writes a check run."""

from __future__ import annotations

import json
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any, Protocol

from perfsuite.outcome import UserError

SECONDS = 30
PAGE = 100
"""Comments that one request asks for."""
MOST_PAGES = 50


class ForgeError(UserError):
    """The service refused a request or cannot be reached; one sentence with its answer."""


class Forge(Protocol):
    """A service that keeps comments."""

    def put_comment(self, marker: str, body: str) -> str:
        """Edit the comment that begins with `marker`, or write one; return its address."""


@dataclass(frozen=True)
class Api:
    """Requests with a token; `headers` are sent with each."""

    address: str
    headers: dict[str, str]

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """The JSON answer. Raises ForgeError."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.address}{path}", data=data, method=method)
        for name, value in {**self.headers, "Content-Type": "application/json"}.items():
            request.add_header(name, value)
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            said = re.sub(r"\s+", " ", error.read(2000).decode("utf-8", "replace"))[:200]
            raise ForgeError(f"{method} {path} was refused with {error.code}: {said}") from None
        except (OSError, ValueError) as error:
            raise ForgeError(f"{method} {path} at {self.address} failed: {error}") from None


@dataclass(frozen=True)
class GitHub:
    """A pull request on GitHub."""

    api: Api
    repository: str
    pull: int

    @classmethod
    def of(cls, repository: str, pull: int) -> GitHub:
        """From "owner/name"; the token is read from GITHUB_TOKEN, the address from GITHUB_API_URL."""
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
            raise UserError(f"--github is {repository!r}; it must be owner/name")
        headers = {"Authorization": f"Bearer {_token('GITHUB_TOKEN')}", "Accept": "application/vnd.github+json"}
        address = os.environ.get("GITHUB_API_URL", "https://api.github.com").rstrip("/")
        return cls(Api(address, {**headers, "X-GitHub-Api-Version": "2022-11-28"}), repository, pull)

    def put_comment(self, marker: str, body: str) -> str:
        """See `Forge`."""
        comments = f"/repos/{self.repository}/issues/{self.pull}/comments"
        for page in range(1, MOST_PAGES + 1):
            found = self.api.ask("GET", f"{comments}?per_page={PAGE}&page={page}")
            for one in found:
                # A stranger may write the marker too; only a comment of this token's kind of user is edited.
                if str(one.get("body", "")).startswith(marker) and one.get("user", {}).get("type") == "Bot":
                    path = f"/repos/{self.repository}/issues/comments/{int(one['id'])}"
                    return str(self.api.ask("PATCH", path, {"body": body})["html_url"])
            if len(found) < PAGE:
                break
        return str(self.api.ask("POST", comments, {"body": body})["html_url"])

    def put_check(self, commit: str, *, failed: bool, title: str, summary: str) -> str:
        """Write a check run on a commit; return its address."""
        body = {"name": "perfsuite", "head_sha": commit, "status": "completed"}
        body["conclusion"] = "failure" if failed else "success"
        output = {"title": title[:250], "summary": summary}
        return str(self.api.ask("POST", f"/repos/{self.repository}/check-runs", {**body, "output": output})["html_url"])


@dataclass(frozen=True)
class GitLab:
    """A merge request on GitLab."""

    api: Api
    project: str
    merge_request: int

    @classmethod
    def of(cls, project: str, merge_request: int) -> GitLab:
        """From a project's number or path; the token is read from GITLAB_TOKEN, the address from CI_API_V4_URL."""
        address = os.environ.get("CI_API_V4_URL", "https://gitlab.com/api/v4").rstrip("/")
        quoted = urllib.parse.quote(project, safe="")
        return cls(Api(address, {"PRIVATE-TOKEN": _token("GITLAB_TOKEN")}), quoted, merge_request)

    def put_comment(self, marker: str, body: str) -> str:
        """See `Forge`."""
        notes = f"/projects/{self.project}/merge_requests/{self.merge_request}/notes"
        mine = self.api.ask("GET", "/user")["id"]
        for page in range(1, MOST_PAGES + 1):
            found = self.api.ask("GET", f"{notes}?per_page={PAGE}&page={page}")
            for one in found:
                if str(one.get("body", "")).startswith(marker) and one.get("author", {}).get("id") == mine:
                    self.api.ask("PUT", f"{notes}/{int(one['id'])}", {"body": body})
                    return f"note {int(one['id'])}"
            if len(found) < PAGE:
                break
        return f"note {int(self.api.ask('POST', notes, {'body': body})['id'])}"


def _token(name: str) -> str:
    value = os.environ.get(name, "").strip()
    if not value:
        raise UserError(f"the variable {name} is not set; the comment needs a token that may write comments")
    return value
