"""`python -m cuda_llm_ops.levers` measures what each lever of lower precision gains on a decoder layer of an 8B model.

Decode steps against a cache, in 16 bits and with weights or caches of 8 and 4 bits; and a prompt, in 16 bits and with
FP8 products. First each layer is held against float64 on the values that its operands stand for. Then all are timed:
each a CUDA graph of a stack of layers with weights and caches of their own, so that nothing stays in L2 from one replay
to the next, and the graphs are replayed in turn. The exit code is 1 if a layer is wrong; that one is not timed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .decoder_layer import DTYPE, Cache, Layer, Sizes, Weight, kv_cache, weight
from .exact_layer import ExactLayer
from .tune import CACHE_BYTES, captured, replays

TINY = Sizes(hidden=256, heads=4, kv_heads=2, head_dim=64, inner=384)
NEAR = 2.0**-7
"""Farthest that a stage of a layer may be from float64, as a share of its norm: two roundings to bfloat16."""
WARM_SECONDS = 0.3
TIMES_L2 = 4
"""Bytes that are read between two uses of a weight are at least so many times those of L2."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Lever:
    """What a layer does in fewer bits."""

    name: str
    weights: str = "bfloat16"
    cache: str = "bfloat16"


WIDE = "16 bits"
DECODE = (
    Lever(WIDE),
    Lever("int8 weights", "int8"),
    Lever("int4 weights", "int4"),
    Lever("FP8 products", "fp8 rows"),
    Lever("FP8 cache", cache="fp8"),
    Lever("int8 cache", cache="int8"),
    Lever("int8 weights and int8 cache", "int8", "int8"),
    Lever("int4 weights and FP8 cache", "int4", "fp8"),
)
PREFILL = (
    Lever(WIDE),
    Lever("FP8 products, scales of rows", "fp8 rows"),
    Lever("FP8 products, scales of 1 x 128", "fp8 blocks"),
)


@dataclass(frozen=True)
class Step:
    """What is computed: the newest token of each sequence against a cache, or all tokens of one prompt."""

    stage: str
    sequences: int
    tokens: int
    context: int
    levers: Sequence[Lever]

    @property
    def rows(self) -> int:
        """Rows of each product."""
        return self.sequences * self.tokens


class Stack:
    """Layers of one model in every form, each with weights and a cache of its own."""

    def __init__(self, sizes: Sizes, count: int, device: str) -> None:
        self.sizes, self.device = sizes, device
        self.generator = torch.Generator(device).manual_seed(0)
        self._wide = [sizes.wide_weights(self.generator) for _ in range(count)]
        self._weights: dict[str, list[dict[str, Weight]]] = {}
        self._caches: dict[str, list[Cache]] = {}

    def weights(self, form: str) -> list[dict[str, Weight]]:
        if form not in self._weights:
            self._weights[form] = [{name: weight(one, form) for name, one in wide.items()} for wide in self._wide]
        return self._weights[form]

    def with_values(self, form: str) -> dict[str, Weight]:
        """The first layer's, with their values in float64."""
        return {name: weight(one, form, values=True) for name, one in self._wide[0].items()}

    def draw_caches(self, step: Step) -> None:
        """New ones for a decode step, in the forms of its levers; none for a prompt."""
        self._caches = {}
        torch.compiler.reset()  # which compiles a function for some shapes only
        if step.stage != "decode":
            return
        shape = (2, step.sequences, self.sizes.kv_heads, step.context, self.sizes.head_dim)
        for _ in self._wide:
            wide = torch.empty(shape, device=self.device, dtype=DTYPE).normal_(generator=self.generator)
            for form in dict.fromkeys(lever.cache for lever in step.levers):
                self._caches.setdefault(form, []).append(kv_cache(wide, form))

    def layers(self, lever: Lever) -> list[Layer]:
        weights = self.weights(lever.weights)
        caches: Sequence[Cache | None] = self._caches.get(lever.cache) or [None] * len(weights)
        return [Layer(self.sizes, lever.weights, *both) for both in zip(weights, caches, strict=True)]

    def checked(self, step: Step) -> dict[str, tuple[float, float]]:
        """Lever -> error: the farthest stage of the first layer from float64 on its own values; and noise.

        Noise is the distance of the layer in float64 from the one with 16-bit values, the part that is farther.
        """
        x = torch.randn(step.rows, self.sizes.hidden, generator=self.generator, device=self.device).to(DTYPE)
        found: dict[str, tuple[float, float]] = {}
        plain: Sequence[Tensor] = ()
        values: dict[str, dict[str, Weight]] = {}
        for lever in sorted(step.levers, key=lambda one: (one.name != WIDE, one.weights)):
            values = {lever.weights: values.get(lever.weights) or self.with_values(lever.weights)}
            cache = self._caches[lever.cache][0] if lever.cache in self._caches else None
            exact = ExactLayer(Layer(self.sizes, lever.weights, values[lever.weights], cache))
            parts = exact.parts(x.double())
            plain = plain or parts
            noise = max(float((a - b).norm() / b.norm()) for a, b in zip(parts, plain, strict=True))
            found[lever.name] = max(error for _, error in exact.distances(x)), noise
        return found


def through(layers: Sequence[Layer], x: Tensor) -> Tensor:
    for layer in layers:
        x = layer(x)
    return x


