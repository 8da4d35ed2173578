"""Compares what both sides share before and after calls, puts it back, and tells who changed what.

A slow candidate can make the rival slower: one thread, no cuDNN, a mode that stays on. This module sees the plain ways
of doing so. It runs in the same process, so a determined attacker can undo it; `--perf-isolate` is the answer to that.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from perfsuite.guards.process import settings_of_process
from perfsuite.guards.settings import Setting, settings_of_torch


@dataclass(frozen=True)
class Change:
    """A setting that has another value than before."""

    setting: Setting
    old: Any
    new: Any

    @property
    def matters(self) -> bool:
        """True if it can slow the rival or widen a limit."""
        return self.setting.matters(self.old, self.new)

    def __str__(self) -> str:
        return self.setting.told(self.old, self.new)

    def undo(self) -> bool:
        """Put the old value back; False if nothing can."""
        if self.setting.write is None:
            return False
        with suppress(Exception):  # a value that another setting replaced, a call that this version refuses
            self.setting.write(self.old)
        return bool(self.setting.read() == self.old)


@dataclass(frozen=True)
class Surroundings:
    """The values of all settings at one moment."""

    values: list[Any]

    @staticmethod
    def now() -> Surroundings:
        """The present values."""
        return Surroundings([read() for read in _readers()])

    def changes(self) -> list[Change]:
        """The settings that have another value now."""
        now = [read() for read in _readers()]
        if now == self.values:
            return []
        trios = zip(_settings(), self.values, now, strict=True)
        return [Change(setting, old, new) for setting, old, new in trios if not (new is old or new == old)]

    def adopt(self, change: Change) -> None:
        """Take the new value for the right one."""
        self.values[_settings().index(change.setting)] = change.new

    def restore(self) -> None:
        """Put back the settings that have another value now."""
        for change in self.changes():
            change.undo()


def handicaps() -> list[str]:
    """A sentence for each setting that is not that of a fresh process: it slows a rival or makes it less exact."""
    found = []
    for setting in _settings():
        if setting.default is not None and (value := setting.read()) != setting.default:
            found.append(f"{setting.name} is {_shown(value)}, not {_shown(setting.default)}")
    return found


@lru_cache(maxsize=1)
def _settings() -> tuple[Setting, ...]:
    return (*settings_of_torch(), *settings_of_process())


@lru_cache(maxsize=1)
def _readers() -> tuple[Callable[[], Any], ...]:
    return tuple(setting.read for setting in _settings())


def _shown(value: Any) -> Any:
    return value[0] if isinstance(value, tuple) and value else value
