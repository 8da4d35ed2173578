"""What a series is keyed by: the card's model, CUDA's major version, the flavour of the build, the harness.

Drivers, clocks and versions of libraries stay in the record. As keys they would begin a new line in every graph.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from perfsuite.settings import HARNESS

Machine = dict[str, str]
HARNESS_KEY = "harness"
"""Numbers of two harnesses may differ for that reason alone, so that each has lines of its own on the same machine."""
ENVIRONMENT = "virtualenv-py{python}"
"""What asv calls the environment that it makes for a Python version; an export takes the same name."""


def machine_of(facts: Mapping[str, Any]) -> Machine:
    """asv's machine for what a record, or `fingerprint`, says of its environment.

    A GPU is a machine of its own whatever host it is in: {"machine": "nvidia-h200", "gpu": "NVIDIA H200", "cuda": "13",
    "flavour": "cuda", "harness": "2"}. Portable kernels are keyed by the processor. Without a harness it is this one.
    """
    gpu, cuda = facts.get("gpu"), str(facts.get("cuda") or "")
    harness = {HARNESS_KEY: str(facts.get("harness") or HARNESS)}
    if gpu:
        return {"machine": slug(str(gpu)), "gpu": str(gpu), "cuda": cuda.split(".")[0], "flavour": "cuda"} | harness
    cpu = str(facts.get("cpu") or "unknown")
    return {"machine": f"cpu-{slug(cpu)}", "gpu": "none", "cuda": "none", "flavour": "portable", "cpu": cpu} | harness


def named(machine: Machine, name: str | None) -> Machine:
    """The machine under a name of the user's own, for several of one model that are to keep separate lines."""
    return machine if name is None else machine | {"machine": slug(name)}


def python_of(facts: Mapping[str, Any]) -> str:
    """ "3.11" of "3.11.2"."""
    return ".".join(str(facts.get("python") or "").split(".")[:2])


def slug(text: str) -> str:
    """Letters, digits and single hyphens: fit for a folder and a URL."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "unnamed"
