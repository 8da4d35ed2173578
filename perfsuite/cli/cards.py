"""Cards for commands that measure on a GPU, and the locks that keep other runs off them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from perfsuite.device.cards import Device, usable_devices
from perfsuite.device.locks import hold
from perfsuite.outcome import UserError


def cards(*, at_least: int = 1) -> tuple[Device, ...]:
    """The cards that this process may use; UserError if they are fewer than `at_least`."""
    found = usable_devices(os.environ)
    if found.missing:
        raise UserError(f"a GPU is needed, and {found.missing}")
    if len(found.cards) < at_least:
        raise UserError(f"{at_least} GPUs are needed, and there is {len(found.cards)} ({found.cards[0].name})")
    return found.cards


@contextmanager
def held(devices: tuple[Device, ...]) -> Iterator[None]:
    """Keep other runs of the suite off these cards."""
    with hold((device.uuid for device in devices), "run", tell=tell):
        yield


def tell(words: str) -> None:
    """Report progress on stderr."""
    print(words, file=sys.stderr, flush=True)
