"""cuBLASLt's face, against a library like it that multiplies in host memory; and what is chosen on a GPU."""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from perfsuite.problems import Fp8Gemm, Gemm, RivalUnavailableError
from perfsuite.problems.cublas_lt import (
    WORKSPACE_BYTES,
    Library,
    LtError,
    Operand,
    Product,
    ScaledProduct,
    alignment,
    load,
)
from perfsuite.problems.rivals import cublas_tuned as tuned


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler, for a library that stands in for cuBLASLt")
    path = tmp_path_factory.mktemp("cublas_lt") / "libcublasLt.so.0"
    source = Path(__file__).with_name("fake_cublas_lt.c")
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", str(path), str(source)], check=True)
    return ctypes.CDLL(str(path))


def operands(problem: Gemm) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = problem.inputs(torch.Generator().manual_seed(0)).args
    return a, b


@pytest.mark.parametrize("batch", [None, 3])
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("size", [(5, 7, 3), (1, 4, 6), (4, 1, 1), (1, 1, 1)])
def test_products_of_every_layout(
    size: tuple[int, int, int], trans_a: bool, trans_b: bool, batch: int | None, made: ctypes.CDLL
) -> None:
    a, b = operands(Gemm(*size, dtype="float32", trans_a=trans_a, trans_b=trans_b, batch=batch))
    product = Product(Library(made), a, b, torch.float32)
    workspace = torch.empty(1, dtype=torch.uint8)
    for algorithm in [one for one in product.algorithms(32) if product.config(one)["id"] != 3]:
        out = torch.full((*a.shape[:-1], b.shape[-1]), torch.nan)
        product.run(algorithm, a, b, out, workspace, 0)
        torch.testing.assert_close(out, a @ b)


def test_rows_with_a_gap_between_them(made: ctypes.CDLL) -> None:
    a, b = torch.randn(4, 9)[:, :6], torch.randn(6, 8)[:, 1:6]
    product = Product(Library(made), a, b, torch.float32)
    out = torch.empty(4, 5)
    product.run(product.algorithms(1)[0], a, b, out, torch.empty(1, dtype=torch.uint8), 0)
    torch.testing.assert_close(out, a @ b)
    assert Operand.of(torch.randn(4, 4, 4)[:, ::2, ::2]) is None


def test_sums_of_parts_are_float32_or_are_not_taken(made: ctypes.CDLL) -> None:
    library = Library(made)
    half = operands(Gemm(8, 8, 8))
    product = Product(library, *half, torch.float16)
    told = [product.config(one) for one in product.algorithms(32)]
    # Number 2 adds in float16, number 4 needs more memory than there is, number 5 is proposed for no memory only.
    assert [(one["id"], one["reduction"]) for one in told] == [(0, 0), (1, 2), (3, 0), (5, 0)]
    assert ctypes.c_uint64.in_dll(made, "most_workspace").value == WORKSPACE_BYTES
    wide = Product(library, *half, torch.float32)
    assert [wide.config(one)["id"] for one in wide.algorithms(32)] == [0, 1, 2, 3, 5]


