"""`weight_only_gemm`: the packed form, converters, answers, edges and refusals, on every device at hand.

CUDA_LLM_OPS_FUZZ_CALLS=2000 pytest --gpu tests/ops/test_weight_only.py   # as many random products on the GPU
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the operators are torch operators")
cuda_llm_ops = pytest.importorskip("cuda_llm_ops", reason="the extension is not installed", exc_type=ImportError)

import weight_only_cases as cases  # noqa: E402
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor  # noqa: E402

ASKED = os.environ.get("CUDA_LLM_OPS_FUZZ_CALLS")
fuzz = settings(
    max_examples=int(ASKED or 40),
    deadline=None,
    database=None,
    derandomize=ASKED is None,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
CHECKS = ("test_schema", "test_faketensor")
DTYPES = (torch.float16, torch.bfloat16)
CSRC = Path(__file__).parents[2] / "ext" / "csrc"


def test_random_products(device: str) -> None:
    @fuzz
    @given(
        st.one_of(st.integers(0, 20), st.sampled_from([31, 32, 33, 63, 64, 65, 128, 130])),
        st.one_of(st.integers(1, 50), st.sampled_from([127, 128, 255, 256, 257, 600, 1030])),
        st.integers(1, 12),
        st.sampled_from([0, 64, 128]),
        st.booleans(),
        st.sampled_from(DTYPES),
        st.integers(0, 1000),
    )
    def check(m: int, n: int, tiles: int, group: int, zeros: bool, dtype: torch.dtype, seed: int) -> None:
        k = tiles * (group or 64)
        one = cases.case(m, n, k, group, zeros=zeros and group > 0, dtype=dtype, seed=seed)
        cases.assert_right(cuda_llm_ops.weight_only_gemm(**cases.on(device, one)), one)

    check()


@pytest.mark.parametrize("group", [0, 64, 128])
@pytest.mark.parametrize("m", [1, 8, 16, 32, 64, 100])
def test_many_blocks_share_columns(device: str, m: int, group: int) -> None:
    """Long k and few columns: on a GPU many thread blocks add to one result, twice with the same bits."""
    one = cases.case(m, 272, 8192, group, zeros=group > 0, dtype=torch.bfloat16)
    arguments = cases.on(device, one)
    first = cuda_llm_ops.weight_only_gemm(**arguments)
    cases.assert_right(first, one)
    assert torch.equal(first, cuda_llm_ops.weight_only_gemm(**arguments))


@pytest.mark.parametrize("n", [2048, 4096, 4224])
@pytest.mark.parametrize("m", [1, 16, 64, 130])
def test_columns_that_fill_a_card(device: str, m: int, n: int) -> None:
    """On a Hopper card blocks or warps share columns in several ways, as n has it."""
    one = cases.case(m, n, 1024, 64, zeros=True, dtype=torch.bfloat16)
    arguments = cases.on(device, one)
    first = cuda_llm_ops.weight_only_gemm(**arguments)
    cases.assert_right(first, one)
    assert torch.equal(first, cuda_llm_ops.weight_only_gemm(**arguments))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bits", [4, 8])
def test_every_number_in_every_place(device: str, bits: int, dtype: torch.dtype) -> None:
    """Rows of x that are rows of the unit matrix return the weights, exactly."""
    k, n = 128, 48
    low, count = (0, 16) if bits == 4 else (-128, 256)
    numbers = (torch.arange(k * n) * 7 % count + low).view(k, n)
    zeros = (torch.arange(n) % 16).to(torch.uint8)[None] if bits == 4 else None
    scales = torch.ones((1, n) if bits == 4 else (n,), dtype=dtype, device=device)
    x = torch.eye(k, dtype=dtype, device=device)
    on_device = zeros if zeros is None else zeros.to(device)
    found = cuda_llm_ops.weight_only_gemm(x, cases.packed(numbers, bits).to(device), scales, on_device)
    assert torch.equal(found.cpu().long(), numbers - (0 if zeros is None else zeros.long()))


@pytest.mark.parametrize("group", [0, 64, 128])
@pytest.mark.parametrize("m", [1, 16, 64])
def test_powers_of_two_pass_through(device: str, m: int, group: int) -> None:
    """Results of rows that are 2^-100 or 2^100 times as large are exactly so: no sum underflows or overflows before."""
    one = cases.case(m, 64, 512, group, zeros=group > 0, dtype=torch.bfloat16)
    arguments = cases.on(device, one)
    plain = cuda_llm_ops.weight_only_gemm(**arguments)
    for power in (2.0**-100, 2.0**100):
        found = cuda_llm_ops.weight_only_gemm(**arguments | {"x": arguments["x"] * power})
        assert torch.equal(found, plain * power)


def test_the_packed_form_is_the_documented_one() -> None:
    """Place after place by the formula of ext/csrc/weight_only.h."""
    numbers = cases.numbers(128, 32, 4, torch.Generator().manual_seed(1))
    signed = cases.numbers(128, 32, 8, torch.Generator().manual_seed(2))
    four, eight = cases.packed(numbers, 4), cases.packed(signed, 8).view(torch.int8)
    for column in range(32):
        for at in range(128):
            j, c = column % 16, at % 64
            step, hi, lane, i = c // 16, c % 2, 4 * (j % 8) + c % 8 // 2, j // 8 + 2 * (c % 16 // 8)
            nibble = i + 4 * hi
            byte = four[column // 16, at // 64, lane * 16 + step * 4 + nibble // 2]
            assert byte >> 4 * (nibble % 2) & 15 == numbers[at, column]
            place = step // 2 * 512 + lane * 16 + (2 * (step % 2) + i // 2) * 4 + i % 2 + 2 * hi
            assert eight[column // 16, at // 64, place] == signed[at, column]


def judged(pairs: Tensor, scales: Tensor, zeros: Tensor) -> Tensor:
    numbers = torch.stack([pairs & 15, pairs >> 4], 1).flatten(0, 1).double()
    along = numbers.shape[0] // scales.shape[0]
    return (numbers - zeros.repeat_interleave(along, 0)) * scales.double().repeat_interleave(along, 0)


def words(numbers: Tensor, order: tuple[int, ...]) -> Tensor:
    """Eight numbers of the last dimension a word: nibble i holds number order[i]."""
    wide = sum(numbers[..., place].long() << 4 * i for i, place in enumerate(order))
    return torch.where(wide >= 2**31, wide - 2**32, wide).to(torch.int32)


def test_converters() -> None:
    """GPTQ's words hold eight rows, AWQ's eight columns out of order; both give the weights, packed or not."""
    k, n, group = 256, 48, 128
    generator = torch.Generator().manual_seed(3)
    q, zeros = (torch.randint(0, 16, (rows, n), generator=generator) for rows in (k, k // group))
    zeros = zeros.clamp(1, 15)
    scales = torch.rand(k // group, n, generator=generator).half()
    right = (q - zeros.repeat_interleave(group, 0)).double() * scales.double().repeat_interleave(group, 0)
    plain, awq = tuple(range(8)), (0, 2, 4, 6, 1, 3, 5, 7)
    gptq_weight = words(q.view(k // 8, 8, n).movedim(1, -1), plain)
    for less in (True, False):
        gptq_zeros = words((zeros - int(less)).unflatten(-1, (-1, 8)), plain)
        found = cuda_llm_ops.from_gptq(gptq_weight, gptq_zeros, scales, torch.arange(k) // group, zeros_less_one=less)
        assert torch.equal(judged(*found), right)
    found = cuda_llm_ops.from_awq(
        words(q.unflatten(-1, (-1, 8)), awq), words(zeros.unflatten(-1, (-1, 8)), awq), scales
    )
    assert torch.equal(judged(*found), right)
    x = torch.eye(k, dtype=torch.float16)
    pairs, scales, converted = found
    out = cuda_llm_ops.weight_only_gemm(x, cuda_llm_ops.pack_int4(pairs), scales, converted)
    assert torch.equal(out, right.half())


def test_converters_refuse() -> None:
    weight, scales = torch.zeros(32, 16, dtype=torch.int32), torch.ones(2, 16)
    zeros = torch.full((2, 2), -1, dtype=torch.int32)
    with pytest.raises(ValueError, match="from_gptq: qzeros holds 15, one less than 16"):
        cuda_llm_ops.from_gptq(weight, zeros, scales)
    with pytest.raises(ValueError, match="from_gptq: g_idx reorders the rows"):
        cuda_llm_ops.from_gptq(weight, zeros, scales, torch.arange(256).flip(0) // 128, zeros_less_one=False)
    with pytest.raises(TypeError, match=r"from_awq: qweight is torch.float32; it must be torch.int32"):
        cuda_llm_ops.from_awq(weight.float(), zeros, scales)
    with pytest.raises(ValueError, match=r"from_awq: scales has shape \(2, 16\) and qzeros holds \(2, 16\), with"):
        cuda_llm_ops.from_awq(weight, zeros, scales)


def test_views_and_edges(device: str) -> None:
    """Rows far apart and unaligned, scales and zeros as views; no rows."""
    one = cases.case(5, 37, 256, 64, zeros=True)
    arguments = cases.on(device, one)
    right = cuda_llm_ops.weight_only_gemm(**arguments)
    for padding in (0, 1, 8):
        wide = torch.full((5, 256 + 2 * padding), torch.nan, dtype=torch.float16, device=device)
        wide[:, padding : padding + 256] = arguments["x"]
        view = wide[:, padding : padding + 256]
        assert torch.equal(cuda_llm_ops.weight_only_gemm(**arguments | {"x": view}), right)
    turned = {name: arguments[name].T.contiguous().T for name in ("x", "scales", "zeros")}
    assert torch.equal(cuda_llm_ops.weight_only_gemm(**arguments | turned), right)
    assert cuda_llm_ops.weight_only_gemm(**arguments | {"x": arguments["x"][:0]}).shape == (0, 37)


def test_infinities_and_nan_stay_in_their_row(device: str) -> None:
    arguments = cases.on(device, cases.case(9, 40, 128, 128, zeros=True))
    plain = cuda_llm_ops.weight_only_gemm(**arguments)
    arguments["x"][3, 5], arguments["x"][7, 9] = torch.nan, torch.inf
    found = cuda_llm_ops.weight_only_gemm(**arguments)
    assert found[3].isnan().all()
    assert not found[7].isfinite().any()
    rest = [row for row in range(9) if row not in (3, 7)]
    assert torch.equal(found[rest], plain[rest])


def test_opcheck_compile_and_autocast(device: str) -> None:
    for group in (0, 128):
        arguments = cases.on(device, cases.case(3, 40, 256, group, zeros=group > 0))
        tensors = tuple(arguments.values())
        torch.library.opcheck(torch.ops.cuda_llm_ops.weight_only_gemm.default, tensors, test_utils=CHECKS)
        right = cuda_llm_ops.weight_only_gemm(*tensors)
        compiled = torch.compile(lambda *x: cuda_llm_ops.weight_only_gemm(*x) * 2, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(*tensors), right * 2)
        with torch.autocast(device, dtype=torch.bfloat16):
            assert torch.equal(cuda_llm_ops.weight_only_gemm(*tensors), right)


def test_work_is_split_evenly_and_wholly(tmp_path: Path) -> None:
    """Every unit has one thread block, and blocks of a tile different slots, whatever the sizes."""
    source, program = tmp_path / "split.cpp", tmp_path / "split"
    source.write_text(
        """
