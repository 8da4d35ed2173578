"""Fresh arguments like the given ones: the same structure, shapes, strides and dtypes, with other values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, MutableMapping
from functools import cache
from typing import TYPE_CHECKING, Any

from perfsuite.problems.distributions import draw
from perfsuite.problems.tensors import map_tensors, memory_of, overlapping, tensors_in

if TYPE_CHECKING:
    import torch

HARD = {
    "large": "normal",
    "medium": "normal",
    "dominant": "dominant",
    "constant-rows": "constant-rows",
    "offset": "normal",
    "clusters": "normal",
    "small": "normal",
    "negative": "normal",
    "ties": "normal",
    "integers": "normal",
}
"""Hard inputs of any kernel -> the distribution of the largest tensor of numbers; the others are drawn as ever.

Those on which most careless kernels fail come first, since time may run out."""
MILDER = {"large": "medium"}
"""Hard inputs -> those that take their place where the rival fails."""
FACTORS = {"large": 64.0, "medium": 8.0, "small": 1 / 1024}
APART = 256.0
"""The common offset of "offset", and the outermost centres of "clusters", in standard deviations: differences of
squares in float32 lose all but a few bits there, and a sum of differences loses none."""
CENTRES = (-1.0, -0.25, 0.25, 1.0)
PART = 1 << 26
"""Elements that are widened at a time."""
_SHIFTED = ("offset", "clusters")
STEP = 0.5
"""The spacing of the values of "ties", in standard deviations."""


def hard_for(given: Any) -> tuple[str, ...]:
    """The hard inputs that change something in these arguments."""
    numbers = _largest(given) is not None
    whole = any(_indices(tensor) for tensor in tensors_in(given, layouts=False))
    names = (name for name in HARD if name not in MILDER.values())
    return tuple(name for name in names if (whole if name == "integers" else numbers))


def redrawn(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], generator: torch.Generator, distribution: str
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """(args, kwargs) with new tensors on the generator's device; `Custom` describes their values.

    Floating-point and complex tensors are drawn, with the mean and standard deviation of the given ones. 8-bit integers
    are drawn from the given ones, since they are values as a rule. Wider integers and booleans may be indices or masks
    that belong together. They are drawn only where nothing else varies, and never where they are sorted. A lone number
    changes by up to a half where nothing else varies.
    """
    given = (args, dict(kwargs))
    hardened = _largest(given) if distribution in HARD else None
    apart = (
        APART * _remembered(hardened, hardened.detach())[0]
        if hardened is not None and distribution in _SHIFTED
        else 0.0
    )
    alone = not any(_values(tensor) for tensor in tensors_in(given, layouts=False))

    def fresh(tensor: torch.Tensor) -> torch.Tensor:
        if distribution not in HARD:
            return _redraw(tensor, generator, distribution, shuffle=alone)
        plain = _redraw(tensor, generator, HARD[distribution] if tensor is hardened else "normal", shuffle=alone)
        if distribution == "integers":
            return _other_integers(plain, generator) if not _values(tensor) else plain
        if distribution in _SHIFTED and hardened is not None and _alike(tensor, hardened):
            return _shifted(plain, apart, generator if distribution == "clusters" else None)
        return _hardened(plain, distribution) if tensor is hardened else plain

    def moved(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().to(generator.device, copy=True)

    made: tuple[tuple[Any, ...], dict[str, Any]] = map_tensors(given, fresh, of_layouts=moved)
    return made


def _largest(given: Any) -> torch.Tensor | None:
    """The largest tensor of floating-point numbers, the first of several; None if there is none that varies."""
    found = None
    for tensor in tensors_in(given, layouts=False):
        if not tensor.is_floating_point() or tensor.numel() < 2:
            continue
        if found is None or tensor.numel() > found.numel():
            found = tensor
    return found


def _indices(tensor: torch.Tensor) -> bool:
    """True for whole numbers and truth values that are not values for certain."""
    return not _values(tensor) and not tensor.is_floating_point() and not tensor.is_complex() and tensor.numel() > 1


def _hardened(values: torch.Tensor, name: str) -> torch.Tensor:
    """The values made large, small, negative or equal in many places; in their dtype and layout."""
    import torch

    memory = memory_of(values)
    wide = memory.to(_arithmetic(memory))
    if name in FACTORS:
        most = torch.finfo(values.dtype).max / 4
        wide = (wide * FACTORS[name]).clamp_(-most, most)
    elif name == "negative":
        wide = -wide.abs() if bool((wide < 0).any()) else wide
    elif name == "ties":
        step = STEP * wide.std().clamp(min=torch.finfo(torch.float32).tiny)
        wide = (wide / step).round_().mul_(step)
        if wide.dim() > 1:
            wide[1::2] = wide[: 2 * (len(wide) // 2) : 2]
    memory.copy_(wide)
    return values


def _alike(tensor: torch.Tensor, largest: torch.Tensor) -> bool:
    """True for the largest tensor, and for others that may hold points of one space with its rows."""
    if tensor is largest:
        return True
    shapes = tensor.dim() == largest.dim() > 1 and tensor.shape[-1] == largest.shape[-1]
    return shapes and tensor.is_floating_point() and _values(tensor)


def _shifted(values: torch.Tensor, apart: float, generator: torch.Generator | None) -> torch.Tensor:
    """The values that far from zero; with a generator each row about one of CENTRES. Shares and logarithms stay."""
    import torch

    memory = memory_of(values)
    wide = memory.to(_arithmetic(memory))
    least, most = map(float, wide.aminmax())
    if (least >= 0 and most <= 1) or most <= 0:
        return values
    where: Any = apart
    if generator is not None:
        centres = torch.tensor(CENTRES, dtype=wide.dtype, device=wide.device) * apart
        rows = (*wide.shape[:-1], 1) if wide.dim() > 1 else wide.shape
        drawn = torch.randint(len(CENTRES), rows, generator=generator, device=generator.device).to(wide.device)
        where = centres[drawn].abs() if least >= 0 else centres[drawn]
    bound = torch.finfo(values.dtype).max / 4
    memory.copy_((wide + where).clamp_(-bound, bound))
    return values


def _other_integers(values: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Whole numbers drawn anew between the least and the greatest given one.

    Sorted ones stay sorted, between the same ends, and those without equals stay so: they may be offsets or an order.
    """
    import torch

    if not _indices(values) or values.device != generator.device:
        return values
    device, flat = generator.device, _counted(values).flatten()
    if values.dtype is torch.bool:
        share = flat.double().mean()
        return (torch.rand(values.shape, generator=generator, device=device) < share).view(values.shape)
    if flat.unique().numel() == flat.numel() and not _sorted(values):
        return flat[torch.randperm(len(flat), generator=generator, device=device)].view(values.shape).to(values.dtype)
    low, high = int(flat.min()), int(flat.max())
    drawn = torch.randint(low, high + 1, values.shape, generator=generator, device=device)
    if _sorted(values):
        drawn = drawn.sort(-1).values
        drawn[..., 0], drawn[..., -1] = values[..., 0], values[..., -1]
    return drawn.to(values.dtype)


