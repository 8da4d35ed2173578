"""Runs the small calls of `sanitized` under every tool of compute-sanitizer, and writes what the tools found.

    python -m tests.ops.sanitizer_record --output records/h200/sanitizers.json
    python -m tests.ops.sanitizer_record --family backward --output backward.json    # these calls alone

Each tool watches the calls in several processes at once, and one more process counts the instances that the calls
launch, against those of the build that the device can choose. The record has every place that a tool found, with all
accesses that it names and the calls during which it was found: an inlined function alone does not tell the kernel. It
also names the version of the sanitizer, which need not be the one on PATH. The exit code is 1 if a tool found anything,
a call was wrong, the time was too short, or an instance was not launched.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cuda_llm_ops.levers import origin, whole

from perfsuite.history import children
from records.make.needs import find_sanitizer
from tests.ops.sanitized import CALL, FAMILIES

ROOT = Path(__file__).resolve().parents[2]
TOOLS = {"memcheck": 2, "racecheck": 5, "synccheck": 2}
"""Processes that share the calls of each tool. racecheck is the slowest. Calls come in groups of 2, 3 and 4, and each
process takes every Nth: with 5, no process gets all the slow ones of the groups."""
OPTIONS = {"memcheck": ("--report-api-errors", "explicit")}
"""Beside those of every tool. Newer versions of memcheck also report what the driver logs of torch's own calls."""
PORTS = 49152, 32
"""The first port of the first process, and how far apart others' are: a sanitizer tries ten, and all run at once."""
FOUND = 9
"""The exit code of compute-sanitizer if a tool found anything."""
ENDED = 124
"""What counts as the exit code of a process that was ended."""
GRACE = 60.0
"""Seconds beyond those of the calls after which a process is ended."""
CALLS = re.compile(r"(\d+)(?: of \d+)? calls in \d+ s, (\d+) failed(: out of time)?")
FINDING = re.compile(r"=+ ((?:Error|Warning|Invalid|Uninitialized|Barrier|Program hit|Race|Potential)\b.*)")
ACCESS = re.compile(r"=+ {4,}((?:and (?:Read|Write) access )?at .*)")
"""A further line of a finding: the other side of a race, or where anything else was found."""
LESS = re.compile(r" \[\d+ hazards?\]|\((?:int|bool|unsigned int)\)(?=\d)|\bcuda_llm_ops::(?:cuda::)?")
"""What is left out of a place: how often it was hit, types of template arguments, namespaces."""
PRINTED = 10_000
"""Findings that a process may print; a tool stops at 100 by itself."""
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)")
INSTANCES = {
    "weight_only_gemm": ("weight_only", ("weight_only_",)),
    "flash_decode, 8-bit caches": ("flash_decode 8-bit", ("quantised_",)),
    "flash_decode, 16-bit caches": (
        "flash_decode:",
        ("cluster_decode", "tma_decode", "cp_async_decode", "simt_decode"),
    ),
    "fp8_gemm": ("fp8_gemm", ("fp8_few_rows", "fp8_persistent", "simt_fp8")),
    "FP8 quantisers": (("quantize_fp8", "rms_norm_fp8", "swiglu_fp8"), ("fp8_rows", "fp8_squares")),
    "attention's backward": (
        "flash_attention_backward",
        ("sums_kernel", "keys_kernel", "queries_kernel", "backward::kernel"),
    ),
}
"""What the table calls kernels: how their family begins in kernel_attributes(), or all of it and a colon, and their
names in `sanitized`. In the order of FAMILIES."""


@dataclass(frozen=True)
class Watched:
    """What one process under a tool told."""

    calls: int
    wrong: int
    findings: int
    complete: bool
    places: dict[str, list[str]] = field(default_factory=dict)
    """Each place that was found, and the calls during which it was, once for each time."""


def read(code: int, told: str) -> Watched:
    """From the exit code and the output of a process. ValueError if it tells of no calls."""
    calls = CALLS.search(told)
    if calls is None and code == ENDED:
        return interrupted(told)
    if calls is None:
        raise ValueError(f"exit code {code}, and no line says how many calls were made: {told[-400:]!r}")
    findings = sum(int(number) for number in SUMMARY.findall(told))
    return Watched(int(calls[1]), int(calls[2]), max(findings, int(code == FOUND)), calls[3] is None, places(told))


def interrupted(told: str) -> Watched:
    """Of a process that was ended: its last call counts as not made, and what it found until then is kept."""
    begun = [line.removeprefix(CALL) for line in told.splitlines() if line.startswith(CALL)]
    wrong = sum(f"\n{name}: " in told for name in begun)
    found = places(told)
    return Watched(max(0, len(begun) - 1), wrong, sum(len(during) for during in found.values()), False, found)


def places(told: str) -> dict[str, list[str]]:
    """Each finding with all its accesses, and the calls that ran when it was printed."""
    found: list[tuple[str, list[str]]] = []
    call, last = "", None
    for line in told.splitlines():
        if line.startswith(CALL):
            call, last = line.removeprefix(CALL), None
        elif begin := FINDING.match(line):
            last = [begin[1].strip()]
            found.append((call, last))
        elif last is not None and (more := ACCESS.match(line)):
            last.append(more[1].strip())
        elif not line.startswith("="):
            last = None
    where: dict[str, list[str]] = {}
    for during, lines in found:
        where.setdefault(LESS.sub("", "; ".join(lines)), []).append(during)
    return where


