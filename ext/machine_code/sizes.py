"""`python -m machine_code.sizes` measures a build of the extension: its bytes, and the time that its sources took.

It reads what a build leaves behind: the module, the objects, and ninja's log. A family is a folder below csrc/cuda;
everything else is `host`. The whole took from the first compilation's begin to the last one's end, so the build must
have compiled everything: remove ext/build before it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from machine_code.errors import UsageError

EXTENSION = Path(__file__).resolve().parents[1]
RECORD = EXTENSION.parent / "records/build.json"
MOST_BYTES = 220_000_000
"""Of the module."""
MOST_SECONDS = 90.0
"""Of a whole build on CORES cores."""
CORES = 32
FACTS = "generated/build_facts.h"
"""The header in which a build says what it is, from the folder of objects."""


@dataclass(frozen=True)
class Compiled:
    """One source: its family, the bytes of its object, and the seconds that it took."""

    family: str
    bytes: int
    begin: float
    end: float


def family_of(object_: Path) -> str:
    """The family of an object, from its path below the folder of objects."""
    parts = object_.parts
    return parts[2] if parts[:2] == ("csrc", "cuda") and len(parts) > 3 else "host"


def compiled(objects: Path) -> list[Compiled]:
    """Every source of a build.

    Raises:
        UsageError: the folder has no log, no object, or an object that the log does not name.
    """
    log = objects / ".ninja_log"
    try:
        lines = [line.split("\t") for line in log.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    except OSError as error:
        raise UsageError(f"{log} cannot be read: {error.strerror}; build the extension first") from None
    # Later lines of a path are of later runs.
    by_path = {(objects / line[3]).resolve(): line for line in lines if len(line) == 5}
    found = []
    for path in sorted(objects.rglob("*.o")):
        line = by_path.get(path.resolve())
        if line is None:
            raise UsageError(f"{log} does not name {path.relative_to(objects)}; remove {objects} and build again")
        begin, end = int(line[0]) / 1e3, int(line[1]) / 1e3
        found.append(Compiled(family_of(path.relative_to(objects)), path.stat().st_size, begin, end))
    if not found:
        raise UsageError(f"{objects} has no objects; build the extension first")
    return found


def architectures(objects: Path) -> str:
    """What the build's device code is for, such as "sm_80 compute_80 sm_90a". UsageError if its facts are missing."""
    facts = objects / FACTS
    try:
        found = re.search(r'^#define BUILD_ARCHITECTURES "(.*)"$', facts.read_text(encoding="utf-8"), re.MULTILINE)
    except OSError as error:
        raise UsageError(f"{facts} cannot be read: {error.strerror}; build the extension first") from None
    if found is None:
        raise UsageError(f"{facts} does not name the build's architectures")
    return found[1]


def measured(module: Path, objects: Path, cores: int) -> dict[str, Any]:
    """The record of a build. UsageError if it is not whole."""
    sources = compiled(objects)
    families: dict[str, list[Compiled]] = {}
    for one in sources:
        families.setdefault(one.family, []).append(one)
    try:
        size = module.stat().st_size
    except OSError as error:
        raise UsageError(f"{module} cannot be read: {error.strerror}; build the extension first") from None
    return {
        "architectures": architectures(objects),
        "module_bytes": size,
        "seconds": round(max(one.end for one in sources) - min(one.begin for one in sources), 1),
        "longest_seconds": round(max(one.end - one.begin for one in sources), 1),
        "cores": cores,
        "families": {
            name: {
                "sources": len(of),
                "object_bytes": sum(one.bytes for one in of),
                "seconds": round(sum(one.end - one.begin for one in of), 1),
            }
            for name, of in sorted(families.items())
        },
    }


def seconds_on(record: dict[str, Any], cores: int) -> float:
    """The seconds of the build: as measured on so many cores or fewer, else no less than this on `cores` of them.

    With more cores than the build had, no source is faster, and all of them together take a share of the work.
    """
    if record["cores"] >= cores:
        return float(record["seconds"])
    work = sum(of["seconds"] for of in record["families"].values())
    return float(max(record["longest_seconds"], work / cores))


def misses(record: dict[str, Any]) -> list[str]:
    """A sentence for each limit that the build passes."""
    found = []
    if record["module_bytes"] > MOST_BYTES:
        found.append(f"the module has {record['module_bytes'] / 1e6:.0f} MB; {MOST_BYTES / 1e6:.0f} are allowed")
    if (seconds := seconds_on(record, CORES)) > MOST_SECONDS:
        found.append(f"the build takes {seconds:.0f} s on {CORES} cores; {MOST_SECONDS:.0f} are allowed")
    return found


def table(record: dict[str, Any]) -> str:
    """The families as a markdown table, the largest first, and a sentence on the whole."""
    lines = ["| family | sources | MB of objects | seconds of compilation |", "|---|---|---|---|"]
    for name, of in sorted(record["families"].items(), key=lambda item: -item[1]["object_bytes"]):
        lines.append(f"| {name} | {of['sources']} | {of['object_bytes'] / 1e6:.1f} | {of['seconds']:.0f} |")
    whole = f"The module has {record['module_bytes'] / 1e6:.0f} MB, with code for {record['architectures']}."
    took = f"The build took {record['seconds']:.0f} s on {record['cores']} cores, its longest source"
    return "\n".join([*lines, "", f"{whole} {took} {record['longest_seconds']} s."])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the build: 0 it is within the limits, 1 not, 2 there is none."""
    parser = argparse.ArgumentParser(
        prog="machine_code.sizes", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--objects", type=Path, metavar="DIR", help="default: the one in ext/build")
    parser.add_argument("--module", type=Path, metavar="FILE", help="default: the one in ext/cuda_llm_ops")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1, metavar="N", help="of the build's machine")
    parser.add_argument(
        "--record", type=Path, nargs="?", const=RECORD, metavar="FILE", help="write it; default: records/build.json"
    )
    given = parser.parse_args(arguments)
    try:
        objects = given.objects or _only(EXTENSION / "build", "cuda-*")
        record = measured(given.module or _only(EXTENSION / "cuda_llm_ops", "_C*.so"), objects, given.cores)
    except UsageError as error:
        print(f"machine_code.sizes: {error}", file=sys.stderr)
        return 2
    print(table(record))
    if given.record is not None:
        given.record.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    for miss in (found := misses(record)):
        print(f"MISSED {miss}")
    return 1 if found else 0


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise UsageError(f"{folder} has {len(found)} of {pattern}; name the one that is meant")
    return found[0]


if __name__ == "__main__":
    sys.exit(main())