def _values(tensor: torch.Tensor) -> bool:
    """True for a tensor whose values vary and are values for certain, not indices, lengths or a mask."""
    import torch

    sure = tensor.is_floating_point() or tensor.is_complex() or tensor.dtype in (torch.int8, torch.uint8)
    return sure and tensor.numel() > 1


def _redraw(
    given: torch.Tensor,
    generator: torch.Generator,
    distribution: str,
    *,
    shuffle: bool,
    source: torch.Tensor | None = None,
) -> torch.Tensor:
    """source: the tensor of which `given` is the memory."""
    import torch

    source = given if source is None else source
    given = given.detach()
    if given.dim() == 0 and given.device.type == "cpu":
        return given.clone()
    if overlapping(given):  # an expanded tensor, or windows: its memory holds fewer values than its shape
        fresh = _redraw(memory_of(given), generator, distribution, shuffle=shuffle, source=source)
        return fresh.as_strided(given.shape, given.stride())
    values = given.to(generator.device)
    if shuffle and given.numel() == 1 and given.is_floating_point():
        factor = 0.5 + torch.rand((), generator=generator, device=generator.device, dtype=torch.float64)
        values = (values.double() * factor).to(given.dtype)
    elif given.is_floating_point() or given.is_complex():
        values = _drawn(values, generator, distribution, source)
    elif _values(given) or (shuffle and given.numel() > 1 and not _sorted(values)):
        values = _drawn_again(values, generator)
    if values.untyped_storage()._cdata != given.untyped_storage()._cdata and values.stride() == given.stride():
        return values
    laid = torch.empty_strided(given.shape, given.stride(), dtype=given.dtype, device=generator.device)
    return laid.copy_(values)


