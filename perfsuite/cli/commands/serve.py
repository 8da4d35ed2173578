"""Serve the judge over HTTP: source text in, verdict out, for several clients.

Jobs lie in a file, and outlive the service. It listens on this machine alone unless --bind says
otherwise. Each client has a token from the clients' file, and sees its own jobs only. Without
--clients the first start makes a file with one client, "local". docs/judge.md describes addresses,
limits and what is defended. GET /openapi.json is the description for programs.

exit codes: 0 stopped by SIGTERM; 2 bad input; 130 interrupted
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import threading
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from perfsuite import outcome
from perfsuite.cli.cards import held, tell
from perfsuite.device import cards as devices
from perfsuite.isolate import sandbox
from perfsuite.judge.beside import MOST, on_each_card
from perfsuite.judge.clients import Clients, Rates, add_client
from perfsuite.judge.engine import Terms
from perfsuite.judge.pool import Pool
from perfsuite.judge.queue_store import Queue
from perfsuite.judge.service import Service
from perfsuite.judge.stored import Limits
from perfsuite.outcome import UserError
from perfsuite.record.places import OWN_FOLDER, make_folder

HELP = "the judge over HTTP, for several clients"
EXAMPLE = """example:
  perfsuite serve --jobs 2 --problems problems/
  perfsuite serve --bind 0.0.0.0 --clients /etc/perfsuite/clients.toml
  perfsuite serve --new-client trainer

