"""Compile device code without a GPU, and fail on spills, stack frames and C75xx advisories."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from perfsuite.analyze.ptxas import Advisory, Compilation, CompileError, KernelResources, compile_resources
from perfsuite.analyze.resource_record import Compiler, ResourceRecord
from perfsuite.cli.places import check_place
from perfsuite.cli.programs import find_nvcc
from perfsuite.cli.tables import print_columns
from perfsuite.outcome import UserError

HELP = "compile CUDA sources; registers, shared memory and spills a kernel; fails on a spill"
EXAMPLE = """example:
  perfsuite kernels src/*.cu -I include --arch 80 --arch 90a --allow allowed.toml

An allowed.toml lists what may spill, each with its reason:
  [[allowed]]
  kernel = "my_kernel<*>"      # glob over the demangled name, or a C75xx code
  arch = "sm_80"               # optional
  reason = "a teaching kernel; the array is the point"


exit codes: 0 no kernel fails, 1 one spills or does not compile, 2 bad input, 130 interrupted"""

Pair = tuple[Path, str]
"""A source and an architecture."""


@dataclass
class Allowance:
    """One entry of the list of kernels that may spill."""

    kernel: str
    reason: str
    arch: str = "*"
    used: bool = False

    def covers(self, name: str, arch: str) -> bool:
        """True if this entry covers that kernel (or advisory code) on that architecture."""
        hit = fnmatchcase(name, self.kernel) and fnmatchcase(arch, self.arch)
        self.used |= hit
        return hit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sources", nargs="+", type=Path, metavar="SOURCE", help="a .cu file, or a folder of them")
    archs = "80, 90a, ...; repeat for several (default: 80 90a)"
    parser.add_argument("--arch", action="append", metavar="NN", help=archs)
    only = "compile the sources that match GLOB for NN alone; repeat for several"
    parser.add_argument("--only", action="append", default=[], metavar="GLOB=NN", help=only)
    parser.add_argument("-I", dest="include", action="append", default=[], metavar="DIR", help="include folder")
    parser.add_argument("--allow", type=Path, metavar="FILE", help="TOML list of kernels that may spill")
    parser.add_argument("--nvcc", metavar="PATH", help="the compiler (default: nvcc on PATH, then CUDA_HOME)")
    record = "take from FILE what was compiled before, where no text, flag or compiler has changed since"
    parser.add_argument("--record", type=Path, metavar="FILE", help=record)
    recheck = "compile N of the unchanged sources too, chosen at random, and fail where FILE says something else"
    parser.add_argument("--recheck", type=int, default=0, metavar="N", help=recheck)
    parser.add_argument("--update", action="store_true", help="write what was compiled into the file of --record")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="compilations at once")
    parser.add_argument("--json", action="store_true", help="print JSON: every kernel's resources")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write that JSON to a file as well")


def read_allowed(path: Path | None) -> list[Allowance]:
    """The allowances of a TOML file; UserError names the fault in it."""
    if path is None:
        return []
    try:
        document = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"--allow {path}: {error}") from None
    allowed, entries = [], document.get("allowed", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise UserError(f"--allow {path}: list kernels that may spill in tables [[allowed]], in double brackets")
    for entry in entries:
        unknown = set(entry) - {"kernel", "arch", "reason"}
        if unknown or not entry.get("kernel") or not entry.get("reason"):
            raise UserError(f"--allow {path}: an entry needs kernel and reason and may have arch; it was {entry}")
        allowed.append(Allowance(entry["kernel"], entry["reason"], entry.get("arch", "*")))
    return allowed


def find_sources(paths: list[Path]) -> list[Path]:
    """The named files, and all .cu files below the named folders."""
    sources: list[Path] = []
    for path in paths:
        if not path.exists():
            raise UserError(f"{path}: no such file or folder")
        sources += sorted(path.rglob("*.cu")) if path.is_dir() else [path]
    if not sources:
        raise UserError(f"no .cu file under {', '.join(map(str, paths))}")
    return sources


def run(arguments: argparse.Namespace) -> int:
    """Compile and print the table; 1 if something spills or does not compile."""
    if arguments.jobs < 1:
        raise UserError(f"--jobs is {arguments.jobs}; at least 1 is needed")
    if arguments.recheck < 0:
        raise UserError(f"--recheck is {arguments.recheck}; it must be 0 or more")
    if arguments.update and arguments.record is None:
        raise UserError("--update needs --record FILE, the file to write")
    check_place("--output", arguments.output, replaced=False)
    nvcc = find_nvcc(arguments.nvcc)
    allowed = read_allowed(arguments.allow)
    sources = find_sources(arguments.sources)
    archs = [arch.removeprefix("sm_") for arch in arguments.arch or ["80", "90a"]]
    pairs = _selected(itertools.product(sources, archs), arguments.only)
    flags = ["-O3", "-std=c++17", "-DNDEBUG", *(f"-I{folder}" for folder in arguments.include)]
    compiler = Compiler(nvcc, flags, [Path(folder) for folder in arguments.include])
    known, rest, digests = _known(pairs, compiler, arguments.record)
    again = random.SystemRandom().sample(sorted(known), min(arguments.recheck, len(known)))
    record = ResourceRecord(arguments.record) if arguments.update else None

    def keep(pair: Pair, one: Compilation) -> None:
        if record is not None:  # at once, so that a run that is stopped is continued by the next one
            record.put(*pair, digests[pair], one)
            record.write(pairs)

    compiled, failures = _compile_all([*rest, *again], keep, nvcc=nvcc, flags=flags, jobs=arguments.jobs)
    failures += [
        f"{source} sm_{arch}: {arguments.record} holds other kernels than its compilation; add --update"
        for source, arch in again
        if (source, arch) in compiled and not _alike(compiled[source, arch], known[source, arch])
    ]
    if record is not None:
        record.write(pairs)
    results = [*{**known, **compiled}.values()]

    kernels = sorted((k for r in results for k in r.kernels), key=lambda k: (k.source, k.name, k.arch))
    advisories = sorted({a for r in results for a in r.advisories}, key=lambda a: (a.source, a.arch, a.code, a.text))
    text = json.dumps([asdict(kernel) for kernel in kernels], indent=1)
    if arguments.json:
        print(text)
    else:
        _print_table(kernels)
    if arguments.output is not None:
        arguments.output.write_text(f"{text}\n", encoding="utf-8")
    told = sys.stderr if arguments.json else sys.stdout
    failures += _judge(kernels, advisories, allowed)
    for failure in failures:
        print(f"FAILED {failure}", file=told)
    spilled, targets = sum(kernel.spills for kernel in kernels), ", ".join(f"sm_{arch}" for arch in archs)
    print(
        f"{len(kernels)} kernels from {len(sources)} sources for {targets}: {spilled} with spills or stack, "
        f"{len(advisories)} advisories, {len(failures)} failures",
        file=told,
    )
    if known:
        print(
            f"{len(known)} of {len(pairs)} compilations are those of {arguments.record}, {len(again)} checked again",
            file=told,
        )
    return 1 if failures else 0


def _known(
    pairs: list[Pair], compiler: Compiler, place: Path | None
) -> tuple[dict[Pair, Compilation], list[Pair], dict[Pair, str]]:
    """The compilations that the record has, the pairs that it has not, and the digest of each pair."""
    if place is None:
        return {}, pairs, {}
    record, version = ResourceRecord(place), compiler.version()
    digests = {pair: compiler.digest(*pair, version) for pair in pairs}
    found = {pair: record.get(*pair, digests[pair]) for pair in pairs}
    known = {pair: one for pair, one in found.items() if one is not None}
    return known, [pair for pair in pairs if pair not in known], digests


def _alike(one: Compilation, other: Compilation) -> bool:
    return set(one.kernels) == set(other.kernels) and set(one.advisories) == set(other.advisories)


def _selected(pairs: Iterable[Pair], only: list[str]) -> list[Pair]:
    """The pairs of source and architecture without those that an --only excludes."""
    found = list(pairs)
    for entry in only:
        pattern, _, arch = entry.rpartition("=")
        arch = arch.removeprefix("sm_")
        matching = [pair for pair in found if pattern and fnmatchcase(str(pair[0]), pattern)]
        if not any(pair[1] == arch for pair in matching):
            raise UserError(f"--only is {entry!r}, which leaves nothing to compile; give GLOB=NN, as in '*/sm90/*=90a'")
        found = [pair for pair in found if pair not in matching or pair[1] == arch]
    return found


def _compile_all(
    pairs: list[Pair], keep: Callable[[Pair, Compilation], None], *, nvcc: str, flags: list[str], jobs: int
) -> tuple[dict[Pair, Compilation], list[str]]:
    results: dict[Pair, Compilation] = {}
    failures, futures = [], {}
    with tempfile.TemporaryDirectory(prefix="perfsuite-kernels-") as folder, ThreadPoolExecutor(jobs) as pool:
        for number, (source, arch) in enumerate(pairs):
            cubin = Path(folder) / f"{number}.cubin"
            future = pool.submit(compile_resources, source, arch, nvcc=nvcc, flags=flags, cubin=cubin)
            futures[future] = source, arch
        for done, future in enumerate(as_completed(futures), start=1):
            source, arch = futures[future]
            try:
                results[source, arch] = future.result()
                keep((source, arch), results[source, arch])
                outcome = f"{results[source, arch].seconds:.0f} s"
            except CompileError as error:
                failures.append(str(error))
                outcome = "does not compile"
            print(f"[{done}/{len(futures)}] {source} sm_{arch} {outcome}", file=sys.stderr)
    return results, failures


def _judge(kernels: list[KernelResources], advisories: list[Advisory], allowed: list[Allowance]) -> list[str]:
    def may_spill(name: str, arch: str) -> bool:
        return any(each.covers(name, arch) for each in allowed)

    failures = [
        f"{kernel.name} ({kernel.arch}, {kernel.source}): {kernel.stack} bytes of stack, "
        f"{kernel.spill_stores} bytes spilled, {kernel.spill_loads} bytes reloaded a thread"
        for kernel in kernels
        if kernel.spills and not may_spill(kernel.name, kernel.arch)
    ]
    failures += [
        f"{one.source} ({one.arch}): {one.code} {one.text}" for one in advisories if not may_spill(one.code, one.arch)
    ]
    compiled = {kernel.arch for kernel in kernels}
    unused = [each for each in allowed if not each.used and any(fnmatchcase(arch, each.arch) for arch in compiled)]
    return failures + [f"--allow lists {a.kernel} ({a.arch}), which no longer spills: remove it" for a in unused]


def _print_table(kernels: list[KernelResources]) -> None:
    rows: list[tuple[str, ...]] = [("kernel", "arch", "regs", "smem", "stack", "spill")]
    for one in kernels:
        numbers = one.registers, one.static_shared, one.stack, one.spill_stores + one.spill_loads
        rows.append((one.name if len(one.name) <= 78 else f"{one.name[:75]}...", one.arch, *map(str, numbers)))
    print_columns(rows)