def _drawn(values: torch.Tensor, generator: torch.Generator, distribution: str, source: torch.Tensor) -> torch.Tensor:
    """Values of that distribution with the mean and deviation of the given ones; these, if they are constant.

    source: the tensor of which these are the values.
    """
    if values.numel() < 2:
        return values
    deviation, mean, least, most = _remembered(source, values)
    if not 0 < deviation < math.inf:
        return values
    fresh = draw(distribution, tuple(values.shape), values.dtype, generator)
    # Stretching would undo the values of "tiny" and spread those of "non-finite".
    if distribution not in ("tiny", "non-finite"):
        for part in _parts(fresh):
            stretched = part.to(_arithmetic(part)).mul_(deviation).add_(mean)  # in place where it is no copy
            if least >= 0:
                stretched.abs_()
                if most <= 1:  # folded at 0 and at 1
                    stretched.remainder_(2).sub_(1).abs_().neg_().add_(1)
            elif most <= 0:  # logarithms of probabilities
                stretched.abs_().neg_()
            if stretched is not part:
                part.copy_(stretched)
    return fresh


Moments = tuple[float, complex, float, float]


@cache
def _known() -> MutableMapping[torch.Tensor, tuple[Any, Moments]]:
    """Tensor -> its state, and the moments that its values had in it; as long as somebody else has the tensor."""
    from torch.utils.weak import WeakTensorKeyDictionary

    made: MutableMapping[torch.Tensor, tuple[Any, Moments]] = WeakTensorKeyDictionary()
    return made


def _remembered(source: torch.Tensor, values: torch.Tensor) -> Moments:
    """The moments of a tensor's values. They are found once: on a card that waits four times, and sets are many."""
    if source.is_inference():
        return _moments(values)
    state = source._version, source.data_ptr(), source.shape, source.stride(), source.dtype, source.device
    known = _known()
    if source not in known or known[source][0] != state:
        known[source] = state, _moments(values)
    return known[source][1]


def _moments(values: torch.Tensor) -> Moments:
    """Standard deviation, mean, least and greatest value; minus and plus infinity for those of complex values."""
    count, total, least, most = values.numel(), 0.0, math.inf, -math.inf
    parts = [part.to(_wide(part)) for part in _parts(values)] if count <= PART else None
    for part in parts or (part.to(_wide(part)) for part in _parts(values)):
        total = total + part.sum().item()
        if values.is_complex():
            least, most = -math.inf, math.inf
        else:
            low, high = part.aminmax()
            least, most = min(least, float(low)), max(most, float(high))
    mean = total / count
    apart = sum(float((part.to(_wide(part)) - mean).abs().square().sum()) for part in parts or _parts(values))
    return (apart / (count - 1)) ** 0.5, mean, least, most


def _parts(values: torch.Tensor) -> Iterator[torch.Tensor]:
    """Views of parts along the first axis, so that copies of them in float64 stay small."""
    if values.numel() <= PART or values.dim() == 0:
        yield values
        return
    rows = max(1, PART * len(values) // values.numel())
    yield from values.split(rows)


def _wide(values: torch.Tensor) -> torch.dtype:
    import torch

    return torch.complex128 if values.is_complex() else torch.float64


def _arithmetic(values: torch.Tensor) -> torch.dtype:
    """The dtype in which values are drawn: their own, but float32 for those of fewer bits.

    A value drawn is rounded to its dtype in the end. In float64 that takes four times the traffic of memory.
    """
    import torch

    return torch.promote_types(values.dtype, torch.float32) if values.element_size() > 1 else torch.float32


def _drawn_again(values: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Whole numbers drawn from the given ones; these in random order if no two are equal, as in a permutation."""
    import torch

    count, device = values.numel(), generator.device
    if _counted(values).unique().numel() == count:
        order = torch.randperm(count, generator=generator, device=device)
    else:
        order = torch.randint(count, (count,), generator=generator, device=device)
    return values.flatten()[order].view(values.shape)


def _sorted(values: torch.Tensor) -> bool:
    """True if whole numbers rise along the last axis, as offsets do."""
    values = _counted(values)
    return bool((values[..., 1:] >= values[..., :-1]).all())


def _counted(values: torch.Tensor) -> torch.Tensor:
    """Unsigned numbers as int64, since hardly an operator takes them."""
    import torch

    return values.long() if values.dtype in (torch.uint16, torch.uint32, torch.uint64) else values
