"""Kernels that Python registers for torch's own operators: they run in the place of torch's, for both sides."""

from __future__ import annotations

import sys
from functools import lru_cache

from perfsuite.guards.stack import EMPTY, Stack, stack_of


def overridden() -> Stack:
    """Kernels that Python registered for torch's own operators since the first look, as "aten/mm/CPU"."""
    import torch

    known = _registered()
    if len(torch.library._impls) != len(known):
        # torch registers more when it loads its compiler, but none that runs on tensors with values.
        new = [name for name in torch.library._impls - known if name.startswith("aten/")]
        return stack_of(sorted(sys.intern(name) for name in new if not name.endswith(_WITHOUT_VALUES)))
    return EMPTY


_WITHOUT_VALUES = ("/Meta", "/CompositeImplicitAutograd", "/CompositeExplicitAutograd")


@lru_cache(maxsize=1)
def _registered() -> frozenset[str]:
    import torch

    return frozenset(torch.library._impls)


def write_overridden(old: Stack) -> None:
    """Take back the registrations that came since."""
    import gc

    import torch

    new = {item for item in overridden().items if item not in old.items}
    for one in [one for one in gc.get_objects() if type(one) is torch.library.Library]:
        if set(getattr(one, "_op_impls", ())) & new:
            one._destroy()
