"""The cases of a survey, drawn by a seed: products, attention, decode.

A case's draw depends on the seed, on its kind and on its number alone, so that a survey of more cases begins with those
of a smaller one.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from .models import crosses, models, of_kind

MOST_ROWS = 16_384
TILE = 64
"""Half of the numbers of rows are multiples of this, the others are not."""
UNIT = 8
"""Elements of 16 bytes."""
MOST_MULTIPLICATIONS = 1.5e12
"""Of a product: 5 ms of an H200."""
MOST_SCORES = 3e12
"""Multiplications of q with k in one attention: 20 ms of an H200."""
MOST_BYTES = 6 << 30
"""Of the tensors of one attention or of one decode."""
LARGE_CACHE = 256 << 20
"""Bytes; half of the caches of a decode are at least so large."""
TYPES = ("float16", "bfloat16")
PAGES = (16, 64, 256)
"""Tokens of a page."""


@dataclass(frozen=True)
class Product:
    """out = a b, m x n from k; layout: "n" or "t" for a (t: stored k x m) and for b (t: stored n x k)."""

    kind = "product"
    m: int
    n: int
    k: int
    layout: str
    dtype: str
    out: str

    @property
    def lines(self) -> tuple[int, int]:
        """Elements of a line of a and of b. A single row or column is a line of k elements."""
        a = self.k if self.layout[0] == "n" or self.m == 1 else self.m
        return a, self.k if self.layout[1] == "t" or self.n == 1 else self.n

    @property
    def aligned(self) -> bool:
        """True if every line begins at a multiple of 16 bytes."""
        return all(line % UNIT == 0 for line in self.lines)

    def __str__(self) -> str:
        out = "" if self.out == self.dtype else f" to {self.out}"
        return f"{self.m}x{self.n}x{self.k} {self.layout} {self.dtype}{out}"


@dataclass(frozen=True)
class Attention:
    """softmax(q kᵀ / sqrt(head_dim)) v; group: the class that it was drawn from."""

    kind = "attention"
    group: str
    batch: int
    heads: int
    kv_heads: int
    seq_q: int
    seq_kv: int
    head_dim: int
    causal: bool
    dtype: str

    def __str__(self) -> str:
        shape = f"{self.batch}x{self.heads}/{self.kv_heads}x{self.seq_q}x{self.seq_kv}x{self.head_dim}"
        return f"{shape}{' causal' if self.causal else ''} {self.dtype} ({self.group})"


@dataclass(frozen=True)
class Decode:
    """One token of each sequence against its cache; page: tokens of a page, 0 without pages.

    ragged: lengths lie between half of `length` and `length`; otherwise all are `length`.
    """

    kind = "decode"
    batch: int
    heads: int
    kv_heads: int
    length: int
    head_dim: int
    page: int
    ragged: bool
    dtype: str

    def __str__(self) -> str:
        page = f" pages of {self.page}" if self.page else ""
        ragged = " ragged" if self.ragged else ""
        return f"{self.batch}x{self.heads}/{self.kv_heads}x{self.length}x{self.head_dim}{page}{ragged} {self.dtype}"


Case = Product | Attention | Decode


def fields(case: Case) -> dict[str, Any]:
    """The case as JSON."""
    return {"kind": case.kind, **asdict(case)}


def case_of(line: dict[str, Any]) -> Case:
    """The case of a line that begins with `fields`. KeyError or TypeError for another line."""
    kinds: dict[str, type[Case]] = {"product": Product, "attention": Attention, "decode": Decode}
    made = kinds[line["kind"]]
    return made(**{field.name: line[field.name] for field in dataclasses.fields(made)})


def drawn(kind: str, seed: str, count: int) -> list[Case]:
    """`count` cases of a kind, no two alike."""
    found: dict[Case, None] = {}
    generator = random.Random(f"{seed} {kind}")
    while len(found) < count:
        one = DRAWS[kind](generator)
        if one is not None:
            found[one] = None
    return list(found)


def interleaved(seed: str, counts: dict[str, int]) -> Iterator[tuple[str, int, Case]]:
    """(kind, number, case) of every case, kinds mixed in proportion: a survey that is cut has some of each."""
    cases = {kind: drawn(kind, seed, count) for kind, count in counts.items()}
    order = [(number / len(of), kind, number) for kind, of in cases.items() for number in range(len(of))]
    for _, kind, number in sorted(order):
        yield kind, number, cases[kind][number]


def log_uniform(generator: random.Random, low: float, high: float) -> int:
    """A whole number of which every order of size is as likely."""
    return round(math.exp(generator.uniform(math.log(low), math.log(high))))


def rows(generator: random.Random) -> int:
    """Rows of a product, from 1 to MOST_ROWS."""
    if generator.random() < 0.5:
        return TILE * log_uniform(generator, 1, MOST_ROWS // TILE)
    while True:
        found = log_uniform(generator, 1, MOST_ROWS)
        if found % TILE:
            return found


def _product(generator: random.Random) -> Product | None:
    m = rows(generator)
    n, k = generator.choice(generator.choice(models()).layers())
    layout = generator.choice(("nt", "nt", "nt", "nn", "tn", "tt"))
    place = generator.random()
    if place < 0.25:  # lines of 16 bytes, not of 128
        n, k = (size // UNIT * UNIT + UNIT * generator.randint(-7, 7) for size in (n, k))
    elif place < 0.5:  # lines that begin anywhere
        n, k = (size + generator.choice((0, -1, 1, 2, 3, 5)) for size in (n, k))
    if place < 0.25 or place >= 0.5:
        n, k = (-(-size // UNIT) * UNIT for size in (n, k))
        if layout[0] == "t":
            m = -(-m // UNIT) * UNIT
    if layout[0] == "t" and m < UNIT:
        return None  # a transposed vector is a vector
    dtype = generator.choice(TYPES)
    out = "float32" if generator.random() < 0.15 else dtype
    made = Product(m, n, k, layout, dtype, out)
    most = MOST_MULTIPLICATIONS if made.aligned else MOST_MULTIPLICATIONS / 4
    return made if m * n * k <= most and min(n, k) > 0 else None


def _short(generator: random.Random) -> Attention:
    model = generator.choice(of_kind("encoder"))
    tokens = generator.choice((model.tokens or 512, generator.randint(128, 512)))
    batch = log_uniform(generator, 1, 256)
    return Attention(
        "short", batch, model.heads, model.kv_heads, tokens, tokens, model.head_dim, False, generator.choice(TYPES)
    )


def _dims(generator: random.Random) -> Attention:
    heads, batch, tokens = (
        generator.choice((8, 16, 32)),
        generator.choice((1, 2, 4, 8)),
        log_uniform(generator, 64, 8192),
    )
    dim, causal = generator.randint(8, 256), generator.random() < 0.5
    return Attention("head_dim", batch, heads, heads, tokens, tokens, dim, causal, generator.choice(TYPES))


def _grouped(generator: random.Random) -> Attention:
    model = generator.choice([one for one in of_kind("decoder") if one.heads > one.kv_heads])
    tokens, batch = log_uniform(generator, 512, 16_384), generator.choice((1, 2, 4, 8))
    return Attention(
        "grouped", batch, model.heads, model.kv_heads, tokens, tokens, model.head_dim, True, generator.choice(TYPES)
    )


def _cross(generator: random.Random) -> Attention:
    model = generator.choice(crosses())
    level = generator.randrange(len(model.heads))
    heads, dim = model.heads[level], model.head_dims[level]
    pixels = model.pixels[level] * generator.choice((1, 1, 2, 4))
    return Attention(
        "77 keys", generator.choice((1, 2, 4, 8, 16)), heads, heads, pixels, 77, dim, False, generator.choice(TYPES)
    )


def _long(generator: random.Random) -> Attention:
    model = generator.choice(of_kind("diffusion"))
    tokens = generator.choice((model.tokens or 4096, log_uniform(generator, 4096, 32_768)))
    return Attention(
        "long",
        generator.choice((1, 2)),
        model.heads,
        model.heads,
        tokens,
        tokens,
        model.head_dim,
        False,
        generator.choice(TYPES),
    )


def _attention(generator: random.Random) -> Attention | None:
    made = generator.choice((_short, _short, _dims, _dims, _dims, _grouped, _cross, _long))(generator)
    scores = made.batch * made.heads * made.seq_q * made.seq_kv * made.head_dim
    tokens = made.heads * made.seq_q + made.kv_heads * made.seq_kv
    return made if scores <= MOST_SCORES and 4 * made.batch * tokens * made.head_dim <= MOST_BYTES else None


def _decode(generator: random.Random) -> Decode | None:
    model = generator.choice(of_kind("decoder"))
    page = generator.choice((0, 0, *PAGES))
    length = log_uniform(generator, 512, 131_072)
    length = -(-length // page) * page if page else length
    large = generator.random() < 0.5
    batch = log_uniform(generator, 1, 128)
    bytes_ = 4 * batch * model.kv_heads * length * model.head_dim
    if bytes_ > MOST_BYTES or (bytes_ >= 2 * LARGE_CACHE) != large:  # ragged lengths halve it at most
        return None
    return Decode(
        batch,
        model.heads,
        model.kv_heads,
        length,
        model.head_dim,
        page,
        generator.random() < 0.5,
        generator.choice(TYPES),
    )


DRAWS: dict[str, Callable[[random.Random], Case | None]] = {
    "product": _product,
    "attention": _attention,
    "decode": _decode,
}
"""Kind -> a function that draws one case, or None for one that is too large."""
