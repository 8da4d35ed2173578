"""The right answer of any function: the function itself, in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from perfsuite.problems.answers import Answer, Mark
from perfsuite.problems.base import Inputs
from perfsuite.problems.tensors import map_tensors, tensors_in

from .mode import FOREIGN_MEMORY, Widening, both_modes
from .twins import inexact, plain

if TYPE_CHECKING:
    import torch


def in_float64(function: Callable[..., Any], inputs: Inputs, *, deadline: float | None = None) -> Answer:
    """The result of `function` on `inputs`, with every operator of torch computed in float64.

    The function sees its own dtypes. Its parameters, constants and casts are widened, and so is what it makes. Memory
    that it writes into is restored. Passes on the exceptions of the function. deadline: by time.monotonic(); operators
    after it raise TooLongError.
    """
    widening = Widening(deadline)
    operators, addresses = both_modes(widening)
    result: Any = None
    try:
        with _plainest(), addresses, operators:
            result = inputs.call(function)

        given = {tensor.untyped_storage()._cdata for tensor in tensors_in(inputs) if plain(tensor)}

        def right(tensor: torch.Tensor) -> torch.Tensor:
            if plain(tensor) and inexact(tensor) and tensor.numel():
                entry = widening.twins.entry(tensor)
                computed = entry is not None and entry.twin is not None
                if not computed and tensor.untyped_storage()._cdata not in given:
                    widening.gaps.setdefault(FOREIGN_MEMORY)
            found = widening.twins.of(tensor.detach())
            # A twin is nobody else's, and may be large.
            shared = not plain(found) or found.untyped_storage()._cdata == tensor.untyped_storage()._cdata
            return found.clone() if shared else found

        values = map_tensors(result, right)
        marks = tuple(widening.twins.mark(tensor) or Mark() for tensor in tensors_in(result))
    finally:
        widening.restore()
        widening.twins.clear()  # the modes' classes refer to them until the collector runs
    return Answer(values, tuple(widening.gaps), widening.random, marks)


def is_float64(values: Any) -> bool:
    """True if every floating-point or complex tensor of the nest has 64 bits a number."""
    return all(one.dtype.itemsize >= (16 if one.is_complex() else 8) for one in tensors_in(values) if inexact(one))


@contextmanager
def _plainest() -> Iterator[None]:
    """Settings under which torch takes the operators that its fused ones are made of."""
    import sys

    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    fast = torch.backends.mha.get_fastpath_enabled()
    with ExitStack() as stack:
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        # Not torch.backends.mkldnn.flags: that sets TF32 as well, which warns on a processor.
        stack.callback(torch._C._set_mkldnn_enabled, torch._C._get_mkldnn_enabled())
        torch._C._set_mkldnn_enabled(False)
        torch.backends.mha.set_fastpath_enabled(False)
        stack.callback(torch.backends.mha.set_fastpath_enabled, fast)
        if "torch._dynamo" in sys.modules:  # otherwise nothing is compiled
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        yield
