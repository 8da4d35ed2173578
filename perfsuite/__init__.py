"""Judges GPU kernels on every commit: right, fast enough, not slower than before.

The names below are loaded when they are first used, so that importing the package (which pytest does in every suite
where it is installed) costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "Attention": "perfsuite.problems",
    "Comparison": "perfsuite.case.comparison",
    "Custom": "perfsuite.problems",
    "Decode": "perfsuite.problems",
    "Gemm": "perfsuite.problems",
    "Perf": "perfsuite.pytest_plugin.perf",
    "Problem": "perfsuite.problems.base",
    "Reason": "perfsuite.outcome",
    "Settings": "perfsuite.settings",
    "Verdict": "perfsuite.outcome",
    "compare": "perfsuite.case.run",
}

__all__ = [
    "Attention",
    "Comparison",
    "Custom",
    "Decode",
    "Gemm",
    "Perf",
    "Problem",
    "Reason",
    "Settings",
    "Verdict",
    "__version__",
    "compare",
]

if TYPE_CHECKING:
    from perfsuite.case.comparison import Comparison
    from perfsuite.case.run import compare
    from perfsuite.outcome import Reason, Verdict
    from perfsuite.problems import Attention, Custom, Decode, Gemm
    from perfsuite.problems.base import Problem
    from perfsuite.pytest_plugin.perf import Perf
    from perfsuite.settings import Settings


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
