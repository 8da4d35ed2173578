"""`python -m cuda_llm_ops.training` trains a small GPT with `flash_attention` and with SDPA, and compares the losses.

All start from the same weights and read the same texts: bfloat16 autocast, AdamW, no dropout. They take their steps in
turn, so that times compare. Rounding alone lets two runs drift apart. How far it may is seen between two backends of
SDPA: `flash_attention` may be at most 1.5 times as far from the first of them. A run whose gradients by the keys are
multiplied by 0.98 must be farther, which shows that the comparison would see such an error. Each figure is the greatest
difference of loss at any step, as a mean over several seeds. The exit code is 1 where either does not hold.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from .levers import origin, whole
from .ops import flash_attention
from .small_gpt import Attention, Block, Repeated, Sizes, SmallGPT

ALLOWED = 1.5
"""How many times as far as two backends of SDPA from each other `flash_attention` may be from the first."""
WRONG_SCALE = 0.98
RATE, WARM_STEPS = 1e-3, 20
"""The learning rate, and the steps in which it rises to this."""
UNTIMED_STEPS = 10
TINY = Sizes(layers=2, hidden=128, heads=4, vocabulary=64, tokens=64, batch=8)
BACKENDS = {
    "cuda": {"SDPA, cuDNN": SDPBackend.CUDNN_ATTENTION, "SDPA, flash": SDPBackend.FLASH_ATTENTION},
    "cpu": {"SDPA, flash": SDPBackend.FLASH_ATTENTION, "SDPA, math": SDPBackend.MATH},
}
OURS, WRONG = "flash_attention", f"flash_attention, dK x {WRONG_SCALE}"


class _Scaled(torch.autograd.Function):
    """x itself; its gradient is multiplied by WRONG_SCALE."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * WRONG_SCALE


def sdpa(backend: SDPBackend) -> Attention:
    """SDPA by that backend alone."""

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(backend):
            return scaled_dot_product_attention(q, k, v, is_causal=True)

    return attention


def ours(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return flash_attention(q, k, v, is_causal=True)


def ours_with_wrong_keys(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return ours(q, _Scaled.apply(k), v)


def ways(device: str) -> dict[str, Attention]:
    """Name -> attention: two backends of SDPA, ours, and ours with a wrong gradient."""
    return {name: sdpa(one) for name, one in BACKENDS[device].items()} | {OURS: ours, WRONG: ours_with_wrong_keys}


class Run:
    """One model that is trained: its losses, the seconds and the peak bytes of its steps."""

    def __init__(self, start: SmallGPT, attention: Attention, device: str) -> None:
        self.model, self.device = copy.deepcopy(start), device
        for block in self.model.blocks:
            assert isinstance(block, Block)
            block.attention = attention
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=RATE)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda done: min(1.0, (done + 1) / WARM_STEPS)
        )
        self.losses: list[float] = []
        self.seconds: list[float] = []
        self.peak_bytes = 0

    def step(self, text: Tensor) -> None:
        """Train on one batch."""
        before = self._begin()
        with torch.autocast(self.device, torch.bfloat16):
            loss = self.model(text)
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()
        self._end(*before)
        self.losses.append(loss.item())

    def _begin(self) -> tuple[float, int]:
        if self.device != "cuda":
            return time.perf_counter(), 0
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        return time.perf_counter(), torch.cuda.memory_allocated()

    def _end(self, started: float, allocated: int) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()
            peak = torch.cuda.max_memory_allocated() - allocated + self.state_bytes()
            self.peak_bytes = max(self.peak_bytes, peak)
        self.seconds.append(time.perf_counter() - started)

    def state_bytes(self) -> int:
        """Of the weights and of what the optimizer keeps; other models on the card do not count."""
        kept = [one for state in self.optimizer.state.values() for one in state.values() if isinstance(one, Tensor)]
        return sum(one.numel() * one.element_size() for one in itertools.chain(self.model.parameters(), kept))


def trained(
    attentions: dict[str, Attention], sizes: Sizes, device: str, seed: int, steps: int, tell: Callable[[str], None]
) -> dict[str, Run]:
    """A run for each attention, over the same texts from the same weights. `tell` is given lines of progress."""
    torch.manual_seed(seed)
    start = SmallGPT(sizes, ours).to(device)
    texts = Repeated(sizes, seed, device)
    runs = {name: Run(start, attention, device) for name, attention in attentions.items()}
    for number in range(steps):
        text = texts.batch()
        # In turn, each time another one first.
        order = list(runs.values())
        for run in order[number % len(order) :] + order[: number % len(order)]:
            run.step(text)
        if (number + 1) % 50 == 0 or number + 1 == steps:
            losses = ", ".join(f"{name} {run.losses[-1]:.4f}" for name, run in runs.items())
            tell(f"seed {seed}, step {number + 1} of {steps}: {losses}")
    return runs