#include <cstdio>
#include <set>
#include "cuda/weight_only/split.h"
int main() {
  using namespace cuda_llm_ops::cuda::weight_only;
  for (int tiles = 1; tiles < 40; tiles += 1 + tiles / 9)
    for (int chunks = 1; chunks < 70; chunks += 1 + chunks / 9)
      for (int wanted : {1, 2, 3, 7, 108, 132, 264})
        for (int way = 0; way < 3; ++way) {
          const Split s = way == 0   ? even_split(chunks, tiles, wanted)
                          : way == 1 ? whole_split(chunks, tiles, wanted)
                                     : shared_split(chunks, tiles, wanted);
          const int units = tiles * chunks, grain = way == 1 ? chunks : 1;
          if (s.units != units || s.blocks < 1 || s.first(0) != 0 || s.first(s.blocks) != units) return 1;
          if (way < 2 && s.blocks > wanted) return 2;
          std::set<int> slots;
          for (int b = 0; b < s.blocks; ++b) {
            const int size = s.first(b + 1) - s.first(b), least = units / grain / s.blocks * grain;
            if (size < 1 || size < least || size > least + grain) return 3;
            if (way == 2 && s.first(b) / chunks != (s.first(b + 1) - 1) / chunks) return 4;
            for (int u = s.first(b); u < s.first(b + 1); ++u) if (s.block_of(u) != b) return 5;
            for (int u = s.first(b); u < s.first(b + 1);) {
              const int tile = u / chunks, end = (tile + 1) * chunks;
              const int last = end < s.first(b + 1) ? end : s.first(b + 1);
              if (last - u < chunks && way == 1) return 6;
              if (last - u < chunks && !slots.insert(s.slot(b, tile)).second) return 7;
              u = last;
            }
          }
          for (int slot : slots) if (slot < 0 || slot >= 2 * s.blocks) return 8;
        }
  return 0;
}
"""
    )
    subprocess.run(["c++", "-std=c++17", "-O2", f"-I{CSRC}", str(source), "-o", str(program)], check=True)
    assert subprocess.run([program], check=False).returncode == 0


def test_few_rows_have_a_plan_that_fits(tmp_path: Path) -> None:
    """Whatever the sizes: warps, sharers and stages are within bounds, each block has something to sum, and a ring
    of stages has room. Where 256 of a card's 264 blocks can be busy with whole columns, they are."""
    source, program = tmp_path / "plan.cpp", tmp_path / "plan"
    source.write_text(
        """
#include "cuda/weight_only/sm90/few_rows_plan.h"
using namespace cuda_llm_ops;
using namespace cuda_llm_ops::cuda::weight_only::sm90;
int main() {
  for (int bits : {4, 8}) for (int group : {64, 128}) for (int zeros : {0, 1}) for (int m : {1, 5, 8, 9, 16})
    for (int n = 16; n < 50000; n += 16 + n / 7 * 16) for (int k = 128; k < 40000; k += 128 + k / 5 * 128)
      for (int multiprocessors : {1, 78, 132}) {
        WeightOnlyArguments a;
        a.m = m, a.n = n, a.k = k, a.bits = bits, a.group = group, a.zeros = zeros ? &a : nullptr;
        const int rows = m <= 8 ? 8 : 16;
        const FewRowsPlan plan = few_rows_plan(a, rows, multiprocessors);
        const FewRowsStage stage = few_rows_stage(a, rows, plan);
        const int stages = few_rows_stages(stage.bytes), sums = plan.tiles * plan.parts * rows * 16 * 4;
        if (plan.tiles < 1 || plan.tiles * plan.parts > kFewRowsConsumers) return 1;
        const int deep = plan.parts * plan.repeats * 128;
        if (plan.parts * plan.cluster > kMostSharers || plan.cluster * (deep - 127) > k) return 2;
        if (stages < 3 || stages * (stage.bytes + 16) > kFewRowsSharedBytes || sums > stages * stage.bytes) return 3;
        if (stage.weights_at % 1024 || stage.scales_at % 128 || stage.zeros_at % 128 || stage.bytes % 1024) return 4;
        if (!(few_rows_microseconds(a, rows, plan, multiprocessors) > 0)) return 5;
        if (plan.repeats < 1 || plan.repeats > (rows == 8 ? 2 : 1)) return 6;
      }
  WeightOnlyArguments a;
  a.m = 1, a.n = 28672, a.k = 4096;
  const FewRowsPlan plan = few_rows_plan(a, 8, 132);
  return plan.tiles == 7 && plan.parts == 1 && plan.cluster == 1 && plan.repeats == 2 ? 0 : 7;
}
"""
    )
    plans = CSRC / "cuda/weight_only/sm90/few_rows_plan.cu"
    command = ["c++", "-std=c++17", "-O2", f"-I{CSRC}", "-x", "c++", str(source), str(plans), "-o", str(program)]
    subprocess.run(command, check=True)
    assert subprocess.run([program], check=False).returncode == 0


