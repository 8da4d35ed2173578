"""Links: what they could carry, how a collective's bytes count, and what the command prints."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perfsuite.cli.commands import links as command
from perfsuite.cli.main import main
from perfsuite.device.cards import Device
from perfsuite.machine import links_measured
from perfsuite.machine.links import Collective, Link, nvlink_peak, pcie_peak

CARDS = tuple(Device(index, "NVIDIA H200", f"GPU-{index}", (9, 0), 150 * 10**9, str(index)) for index in range(2))


@pytest.mark.parametrize(
    ("generation", "width", "rate"), [(1, 16, 4e9), (3, 16, 15.75e9), (4, 16, 31.5e9), (5, 16, 63.0e9), (5, 8, 31.5e9)]
)
def test_pcie_carries_its_lanes(generation: int, width: int, rate: float) -> None:
    assert pcie_peak(generation, width) == pytest.approx(rate, rel=1e-3)


def test_nvlink_carries_its_links() -> None:
    assert nvlink_peak("4.0", 18) == 450e9
    assert nvlink_peak("3.0", 12) == 300e9
    assert nvlink_peak("9.9", 18) is None
    assert nvlink_peak("4.0", 0) is None
    assert pcie_peak(99, 16) is None


@pytest.mark.parametrize(
    ("name", "ranks", "factor"), [("all_reduce", 2, 1.0), ("all_reduce", 4, 1.5), ("all_gather", 4, 0.75)]
)
def test_bus_bandwidth_counts_what_crosses_a_link(name: str, ranks: int, factor: float) -> None:
    assert Collective(name, ranks, 1e9, 0.01, 1e-5).bus_bytes_a_second == pytest.approx(factor * 1e11)


def test_calls_are_timed_until_what_they_enqueued_has_ended() -> None:
    log: list[str] = []
    found = links_measured.timed(lambda: log.append("call"), lambda: log.append("wait"), 3)
    assert len(found) == 3
    assert log == ["wait", "call", "wait"] * 5


@pytest.fixture
def two_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cards with made-up links."""
    from perfsuite.analyze import ranks

    monkeypatch.setattr(command, "cards", lambda at_least=1: CARDS)
    host = Link("host", "gpu 0", "PCIe 5.0 x16", 55e9, 9e-6, 63e9)
    pair = Link("gpu 0", "gpu 1", "NVLink 4.0 x18", 390e9, 12e-6, 450e9)
    monkeypatch.setattr(links_measured, "host_links", lambda index, uuid: [host] if index == 0 else [])
    monkeypatch.setattr(links_measured, "device_links", lambda first, second, uuids: [pair])
    by_rank = [[Collective("all_reduce", 2, 1e9, seconds, 2e-5)] for seconds in (2e-3, 4e-3)]
    monkeypatch.setattr(ranks, "run", lambda world, function, *arguments: by_rank)


@pytest.mark.usefixtures("two_cards")
def test_every_direction_has_a_line_and_the_slowest_rank_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["links"]) == 0
    told = capsys.readouterr()
    lines = told.out.splitlines()
    assert lines[0] == "2 x NVIDIA H200"
    assert lines[2].split() == ["host", "gpu", "0", "PCIe", "5.0", "x16", "55.0", "GB/s", "87%", "9", "us"]
    assert lines[3].split() == ["gpu", "0", "gpu", "1", "NVLink", "4.0", "x18", "390", "GB/s", "87%", "12", "us"]
    assert lines[4] == "all_reduce of 1.00 GB over 2 ranks: 4 ms, 250 GB/s on the bus; 20 us for a few bytes"
    assert "gpu 0 and gpu 1" in told.err


@pytest.mark.usefixtures("two_cards")
def test_one_card_has_no_collectives(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["links", "--gpus", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [link["kind"] for link in told["links"]] == ["PCIe 5.0 x16"]
    assert told["collectives"] == []


def test_bad_input_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["links", "--gpus", "0"]) == 2
    assert "at least 1" in capsys.readouterr().err
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert main(["links"]) == 2
    assert "a GPU is needed" in capsys.readouterr().err


@pytest.mark.gpu
def test_pinned_memory_is_faster_than_pageable(gpu: Any) -> None:
    import os

    from perfsuite.device.cards import usable_devices

    card = usable_devices(os.environ).cards[0]
    pinned, _, pageable, _ = links_measured.host_links(0, card.uuid)
    assert pinned.bytes_a_second > pageable.bytes_a_second
    assert pinned.share is None or 0.3 < pinned.share < 1.05


def test_nvml_s_version_numbers_are_names_of_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    import pynvml

    def state(handle: object, link: int) -> int:
        if link >= 18:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return int(pynvml.NVML_FEATURE_ENABLED)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetNvLinkState", state)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetNvLinkVersion", lambda handle, link: 6)
    assert links_measured._nvlinks(None) == ("4.0", 18), "an H200's driver says 6"
    monkeypatch.setattr(pynvml, "nvmlDeviceGetNvLinkVersion", lambda handle, link: 12)
    assert links_measured._nvlinks(None) == ("of version number 12", 18)
