"""The keys of a series: the card's model, CUDA's major version, the flavour of the build, the harness.

Drivers, clocks and versions of libraries stay in the record. As keys they would begin a new line in every graph.
"""

from __future__ import annotations

import re

from perfsuite.record.environment import Environment
from perfsuite.settings import timing_version

Machine = dict[str, str]
HARNESS_KEY = "harness"
"""Times of two harnesses may differ for that reason alone, so each harness that takes other times has its own lines."""
ENVIRONMENT = "virtualenv-py{python}"
"""asv's name for the environment that it makes for a Python version; an export takes the same name."""


def machine_of(where: Environment) -> Machine:
    """asv's machine of an environment: the GPU whatever its host, or the processor for portable kernels.

    For instance {"machine": "nvidia-h200", "gpu": "NVIDIA H200", "cuda": "13", "flavour": "cuda", "harness": "2"}.
    """
    if where.gpu:
        cuda = (where.cuda or "").split(".")[0]
        machine = {"machine": slug(where.gpu), "gpu": where.gpu, "cuda": cuda, "flavour": "cuda"}
    else:
        cpu = where.cpu or "unknown"
        machine = {"machine": f"cpu-{slug(cpu)}", "gpu": "none", "cuda": "none", "flavour": "portable", "cpu": cpu}
    return machine | {HARNESS_KEY: timing_version(where.harness)}


def named(machine: Machine, name: str | None) -> Machine:
    """The machine under a name that the user chose, which separates machines of one model."""
    return machine if name is None else machine | {"machine": slug(name)}


def python_of(where: Environment) -> str:
    """ "3.11" of "3.11.2"; digits and points alone, since it becomes a part of a file's name."""
    return re.sub(r"[^0-9.]", "", ".".join((where.python or "").split(".")[:2]))


def slug(text: str) -> str:
    """Lower-case letters, digits and single hyphens, for folders and URLs."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "unnamed"
