"""Imports the compiled module, or says in one sentence why it is not there and which command builds it."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent.parent
MIN_TORCH = (2, 10)


def build_command() -> str:
    """The command that builds the extension into this interpreter, from the checkout where there is one."""
    source = f"-e {CHECKOUT}" if (CHECKOUT / "setup.py").is_file() else "<a checkout of perfsuite>"
    return (
        f"{sys.executable} -m pip install torch setuptools pybind11 ninja && "
        f"{sys.executable} -m pip install --no-build-isolation --no-deps --force-reinstall {source}"
    )


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
        note = HERE / "_build.json"
        reason = json.loads(note.read_text())["reason"] if note.is_file() else f"{HERE} has no _C for this Python"
        raise _refusal(f"its extension is not built ({reason})") from error
    except ImportError as error:
        raise _refusal(f"its extension does not load with torch {torch.__version__} ({error})") from error
