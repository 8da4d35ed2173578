"""A Ray cluster whose workers serve this process: who may connect to it, its cards, and what must be equal on it."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import platform
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from perfsuite import __version__
from perfsuite.isolate.sandbox import why_not
from perfsuite.outcome import UserError, one_line
from perfsuite.workers.ray_child import RayChild

TOKEN_MODE = "RAY_AUTH_MODE"
"""Ray's variable: with "token", Ray asks every caller for the cluster's token."""
PROBE_SECONDS = 30.0
CHECK_SECONDS = 120.0
"""Time for the first process of each machine to start and tell its versions."""
_TYPE = "accelerator_type:"
_ROOT = Path(__file__).resolve().parents[1]
_STRANGER = """
import sys
from ray._raylet import GcsClient
GcsClient(address=sys.argv[1]).internal_kv_get(b"perfsuite", timeout=10)
print("let in")
"""


@dataclass(frozen=True)
class Machine:
    """One node of the cluster."""

    id: str
    address: str
    cards: int
    model: str | None
    """Ray's name of its cards' model, such as H100."""


class Cluster:
    """A cluster to which this process is connected."""

    def __init__(self, address: str) -> None:
        self.address = address

    @property
    def machines(self) -> list[Machine]:
        """The nodes that are alive."""
        import ray

        found = []
        for node in ray.nodes():
            if node["Alive"]:
                has = node["Resources"]
                model = next((name.removeprefix(_TYPE) for name in has if name.startswith(_TYPE)), None)
                found.append(Machine(node["NodeID"], node["NodeManagerAddress"], int(has.get("GPU", 0)), model))
        return found

    def usable(self, model: str | None, *, cards: bool) -> list[Machine]:
        """The nodes with cards of that model (None: of any); without `cards`, all nodes."""
        if not cards:
            return self.machines
        return [one for one in self.machines if one.cards and model in (None, one.model)]

    def workers(
        self,
        words: Sequence[str],
        model: str | None = None,
        *,
        cards: bool,
        most: int | None = None,
        on_a_card: int = 1,
    ) -> list[RayChild]:
        """Workers that run `python` with these words: one a card, or one a node without `cards`; `most` of them.

        on_a_card: workers on each card, where they take turns.
        UserError if there is no card of that model. With `most` Ray may add the machines later.
        """
        if most is not None and most < 1:
            raise ValueError(f"jobs is {most!r}; it must be at least 1")
        usable = self.usable(model, cards=cards)
        there = sum(one.cards if cards else 1 for one in usable)
        if not there and most is None:
            counts: Counter[str] = Counter()
            for one in self.machines:
                counts[str(one.model)] += one.cards
            models = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()) if count) or "no card"
            asked = "a card" if model is None else f"card model {model!r}"
            raise UserError(f"{asked} is asked for, and the Ray cluster at {self.address} has {models}")
        count = most or there
        on_a_card = on_a_card if cards else 1
        beside = -(-count * on_a_card // max(len({one.address for one in usable}), 1))
        made: dict[str, Any] = {"cards": cards, "beside": beside, "on_a_card": on_a_card}
        return [RayChild(words, model, **made) for _ in range(count * on_a_card)]

    def check(self, machines: Sequence[Machine], files: Sequence[Path] = (), *, sandboxed: bool = False) -> None:
        """Compare versions and files of these nodes with this machine's. UserError names the first difference.

        sandboxed: each node must have an operating-system sandbox too.
        """
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        names = [str(file) for file in files]
        own, told = facts(names), ray.remote(facts)
        for machine in machines:
            there = NodeAffinitySchedulingStrategy(machine.id, soft=False)
            asked = told.options(num_cpus=0, scheduling_strategy=there, max_retries=1).remote(names)
            try:
                found: dict[str, str | None] = ray.get(asked, timeout=CHECK_SECONDS)
            except Exception as error:
                # Without perfsuite it cannot even read the request, and Ray's error says so.
                raise UserError(one_line(f"the worker at {machine.address} cannot start: {error}")) from None
            for name, value in own.items():
                if name != "no sandbox" and found[name] != value:
                    raise UserError(
                        f"the worker at {machine.address} has {name} {found[name]}, and this machine has {value}; "
                        "both must be the same"
                    )
            if sandboxed and found["no sandbox"]:
                raise UserError(
                    f"the worker at {machine.address} has no sandbox ({found['no sandbox']}); install bubblewrap "
                    "there, or give --trust-candidates"
                )


@contextlib.contextmanager
def connected(address: str, *, open: bool = False) -> Iterator[Cluster]:
    """Connect to a Ray cluster; UserError if it does not answer or is not safe to use.

    address: HOST:PORT, "auto", or "local" for a new cluster of this machine alone. A cluster whose head is another
    machine must ask callers for a token; `open` allows one that does not.
    """
    try:
        import ray
    except ImportError:
        raise UserError("Ray is not installed: pip install perfsuite[ray]") from None
    if address not in ("auto", "local") and not address.rpartition(":")[2].isdecimal():
        raise UserError(f"the address of Ray is {address!r}; it must be HOST:PORT, auto or local")
    if "://" in address:
        raise UserError(f"the address of Ray is {address!r}; give HOST:PORT of its head, on a machine of the cluster")
    if address not in ("auto", "local"):
        _check_access(address, open)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:
        raise UserError(one_line(f"the Ray cluster {address!r} cannot be used: {error}")) from None
    try:
        found = ray.get_runtime_context().gcs_address
        if address == "auto":
            _check_access(found, open)
        # Ray prints each death to standard output, where answers go; here each death is handled.
        ray._private.worker._worker_logs_enabled = False
        yield Cluster(found)
    finally:
        ray.shutdown()


def _check_access(address: str, open: bool) -> None:
    """Refuse a cluster that does not answer, that refuses this process, or, from elsewhere, that lets in everybody."""
    guarded = not open and not is_own(address.rpartition(":")[0])
    remedy = "or say that you trust its network with --ray-open (pytest: --perf-ray-open)"
    if guarded and os.environ.get(TOKEN_MODE) != "token":
        raise UserError(
            f"the Ray cluster at {address} is another machine's, and {TOKEN_MODE} is not 'token'; start the cluster "
            f"and this command with Ray's token authentication, {remedy}"
        )
    said = _probe(address, {})
    if said != "let in":
        refused = "refuses this process's token" if "Unauthenticated" in said else "does not answer"
        raise UserError(one_line(f"the Ray cluster at {address} {refused}: {said}"))
    if guarded and _probe(address, {TOKEN_MODE: "disabled"}) == "let in":
        raise UserError(f"the Ray cluster at {address} lets in callers without a token; start it with one, {remedy}")


def _probe(address: str, environment: Mapping[str, str]) -> str:
    """ "let in", or the last words of a process that asks the cluster's head for a value."""
    line = [sys.executable, "-c", _STRANGER, address]
    try:
        ran = subprocess.run(
            line, env={**os.environ, **environment}, capture_output=True, text=True, timeout=PROBE_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {PROBE_SECONDS:g} s"
    said = f"{ran.stdout}\n{ran.stderr}".strip()
    if "let in" in ran.stdout:
        return "let in"
    return next((line for line in said.splitlines() if "Unauthenticated" in line), said.rpartition("\n")[2])


def is_own(host: str) -> bool:
    """True if the host is this machine: what it sends there has the same address as its source."""
    try:
        family, kind, _, _, place = socket.getaddrinfo(host.strip("[]"), 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as tried:
            tried.connect(place)  # of a datagram: nothing is sent
            return bool(tried.getsockname()[0] == place[0])
    except OSError:
        return False


def facts(files: Sequence[str]) -> dict[str, str | None]:
    """The versions of this process, the digest of each file, and the reason why it has no sandbox."""
    found: dict[str, str | None] = {"Python": platform.python_version()}
    found["perfsuite"] = f"{__version__} (source {_digest(sorted(_ROOT.rglob('*.py')))})"
    try:
        found["torch"] = version("torch")
    except PackageNotFoundError:
        found["torch"] = None
    for file in files:
        found[file] = _digest([Path(file)])
    return {**found, "no sandbox": why_not()}


def _digest(files: Sequence[Path]) -> str | None:
    """A hash of the contents; None if a file cannot be read."""
    made: Any = hashlib.sha256()
    try:
        for file in files:
            made.update(file.read_bytes())
    except OSError:
        return None
    return str(made.hexdigest()[:12])