def in_turn(calls: Sequence[Callable[[], object]], device: str, rounds: int) -> list[list[float]]:
    """Seconds of each round of each call: of replays of CUDA graphs, or on the CPU by the host's clock."""
    if device == "cuda":
        graphs = [captured(lambda _, call=call: call(), 1) for call in calls]  # type: ignore[misc]
        started = time.monotonic()
        while time.monotonic() - started < WARM_SECONDS:
            replays(graphs, 1)
        return replays(graphs, rounds)
    seconds: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, own in zip(calls, seconds, strict=True):
            started = time.perf_counter()
            call()
            own.append(time.perf_counter() - started)
    return seconds


def measured(stack: Stack, step: Step, rounds: int) -> tuple[list[Row], list[str]]:
    """A row for each lever that is right, and the names of those that are wrong."""
    stack.draw_caches(step)
    found = stack.checked(step)
    wrong = [name for name, (error, _) in found.items() if not error <= NEAR]
    for name in wrong:
        print(f"WRONG {step.stage} {step.rows} rows, {name}: {found[name][0]:.2e} from float64, allowed is {NEAR:.2e}")
    levers = [lever for lever in step.levers if lever.name not in wrong]
    stacks = [stack.layers(lever) for lever in levers]
    x = torch.randn(step.rows, stack.sizes.hidden, generator=stack.generator, device=stack.device).to(DTYPE)
    calls = [lambda layers=layers: through(layers, x) for layers in stacks]
    rows: list[Row] = []
    for lever, layers, seconds in zip(levers, stacks, in_turn(calls, stack.device, rounds), strict=True):
        each = sorted(1e6 * one / len(layers) for one in seconds)
        median, last = statistics.median(each), len(each) - 1
        error, noise = found[lever.name]
        rows.append(
            {
                "stage": step.stage,
                "sequences": step.sequences,
                "tokens": step.tokens,
                "lever": lever.name,
                "MB": round(layers[0].bytes / 1e6, 1 if layers[0].bytes > 1e7 else 3),
                "microseconds": round(median, 2),
                "10 to 90 %": f"{each[round(0.1 * last)]:.2f} to {each[round(0.9 * last)]:.2f}",
                "gain": round(rows[0]["microseconds"] / median, 3) if rows else 1.0,
                "error": f"{error:.1e}",
                "signal to noise": "-" if noise == 0 else f"{-20 * math.log10(noise):.1f} dB",
            }
        )
        print("  ".join(f"{name} {value}" for name, value in rows[-1].items()), flush=True)
    return rows, wrong


def origin(device: str) -> dict[str, Any]:
    """The card or "cpu", torch, and the commit of a checkout; `PERFSUITE_COMMIT` gives one where there is none."""
    card = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    commit = os.environ.get("PERFSUITE_COMMIT")
    if not commit:
        command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
        try:
            commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        except (OSError, subprocess.SubprocessError):
            commit = None
    return {"card": card, "torch": torch.__version__, "commit": commit}


def record(device: str, sizes: Sizes, steps: Sequence[Step], layers: int, rounds: int) -> tuple[dict[str, Any], int]:
    """What the command writes, and the number of layers that are wrong."""
    stack = Stack(sizes, layers, device)
    rows, wrong = [], 0
    for step in steps:
        own, names = measured(stack, step, rounds)
        rows += own
        wrong += len(names)
    context: dict[str, Any] = {"layers": layers, "context": steps[0].context, "rounds": rounds}
    return {"environment": origin(device) | context, "rows": rows}, wrong


def whole(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} must be a whole number of at least {least}")
        return int(text)

    return number


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m cuda_llm_ops.levers", description=__doc__)
    parser.add_argument("--batch", type=whole(1), nargs="*", default=[1, 16, 64], help="sequences of decode steps")
    parser.add_argument("--context", type=whole(2), default=8192, help="tokens in the cache (default: 8192)")
    parser.add_argument("--prefill", type=whole(0), default=2048, help="tokens of the prompt; 0: none (default: 2048)")
    parser.add_argument("--layers", type=whole(1), default=4, help="of a stack (default: 4)")
    parser.add_argument("--rounds", type=whole(1), default=41, help="replays of each stack (default: 41)")
    parser.add_argument("--tiny", action="store_true", help="sizes that a CPU can compute, to try the command")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the record, as JSON")
    given = parser.parse_args(arguments)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not given.tiny:
        parser.error("there is no GPU, and the CPU would take hours; --tiny has sizes to try the command")
    steps = [Step("decode", batch, 1, given.context, DECODE) for batch in given.batch]
    steps += [Step("prefill", 1, given.prefill, given.context, PREFILL)] if given.prefill else []
    if not steps:
        parser.error("nothing to measure: give --batch, or a --prefill above 0")
    sizes = TINY if given.tiny else Sizes()
    least = -(-TIMES_L2 * CACHE_BYTES // (sum(n * k for n, k in sizes.products.values()) // 2))
    if not given.tiny and given.layers < least:
        parser.error(f"--layers is {given.layers}; it must be at least {least}, so that L2 holds no weights of 4 bits")
    found, wrong = record(device, sizes, steps, given.layers, given.rounds)
    if given.output is not None:
        given.output.parent.mkdir(parents=True, exist_ok=True)
        given.output.write_text(json.dumps(found, indent=1) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    with torch.no_grad():
        sys.exit(main())
