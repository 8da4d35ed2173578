"""The command `python -m machine_code OLD NEW`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from machine_code.comparison import compare, find_nvdisasm, instruction
from machine_code.cubin import Kernel, read_kernels
from machine_code.errors import UsageError
from machine_code.objects import Compiler, compile_all, find_nvcc
from machine_code.pairing import Pairs, demangle, pair, read_rename
from machine_code.report import Row, print_report
from machine_code.revisions import open_revision

FLAGS = ("-O3", "-std=c++17", "-DNDEBUG")
EXAMPLE = """examples:
  python -m machine_code HEAD .                       the working tree against its last commit
  python -m machine_code v1 v2 --only gemm/ --jobs 4  GEMM alone, four compilations at a time

Exit code: 0 if every kernel is the same, 1 if one differs or has no partner, 2 for bad input or a missing tool.
"""


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    made = argparse.ArgumentParser(
        prog="machine_code",
        description="Compare the machine code of every kernel between two commits, ignoring names and addresses.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("old", metavar="OLD", help="a commit, or . for the working tree")
    made.add_argument("new", metavar="NEW", help="a commit, or . for the working tree")
    made.add_argument("--repository", type=Path, default=Path(), metavar="DIR", help="default: the current folder")
    made.add_argument("--folder", default="ext/csrc/cuda", metavar="DIR", help="where the .cu files are (%(default)s)")
    made.add_argument("--only", action="append", default=[], metavar="PATTERN", help="a glob or a part of .cu paths")
    made.add_argument("--arch", action="append", metavar="NN", help="80, 90a, ...; default: 80 and 90a")
    made.add_argument("-I", dest="include", action="append", metavar="DIR", help="include folder; default: ext/csrc")
    made.add_argument(
        "--rename", action="append", default=[], metavar="OLD=NEW", help="a regular expression for old kernel names"
    )
    made.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="compilations at a time")
    made.add_argument("--cache", type=Path, metavar="DIR", help="default: .perfsuite/machine_code of the repository")
    made.add_argument("--nvcc", metavar="PATH", help="the compiler; default: on PATH, then below CUDA_HOME")
    made.add_argument("--nvdisasm", metavar="PATH", help="prints differing instructions; default: on PATH")
    made.add_argument("--all", action="store_true", help="list kernels that are the same, too")
    made.add_argument("--quiet", action="store_true", help="print no progress")
    return made


def main(arguments: list[str] | None = None) -> int:
    """Compile both sides, pair their kernels, print the table."""
    given = parser().parse_args(arguments)
    try:
        return run(given)
    except UsageError as error:
        print(f"machine_code: {error}", file=sys.stderr)
        return 2


def run(given: argparse.Namespace) -> int:
    """The exit code of a comparison."""
    if given.jobs < 1:
        raise UsageError(f"--jobs is {given.jobs}; it must be 1 or more")
    repository = given.repository.resolve()
    cache = (given.cache or repository / ".perfsuite" / "machine_code").resolve()
    nvdisasm = find_nvdisasm(given.nvdisasm)
    renames = [read_rename(text) for text in given.rename]
    archs = [arch.removeprefix("sm_") for arch in given.arch or ["80", "90a"]]
    compiler = Compiler(find_nvcc(given.nvcc), FLAGS, tuple(given.include or ["ext/csrc"]), cache)

    tasks, counts = [], []
    for name in (given.old, given.new):
        revision = open_revision(name, repository, cache)
        sources = revision.sources(given.folder, given.only)
        if not sources:
            of = f" that matches {' or '.join(given.only)}" if given.only else ""
            raise UsageError(f"{revision.name} has no .cu file under {given.folder}{of}")
        found = [(revision, source, arch) for source in sources for arch in archs]
        tasks += found
        counts.append(len(found))

    def progress(number: int, name: str) -> None:
        if not given.quiet:
            print(f"[{number}/{len(tasks)}] {name}", file=sys.stderr, flush=True)

    objects = compile_all(compiler, tasks, given.jobs, progress)
    old = [kernel for made in objects[: counts[0]] for kernel in read_kernels(made)]
    new = [kernel for made in objects[counts[0] :] for kernel in read_kernels(made)]
    names = demangle(sorted({kernel.symbol for kernel in old + new}))
    pairs = pair(old, new, names, renames)
    rows = [Row(before, after, compare(before, after)) for before, after in _in_order(pairs, names)]

    equal = print_report(rows, pairs, names, given.all, lambda kernel, index: instruction(nvdisasm, kernel, index))
    return 0 if equal else 1


def _in_order(pairs: Pairs, names: dict[str, str]) -> list[tuple[Kernel, Kernel]]:
    return sorted(pairs.both, key=lambda both: (both[1].source, names[both[1].symbol], both[1].arch))


if __name__ == "__main__":
    sys.exit(main())