exit codes: 0 stopped by SIGTERM; 2 bad input; 130 interrupted"""
FOLDER = Path(OWN_FOLDER, "serve")
MOST_CONNECTIONS = 1000
STOP_SECONDS = 5
"""Seconds that open requests get when the service stops."""


LIMITS: tuple[tuple[str, float, float, float, str, str], ...] = (
    ("--port", 8421, 0, 65535, "N", "the port; 0 takes a free one"),
    ("--jobs", 1, 1, 1024, "N", "processes, or cards"),
    ("--beside", 0, 0, 64, "N", f"processes on each card, in turns; 0: what the machine feeds, at most {MOST}"),
    ("--seconds", 1.0, 1e-3, 1e6, "S", "time of a workload's timed rounds; clients may ask for less"),
    ("--run-seconds", 30.0, 1e-3, 1e6, "S", "limit of one request to a candidate; clients may ask for less"),
    ("--compile-seconds", 120.0, 1e-3, 1e6, "S", "limit of a compiler; clients may ask for less"),
    ("--job-seconds", 600.0, 1e-3, 1e6, "S", "limit of a whole job"),
    ("--one-in", 20.0, 2.001, 1e8, "N", "at most one false verdict in N, for each client"),
    ("--most-bytes", 8 << 20, 1, 1 << 40, "N", "bytes of one request"),
    ("--rate", 50.0, 1e-3, 1e6, "N", "requests a second of one client"),
    ("--queued", 10_000, 1, 1 << 40, "N", "jobs that may wait"),
    ("--queued-per-client", 1000, 1, 1 << 40, "N", "jobs of one client that may wait"),
    ("--keep-hours", 168.0, 1e-3, 1e6, "H", "age at which an ended job is removed"),
    ("--kept-per-client", 100_000, 1, 1 << 40, "N", "ended jobs of one client; the oldest go first"),
    ("--drain", 20.0, 0, 1e6, "S", "time of running jobs to end after SIGTERM; later ones begin again"),
)
"""Option, default, the least and the most value, metavar, help. A whole default takes whole numbers."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bind", default="127.0.0.1", metavar="HOST", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--folder", type=Path, default=FOLDER, metavar="DIR", help=f"for jobs (default: {FOLDER})")
    parser.add_argument("--clients", type=Path, metavar="FILE", help='a TOML file with lines NAME = "TOKEN"')
    parser.add_argument("--new-client", metavar="NAME", help="add a client to the file, print its token, and end")
    parser.add_argument("--problems", type=Path, metavar="DIR", help="problem files and tests that clients may name")
    trust = "judge without a sandbox too, and take FlashInfer definitions, whose reference is code"
    parser.add_argument("--trust-candidates", action="store_true", help=trust)
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto", help="default: a GPU if there is")
    for flag, default, _, _, metavar, told in LIMITS:
        said = f"{told} (default: {default})"
        parser.add_argument(flag, type=type(default), default=default, metavar=metavar, help=said)


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal comes."""
    for flag, _, least, most, _, _ in LIMITS:
        value = getattr(arguments, flag[2:].replace("-", "_"))
        if not least <= value <= most:
            raise UserError(f"{flag} is {value:g}; it must be a number from {least:g} to {most:g}")
    if not arguments.folder.is_dir():
        make_folder(arguments.folder).chmod(0o700)
    file = arguments.clients or arguments.folder / "clients.toml"
    if arguments.new_client is not None:
        print(add_client(file, arguments.new_client))
        return outcome.EXIT_MET
    uvicorn, http_app, http_forms = _web()
    missing = sandbox.why_not()
    if missing is not None and not arguments.trust_candidates:
        raise UserError(f"there is no sandbox for source text ({missing}); --trust-candidates judges without one")
    if arguments.problems is not None and not arguments.problems.is_dir():
        raise UserError(f"--problems is {str(arguments.problems)!r}; it must be a folder")
    if arguments.clients is None and not file.exists():
        add_client(file, "local")
    clients, cards = Clients(file), _cards(arguments)
    terms = Terms(
        device="cuda" if cards else "cpu",
        seconds=arguments.seconds,
        run_seconds=arguments.run_seconds,
        compile_seconds=arguments.compile_seconds,
        one_in=arguments.one_in,
        sandboxed=not arguments.trust_candidates,
    )
    limits = Limits(
        queued_per_client=arguments.queued_per_client,
        queued=arguments.queued,
        keep_seconds=arguments.keep_hours * 3600.0,
        kept_per_client=arguments.kept_per_client,
    )
    listener = _listener(arguments)
    with listener, held(cards):
        selectors, longest = [card.selector for card in cards], arguments.job_seconds
        many = {"jobs": arguments.jobs, "beside": arguments.beside or on_each_card(cards)}
        pool = Pool(terms, **many, cards=selectors, most_seconds=longest)
        service = Service(Queue(arguments.folder / "queue.db", limits), pool)
        desk = http_forms.Desk(terms, arguments.problems, arguments.trust_candidates)
        parts = http_app.Parts(service, desk, clients, Rates(arguments.rate), arguments.most_bytes, arguments.drain)
        config = uvicorn.Config(
            http_app.make_app(parts), ws="none", log_level="warning", access_log=False, server_header=False,
            proxy_headers=False, limit_concurrency=MOST_CONNECTIONS,
            timeout_graceful_shutdown=STOP_SECONDS,
        )  # fmt: skip

        class Server(uvicorn.Server):  # type: ignore[name-defined]
            def handle_exit(self, sig: int, frame: Any) -> None:
                # A thread may take locks that the interrupted one holds.
                threading.Thread(target=service.stop_waiting).start()
                super().handle_exit(sig, frame)

        server = Server(config)
        host, port = listener.getsockname()[:2]
        where = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        tell(f"perfsuite serve: {where}, {len(pool.state)} processes ({terms.device}), clients of {file}")
        box = "in a sandbox" if missing is None else f"without a sandbox: {missing}"
        tell(f"perfsuite serve: candidates run {box}")
        # The server raises its signals again when it has stopped. After SIGTERM this command then ends as asked.
        before = signal.signal(signal.SIGTERM, lambda *_: setattr(server, "should_exit", True))
        try:
            server.run(sockets=[listener])
        finally:
            signal.signal(signal.SIGTERM, before)
    return outcome.EXIT_MET


def _web() -> tuple[Any, Any, Any]:
    try:
        import uvicorn

        from perfsuite.judge import http_app, http_forms
    except ModuleNotFoundError as error:
        if str(error.name).startswith("perfsuite"):
            raise
        raise UserError(f"{error.name} is needed, and it is not installed: pip install 'perfsuite[serve]'") from None
    return uvicorn, http_app, http_forms


def _cards(arguments: argparse.Namespace) -> tuple[devices.Device, ...]:
    if arguments.device == "cpu":
        return ()
    found = devices.usable_devices(os.environ)
    if arguments.device == "cuda" and not found.cards:
        raise UserError(f"--device cuda, but {found.missing}")
    return tuple(found.cards[: arguments.jobs])


def _listener(arguments: argparse.Namespace) -> socket.socket:
    """A socket that listens. Other machines reach it only if the operator named clients."""
    try:
        family, _, _, _, address = socket.getaddrinfo(arguments.bind, arguments.port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise UserError(f"--bind is {arguments.bind!r}, which is no address of this machine: {error}") from None
    if not ip_address(str(address[0]).partition("%")[0]).is_loopback and arguments.clients is None:
        raise UserError(f"--bind is {arguments.bind!r}, which other machines reach; name the clients' file: --clients")
    try:
        return socket.create_server(address, family=family, backlog=2048)
    except OSError as error:
        raise UserError(f"--bind {arguments.bind} --port {arguments.port} cannot be used: {error.strerror}") from None
