"""Judges GPU kernels on every commit: right, fast enough, not slower than before.

The names below are imported when they are first used, because pytest imports the package in every suite where it is
installed. The class of every family in perfsuite.problems.families can be imported from here too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from perfsuite.case.comparison import Comparison as Comparison
    from perfsuite.case.run import compare as compare
    from perfsuite.isolate import Source as Source
    from perfsuite.outcome import Reason as Reason
    from perfsuite.outcome import Verdict as Verdict
    from perfsuite.problems import Attention as Attention
    from perfsuite.problems import Custom as Custom
    from perfsuite.problems import Decode as Decode
    from perfsuite.problems import Fp8Gemm as Fp8Gemm
    from perfsuite.problems import Gemm as Gemm
    from perfsuite.problems import GroupedGemm as GroupedGemm
    from perfsuite.problems import Problem as Problem
    from perfsuite.problems import WeightOnlyGemm as WeightOnlyGemm
    from perfsuite.pytest_plugin.perf import Perf as Perf
    from perfsuite.settings import Settings as Settings

_HOMES = {
    "Comparison": "case.comparison",
    "Perf": "pytest_plugin.perf",
    "Problem": "problems",
    "Reason": "outcome",
    "Settings": "settings",
    "Source": "isolate",
    "Verdict": "outcome",
    "compare": "case.run",
}
"""Public name, except of a family -> the module that defines it."""


def __getattr__(name: str) -> Any:
    if name[:1] == "_":  # pytest asks every object of a test module for such names; the list below imports every family
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    if home := _HOMES.get(name):
        return getattr(import_module(f"{__name__}.{home}"), name)
    if name == "judge":  # a package that can be called
        return import_module(f"{__name__}.judge")
    if name[:1].isupper():
        from perfsuite.problems.listing import family_class

        if (found := family_class(name)) is not None:
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__dir__())}")


def __dir__() -> list[str]:
    from perfsuite.problems.listing import families

    return sorted({*_HOMES, "__version__", *(cls.__name__ for cls in families().values())})
