"""The inputs of the timed calls: which integers move between rounds, and which hard inputs are put among them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from perfsuite.clock.base import TimedCall
from perfsuite.clock.rotation import bytes_in
from perfsuite.oracle import Judgement, check, effort
from perfsuite.oracle.hard import finite, judge_hard
from perfsuite.problems import Custom
from perfsuite.problems.base import Inputs, Problem
from perfsuite.problems.orders import movable, reordered
from perfsuite.problems.redraw import MILDER
from perfsuite.problems.tensors import tensors_in
from perfsuite.settings import Settings

FIRST_HARD, HARD_OF_CUSTOM = 2, 3
"""Hard inputs of a case of `args=`, among those on which its rival runs: the first of them, on which most careless
kernels fail, and others drawn in secret, so many in all."""


@dataclass(frozen=True)
class TimedInputs:
    """The changes of the inputs between rounds."""

    hard: Mapping[str, Callable[[], Inputs]] = field(default_factory=dict)
    integers: bool = False
    warnings: tuple[str, ...] = ()


def timed_inputs(problem: Problem, rival: Callable[..., Any], generator: Any, settings: Settings) -> TimedInputs:
    """The hard inputs of the timed calls, and the answer to whether wider integers can move.

    rival: without effects. It is called on each of these inputs first: where it fails, they are none of the user's.
    Large arguments get no hard inputs, which would take memory beside the sets of the clock.
    """
    make = partial(problem.inputs, generator)
    affordable = effort.on_adversarial_values(problem, settings.device)
    if not isinstance(problem, Custom):
        return TimedInputs(
            {name: partial(make, distribution=name) for name in problem.hard_distributions if affordable}
        )
    if not problem.exchangeable:
        return TimedInputs()
    given = make(distribution=settings.distribution)
    names = list(problem.hard_inputs()) if affordable and bytes_in(given) <= effort.DEAR_BYTES else []
    drawn = random.SystemRandom().sample(names[FIRST_HARD:], len(names[FIRST_HARD:]))
    hard: dict[str, Callable[[], Inputs]] = {}
    for name in (*names[:FIRST_HARD], *drawn):
        if len(hard) == HARD_OF_CUSTOM:
            break
        for one in (name, *([MILDER[name]] if name in MILDER else [])):
            if _refusal(rival, make(distribution=one)) is None:
                hard[one] = partial(make, distribution=one)
                break
    if not (axes := movable(tensors := list(tensors_in(given)))):
        return TimedInputs(hard)
    for place, values in reordered(tensors, axes, settings.seed).items():
        tensors[place].detach().copy_(values)
    if (refusal := _refusal(rival, given)) is None:
        return TimedInputs(hard, integers=True)
    said = (
        f"whole numbers of the arguments are the same in all timed calls: in another order the rival {refusal}; "
        "what follows from them alone could be replayed"
    )
    return TimedInputs(hard, warnings=(said,))


def judged_call(
    problem: Problem, call: TimedCall, rival: Callable[..., Any], distribution: str, *, anew: bool
) -> Judgement | None:
    """The judgement of one timed call; None where its inputs are hard and nothing is known of the right answer.

    anew: the rival is called on the inputs of the call, since the clock's rival is another.
    """
    if call.distribution is not None and isinstance(problem, Custom):
        return judge_hard(problem, call.inputs, call.candidate_output, rival, call.distribution)
    return check(
        problem,
        call.inputs,
        call.candidate_output,
        call.inputs.call(rival) if anew else call.rival_output,
        rival=rival,
        distribution=call.distribution or distribution,
    )


def _refusal(rival: Callable[..., Any], inputs: Inputs) -> str | None:
    """A sentence about a rival that does not take these inputs; None if it takes them."""
    import torch

    try:
        with torch.no_grad():
            result = inputs.call(rival)
    except Exception as error:  # whatever the user's function raises
        said = next(iter(str(error).splitlines()), "")
        return f"raises {type(error).__name__}: {said[:100]}"
    return None if finite(result) else "gives no finite result"
