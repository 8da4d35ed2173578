"""The service's addresses, as an ASGI application."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, HTTPException, Path, Query, Request, Response, Security
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException as AnyHTTPException

from perfsuite import __version__
from perfsuite.judge import http_forms as forms
from perfsuite.judge.clients import Clients, Rates
from perfsuite.judge.http_gate import Gate
from perfsuite.judge.http_metrics import Metrics
from perfsuite.judge.service import Service
from perfsuite.judge.stored import ConflictError, FullError, State, Stored
from perfsuite.outcome import UserError, one_line

RETRY_AFTER = {"Retry-After": "5"}
_CODES = {400: "bad-request", 404: "not-found", 405: "not-allowed", 409: "conflict", 422: "bad-request"}
_FAULTS: dict[int | str, dict[str, Any]] = {
    code: {"model": forms.FaultForm, "description": said}
    for code, said in (
        (401, "No client has this token."),
        (413, "The body is too large."),
        (422, "The request is bad; the sentence names the value."),
        (429, "Too many requests, or the queue is full: try again after Retry-After seconds."),
        (503, "The store cannot take the job now, or the service is stopping. Nothing is lost: try again."),
    )
}
_GONE: dict[int | str, dict[str, Any]] = {404: {"model": forms.FaultForm, "description": "The client has no such job."}}
_TAKEN: dict[int | str, dict[str, Any]] = {
    409: {"model": forms.FaultForm, "description": "The identifier belongs to a job with other content."}
}
_Id = Annotated[forms.Id, Path(description="The job's identifier.")]
router = APIRouter(prefix="/v1", responses=_FAULTS, dependencies=[Security(HTTPBearer(auto_error=False))])
opened = APIRouter()


@dataclass(frozen=True)
class Parts:
    """All that the application works with."""

    service: Service
    desk: forms.Desk
    clients: Clients
    rates: Rates
    most_bytes: int
    drain_seconds: float
    """Seconds that running jobs get to end when the service stops."""


def make_app(parts: Parts) -> FastAPI:
    """The application. It begins to judge when its server starts, and stops with it."""

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        parts.service.start()
        yield
        parts.service.close(parts.drain_seconds)

    app = FastAPI(
        title="perfsuite serve", version=__version__, description="Source text in, verdict out.",
        docs_url=None, redoc_url=None, lifespan=life,
    )  # fmt: skip
    metrics = Metrics(parts.service)
    app.state.parts, app.state.metrics = parts, metrics
    app.include_router(router)
    app.include_router(opened)
    app.add_middleware(
        Gate, clients=parts.clients, rates=parts.rates, most_bytes=parts.most_bytes, requests=metrics.requests
    )
    for kind, status, code, headers in (
        (UserError, 422, "bad-request", None),
        (ConflictError, 409, "conflict", None),
        (FullError, 429, "queue-full", RETRY_AFTER),
        (sqlite3.Error, 503, "store-unavailable", RETRY_AFTER),
    ):
        app.add_exception_handler(kind, _handler(status, code, headers))
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(AnyHTTPException, _other)
    app.add_exception_handler(Exception, _handler(500, "internal", None))
    return app


@router.post("/jobs", status_code=202, response_model=forms.JobForm, responses={
    200: {"model": forms.JobForm, "description": "The job is there already."}, **_TAKEN,
})  # fmt: skip
def submit(given: forms.Submission, request: Request) -> Response:
    """Queue a job. It is on disk before the answer comes. The same job sent again is one job."""
    (stored,) = _submitted(request, [given])
    return _json(forms.job_form(stored), 202 if stored.new else 200, {"Location": f"/v1/jobs/{stored.id}"})


@router.post("/batches", status_code=202, response_model=forms.JobsForm, responses=_TAKEN)
def submit_batch(given: forms.Batch, request: Request) -> Response:
    """Queue several jobs: all of them, or none."""
    return _jobs(_submitted(request, given.jobs), 202)


@router.get("/jobs", response_model=forms.JobsForm)
def listing(
    request: Request,
    after: Annotated[str, Query(description="The identifier behind which the list begins.")] = "",
    state: State | None = None,
    most: Annotated[int, Query(ge=1, le=forms.MOST_JOBS)] = 100,
) -> Response:
    """The client's jobs without their answers, in the order of their submission."""
    return _jobs(_parts(request).service.queue.listing(_client(request), after=after, state=state, most=most))


@router.get("/jobs/{id}", response_model=forms.JobForm, responses=_GONE)
async def job(
    id: _Id,
    request: Request,
    wait: Annotated[float, Query(ge=0, le=forms.MOST_WAIT, description="Seconds to wait for its end.")] = 0.0,
) -> Response:
    """One job, with its answer if it is done."""
    found = await _parts(request).service.ended(_client(request), [id], wait)
    return _json(forms.job_form(_there(found, id)))


