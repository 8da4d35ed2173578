"""Check whether this machine is fit for gates on a GPU: card, driver, CUDA, torch, build, tools.

exit codes: 0 fit; 1 below the minimum; 21 there is no GPU (the output lists what runs without)
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from perfsuite.cli.plugin_known import install_words, known
from perfsuite.cli.programs import find_ncu, find_nvcc
from perfsuite.device.cards import Devices, find_devices, usable_devices
from perfsuite.device.data_sheets import ARCHITECTURES
from perfsuite.device.telemetry import Watch
from perfsuite.machine.doctor import Card, Check, Machine, examine
from perfsuite.outcome import EXIT_NOTHING_MEASURED, UserError

HELP = "is this machine fit for gates on a GPU: card, driver, torch, build, tools, rights"
EXAMPLE = """example:
  perfsuite doctor
  perfsuite doctor --extension my_kernels  # `python -m my_kernels` prints "name value" lines
  perfsuite doctor --architectures         # features of NVIDIA's architectures, from Volta on"""
TOOL_SECONDS = 60.0
PARAMETERS = Path("/proc/driver/nvidia/params")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--extension", default="cuda_llm_ops", metavar="MODULE", help="the extension to ask")
    parser.add_argument("--architectures", action="store_true", help="print the table of architectures instead")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Examine the machine and print the facts."""
    if arguments.architectures:
        _architectures(arguments.json)
        return 0
    if not re.fullmatch(r"[A-Za-z_][\w.]*", arguments.extension):
        raise UserError(f"--extension is {arguments.extension!r}; it must be the name of a module")
    machine = gather(arguments.extension)
    checks = examine(machine)
    if arguments.json:
        print(json.dumps({"machine": asdict(machine), "checks": [asdict(check) for check in checks]}, indent=1))
    else:
        _table(checks)
    if not machine.cards:
        return EXIT_NOTHING_MEASURED
    return 1 if any(check.fails for check in checks) else 0


def gather(extension: str) -> Machine:
    """The facts of this machine; a part that cannot be found is left out, with its reason if one is known."""
    seen = find_devices(os.environ)
    usable = usable_devices(os.environ) if seen.cards else seen
    torch, torch_cuda = _torch()
    build, no_build = _build(extension)
    return Machine(
        cards=_cards(seen),
        no_card=usable.missing,
        driver=seen.driver,
        driver_cuda=_driver_cuda() if seen.cards else None,
        plugin_install=None if known() else install_words(),
        torch=torch,
        torch_cuda=torch_cuda,
        nvcc=_tool_version(find_nvcc, r"release ([\d.]+)"),
        ncu=_tool_version(find_ncu, r"Version ([\d.]+)"),
        counters_for_root_only=_restricted(),
        root=os.geteuid() == 0,
        build=build,
        no_build=no_build,
    )


def _torch() -> tuple[str | None, str | None]:
    try:
        import torch
    except ImportError:
        return None, None
    return str(torch.__version__), torch.version.cuda


def _cards(devices: Devices) -> tuple[Card, ...]:
    cards = []
    for device in devices.cards:
        watch = Watch(device.uuid)
        watch.sample()
        watch.sample_slow()
        unreadable = watch.telemetry(l2_persistence_reset=None, clock_settled=None).unknown
        facts = device.index, device.name, device.capability, device.memory_bytes
        cards.append(Card(*facts, _processes(device.uuid), unreadable))
    return tuple(cards)


def _processes(uuid: str) -> int | None:
    """Processes with a compute context on the card; perfsuite itself has none here."""
    return _nvml(lambda nvml: len(nvml.nvmlDeviceGetComputeRunningProcesses(nvml.nvmlDeviceGetHandleByUUID(uuid))))


def _nvml(read: Callable[[Any], int]) -> int | None:
    """The number that `read` gets from pynvml, or None if NVML refuses it."""
    import pynvml  # type: ignore[import-untyped]

    try:
        pynvml.nvmlInit()
        return read(pynvml)
    except pynvml.NVMLError:
        return None


def _driver_cuda() -> str | None:
    number = _nvml(lambda nvml: int(nvml.nvmlSystemGetCudaDriverVersion_v2()))
    return None if number is None else f"{number // 1000}.{number % 1000 // 10}"


def _build(extension: str) -> tuple[dict[str, str], str | None]:
    """The build facts that `python -m MODULE` prints, in another process, since perfsuite imports no kernels."""
    command = [sys.executable, "-W", "ignore", "-m", extension]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {}, f"{extension} does not answer: {error}"
    if done.returncode != 0:
        last = next(reversed(done.stderr.strip().splitlines()), f"exit code {done.returncode}")
        return {}, f"{extension} does not answer: {last}"
    pairs = (line.partition(" ") for line in done.stdout.splitlines())
    return {name: value.strip() for name, _, value in pairs if name}, None


def _tool_version(find: Callable[[], str], pattern: str) -> str | None:
    """Version and path, as "13.0 (/usr/local/cuda/bin/nvcc)"; None for a tool that is not installed."""
    try:
        path = find()
    except UserError:
        return None
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=TOOL_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{path} does not run: {error}"
    found = re.search(pattern, done.stdout)
    return f"{found[1] if found else 'unknown version'} ({path})"


def _restricted() -> bool | None:
    """True if the driver lets only root read counters; None if that is unknown."""
    try:
        found = re.search(r"^RmProfilingAdminOnly:\s*(\d)", PARAMETERS.read_text(), re.MULTILINE)
    except OSError:
        return None
    return None if found is None else found[1] == "1"


def _table(checks: list[Check]) -> None:
    left, middle = max(len(check.what) for check in checks), max(len(check.state) for check in checks)
    for check in checks:
        print(f"{check.what:<{left}}  {check.state:<{middle}}  {check.found}")
        if check.advice:
            print(f"{'':<{left}}  {'':<{middle}}  -> {check.advice}")


def _architectures(as_json: bool) -> None:
    if as_json:
        print(json.dumps([asdict(row) for row in ARCHITECTURES], indent=1))
        return
    print(f"{'architecture':<13}{'SM':<6}{'shared':<9}{'cards':<27}{'tensor cores':<44}features")
    for row in ARCHITECTURES:
        sm, types = ".".join(map(str, row.capability)), " ".join(row.tensor_types)
        print(f"{row.name:<13}{sm:<6}{row.shared_kilobytes:>3} KiB  {row.cards:<27}{types:<44}{row.features}")
