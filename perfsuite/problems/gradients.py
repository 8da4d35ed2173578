"""Families whose kernels are differentiated: their backward as a problem of the same parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from perfsuite.problems.base import Inputs, Problem
from perfsuite.problems.checks import is_backward
from perfsuite.problems.differentiated import Differentiated, Plan

if TYPE_CHECKING:
    import torch

WORDS = {True: "forward-backward", "only": "backward"}
"""The end of a case's name, and the word that asks for it on a command line."""


class Differentiable(Problem):
    """Base of families with a parameter `backward`: False, True for forward and backward, "only" for backward alone.

    A subclass declares that field, with the default False.

    With `backward`, inputs are the arguments of the forward call, a dictionary of its options, and the gradient of its
    result. The answer is the gradients of all tensors among the arguments, for True beside the result. Candidates and
    rivals stay functions of the forward call; `called` makes the computation of them that is judged and timed.
    """

    backward: bool | str
    more_words: ClassVar[tuple[str, ...]] = tuple(WORDS.values())

    def check_backward(self) -> None:
        """Check the parameter, for `__post_init__`."""
        if not is_backward(self.backward):
            raise ValueError(f'backward is {self.backward!r}; it must be True, False or "only"')

    def called(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if self.backward is False or isinstance(function, Differentiated):
            return function
        paths = frozenset(f"args[{place}]" for place in range(self.operands))
        return Differentiated(function, Plan(paths, ("",), only=self.backward == "only"))

    @property
    def operands(self) -> int:
        """Number of the tensors among the arguments."""
        raise NotImplementedError

    def rival(self, name: str) -> Callable[..., Any]:
        return self.called(super().rival(name))

    @property
    def backward_word(self) -> str:
        """The end of a name: " backward", " forward-backward", or ""."""
        return "" if self.backward is False else f" {WORDS[self.backward]}"

    def with_gradient(self, forward: Inputs, gradient: torch.Tensor) -> Inputs:
        """The arguments of `Differentiated`: those of the forward call, and the gradient of its result."""
        return Inputs((*forward.args, dict(forward.kwargs), (gradient,)))

    def answers(self, result: torch.Tensor | None, gradients: Sequence[torch.Tensor]) -> dict[str, Any]:
        """The right answer in the form of `Differentiated`'s."""
        found: dict[str, Any] = {"gradient": {f"args[{place}]": one for place, one in enumerate(gradients)}}
        return found if self.backward == "only" else {"result": result} | found

    @classmethod
    def parse_words(cls, words: Sequence[str]) -> dict[str, Any]:
        asked: Mapping[str, Any] = {word: value for value, word in WORDS.items()}
        given = super().parse_words([word for word in words if word not in asked])
        for word in words:
            if word in asked:
                given["backward"] = asked[word]
        return given
