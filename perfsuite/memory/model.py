"""The memory of a model by formulas: parameters, training state, activations, KV cache, attention. In bytes.

The functions need no GPU, torch or numpy. Figures quoted here are in decimal units (1 GB = 1e9 bytes).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perfsuite.report.units import item_bytes, whole

ADAMW_MIXED = {
    "weights, 16-bit": 2.0,
    "gradients, 16-bit": 2.0,
    "master weights, FP32": 4.0,
    "first moment, FP32": 4.0,
    "second moment, FP32": 4.0,
}
"""Bytes a parameter of training with AdamW in mixed precision: 16 in all (Rajbhandari et al. 2020, ZeRO, 3.1)."""
ADAMW_FP32 = {"weights": 4.0, "gradients": 4.0, "first moment": 4.0, "second moment": 4.0}
"""The same in plain FP32, as torch.optim.AdamW keeps it without autocast: also 16."""
STATES: Mapping[str, Mapping[str, float]] = {"adamw-mixed": ADAMW_MIXED, "adamw-fp32": ADAMW_FP32}
STATISTICS_BYTES = 8
"""An online softmax keeps the maximum and the sum of each row of scores: two float32."""
RECOMPUTED_SHARE = 1.0 / 3.0
"""Compute that full checkpointing adds to a step: one more forward pass. Backward costs two forward passes."""


def parameter_bytes(parameters: float, dtype: str = "fp16") -> float:
    """Bytes of a model's weights: parameters x bytes of one (4 FP32, 2 FP16/BF16, 1 INT8, 0.5 INT4).

    7e9 parameters take 28, 14, 7 and 3.5 GB. Scales and zero points of quantised weights are not counted.
    """
    return _positive("parameters", parameters) * item_bytes(dtype)


def training_bytes(parameters: float, states: str = "adamw-mixed") -> dict[str, float]:
    """Bytes of weights, gradients and optimizer state, by part: 112 GB for 7e9 parameters with "adamw-mixed".

    Activations are not counted. Raises ValueError if `states` is no key of STATES.
    """
    if states not in STATES:
        raise ValueError(f"states is {states!r}; it must be one of {', '.join(STATES)}")
    count = _positive("parameters", parameters)
    return {part: count * each for part, each in STATES[states].items()}


@dataclass(frozen=True)
class Activations:
    """Bytes that a stack of Transformer layers keeps for its backward pass."""

    standard: float
    """All activations, including the score matrix."""
    flash: float
    """All activations except the scores, which attention recomputes."""
    checkpointed: float
    """Each layer's input, and all activations of one layer at a time (with flash attention)."""


def activation_bytes(layers: int, hidden: int, heads: int, seq: int, batch: int) -> Activations:
    """Activations at 16 bits of a layer stack with dropout, by Korthikanti et al. (2022), "Reducing Activation
    Recomputation in Large Transformer Models", equation 1: s b h (34 + 5 a s / h) bytes a layer.

    s: sequence length, b: batch, h: hidden size, a: heads. 5 a s / h is the softmax's output, its dropout mask and the
    dropped result, which flash attention does not keep. Checkpointing keeps 2 s b h bytes a layer, its input.
    """
    layers, hidden, heads = whole("layers", layers), whole("hidden", hidden), whole("heads", heads)
    seq, batch = whole("seq", seq), whole("batch", batch)
    rows = float(seq * batch * hidden)
    flash = 34.0 * rows
    standard = flash + 5.0 * heads * seq * seq * batch
    return Activations(layers * standard, layers * flash, layers * 2.0 * rows + flash)


def kv_cache_bytes(layers: int, kv_heads: int, head_dim: int, seq: int, batch: int = 1, dtype: str = "fp16") -> float:
    """Bytes of the keys and values of every layer: 2 · layers · kv_heads · head_dim · seq · batch · bytes of one.

    Llama-2-7B (32 layers, 32 heads of 128) at 4096 in FP16: 2.15 GB (2 GiB) a sequence, 17.2 GB (16 GiB) at batch 8.
    """
    sizes = {"layers": layers, "kv_heads": kv_heads, "head_dim": head_dim, "seq": seq, "batch": batch}
    product = 2.0
    for name, value in sizes.items():
        product *= whole(name, value)
    return product * item_bytes(dtype)


