"""Imports the compiled module, or says in one sentence why it is not there and which command builds it."""

from __future__ import annotations

import importlib
import json
import shlex
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent
"""In a checkout, the folder of the distribution."""
MIN_TORCH = (2, 10)


def build_command() -> str:
    """The command that builds the extension into this interpreter, from the place where this copy came from."""
    source = _source()
    where = "" if source else " (in the folder ext of a checkout of perfsuite)"
    return (
        f"{sys.executable} -m pip install torch setuptools pybind11 ninja && {sys.executable} -m pip install "
        f"--no-build-isolation --no-deps --no-cache-dir --force-reinstall {source or '.'}{where}"
    )


def _source() -> str:
    """The argument by which pip finds the sources: a checkout, or the place that pip noted; "" if it noted none."""
    if (PROJECT / "setup.py").is_file():
        return f"-e {shlex.quote(str(PROJECT))}"
    try:
        noted = json.loads(metadata.distribution("cuda_llm_ops").read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        return ""
    url, kind, commit = noted.get("url", ""), "", ""
    if "vcs_info" in noted:
        kind, commit = f"{noted['vcs_info']['vcs']}+", f"@{noted['vcs_info']['commit_id']}"
    folder = f"#subdirectory={noted['subdirectory']}" if "subdirectory" in noted else ""
    return shlex.quote(f"{kind}{url}{commit}{folder}") if url else ""


def _refusal(reason: str) -> ImportError:
    return ImportError(f"cuda_llm_ops cannot be used: {reason}. Build it with: {build_command()}", name="cuda_llm_ops")


def load() -> ModuleType:
    """The module `_C`, whose import registers the operators.

    Raises:
        ImportError: torch is missing or too old, the install left the extension out, or the extension was built for
            another torch; the message has the reason and the command that builds it.
    """
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise _refusal(f"torch cannot be imported ({error})") from error
    if tuple(map(int, torch.__version__.split(".")[:2])) < MIN_TORCH:
        raise _refusal(f"torch is {torch.__version__} and must be {'.'.join(map(str, MIN_TORCH))} or newer")
    try:
        return importlib.import_module("cuda_llm_ops._C")
    except ModuleNotFoundError as error:
        raise _refusal(f"its extension is not built ({HERE} has no _C for this Python)") from error
    except ImportError as error:
        raise _refusal(f"its extension does not load with torch {torch.__version__} ({error})") from error
