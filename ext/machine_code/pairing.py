"""Finds for each old kernel the new one, though folders, namespaces, functions and templates may have other names."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from machine_code.cubin import Kernel
from machine_code.errors import UsageError

_CAST = re.compile(r"\((?:unsigned |signed )?(?:int|long|bool|char|short|[\w:]+)\)(?=-?\d)")


@dataclass
class Pairs:
    """Kernels of both sides, and those that only one side has."""

    both: list[tuple[Kernel, Kernel]] = field(default_factory=list)
    only_old: list[Kernel] = field(default_factory=list)
    only_new: list[Kernel] = field(default_factory=list)


def read_rename(text: str) -> tuple[re.Pattern[str], str]:
    """OLD=NEW: a regular expression for parts of old demangled names, and what stands there now."""
    old, equals, new = text.partition("=")
    if not equals or not old:
        raise UsageError(f"--rename {text!r} must be OLD=NEW, as '--rename split_gemm=split_k_gemm'")
    try:
        return re.compile(old), new
    except re.error as error:
        raise UsageError(f"--rename {text!r}: {old!r} is no regular expression: {error}") from None


def demangle(symbols: list[str]) -> dict[str, str]:
    """Readable names by symbol. Without c++filt (binutils) the symbols stay as they are."""
    tool = shutil.which("c++filt")
    if tool is None or not symbols:
        return {symbol: symbol for symbol in symbols}
    done = subprocess.run([tool], input="\n".join(symbols), capture_output=True, text=True, check=True)
    return {symbol: shorten(line) for symbol, line in zip(symbols, done.stdout.splitlines(), strict=True)}


def shorten(demangled: str) -> str:
    """Without return type, parameters, unnamed namespaces and casts of template arguments."""
    name = _CAST.sub("", demangled.replace("(anonymous namespace)::", "").removeprefix("void "))
    depth = 0
    for index, character in enumerate(name):
        depth += {"<": 1, ">": -1}.get(character, 0)
        if character == "(" and depth == 0:
            return name[:index]
    return name


def function_of(name: str) -> str:
    """The function's own name: without namespaces and template arguments."""
    return name.partition("<")[0].rpartition("::")[2]


def pair(
    old: list[Kernel], new: list[Kernel], names: dict[str, str], renames: list[tuple[re.Pattern[str], str]]
) -> Pairs:
    """Pair kernels of one architecture: by name, then by equal code, then by function and order."""

    def renamed(kernel: Kernel) -> str:
        name = names[kernel.symbol]
        for pattern, replacement in renames:
            name = pattern.sub(replacement, name)
        return name

    was = {id(kernel): renamed(kernel) for kernel in old} | {id(kernel): names[kernel.symbol] for kernel in new}
    pairs = Pairs(only_old=list(old), only_new=list(new))
    keys: list[Callable[[Kernel], Hashable]] = [
        lambda kernel: (kernel.arch, was[id(kernel)], kernel.source),
        lambda kernel: (kernel.arch, was[id(kernel)]),
        lambda kernel: (kernel.digest, function_of(was[id(kernel)])),
        lambda kernel: kernel.digest,
        # What is left has another name and other code: the third of a function's kernels is taken for the third.
        lambda kernel: (kernel.arch, function_of(was[id(kernel)])),
    ]
    for key in keys:
        _take(pairs, key)
    return pairs


def _take(pairs: Pairs, key: Callable[[Kernel], Hashable]) -> None:
    """Move kernels with equal keys to `both`, the first with the first."""
    waiting: dict[Hashable, list[Kernel]] = defaultdict(list)
    for kernel in pairs.only_new:
        waiting[key(kernel)].append(kernel)
    left = []
    for kernel in pairs.only_old:
        if candidates := waiting.get(key(kernel)):
            pairs.both.append((kernel, candidates.pop(0)))
        else:
            left.append(kernel)
    taken = {id(new) for _, new in pairs.both}
    pairs.only_old = left
    pairs.only_new = [kernel for kernel in pairs.only_new if id(kernel) not in taken]
