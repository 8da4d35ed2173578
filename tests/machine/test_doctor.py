"""Is a machine fit: the checks on made-up machines, and the command with and without a card."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from perfsuite.cli.commands import doctor
from perfsuite.cli.main import main
from perfsuite.device.cards import Device, Devices
from perfsuite.device.data_sheets import ARCHITECTURES, architecture_of
from perfsuite.machine.doctor import Card, Check, Machine, code_for, examine, version

H200 = Card(0, "NVIDIA H200", (9, 0), 150e9, processes=0)
BUILD = {"flavour": "cuda", "architectures": "sm_80 sm_90a compute_80", "stale": "False"}
FIT = Machine(
    cards=(H200,),
    driver="570.86.15",
    driver_cuda="12.8",
    torch="2.11.0",
    torch_cuda="12.8",
    nvcc="13.0 (/usr/local/cuda/bin/nvcc)",
    ncu="2025.3 (/usr/bin/ncu)",
    counters_for_root_only=True,
    root=True,
    build=BUILD,
)


def found(machine: Machine, what: str) -> Check:
    [check] = [check for check in examine(machine) if check.what == what]
    return check


def with_card(**changes: Any) -> Machine:
    return dataclasses.replace(FIT, cards=(dataclasses.replace(H200, **changes),))


def test_a_fit_machine_has_nothing_to_advise() -> None:
    assert {check.state for check in examine(FIT)} == {"ok"}
    assert "wgmma and TMA (sm_90a)" in found(FIT, "the build exposes").found
    assert "FP8" in found(FIT, "the card can").found


@pytest.mark.parametrize(
    ("machine", "what", "state"),
    [
        (dataclasses.replace(FIT, driver="450.51.06"), "driver", "below minimum"),
        (dataclasses.replace(FIT, driver="450.80.02"), "driver", "advised"),
        (dataclasses.replace(FIT, driver="525.60"), "driver", "ok"),
        (dataclasses.replace(FIT, driver=None), "driver", "unknown"),
        (dataclasses.replace(FIT, driver_cuda="10.2"), "CUDA", "below minimum"),
        (dataclasses.replace(FIT, driver_cuda="11.8"), "CUDA", "advised"),
        (with_card(capability=(7, 0)), "compute capability", "below minimum"),
        (with_card(capability=(8, 0)), "compute capability", "ok"),
        (with_card(memory_bytes=6e9), "memory", "below minimum"),
        (with_card(memory_bytes=8e9), "memory", "advised"),
        (with_card(memory_bytes=16e9), "memory", "ok"),
        (with_card(processes=2), "other processes", "advised"),
        (with_card(processes=None), "other processes", "unknown"),
        (with_card(unreadable=("power: Not Supported",)), "NVML rights", "advised"),
        (dataclasses.replace(FIT, root=False), "ncu", "advised"),
        (dataclasses.replace(FIT, ncu=None), "ncu", "missing"),
        (dataclasses.replace(FIT, nvcc=None), "nvcc", "missing"),
        (dataclasses.replace(FIT, plugin_install="pip install pytest-perfsuite"), "pytest", "missing"),
        (dataclasses.replace(FIT, torch=None), "torch", "missing"),
        (dataclasses.replace(FIT, no_card="torch 2.13 is built without CUDA"), "torch sees the GPU", "below minimum"),
        (dataclasses.replace(FIT, build=BUILD | {"stale": "True"}), "extension", "advised"),
        (dataclasses.replace(FIT, build={}, no_build="no module"), "the build exposes", "advised"),
        (dataclasses.replace(FIT, build=BUILD | {"architectures": "sm_90"}), "the build exposes", "ok"),
        (dataclasses.replace(FIT, build=BUILD | {"architectures": "sm_100a"}), "the build exposes", "below minimum"),
    ],
)
def test_each_lack_is_found(machine: Machine, what: str, state: str) -> None:
    check = found(machine, what)
    assert check.state == state
    assert check.fails == (state == "below minimum")
    assert bool(check.advice) == (state in ("below minimum", "advised", "missing"))


@pytest.mark.parametrize(
    ("install", "words"), [(None, "pytest"), ("pip install pytest-perfsuite", "pytest -p perfsuite.plugin")]
)
def test_without_a_card_what_can_be_done_is_said(install: str | None, words: str) -> None:
    checks = examine(Machine(no_card="no NVIDIA driver answers", plugin_install=install))
    assert checks[0].found == "no NVIDIA driver answers"
    assert f"`{words} --perf-portable`" in checks[0].advice
    assert not any(check.fails for check in checks)


@pytest.mark.parametrize(
    ("capability", "built", "code"),
    [
        ((9, 0), ["sm_80", "sm_90a", "compute_80"], "sm_90a"),
        ((8, 0), ["sm_80", "sm_90a", "compute_80"], "sm_80"),
        ((8, 9), ["sm_80", "sm_86", "sm_90a"], "sm_86"),
        ((10, 0), ["sm_80", "sm_90a", "compute_80"], "compute_80"),
        ((10, 0), ["sm_80", "sm_90a"], None),
        ((7, 5), ["sm_80", "compute_80"], None),
        ((12, 0), ["sm_120", "compute_80"], "sm_120"),
        ((9, 0), [], None),
    ],
)
def test_code_that_runs_on_a_card(capability: tuple[int, int], built: list[str], code: str | None) -> None:
    assert code_for(capability, built) == code


def test_architectures_from_volta_to_blackwell() -> None:
    assert [row.capability for row in ARCHITECTURES] == sorted(row.capability for row in ARCHITECTURES)
    assert {"Volta", "Turing", "Ampere", "Ada", "Hopper", "Blackwell"} == {row.name for row in ARCHITECTURES}
    nearest = architecture_of((8, 7))
    assert nearest is not None
    assert nearest.capability == (8, 6)
    assert architecture_of((3, 5)) is None
    assert found(with_card(capability=(99, 0)), "compute capability").found == "99.0 (unknown architecture)"


def test_versions_are_compared_as_numbers() -> None:
    assert version("535.104.05") == (535, 104, 5)
    assert version("12.10") > version("12.9")  # type: ignore[operator]
    assert version(None) is version("none") is None


def put_card(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    card = dataclasses.replace(H200, **changes)
    device = Device(0, card.name, "GPU-1", (9, 0), int(card.memory_bytes), "0")
    monkeypatch.setattr(doctor, "find_devices", lambda environ: Devices((device,), "570.1"))
    monkeypatch.setattr(doctor, "usable_devices", lambda environ: Devices((device,), "570.1"))
    monkeypatch.setattr(doctor, "_cards", lambda devices: (card,))
    monkeypatch.setattr(doctor, "_driver_cuda", lambda: "13.0")
    monkeypatch.setattr(doctor, "_build", lambda extension: (BUILD, None))


def test_exit_codes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    put_card(monkeypatch)
    assert main(["doctor"]) == 0
    assert "NVIDIA H200" in capsys.readouterr().out
    put_card(monkeypatch, memory_bytes=4e9)
    assert main(["doctor", "--json"]) == 1
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert [check["what"] for check in checks if check["state"] == "below minimum"] == ["memory"]
    monkeypatch.setattr(doctor, "find_devices", lambda environ: Devices(missing="no NVIDIA driver answers"))
    monkeypatch.setattr(doctor, "_cards", lambda devices: ())
    assert main(["doctor"]) == 21
    assert "no NVIDIA driver answers" in capsys.readouterr().out


def test_the_extension_is_asked_in_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "made_up_kernels.py").write_text("print('flavour        cuda')\nprint('architectures  sm_80 sm_90a')\n")
    (tmp_path / "broken_kernels.py").write_text("raise ImportError('its extension is not built')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert doctor._build("made_up_kernels") == ({"flavour": "cuda", "architectures": "sm_80 sm_90a"}, None)
    facts, why = doctor._build("broken_kernels")
    assert facts == {}
    assert why == "broken_kernels does not answer: ImportError: its extension is not built"


def test_counters_that_the_driver_keeps_for_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "params"
    monkeypatch.setattr(doctor, "PARAMETERS", file)
    assert doctor._restricted() is None
    for digit, expected in (("1", True), ("0", False)):
        file.write_text(f"DeviceFileMode: 438\nRmProfilingAdminOnly: {digit}\n")
        assert doctor._restricted() is expected


def test_the_table_of_architectures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--architectures"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(ARCHITECTURES) + 1
    assert main(["doctor", "--architectures", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == len(ARCHITECTURES)


def test_bad_input_is_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--extension", "-c import os"]) == 2
    assert "it must be the name of a module" in capsys.readouterr().err