def inference_bytes(
    parameters: float,
    *,
    layers: int,
    kv_heads: int,
    head_dim: int,
    seq: int,
    batch: int = 1,
    dtype: str = "fp16",
    kv_dtype: str | None = None,
) -> dict[str, float]:
    """Bytes of weights and KV cache, by part: 16.1 GB for 7e9 parameters of Llama-2-7B's shape in FP16 at 4096.

    Activations are not counted. Those of a decoding step are of one token only; the caller adds those of a prefill.
    """
    cache = kv_cache_bytes(layers, kv_heads, head_dim, seq, batch, kv_dtype or dtype)
    return {"weights": parameter_bytes(parameters, dtype), "KV cache": cache}


@dataclass(frozen=True)
class AttentionMemory:
    """Bytes of one forward call, by part."""

    inputs: float
    """q, k and v."""
    output: float
    scores_of_one_head: float
    """The matrix of one head of one sequence. It is often quoted as the whole."""
    scores: float
    """The matrix of all heads and sequences."""
    statistics: float
    """Maximum and sum of every row, which flash attention keeps instead of the scores."""

    @property
    def standard(self) -> float:
        """Peak with a stored score matrix."""
        return self.inputs + self.scores + self.output

    @property
    def flash(self) -> float:
        """Peak without a stored score matrix."""
        return self.inputs + self.statistics + self.output

    @property
    def saving(self) -> float:
        """The standard peak over the flash peak."""
        return self.standard / self.flash

    def peak(self, algorithm: str) -> float:
        """The peak of an algorithm, "standard" or "flash". Raises ValueError for others."""
        if algorithm not in ("standard", "flash"):
            raise ValueError(f"algorithm is {algorithm!r}; it must be standard or flash")
        return self.standard if algorithm == "standard" else self.flash


def attention_bytes(
    batch: int,
    heads: int,
    seq: int,
    head_dim: int,
    *,
    kv_heads: int | None = None,
    seq_kv: int | None = None,
    value_dim: int | None = None,
    dtype: str = "fp16",
    scores_dtype: str | None = None,
) -> AttentionMemory:
    """Memory of softmax(q kᵀ) v, by the definitions of Dao et al. (2022), section 3.

    q is (batch, heads, seq, head_dim), k (batch, kv_heads, seq_kv, head_dim); v and the output have value_dim columns,
    by default head_dim. The score matrix has batch · heads · seq · seq_kv elements of `scores_dtype`, by default q's
    dtype.
    """
    batch, heads, seq = whole("batch", batch), whole("heads", heads), whole("seq", seq)
    head_dim, keys = whole("head_dim", head_dim), whole("seq_kv", seq if seq_kv is None else seq_kv)
    key_heads = whole("kv_heads", heads if kv_heads is None else kv_heads)
    if heads % key_heads:
        raise ValueError(f"kv_heads is {key_heads}; it must divide heads, which is {heads}")
    columns = whole("value_dim", head_dim if value_dim is None else value_dim)
    one, score = item_bytes(dtype), item_bytes(scores_dtype or dtype)
    of_queries, of_keys = batch * heads * seq * one, batch * key_heads * keys * one
    return AttentionMemory(
        inputs=of_queries * head_dim + of_keys * (head_dim + columns),
        output=of_queries * columns,
        scores_of_one_head=seq * keys * score,
        scores=batch * heads * seq * keys * score,
        statistics=float(batch * heads * seq * STATISTICS_BYTES),
    )


def saved_by_fusion(family: str, params: Mapping[str, Any]) -> float | None:
    """The share of a call's memory that a fused kernel saves; None for families other than attention."""
    if family != "attention":
        return None
    memory = attention_problem_bytes(params)
    return 1.0 - memory.flash / memory.standard


def attention_problem_bytes(params: Mapping[str, Any], scores_dtype: str | None = None) -> AttentionMemory:
    """`attention_bytes` of a problem of the family attention, given its `params`."""
    sizes = [params[name] for name in ("batch", "heads", "seq_q", "head_dim")]
    options = {name: params[name] for name in ("kv_heads", "seq_kv", "dtype")} | {"value_dim": params.get("value_dim")}
    return attention_bytes(*sizes, scores_dtype=scores_dtype, **options)


def _positive(what: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ValueError(f"{what} is {value!r}; it must be a positive number")
    return float(value)
