"""What is computed: shapes, costs, inputs and the library that rivals it."""

from .attention import Attention
from .base import Inputs, Problem
from .custom import Custom
from .decode import Decode
from .distributions import DISTRIBUTIONS
from .gemm import Gemm
from .rivals import RivalUnavailableError

__all__ = ["DISTRIBUTIONS", "Attention", "Custom", "Decode", "Gemm", "Inputs", "Problem", "RivalUnavailableError"]
