"""The cases of a calibration: library kernels from 3 microseconds to 2 milliseconds on a large card."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfsuite.problems import Attention, Custom, Gemm
from perfsuite.problems.base import Problem
from perfsuite.settings import DeviceKind
from perfsuite.verdict.policy import REGRESSION_MARGIN, SHARP_MARGIN

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class CalibrationCase:
    """A library kernel that a gate compares with itself."""

    name: str
    problem: Problem
    function: Callable[..., Any]
    sharp: bool = False
    """True for calls that are long enough for the sharp margin of a regression."""

    @property
    def margin(self) -> float:
        """The margin by which its gates judge."""
        return SHARP_MARGIN if self.sharp else REGRESSION_MARGIN


def cases(device: DeviceKind) -> list[CalibrationCase]:
    """The cases for a kind of device. Two cores take milliseconds for those of the CPU."""
    if device == "cpu":
        return [
            _library("gemm-64", Gemm(64, 64, 64, dtype="float32")),
            _library("gemm-256", Gemm(256, 256, 256, dtype="float32")),
            _library("attention-128", Attention(1, 2, 128, 64, dtype="float32")),
        ]
    return [
        _add("add-1M", 2**20),
        _library("gemm-512", Gemm(512, 512, 512)),
        _library("gemm-1024", Gemm(1024, 1024, 1024)),
        _library("attention-512", Attention(2, 8, 512, 64)),
        _library("gemm-2048", Gemm(2048, 2048, 2048), sharp=True),
        _library("attention-4096", Attention(2, 8, 4096, 64), sharp=True),
        _library("attention-8192", Attention(2, 8, 8192, 64), sharp=True),
        _library("gemm-8192", Gemm(8192, 8192, 8192), sharp=True),
    ]


def _library(name: str, problem: Problem, *, sharp: bool = False) -> CalibrationCase:
    """A case of the library's function without the rival's wrapper, which costs host time only."""
    import torch

    function = torch.mm if problem.family == "gemm" else torch.nn.functional.scaled_dot_product_attention
    return CalibrationCase(name, problem, function, sharp)


def _add(name: str, elements: int) -> CalibrationCase:
    """The sum of two vectors: a kernel that memory bounds."""
    import torch

    def arguments(generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        return torch.randn(2, elements, dtype=torch.float16, device=generator.device, generator=generator).unbind()

    problem = Custom(arguments, flops=elements, bytes=6 * elements, label=f"add {elements}", against=torch.add)
    return CalibrationCase(name, problem, torch.add)
