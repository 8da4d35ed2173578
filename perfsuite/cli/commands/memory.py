"""Predict the memory of attention, inference, training or a KV cache by formulas.

Predictions are arithmetic and need no GPU. --measure runs an attention, or trains a stack of
layers, on the card, and compares the prediction with the peak of torch's allocator.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from perfsuite.cli import memory_measured
from perfsuite.cli.tables import print_columns
from perfsuite.memory import model, planning
from perfsuite.memory.measured import WITHIN
from perfsuite.outcome import UserError
from perfsuite.report import units

HELP = "predict the memory of attention, inference, training or a KV cache"
EXAMPLE = """example:
  perfsuite memory attention --seq-lengths 512 4096 131072 --num-heads 16
  perfsuite memory inference --parameters 7B --dtype fp16 --seq-length 4096 --limit 24GB
  perfsuite memory training --parameters 7B --seq-length 2048 --batch-size 4
  perfsuite memory kv-cache --seq-length 4096 --batch-size 8
  perfsuite memory attention --seq-lengths 1024 4096 --measure cuda_llm_ops:flash_attention
  perfsuite memory training --layers 24 --hidden 1024 --num-heads 16 --seq-length 1024 \\
    --batch-size 4 --measure

The shape defaults are those of Llama-2-7B (32 layers, hidden 4096, 32 heads of 128).
`perfsuite memory KIND --help` lists each kind's options.

exit codes: 0 done, 1 --measure contradicts the model, 2 bad input, 130 interrupted"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND")

    def kind(name: str, text: str, example: str) -> argparse.ArgumentParser:
        return kinds.add_parser(name, help=text, description=text, epilog=f"example: perfsuite memory {name} {example}")

    attention = kind("attention", "standard against flash attention, by length", "--seq-lengths 512 4096 131072")
    attention.add_argument("--seq-lengths", type=int, nargs="+", default=[512, 4096, 131072], metavar="N")
    _sized(attention, "--batch-size", "--batch", 1)
    _sized(attention, "--num-heads", "--heads", 16)
    attention.add_argument("--kv-heads", type=int, help="heads of k and v (default: those of q)")
    attention.add_argument("--head-dim", type=int, default=64)
    attention.add_argument("--dtype", choices=sorted(units.ITEM_BYTES), default="fp16")
    attention.add_argument("--scores-dtype", choices=sorted(units.ITEM_BYTES), help="of the score matrix")
    attention.add_argument("--measure", metavar="MODULE:FUNCTION", help="run this on the GPU and compare with its peak")
    held = "the model that --measure checks"
    attention.add_argument("--algorithm", choices=("standard", "flash"), default="flash", help=held)
    inference = kind("inference", "weights and KV cache", "--parameters 7B --limit 24GB")
    training = kind("training", "weights, gradients, AdamW's state, activations", "--parameters 7B --seq-length 2048")
    cache = kind("kv-cache", "keys and values of every layer", "--seq-length 4096 --batch-size 8")
    for one in (inference, training):
        one.add_argument("--parameters", default="7B", metavar="COUNT", help="7B, 125M, 6.7e9 (default 7B)")
    training.add_argument("--states", choices=sorted(model.STATES), default="adamw-mixed")
    training.add_argument("--hidden", type=int, default=4096)
    _sized(training, "--num-heads", "--heads", 32)
    trained = "train such layers on the GPU (without embeddings) and compare"
    training.add_argument("--measure", action="store_true", help=trained)
    inference.add_argument("--dtype", choices=sorted(units.ITEM_BYTES), help="of the weights (default: all of them)")
    inference.add_argument("--kv-dtype", choices=sorted(units.ITEM_BYTES), default="fp16")
    cache.add_argument("--dtype", choices=sorted(units.ITEM_BYTES), default="fp16")
    for one in (inference, cache):
        one.add_argument("--kv-heads", type=int, default=32)
        one.add_argument("--head-dim", type=int, default=128)
    for one in (inference, training, cache):
        one.add_argument("--layers", type=int, default=32)
        _sized(one, "--seq-length", "--seq", 4096, help="tokens of a sequence (default 4096)")
        _sized(one, "--batch-size", "--batch", 1)
    for one in (attention, inference, training, cache):
        one.add_argument("--limit", metavar="SIZE", help="the largest power-of-two batch that fits with 20%% overhead")
        one.add_argument("--json", action="store_true", help="print JSON, sizes in bytes")


