"""The inputs of the timed calls: which integers move between rounds, and which hard inputs are put among them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from perfsuite.clock.base import TimedCall
from perfsuite.clock.rotation import bytes_in
from perfsuite.oracle import Judgement, check, effort
from perfsuite.oracle.hard import as_the_rivals, finite, judge_hard, rival_is_right
from perfsuite.problems import Custom
from perfsuite.problems.base import Inputs, Problem
from perfsuite.problems.orders import Move, movable, reordered, still
from perfsuite.problems.redraw import MILDER
from perfsuite.problems.tensors import same_bits, tensors_in
from perfsuite.settings import Settings

if TYPE_CHECKING:
    import torch

FIRST_HARD, HARD_OF_CUSTOM = 2, 3
"""Hard inputs of a case of `args=`, among those on which its rival runs: the first of them, on which most careless
kernels fail, and others drawn in secret, so many in all."""
NO_ORDER = "no other order is known to keep its meaning"
REPLAYED = "what follows from them alone could be replayed"


@dataclass(frozen=True)
class TimedInputs:
    """The changes of the inputs between rounds."""

    hard: Mapping[str, Callable[[], Inputs]] = field(default_factory=dict)
    integers: Mapping[int, Move] = field(default_factory=dict)
    """The moves of whole numbers and truth values, by place among the tensors of a set."""
    warnings: tuple[str, ...] = ()


def timed_inputs(
    problem: Problem,
    rival: Callable[..., Any],
    generator: Any,
    settings: Settings,
    known: Mapping[str, bool | None] | None = None,
    judged: Problem | None = None,
) -> TimedInputs:
    """The hard inputs of the timed calls, and the moves of whole numbers between rounds.

    rival: without effects. It is called on each of these inputs first: where it fails, they are none of the user's.
    known: hard inputs, and whether the rival's answer on them is right; None if nobody has asked. judged: the problem
    as results are judged by, where calls write arguments.
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
            if _usable(one, judged or problem, rival, make, known or {}):
                hard[one] = partial(make, distribution=one)
                break
    return TimedInputs(hard, *_moves(given, make, rival, settings))


def _usable(
    name: str,
    problem: Problem,
    rival: Callable[..., Any],
    make: Callable[..., Inputs],
    known: Mapping[str, bool | None],
) -> bool:
    """True if the right answer on these hard inputs is known; of those that nobody tried, if the rival takes them."""
    if name not in known:
        return _refusal(rival, make(distribution=name)) is None
    right = known[name]
    return rival_is_right(problem, make(distribution=name), rival, name) if right is None else right


def _moves(
    given: Inputs, make: Callable[..., Inputs], rival: Callable[..., Any], settings: Settings
) -> tuple[dict[int, Move], tuple[str, ...]]:
    """The moves of whole numbers and truth values that the rival takes, and sentences about those that stay."""
    tensors = list(tensors_in(given))
    free = {one.data_ptr() for one in tensors_in(given, layouts=False)}
    wanted = movable(tensors, fixed=[place for place, one in enumerate(tensors) if one.data_ptr() not in free])
    before = [tensor.detach().clone() if place in wanted else tensor for place, tensor in enumerate(tensors)]
    # All together where the rival takes that; else sorted numbers, truth values and other numbers, one kind at a time.
    kinds: dict[Any, dict[int, Move]] = {}
    for place, move in wanted.items():
        kinds.setdefault((move.steps, tensors[place].dtype.itemsize == 1), {})[place] = move
    moves: dict[int, Move] = {}
    refused: dict[str, list[int]] = {}
    for some in [wanted, *(kinds.values() if len(kinds) > 1 else ())]:
        if not some or some.keys() <= moves.keys():
            continue
        for place, values in reordered(before, some, settings.seed).items():
            tensors[place].detach().copy_(values)
        if (refusal := _refusal(rival, given)) is None:
            moves |= some
        elif some is not wanted or len(kinds) == 1:
            refused[refusal] = list(some)
        for place in some:
            tensors[place].detach().copy_(before[place])
    told = [
        f"{_listed(before, places)} of the arguments {_same(places)}: in another order the rival {refusal}; {REPLAYED}"
        for refusal, places in refused.items()
    ]
    if left := still(before, wanted):
        others = list(tensors_in(make(distribution=settings.distribution)))
        if left := [place for place in left if same_bits(before[place], others[place])]:
            told.append(f"{_listed(before, left)} of the arguments {_same(left)}: {NO_ORDER}; {REPLAYED}")
    return moves, tuple(told)


def _listed(tensors: Sequence[torch.Tensor], places: Sequence[int]) -> str:
    """The kinds of the tensors at these places."""
    found = (f"{str(tensors[place].dtype)[6:]}[{'x'.join(map(str, tensors[place].shape))}]" for place in places)
    return ", ".join(dict.fromkeys(found))


def _same(places: Sequence[int]) -> str:
    return "is the same in all timed calls" if len(places) == 1 else "are the same in all timed calls"


def judged_call(
    problem: Problem, call: TimedCall, rival: Callable[..., Any], distribution: str, *, anew: bool, right: bool = False
) -> Judgement | None:
    """The judgement of one timed call; None where its inputs are hard and nothing is known of the right answer.

    anew: the rival is called on the inputs of the call, since the clock's rival is another. right: an earlier call has
    shown that the rival is right on ordinary inputs. Then its own bits cannot be wrong, and None is returned for them.
    """
    if call.distribution is not None and isinstance(problem, Custom):
        return judge_hard(problem, call.inputs, call.candidate_output, rival, call.distribution)
    answer = call.inputs.call(rival) if anew or call.rival_output is None else call.rival_output
    if right and call.distribution is None and as_the_rivals(problem, call.candidate_output, answer):
        return None
    return check(
        problem,
        call.inputs,
        call.candidate_output,
        answer,
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