def test_an_algorithm_that_is_refused_is_an_error_and_does_not_take_part(made: ctypes.CDLL) -> None:
    a, b = operands(Gemm(4, 4, 4, dtype="float32"))
    product = Product(Library(made), a, b, torch.float32)
    last = next(one for one in product.algorithms(32) if product.config(one)["id"] == 3)
    workspace = torch.empty(1, dtype=torch.uint8)
    with pytest.raises(LtError, match="cublasLtMatmul: not supported"):
        product.run(last, a, b, torch.empty(4, 4), workspace, 0)

    def refuses(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        product.run(last, a, b, a, workspace, 0)
        return a

    assert not tuned._agrees(refuses, (a, b), a @ b)
    assert not tuned._agrees(lambda a, b: a @ b * 1.05, (a, b), a @ b)
    assert tuned._agrees(torch.mm, (a, b), a @ b)


def test_scales_of_a_product_belong_to_their_operands(made: ctypes.CDLL) -> None:
    a, b = torch.randn(4, 16), torch.randn(8, 16)
    product = ScaledProduct(Library(made), a, b.T, torch.float32, fast=False)
    algorithm = product.algorithms(1)[0]
    out, workspace = torch.empty(4, 8), torch.empty(1, dtype=torch.uint8)
    product.run(algorithm, a, b.T, out, workspace, 0)
    torch.testing.assert_close(out, a @ b.T)
    for scale_a, scale_b in ((torch.tensor(3.0), torch.tensor(0.5)), (torch.tensor(-2.0), torch.tensor(7.0))):
        product.scale_by(scale_a, scale_b)
        product.run(algorithm, a, b.T, out, workspace, 0)
        torch.testing.assert_close(out, a @ b.T * scale_a * scale_b)


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (Fp8Gemm(32, 32, 32), "scaled_mm:tuned cannot run this problem: cuBLASLt runs on a GPU only"),
        (Fp8Gemm(32, 32, 32, scales="row"), "scaled_mm:tuned cannot run this problem: scales is 'row'"),
    ],
    ids=["cpu", "row"],
)
def test_products_of_8_bits_that_cannot_be_tuned(problem: Fp8Gemm, said: str) -> None:
    given = problem.inputs(torch.Generator().manual_seed(0))
    with pytest.raises(RivalUnavailableError, match=said):
        given.call(problem.rival("scaled_mm:tuned"))


def test_operands_that_it_does_not_know(made: ctypes.CDLL) -> None:
    with pytest.raises(LtError, match="float64 is none of float32, float16, bfloat16, float8_e4m3fn, float8_e5m2"):
        Product(Library(made), torch.ones(2, 2).double(), torch.ones(2, 2).double(), torch.float64)
    with pytest.raises(LtError, match="neither its rows nor its columns"):
        Product(Library(made), torch.ones(4, 4)[::2, ::2], torch.ones(2, 2), torch.float32)


def test_alignment_is_that_of_the_address() -> None:
    whole = torch.empty(4096, dtype=torch.float16)
    start = -whole.data_ptr() % 256 // 2
    assert [alignment(whole[start + shift :]) for shift in (0, 1, 2, 8, 12, 128)] == [256, 2, 4, 16, 8, 256]


def test_where_there_is_no_library() -> None:
    with pytest.raises(LtError, match="not built for CUDA"):
        load(None)
    with pytest.raises(LtError, match=r"libcublasLt\.so\.99 cannot be loaded"):
        load("99.1")
    problem = Gemm(4, 4, 4)
    with pytest.raises(RivalUnavailableError, match=r"cublas:tuned cannot run this problem: .* on a GPU only"):
        problem.rival("cublas:tuned")(*operands(problem))


class MadeUpCard:
    """Stands for torch.cuda in a race: a replay takes the seconds that its calls cost."""

    def __init__(self) -> None:
        self.now = 0.0
        self.capturing: list[float] | None = None

    def race(self, seconds: list[float], monkeypatch: pytest.MonkeyPatch) -> list[float]:
        card = self

        class Graph:
            def capture_begin(self, **options: Any) -> None:
                assert card.capturing is None
                self.seconds = card.capturing = []

            def capture_end(self) -> None:
                card.capturing = None

            def replay(self) -> None:
                card.now += sum(self.seconds)

            def reset(self) -> None:
                self.seconds = []

        class Event:
            def __init__(self, enable_timing: bool) -> None: ...

            def record(self) -> None:
                self.at = card.now

            def synchronize(self) -> None: ...

            def elapsed_time(self, other: Event) -> float:
                return (other.at - self.at) * 1e3

        def call(a: float, b: float, cost: float) -> torch.Tensor:
            assert card.capturing is not None
            card.capturing.append(cost)
            return torch.empty(0)

        nothing = SimpleNamespace(wait_stream=lambda other: None, synchronize=lambda: None)
        for name, value in {
            "Stream": lambda: nothing,
            "current_stream": lambda: nothing,
            "stream": lambda stream: nullcontext(),
            "graph_pool_handle": lambda: None,
            "Event": Event,
            "CUDAGraph": Graph,
            "_sleep": lambda cycles: None,
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)
        calls: list[Any] = [partial(call, cost=one) for one in seconds]
        return tuned._race(calls, [(0.0, 0.0)] * 3)  # type: ignore[list-item]