def gap(one: Sequence[float], other: Sequence[float]) -> float:
    """The greatest difference of loss at any step."""
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


@dataclass(frozen=True)
class Gaps:
    """Greatest differences of loss from the first backend, as means over the seeds."""

    backends: float
    ours: float
    wrong: float

    @property
    def allowed(self) -> float:
        return ALLOWED * self.backends

    def verdicts(self) -> dict[str, str]:
        """For the run with our attention, and for the one with a wrong gradient."""
        return {
            OURS: "met" if self.ours <= self.allowed else "MISSED",
            WRONG: "found" if self.wrong > self.allowed else "NOT FOUND",
        }


def gaps(of_seeds: Sequence[dict[str, Run]]) -> Gaps:
    """Of runs by the same attentions, in the order of `ways`."""
    first, *others = of_seeds[0]
    means = (statistics.fmean(gap(runs[first].losses, runs[name].losses) for runs in of_seeds) for name in others)
    return Gaps(*means)


def rows(of_seeds: Sequence[dict[str, Run]]) -> list[dict[str, Any]]:
    """A row for each attention."""
    found = gaps(of_seeds)
    verdicts = found.verdicts()
    far = ["-", f"{found.backends:.2e}", f"{found.ours:.2e}", f"{found.wrong:.2e}"]
    made: list[dict[str, Any]] = []
    for name, distance in zip(of_seeds[0], far, strict=True):
        runs = [one[name] for one in of_seeds]
        each = sorted(1e3 * one for run in runs for one in run.seconds[UNTIMED_STEPS:] or run.seconds)
        last = len(each) - 1
        made.append(
            {
                "attention": name,
                "ms a step": round(statistics.median(each), 3),
                "10 to 90 %": f"{each[round(0.1 * last)]:.2f} to {each[round(0.9 * last)]:.2f}",
                "peak MB": round(max(run.peak_bytes for run in runs) / 1e6, 1),
                "first loss": round(runs[0].losses[0], 4),
                "last loss": round(runs[0].losses[-1], 4),
                "greatest difference": distance,
                "allowed": f"{found.allowed:.2e}" if name in verdicts else "-",
                "verdict": verdicts.get(name, "-"),
            }
        )
    return made


def record(sizes: Sizes, device: str, seeds: int, steps: int, tell: Callable[[str], None]) -> tuple[Any, bool]:
    """What the command writes, and whether all is as it should be."""
    of_seeds = [trained(ways(device), sizes, device, seed, steps, tell) for seed in range(seeds)]
    made = rows(of_seeds)
    losses = [{name: [round(one, 6) for one in run.losses] for name, run in runs.items()} for runs in of_seeds]
    context = asdict(sizes) | {"seeds": seeds, "steps": steps}
    return {"environment": origin(device) | context, "rows": made, "losses": losses}, all(
        verdict in ("met", "found") for verdict in gaps(of_seeds).verdicts().values()
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m cuda_llm_ops.training", description=__doc__)
    sizes = Sizes()
    parser.add_argument("--steps", type=whole(1), default=200, help="of each run (default: 200)")
    parser.add_argument("--seeds", type=whole(1), default=3, help="weights and texts (default: 3)")
    for name, what in (
        ("layers", "of the model"),
        ("hidden", "size of a token's vector"),
        ("heads", "of attention"),
        ("tokens", "of a text"),
        ("batch", "texts of a step"),
    ):
        default = getattr(sizes, name)
        parser.add_argument(f"--{name}", type=whole(1), help=f"{what} (default: {default})")
    parser.add_argument("--tiny", action="store_true", help="sizes that a CPU can train, to try the command")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the record, as JSON")
    given = parser.parse_args(arguments)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not given.tiny:
        parser.error("there is no GPU, and the CPU would take hours; --tiny has sizes to try the command")
    start = TINY if given.tiny else sizes
    chosen = {name: getattr(given, name) for name in ("layers", "hidden", "heads", "tokens", "batch")}
    try:
        sizes = Sizes(**asdict(start) | {name: value for name, value in chosen.items() if value is not None})
    except ValueError as error:
        parser.error(str(error))
    found, good = record(sizes, device, given.seeds, given.steps, lambda line: print(line, file=sys.stderr, flush=True))
    for row in found["rows"]:
        print("  ".join(f"{name} {value}" for name, value in row.items()))
    if given.output is not None:
        given.output.parent.mkdir(parents=True, exist_ok=True)
        given.output.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