@router.delete("/jobs/{id}", response_model=forms.JobForm, responses=_GONE)
def cancel(id: _Id, request: Request) -> Response:
    """Cancel a job that has no answer yet; its process is ended. A job that is done stays as it is."""
    found = _parts(request).service.cancel(_client(request), id)
    return _json(forms.job_form(_there([] if found is None else [found], id)))


@router.post("/jobs/wait", response_model=forms.JobsForm, responses=_GONE)
async def wait(given: forms.Wait, request: Request) -> Response:
    """Those of the named jobs that have ended, as soon as there is one; none if the time is over before."""
    found = await _parts(request).service.ended(_client(request), given.ids, given.seconds)
    if missing := set(given.ids) - {one.id for one in found}:
        _there([], min(missing))
    return _jobs([one for one in found if one.ended is not None])


@router.get("/problems", response_model=forms.ProblemsForm)
def problems(request: Request) -> Response:
    """The names that a job's problem may be, besides families. FILE::TEST names a test of a file."""
    return _json({"problems": list(_parts(request).desk.problems())})


@opened.get("/health", response_model=forms.DepthForm, responses={503: {"model": forms.DepthForm}})
def health(request: Request) -> Response:
    """The depth of the queue and the state of the processes; 503 if no jobs are judged."""
    service = _parts(request).service
    status = service.fault or ("stopping" if service.stopping else "ok")
    return _json({"status": status, **service.depth()}, 200 if status == "ok" else 503)


@opened.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}},
            dependencies=[Security(HTTPBearer(auto_error=False))])  # fmt: skip
def metrics(request: Request) -> Response:
    """Numbers for Prometheus: verdicts by reason, depth of the queue, seconds of each stage, restarts, requests."""
    return Response(generate_latest(request.app.state.metrics.registry), media_type=CONTENT_TYPE_LATEST)


def _submitted(request: Request, given: list[forms.Submission]) -> list[Stored]:
    parts, jobs = _parts(request), []
    if parts.service.stopping:
        raise HTTPException(503, "the service is stopping; send the job again when it is back", RETRY_AFTER)
    for number, one in enumerate(given):
        try:
            jobs.append(parts.desk.job(one))
        except UserError as error:
            raise UserError(f"jobs[{number}]: {error}" if len(given) > 1 else str(error)) from None
    return parts.service.queue.submit(_client(request), jobs)


def _parts(request: Request) -> Parts:
    parts: Parts = request.app.state.parts
    return parts


def _client(request: Request) -> str:
    return str(request.state.client)


def _there(found: list[Stored], id: str) -> Stored:
    if not found:
        raise HTTPException(404, f"you have no job {id!r}")
    return found[0]


def _jobs(found: list[Stored], status: int = 200) -> Response:
    return _json({"jobs": [forms.job_form(one) for one in found]}, status)


def _json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer of ASCII letters alone: text of candidates may be no valid Unicode."""
    return Response(json.dumps(value), status, headers, "application/json")


def _fault(status: int, code: str, said: str, headers: Mapping[str, str] | None = None) -> Response:
    return _json({"error": code, "message": one_line(said)}, status, headers)


def _handler(status: int, code: str, headers: Mapping[str, str] | None) -> Any:
    def handle(_: Request, error: Exception) -> Response:
        return _fault(status, code, str(error) if status != 500 else "the service failed; its log says why", headers)

    return handle


def _invalid(_: Request, error: Exception) -> Response:
    """One sentence about the first fault: its place, its value and what is allowed."""
    assert isinstance(error, RequestValidationError)
    faults: dict[str, list[str]] = {}
    for one in error.errors():
        faults.setdefault(_place(one), []).append(one["msg"])
    (place, allowed), first = next(iter(faults.items())), error.errors()[0]
    if isinstance(first.get("input"), bytes) or first["type"] == "json_invalid":
        place, allowed = "the body", ["it must be JSON, with the header Content-Type: application/json"]
    shown = "" if first["type"] == "missing" else f" is {repr(first.get('input'))[:80]}"
    return _fault(422, "bad-request", f"{place or 'the body'}{shown}: {'; or: '.join(allowed)}")


def _place(fault: Mapping[str, Any]) -> str:
    """The field of a fault, without the names of the types that it might have had."""
    _, *steps = fault["loc"]
    return ".".join(str(step) for step in steps if not re.match(r"(str|dict|list)(\[|$)", str(step)))


def _other(_: Request, error: Exception) -> Response:
    assert isinstance(error, AnyHTTPException)
    code = _CODES.get(error.status_code, "unavailable")
    return _fault(error.status_code, code, str(error.detail), error.headers)