def _sized(parser: argparse.ArgumentParser, name: str, former: str, default: int, help: str | None = None) -> None:
    """Declare a number under the name that all commands use. The former name works too; recorded commands have it."""
    dest = former.removeprefix("--")
    parser.add_argument(name, type=int, default=default, dest=dest, metavar="N", help=help or f"default {default}")
    parser.add_argument(former, type=int, default=argparse.SUPPRESS, dest=dest, help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Print the prediction; 1 if a measured peak is further from it than promised."""
    try:
        if getattr(arguments, "measure", None):
            return _measure(arguments)
        rows = _KINDS[arguments.kind](arguments)
    except ValueError as error:
        raise UserError(str(error)) from None
    if arguments.json:
        print(json.dumps({"kind": arguments.kind, "rows": [_plain(row) for row in rows]}, indent=1))
    else:
        _table(rows)
    return 0


def _attention(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    options = {name: getattr(arguments, name) for name in ("kv_heads", "dtype", "scores_dtype")}
    for seq in arguments.seq_lengths:
        memory, one = (
            model.attention_bytes(batch, arguments.heads, seq, arguments.head_dim, **options)
            for batch in (arguments.batch, 1)
        )
        row: dict[str, Any] = {"length": seq} | {f"{key} bytes": value for key, value in asdict(memory).items()}
        row |= {"standard bytes": memory.standard, "flash bytes": memory.flash}
        row |= {"flash and working set bytes": planning.with_working_set(memory), "saving": memory.saving}
        rows.append(row | _batch(arguments, one.flash))
    return rows


def _inference(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    parameters, rows = units.count(arguments.parameters), []
    shape = {name: getattr(arguments, name) for name in ("layers", "kv_heads", "head_dim", "seq", "batch", "kv_dtype")}
    for dtype in [arguments.dtype] if arguments.dtype else ["fp32", "fp16", "int8", "int4"]:
        parts = model.inference_bytes(parameters, dtype=dtype, **shape)
        row: dict[str, Any] = {"weights in": dtype} | {f"{part} bytes": value for part, value in parts.items()}
        row |= {"total bytes": sum(parts.values())}
        rows.append(row | _batch(arguments, parts["KV cache"] / arguments.batch, fixed=parts["weights"]))
    return rows


def _training(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    state = model.training_bytes(units.count(arguments.parameters), arguments.states)
    kept = model.activation_bytes(arguments.layers, arguments.hidden, arguments.heads, arguments.seq, arguments.batch)
    states: dict[str, Any] = {f"{part} bytes": value for part, value in state.items()}
    fixed, rows = sum(state.values()), []
    for name, activations in asdict(kept).items():
        row = {"activations": name} | states | {"state bytes": fixed, "activations bytes": activations}
        row |= {"total bytes": fixed + activations}
        row |= {"extra compute": model.RECOMPUTED_SHARE if name == "checkpointed" else 0.0}
        rows.append(row | _batch(arguments, activations / arguments.batch, fixed=fixed))
    return rows


def _kv_cache(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    one = model.kv_cache_bytes(
        arguments.layers, arguments.kv_heads, arguments.head_dim, arguments.seq, 1, arguments.dtype
    )
    batch = units.whole("batch", arguments.batch)
    row = {"length": arguments.seq, "a token bytes": one / arguments.seq, "a sequence bytes": one}
    return [row | {"batch": batch, "total bytes": one * batch} | _batch(arguments, one)]


_KINDS: dict[str, Callable[[argparse.Namespace], list[dict[str, Any]]]] = {
    "attention": _attention,
    "inference": _inference,
    "training": _training,
    "kv-cache": _kv_cache,
}


def _batch(arguments: argparse.Namespace, a_sample: float, *, fixed: float = 0.0) -> dict[str, int]:
    if arguments.limit is None:
        return {}
    return {"largest batch": planning.largest_batch(a_sample, units.size(arguments.limit), fixed_bytes=fixed)}


def _measure(arguments: argparse.Namespace) -> int:
    of_attention = arguments.kind == "attention"
    rows, hold = (memory_measured.attention if of_attention else memory_measured.training)(arguments)
    if arguments.json:
        candidate = {"candidate": arguments.measure} if of_attention else {}
        head = {"kind": arguments.kind, **candidate, "within": WITHIN}
        print(json.dumps(head | {"rows": [_plain(row) for row in rows]}, indent=1))
    else:
        _table(rows)
    return 0 if hold else 1


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Keys without spaces and commas, for programs."""
    return {key.replace(",", "").replace("-", "_").replace(" ", "_"): value for key, value in row.items()}


def _table(rows: Sequence[dict[str, Any]]) -> None:
    """Print one line for each figure and one column for each row, with sizes in decimal and binary units."""
    heads = [key.removesuffix(" bytes").replace("_", " ") for key in rows[0]]
    columns = [[_cell(key, value) for key, value in row.items()] for row in rows]
    print_columns(list(zip(heads, *columns, strict=True)))


def _cell(key: str, value: Any) -> str:
    if key.endswith(" bytes"):
        return units.text_of(value)
    if key in ("off", "extra compute"):
        return f"{value:+.1%}" if value else "0"
    return f"{value:.3g}x" if key == "saving" else str(value)