GOOD = {
    "x": torch.zeros(3, 256, dtype=torch.float16),
    "packed": torch.zeros(3, 4, 512, dtype=torch.uint8),
    "scales": torch.ones(2, 40, dtype=torch.float16),
    "zeros": torch.zeros(2, 40, dtype=torch.uint8),
}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"x": GOOD["x"].float()}, TypeError, "x is float32; it must be float16 or bfloat16"),
        ({"x": GOOD["x"][0]}, ValueError, r"x has 1 dimensions \(256,\); it must have 2"),
        ({"x": GOOD["x"][:, :192]}, ValueError, r"x \(3, 192\) has inner size 192 but packed \(3, 4, 512\) has 256"),
        ({"packed": GOOD["packed"].int()}, TypeError, "packed is int32; it must be uint8"),
        ({"packed": GOOD["packed"][..., :256]}, ValueError, r"its last size must be 512 \(4 bits\) or 1024 \(8 bits\)"),
        ({"packed": GOOD["packed"][0]}, ValueError, r"packed has 2 dimensions \(4, 512\)"),
        ({"packed": torch.zeros(3, 4, 1024).byte()}, ValueError, r"scales has 2 dimensions .* it must have 1: \(n,\)"),
        ({"scales": GOOD["scales"][:, :20]}, ValueError, r"scales \(2, 20\) has 20 columns but packed"),
        ({"scales": GOOD["scales"][:1]}, ValueError, "its first size must be k / 64 or k / 128"),
        ({"scales": GOOD["scales"].bfloat16()}, TypeError, "scales is bfloat16 but x is float16"),
        ({"zeros": GOOD["zeros"].int()}, TypeError, "zeros is int32; it must be uint8"),
        (
            {"zeros": GOOD["zeros"][:1]},
            ValueError,
            r"zeros has shape \(1, 40\); it must .* scales, \(2, 40\)",
        ),
        ({"scales": 1.0}, TypeError, "scales is of type float; it must be a torch.Tensor"),
        ({"x": GOOD["x"].clone().requires_grad_()}, NotImplementedError, "x requires grad"),
    ],
)
def test_what_is_refused(change: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match="weight_only_gemm: .*" + message):
        cuda_llm_ops.weight_only_gemm(**GOOD | change)


def test_zeros_of_8_bits_are_refused() -> None:
    one = cases.case(2, 16, 64, 0)
    with pytest.raises(ValueError, match="zeros is given with 8-bit weights; it must be None"):
        cuda_llm_ops.weight_only_gemm(**one.arguments | {"zeros": GOOD["zeros"]})


def test_packing_refuses() -> None:
    with pytest.raises(TypeError, match=r"pack_int4: pairs is torch.int8; it must be torch.uint8"):
        cuda_llm_ops.pack_int4(torch.zeros(32, 16, dtype=torch.int8))
    with pytest.raises(ValueError, match=r"pack_int4: pairs has shape \(31, 16\); .* a multiple of 32 \(64 of k\)"):
        cuda_llm_ops.pack_int4(torch.zeros(31, 16, dtype=torch.uint8))
    with pytest.raises(ValueError, match=r"pack_int8: numbers has shape \(32, 16\); .* a multiple of 64"):
        cuda_llm_ops.pack_int8(torch.zeros(32, 16, dtype=torch.int8))