def test_a_race_times_the_fastest_and_torchs_own_call_again(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = [5e-6, 9e-6, 4e-6, 8e-6, 3e-6, 7e-6, 6e-6]
    found = MadeUpCard().race(costs, monkeypatch)
    again = [0, 2, 4, 6]  # torch's own, first in the list, is among the four fastest here
    assert [place for place, seconds in enumerate(found) if seconds != math.inf] == again
    assert [found[place] for place in again] == pytest.approx([3 * costs[place] for place in again])
    slowest_first = MadeUpCard().race([9e-6, 8e-6, 3e-6, 4e-6, 5e-6, 6e-6, 7e-6], monkeypatch)
    assert [place for place, seconds in enumerate(slowest_first) if seconds != math.inf] == [0, 2, 3, 4, 5]


@pytest.mark.gpu
@pytest.mark.parametrize(
    "problem",
    [
        Gemm(512, 512, 512),
        Gemm(512, 384, 4096, dtype="bfloat16", trans_b=True),
        Gemm(1, 4096, 4096, trans_b=True),
        Gemm(333, 777, 1111, trans_a=True),
        Gemm(256, 256, 2048, out_dtype="float32"),
        Gemm(256, 256, 512, batch=4, trans_b=True),
        Gemm(256, 256, 256, dtype="float32"),
    ],
    ids=lambda problem: problem.name,
)
def test_the_choice_is_right_no_slower_than_torchs_own_and_can_be_captured(problem: Gemm, gpu: Any) -> None:
    given = problem.inputs(torch.Generator(device="cuda").manual_seed(0))
    rival = problem.rival("cublas:tuned")
    right = given.args[0].double() @ given.args[1].double()
    theirs = float((given.call(problem.rival("cublas")) - right).norm() / right.norm())
    assert float((given.call(rival) - right).norm() / right.norm()) <= 2 * theirs + 1e-7
    choice = list(tuned._CHOICES.values())[-1]
    assert choice.speed >= 1.0
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = given.call(rival)
    out.fill_(torch.nan)
    graph.replay()
    torch.testing.assert_close(out, given.call(rival))


@pytest.mark.gpu
@pytest.mark.parametrize("out_dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("fast", [False, True])
def test_a_choice_among_products_of_8_bits(fast: bool, out_dtype: Any, gpu: Any) -> None:
    problem = Fp8Gemm(256, 512, 1024, out_dtype=out_dtype, fast_sums=fast)
    rival = problem.rival("scaled_mm:tuned")
    for seed in (0, 1):  # the scales of the second call are others
        given = problem.inputs(torch.Generator(device="cuda").manual_seed(seed))
        right = problem.reference(given)
        theirs = float((given.call(problem.rival("scaled_mm")) - right).norm() / right.norm())
        assert float((given.call(rival) - right).norm() / right.norm()) <= 2 * theirs + 1e-7
    assert list(tuned._CHOICES.values())[-1].speed >= 1.0
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = given.call(rival)
    out.fill_(torch.nan)
    graph.replay()
    torch.testing.assert_close(out, given.call(rival))


@pytest.mark.gpu
def test_a_first_call_that_is_captured_says_what_is_wrong(gpu: Any) -> None:
    a = torch.randn(48, 48, device="cuda", dtype=torch.float16)
    with pytest.raises(RuntimeError, match="measures its algorithms"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        Gemm(48, 48, 48).rival("cublas:tuned")(a, a)
