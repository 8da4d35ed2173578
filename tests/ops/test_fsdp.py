"""A small GPT under FSDP, on two processes: by gloo on the CPU, by NCCL on two cards."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the operators need torch")

WORKER = Path(__file__).with_name("fsdp_worker.py")
# NVLink's multicast wants a service of the host that a container may lack.
WITHOUT_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}
RUN = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", "2"]


def assert_equal_gradients(device: str, extra: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, *RUN, str(WORKER), device, *extra],
        env=os.environ | WITHOUT_MULTICAST | {"OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert done.stdout.count("rank ") == 2


def test_gradients_are_those_of_one_process() -> None:
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("this torch has no gloo")
    assert_equal_gradients("cpu", [])


@pytest.mark.gpu
def test_gradients_are_those_of_one_process_on_two_cards() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip(f"this machine shows {torch.cuda.device_count()} card to the tests; two are needed")
    assert_equal_gradients("cuda", [])


def test_a_rank_whose_keys_have_wrong_gradients_is_told() -> None:
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("this torch has no gloo")
    with pytest.raises(AssertionError, match="rank 1: float32"):
        assert_equal_gradients("cpu", ["--wrong-keys"])
