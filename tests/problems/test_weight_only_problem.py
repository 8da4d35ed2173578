"""Products with 4- and 8-bit weights: their answer, packing, costs, hard inputs, and planted faults, each found."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="problems are drawn with torch")

from perfsuite import WeightOnlyGemm  # noqa: E402
from perfsuite.oracle import examine  # noqa: E402
from perfsuite.problems import Inputs  # noqa: E402
from perfsuite.problems.distributions import DISTRIBUTIONS  # noqa: E402
from perfsuite.problems.weights import packed_tiles, unpacked_tiles  # noqa: E402
from tests.corpus.planted import WEIGHT_ONLY, planted  # noqa: E402

PROBLEMS = [
    WeightOnlyGemm(33, 128, 256),
    WeightOnlyGemm(16, 272, 384, group=64, zeros=True, dtype="float16"),
    WeightOnlyGemm(64, 72, 512, zeros=True),
    WeightOnlyGemm(40, 128, 192, group=64),
    WeightOnlyGemm(32, 144, 320, bits=8, dtype="float16"),
    WeightOnlyGemm(64, 80, 256, bits=8),
]
problems = pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(5)


def plain(problem: WeightOnlyGemm, inputs: Inputs) -> torch.Tensor:
    """Number by number by the formula of the packed form, in float64."""
    x, packed, scales, *zeros = inputs.args
    weights = torch.zeros(problem.k, problem.n, dtype=torch.float64)
    tiles = packed.tolist()
    for at in range(problem.k):
        for column in range(problem.n):
            j, c, tile = column % 16, at % 64, tiles[column // 16][at // 64]
            step, hi, lane, i = c // 16, c % 2, 4 * (j % 8) + c % 8 // 2, j // 8 + 2 * (c % 16 // 8)
            if problem.bits == 8:
                byte = tile[step // 2 * 512 + lane * 16 + (2 * (step % 2) + i // 2) * 4 + i % 2 + 2 * hi]
                weights[at, column] = byte - 256 * (byte > 127)
            else:
                nibble = i + 4 * hi
                byte = tile[lane * 16 + step * 4 + nibble // 2]
                zero = int(zeros[0][at // problem.group, column]) if zeros else 8
                weights[at, column] = (byte >> 4 * (nibble % 2) & 15) - zero
    along = scales.double() if problem.bits == 8 else scales.double().repeat_interleave(problem.group, 0)
    return x.double() @ (weights * along)


@problems
def test_the_reference_is_the_formula(problem: WeightOnlyGemm) -> None:
    inputs = problem.inputs(generator())
    torch.testing.assert_close(problem.answer(inputs), plain(problem, inputs), rtol=1e-12, atol=1e-12)


@problems
def test_the_library_and_our_own_are_right(problem: WeightOnlyGemm) -> None:
    assert examine(problem, problem.library(), generator()).ok
    ours = pytest.importorskip("cuda_llm_ops", reason="the extension is not installed", exc_type=ImportError)
    assert examine(problem, ours.weight_only_gemm, generator()).ok


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_packing_there_and_back(dtype: str) -> None:
    numbers = (torch.arange(128 * 40) * 5 % (16 if dtype == "uint8" else 256)).view(128, 40)
    numbers = numbers.to(torch.uint8).view(getattr(torch, dtype))
    tiles = packed_tiles(numbers)
    assert torch.equal(unpacked_tiles(tiles, 40), numbers)
    ours = pytest.importorskip("cuda_llm_ops", reason="the extension is not installed", exc_type=ImportError)
    given = ours.pack_int8(numbers) if dtype == "int8" else ours.pack_int4(numbers[0::2] | numbers[1::2] << 4)
    assert torch.equal(tiles, given)


@problems
@pytest.mark.parametrize("distribution", [one for one in DISTRIBUTIONS if one != "non-finite"])
def test_hard_inputs_have_a_finite_answer(problem: WeightOnlyGemm, distribution: str) -> None:
    assert problem.answer(problem.inputs(generator(), distribution=distribution)).isfinite().all()


def test_hard_weights_have_zeros_outliers_and_scales_of_many_magnitudes() -> None:
    problem = WeightOnlyGemm(4, 512, 4096)
    inputs = problem.inputs(generator(), distribution="heavy-tails")
    scales = inputs.args[2].float()
    assert (scales == 0).any()
    assert scales.max() / scales[scales > 0].min() > 2**8
    numbers = unpacked_tiles(inputs.args[1], problem.n)
    assert ((numbers == 0) | (numbers == 15)).all(1).any()


@problems
@pytest.mark.parametrize("fault", WEIGHT_ONLY)
def test_planted_faults_are_wrong(problem: WeightOnlyGemm, fault: str) -> None:
    assert not examine(problem, planted(problem, fault), generator()).ok


def test_what_quantisation_costs() -> None:
    """8 bits keep about 40 dB, 4 bits about 20, smaller groups and zero points a little more."""
    noise = {
        words: WeightOnlyGemm(1, 256, 1024, **dict(words)).signal_to_noise(generator())  # type: ignore[arg-type]
        for words in ((("bits", 8),), (), (("group", 64),), (("zeros", True),))
    }
    eight, four, smaller, zeros = noise.values()
    assert 37 < eight < 46
    assert 18 < four < smaller < 24
    assert four < zeros < 24


def test_costs_and_name() -> None:
    problem = WeightOnlyGemm(2, 64, 256, zeros=True)
    assert problem.bytes == 64 * 128 + 2 * 64 * 3 + 2 * (64 + 256) * 2
    assert problem.name == "2x64x256 bfloat16 int4 groups of 128, zero points"
    assert WeightOnlyGemm(**problem.params) == problem  # type: ignore[arg-type]
    assert WeightOnlyGemm.parse("2x64x256", ["zeros"]) == problem
    assert WeightOnlyGemm(1, 16, 64, bits=8).name == "1x16x64 bfloat16 int8"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"bits": 3}, "bits is 3; it must be 4 or 8"),
        ({"group": 32}, "group is 32; it must be 64 or 128"),
        ({"k": 192}, "k is 192; it must be a multiple of 128"),
        ({"bits": 8, "zeros": True}, "zeros is True with bits 8; it must be False"),
        ({"dtype": "float32"}, "dtype is .*float32"),
    ],
)
def test_what_is_refused(words: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WeightOnlyGemm(**{"m": 2, "n": 32, "k": 256} | words)