def instances(told: str, families: Sequence[str] = tuple(FAMILIES)) -> list[dict[str, Any]]:
    """A row for each kind of kernel: instances of the build that the device can choose, and that were launched."""
    built = [(name, int(number)) for name, number in re.findall(r"^built: (.+): (\d+)$", told, re.MULTILINE)]
    launched = re.findall(r"^(\S+): (\d+) instances, (\d+) launches$", told, re.MULTILINE)
    rows = []
    for calls, (kind, (family, names)) in zip(FAMILIES, INSTANCES.items(), strict=True):
        if calls not in families:
            continue
        own = [(int(number), int(times)) for name, number, times in launched if name.startswith(names)]
        rows.append(
            {
                "kernels": kind,
                "built": sum(number for name, number in built if f"{name}:".startswith(family)),
                "launched": sum(number for number, _ in own),
                "launches": sum(times for _, times in own),
            }
        )
    return rows


def _run(command: Sequence[str], seconds: float) -> tuple[int, str]:
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with children.started(command, cwd=ROOT, environment=environment, **pipes) as process:
        try:
            told = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # the sanitizer and the process that it watches
            return ENDED, "".join(process.communicate())
    return process.returncode, "".join(told)


def watched(
    sanitizer: str, families: Sequence[str], parts: dict[str, int], seconds: float, keep: Path | None = None
) -> dict[str, Any]:
    """The record: all tools and the count of instances, at once. `keep`: a folder for what each process printed."""
    calls = [sys.executable, "-m", "tests.ops.sanitized", "--family", *families, "--seconds", f"{seconds:g}"]
    jobs = {("coverage", 0): [*calls, "--coverage"]}
    first, apart = PORTS
    for tool in TOOLS:
        for part in range(parts[tool]):
            options = ["--error-exitcode", str(FOUND), "--print-limit", str(PRINTED), *OPTIONS.get(tool, ())]
            options += ["--port", str(first + apart * len(jobs))]
            command = [sanitizer, "--tool", tool, *options, *calls, "--named"]
            jobs[tool, part] = [*command, "--part", str(part), str(parts[tool])]
    with ThreadPoolExecutor(len(jobs)) as pool:
        told = dict(zip(jobs, pool.map(lambda job: _run(job, seconds + GRACE), jobs.values()), strict=True))
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        for (tool, part), (code, printed) in told.items():
            (keep / f"{tool}-{part}.log").write_text(f"{printed}\nexit code {code}\n")
    tools = {}
    for tool in TOOLS:
        found = [read(*told[tool, part]) for part in range(parts[tool])]
        numbers = {name: sum(getattr(one, name) for one in found) for name in ("calls", "wrong", "findings")}
        tools[tool] = numbers | {"complete": all(one.complete for one in found)} | joined([one.places for one in found])
    about = {"sanitizer": version(sanitizer)} | {tool: sentence(found) for tool, found in tools.items()}
    return {
        "environment": origin("cuda") | about,
        "tools": tools,
        "rows": instances(told["coverage", 0][1], families),
    }


def joined(parts: Sequence[dict[str, list[str]]]) -> dict[str, Any]:
    """The places of all processes, for the record; nothing where there are none."""
    every: dict[str, list[str]] = {}
    for part in parts:
        for place, during in part.items():
            every.setdefault(place, []).extend(during)
    made = [
        {"found": place, "times": len(during), "calls": sorted(set(during))} for place, during in sorted(every.items())
    ]
    return {"places": made} if made else {}


def version(sanitizer: str) -> str:
    """Of the program, as it tells: what a tool follows depends on it."""
    told = subprocess.run([sanitizer, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"^Version (\S+)", told, re.MULTILINE)
    return found[1] if found else "unknown"


def sentence(found: dict[str, int]) -> str:
    """What a tool found, for a table."""
    end = "" if found["complete"] else ", out of time"
    return f"{found['findings']} findings in {found['calls']} calls ({found['wrong']} wrong{end})"


def good(found: dict[str, Any]) -> bool:
    """Whether nothing was found, and nothing left out."""
    clean = all(one["wrong"] == one["findings"] == 0 and one["complete"] for one in found["tools"].values())
    return clean and all(row["built"] == row["launched"] > 0 for row in found["rows"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", nargs="+", choices=tuple(FAMILIES), default=tuple(FAMILIES), help="of calls")
    usual = ", ".join(f"{number} of {tool}" for tool, number in TOOLS.items())
    parser.add_argument("--parts", type=whole(1), help=f"processes of each tool (default: {usual})")
    parser.add_argument("--seconds", type=float, default=300.0, help="begin no further call after these (default: 300)")
    parser.add_argument(
        "--sanitizer", default="compute-sanitizer", metavar="FILE", help="the program (default: %(default)s)"
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="write what each process printed here")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="write the record, as JSON")
    given = parser.parse_args(arguments)
    sanitizer = find_sanitizer(given.sanitizer)
    if sanitizer is None:
        parser.error(f"--sanitizer is {given.sanitizer}, which is no program on PATH or in /usr/local/cuda/bin")
    parts = dict.fromkeys(TOOLS, given.parts) if given.parts else TOOLS
    try:
        found = watched(sanitizer, given.family, parts, given.seconds, given.keep)
    except ValueError as error:
        print(f"sanitizer_record: {error}", file=sys.stderr)
        return 1
    for tool, told in found["tools"].items():
        print(f"{tool}: {found['environment'][tool]}")
        for place in told.get("places", ()):
            print(f"  {place['times']} times during {', '.join(place['calls'])}: {place['found']}")
    for row in found["rows"]:
        print("  ".join(f"{name} {value}" for name, value in row.items()))
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if good(found) else 1


if __name__ == "__main__":
    sys.exit(main())
