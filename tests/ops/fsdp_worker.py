"""One rank of a small GPT under FSDP: its gradients, gathered, against those of one process with the whole batch.

    python -m torch.distributed.run --nproc-per-node 2 tests/ops/fsdp_worker.py cuda

Every rank has the same weights, which FSDP shards block by block, and its own part of the batch. Prints a line with the
greatest difference, over all parameters, of the gradient's norm; the exit code is 1 if it is more than roundings make.
"""

from __future__ import annotations

import datetime
import os
import sys

import torch
import torch.distributed as dist
from cuda_llm_ops import flash_attention
from cuda_llm_ops.small_gpt import Attention, Repeated, Sizes, SmallGPT
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import checkpoint

SIZES = Sizes(layers=2, hidden=128, heads=2, vocabulary=64, tokens=64, batch=4)
WAYS = ("float32", "bfloat16", "checkpointed")
ALLOWED = {"float32": 1e-5, "bfloat16": 0.05, "checkpointed": 1e-5}
"""Of a gradient's norm: sums in another order; in bfloat16 also products of half the batch, each rounded."""


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return flash_attention(q, k, v, is_causal=True)


def with_wrong_keys(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return causal(q, k.detach(), v)


def recomputed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    out: Tensor = checkpoint(causal, q, k, v, use_reentrant=False)
    return out


def model_of(device: str, attention: Attention) -> SmallGPT:
    torch.manual_seed(0)
    model = SmallGPT(SIZES, attention).to(device)
    for one in model.parameters():
        one.data.mul_(3)  # so that attention has something to choose among
    return model


def gradients(model: SmallGPT, text: Tensor) -> dict[str, Tensor]:
    model(text).backward()
    found = {}
    for name, one in model.named_parameters():
        assert one.grad is not None, f"{name} has no gradient"
        found[name] = one.grad.full_tensor() if isinstance(one.grad, DTensor) else one.grad
    return found


def difference(way: str, device: str, wrong: bool) -> float:
    """Of the gradients of all parameters, the greatest, over the norm of each. wrong: the last rank leaves keys out."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    text = Repeated(SIZES, 0, device).batch()
    whole = model_of(device, causal)
    policy = MixedPrecisionPolicy()
    if way == "bfloat16":
        whole, policy = whole.bfloat16(), MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    right = gradients(whole, text)
    attention = with_wrong_keys if wrong and rank == ranks - 1 else recomputed if way == "checkpointed" else causal
    shared = model_of(device, attention)
    mesh = init_device_mesh(device, (ranks,))
    for block in shared.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(shared, mesh=mesh, mp_policy=policy)
    found = gradients(shared, text.chunk(ranks)[rank])
    sharded = [isinstance(one, DTensor) for one in shared.parameters()]
    assert all(sharded), "FSDP holds no parameter in parts"
    return max(
        ((found[name].float() - one.float()).norm() / one.float().norm().clamp(min=1e-6)).item()
        for name, one in right.items()
    )


def main(device: str, wrong: bool) -> int:
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if device == "cuda" else "gloo", timeout=datetime.timedelta(seconds=60))
    try:
        found = {way: difference(way, device, wrong) for way in WAYS}
        rank = dist.get_rank()
    finally:
        dist.destroy_process_group()
    told = ", ".join(f"{way} {value:.2e} of {ALLOWED[way]:g}" for way, value in found.items())
    print(f"rank {rank}: {told}", flush=True)
    return int(not all(value <= ALLOWED[way] for way, value in found.items()))


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main(sys.argv[1], "--wrong-keys" in sys.argv))
