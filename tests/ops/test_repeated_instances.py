"""The program of repeated launches launches every instance of the backward that a Hopper card can choose."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the operators need torch")

import repeated  # noqa: E402

SOURCES = Path(__file__).resolve().parents[2] / "ext" / "csrc" / "cuda" / "backward"
INSTANCES = SOURCES / "mma" / "instances.cuh"
WAYS = {
    "free_order": "",
    "in_turn": "_deterministic",
    "window": "_window",
    "packed": "_packed",
    "packed_in_turn": "_packed_deterministic",
}
OF_FORM = {"window": ("window", None), "packed": ("packed", "packed_in_turn")}
"""In free order, and in turn; None: the kernels of every card."""


def sm90() -> dict[str, tuple[int, int]]:
    """The instances of wgmma by their names, and their head_dims; the first that is wide enough is chosen."""
    order = re.findall(
        r"family_(\w+)", re.search(r"families\[\] = {(.*?)}", (SOURCES / "sm90_backward.cu").read_text())[1]
    )
    found = {}
    for family in order:
        for name in re.findall(r'"(sm90_backward_d\w+)"', (SOURCES / f"sm90_d{family}.cu").read_text()):
            dims = [int(number) for number in family.split("_of_")]
            found[name] = dims[0], dims[-1]
    return found


def mma() -> dict[str, tuple[int, int]]:
    """Those of mma.sync for a device with Hopper's shared memory: sizes before those for less of it."""
    tiles = re.findall(r'CUDA_LLM_OPS_BACKWARD\((\w+), "(\w+)"\)', INSTANCES.read_text())
    sizes = (SOURCES / "mma" / "sizes.cuh").read_text()
    found: dict[str, tuple[int, int]] = {}
    for struct, name in tiles:
        dims = re.search(rf"struct {struct} {{.*?KeysConfig<T, (\d+), (\d+)", sizes, re.DOTALL)
        assert dims is not None, struct
        pair = int(dims[1]), int(dims[2])
        if pair not in found.values():
            found[name] = pair
    return found


def simt() -> list[int]:
    return [int(number) for number in re.findall(r"Config<(\d+), \d+>>", (SOURCES / "simt" / "simt.cu").read_text())]


def chosen(one: repeated.Repeat) -> set[str]:
    """The names of the instances that a case launches, as backward.cu chooses them."""
    head_dim, value_dim = one.size
    dtype = str(one.dtype)[6:]
    if one.dtype == torch.float32:
        size = next(size for size in simt() if size >= head_dim)
        return {f"simt_backward_{of}_{size}" for of in ("sums", "keys", "queries")}
    way = OF_FORM.get(one.form, ("free_order", "in_turn"))[one.deterministic]
    if way is not None:
        wide = (name for name, dims in sm90().items() if dims[0] >= head_dim and dims[1] >= value_dim)
        first = next((name for name in wide if name.endswith(f"_{dtype}{WAYS[way]}")), None)
        if first is not None:
            return {first}
    size = next(name for name, dims in mma().items() if dims[0] >= head_dim and dims[1] >= value_dim)
    return {f"mma_backward_{of}_{dtype}_{size}" for of in ("keys", "queries")}


def test_every_instance_is_launched() -> None:
    halves = "float16", "bfloat16"
    built = {f"mma_backward_{of}_{dtype}_{size}" for of in ("keys", "queries") for dtype in halves for size in mma()}
    built |= {f"simt_backward_{of}_{size}" for of in ("sums", "keys", "queries") for size in simt()} | set(sm90())
    held = {name for name in built if not repeated.FREE_ORDER.fullmatch(name)}
    assert len(held) == 47
    cases = repeated.repeats()
    assert set().union(*(chosen(one) for one in cases if one.deterministic)) == held
    assert set().union(*(chosen(one) for one in cases if not one.deterministic)) == built - held


def test_an_instance_without_a_case_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated, "SIZES", repeated.SIZES[:-1])
    launched = set().union(*(chosen(one) for one in repeated.repeats()))
    assert "sm90_backward_d256_float16_deterministic" not in launched
    assert "sm90_backward_d192_float16_deterministic" in launched
