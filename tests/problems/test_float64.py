"""Functions of torch run in float64 without their help, beside copies that were made in float64 by hand."""

from __future__ import annotations

import copy
import ctypes

import pytest

from perfsuite.problems import Inputs
from perfsuite.problems.float64 import in_float64, nudged, operators

torch = pytest.importorskip("torch")
F, nn = torch.nn.functional, torch.nn


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator("cpu").manual_seed(seed)


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=seeded()).to(dtype)


def widened(value):
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def the_same(function, by_hand, *args, gaps=()):
    """The widened result of `function` is that of `by_hand` on float64 arguments, to the last few bits."""
    with torch.no_grad():
        found = in_float64(function, Inputs(args))
        right = by_hand(*map(widened, args))
    assert found.gaps == gaps
    torch.testing.assert_close(found.values, right, rtol=1e-12, atol=1e-13)


MODULES = {
    "mlp": (nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8), nn.LayerNorm(8)), (16, 32)),
    "batch norm while it trains": (nn.BatchNorm2d(8), (4, 8, 6, 6)),
    "convolution": (nn.Conv2d(8, 16, 3, padding=1), (4, 8, 6, 6)),
    "encoder": (nn.TransformerEncoderLayer(32, 4, batch_first=True).eval(), (3, 10, 32)),
}


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_parameters_are_widened(name, dtype) -> None:
    module, shape = MODULES[name]
    narrow = copy.deepcopy(module).to(dtype)
    the_same(narrow, copy.deepcopy(narrow).double(), normal(*shape, dtype=dtype))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_modules_have_several_results(kind) -> None:
    module = kind(16, 24, 2, batch_first=True)
    by_hand = copy.deepcopy(module).double()
    the_same(lambda x: module(x)[0], lambda x: by_hand(x)[0], normal(3, 10, 16))


def test_casts_constants_and_what_is_made_on_the_way_are_widened() -> None:
    def narrow(x):
        scale = torch.full((32,), 0.1) * (torch.arange(32) / 3)
        summed = torch.zeros(8, 32).index_add_(0, torch.arange(64) % 8, x.half().float() * scale)
        return summed.to(torch.bfloat16)

    def wide(x):
        scale = torch.full((32,), 0.1, dtype=torch.float64) * (torch.arange(32).double() / 3)
        return torch.zeros(8, 32).double().index_add_(0, torch.arange(64) % 8, x * scale)

    the_same(narrow, wide, normal(64, 32))


def test_views_and_writes_in_place_reach_one_twin() -> None:
    def steps(x):
        y = x.clone()
        y[:, ::2].add_(1.0).mul_(0.1)
        half = y.to(torch.float16) if x.dtype is torch.float32 else y
        half.view(-1)[5:9].zero_()
        half.T[3].copy_(half[:, 0])
        out = torch.empty_like(half)
        torch.exp(half, out=out)
        return out.to(x.dtype)

    the_same(steps, steps, normal(64, 64))


def test_the_bits_of_a_number_are_those_of_its_own_dtype() -> None:
    x = normal(16, 16)
    found = in_float64(lambda x: x.view(torch.int32) & 0x7FFFFFFF, Inputs((x,)))
    assert torch.equal(found.values, x.view(torch.int32) & 0x7FFFFFFF)
    found = in_float64(lambda x: (x.half().view(torch.int16) ^ -0x8000).view(torch.float16), Inputs((x,)))
    assert torch.equal(found.values, -x.half().double())

    def seen_and_used(x):
        y = x / 3
        seen = y.view(torch.int32).sum() == 0
        return y * 3 + seen

    the_same(seen_and_used, lambda x: x / 3 * 3, x)

    def written(x):
        y = x / 3
        y.view(torch.int32)[0] &= 0
        return y * 3

    found = in_float64(written, Inputs((x,)))
    assert not found.values[0].any()
    torch.testing.assert_close(found.values, written(x).double(), rtol=1e-6, atol=1e-9)


def test_complex_numbers_have_complex128() -> None:
    def rotate(x):
        turned = torch.view_as_complex(x.view(16, 16, 2)) * torch.polar(torch.ones(16), torch.arange(16.0))
        return torch.view_as_real(turned.conj().resolve_conj()).flatten(1)

    def by_hand(x):
        turn = torch.polar(torch.ones(16, dtype=torch.float64), torch.arange(16.0, dtype=torch.float64))
        return torch.view_as_real((torch.view_as_complex(x.view(16, 16, 2)) * turn).conj().resolve_conj()).flatten(1)

    the_same(rotate, by_hand, normal(16, 32))
    the_same(*[lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2)] * 2, normal(4, 64))


def test_a_gradient_is_widened_too() -> None:
    module = copy.deepcopy(MODULES["mlp"][0])
    by_hand = copy.deepcopy(module).double()

    def gradient(of, x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad(of(x).square().sum(), x)[0]

    the_same(lambda x: gradient(module, x), lambda x: gradient(by_hand, x), normal(16, 32))


@pytest.mark.parametrize("surroundings", [torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16)])
def test_modes_of_the_function_itself(surroundings) -> None:
    module = MODULES["mlp"][0]

    def under(x):
        with surroundings():
            return module(x)

    the_same(under, copy.deepcopy(module).double(), normal(16, 32))


def test_a_compiled_function_runs_uncompiled() -> None:
    module = MODULES["mlp"][0]

    def never(graph, inputs):
        raise AssertionError("compiled")

    the_same(torch.compile(module, backend=never), copy.deepcopy(module).double(), normal(16, 32))


def test_fused_attention_has_an_equivalent() -> None:
    def fused(q, k, v):
        flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        return flash(q, k, v, 0.0, True, scale=0.3)[0], F.scaled_dot_product_attention(q, k, v)

    def by_hand(q, k, v):
        attend = F.scaled_dot_product_attention
        return attend(q, k, v, is_causal=True, scale=0.3), attend(q, k, v)

    the_same(fused, by_hand, *(normal(2, 4, 33, 16, dtype=torch.bfloat16) + i for i in range(3)))


def test_a_float8_product_has_an_equivalent() -> None:
    a, b = (normal(32, 64).add(i).to(torch.float8_e4m3fn) for i in range(2))
    half, two = torch.tensor(0.5), torch.tensor(2.0)

    def product(a, b):
        return torch._scaled_mm(a, b[:16].t(), half, two, out_dtype=torch.bfloat16)

    the_same(product, lambda a, b: a @ b[:16].T, a, b)


def test_random_numbers_are_drawn_as_ever() -> None:
    x = normal(64, 64)
    torch.manual_seed(3)
    expected = F.dropout(x, 0.3)
    torch.manual_seed(3)
    found = in_float64(lambda x: F.dropout(x, 0.3), Inputs((x,)))
    assert found.random
    assert not in_float64(torch.sin, Inputs((x,))).random
    torch.testing.assert_close(found.values, torch.where(expected != 0, x.double() / 0.7, 0.0), rtol=1e-6, atol=0.0)


def test_integers_follow_the_float64_values() -> None:
    x = torch.tensor([[1.0, 1.0 + 2**-23, 0.0]])
    # In float32 both sums are 2^25, and the first place is taken; in float64 the second is larger.
    found = in_float64(lambda x: (x + 2.0**25).argmax(-1), Inputs((x,)))
    assert (x + 2.0**25).argmax(-1).item() == 0
    assert found.values.item() == 1


def test_memory_from_before_is_left_as_it_was() -> None:
    norm, cache = nn.BatchNorm1d(8), torch.zeros(4, 8)
    x = normal(16, 8)
    given = x.clone()

    def stateful(x):
        cache[:2] += x[:2]
        x.mul_(2.0)
        return norm(x) + cache.sum()

    in_float64(stateful, Inputs((x,)))
    assert torch.equal(x, given)
    assert not cache.any()
    assert not norm.running_mean.any()
    assert norm.num_batches_tracked == 0


def by_address(x):
    out = torch.empty_like(x)
    ctypes.memmove(out.data_ptr(), x.data_ptr(), x.nbytes)
    return out


def over_zeros(x):
    out = torch.zeros_like(x)
    ctypes.memmove(out.data_ptr(), x.data_ptr(), x.nbytes)
    return out * 2


@torch.library.custom_op("perfsuite_tests::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(2 * x.numpy())


@pytest.mark.parametrize(
    ("function", "factor", "gap"),
    [
        (by_address, 1, "code outside of torch"),
        (over_zeros, 2, "code outside of torch"),
        (doubled, 2, "perfsuite_tests::doubled"),
    ],
)
def test_code_that_torch_does_not_see_is_named_and_its_values_are_kept(function, factor, gap) -> None:
    x = normal(16, 16)
    found = in_float64(function, Inputs((x,)))
    assert gap in found.gaps
    assert torch.equal(found.values, factor * x.double())


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_an_operator_without_a_float64_form_is_named() -> None:
    x = normal(8, 8)
    found = in_float64(lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize() + x, Inputs((x,)))
    assert found.gaps == ("aten::quantize_per_tensor",)
    rounded = (x.double() * 10).round() / 10
    torch.testing.assert_close(found.values, rounded + x.double(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.complex64])
def test_a_nudge_is_one_unit_in_the_last_place(dtype) -> None:
    x = torch.randn(64, 64, generator=seeded(), dtype=torch.complex64 if dtype.is_complex else None).to(dtype)
    x[0] = 0
    moved = nudged(Inputs((x, 3, torch.arange(4))), seeded())
    assert moved.args[1] == 3
    assert torch.equal(moved.args[2], torch.arange(4))
    one, other = ((torch.view_as_real(t) if t.is_complex() else t).double() for t in (x, moved.args[0]))
    share = ((one - other).abs() / one.abs())[1:]
    eps = torch.finfo(dtype).eps
    assert not other[0].any()
    normal_numbers = one[1:].abs() >= torch.finfo(dtype).smallest_normal
    assert (share[normal_numbers] > 0.49 * eps).all()
    assert (share[normal_numbers] <= eps).all()
    assert 0.3 < ((one - other) > 0).double().mean() < 0.7


def test_an_operator_is_asked_once_in_a_process(monkeypatch) -> None:
    asked = []
    facts = operators._of
    monkeypatch.setattr(operators, "_of", lambda operator: asked.append(str(operator)) or facts(operator))

    def chain(x):
        for _ in range(5):
            x = torch.special.scaled_modified_bessel_k1(x.abs() + 1)
        return x

    for _ in range(3):
        the_same(chain, chain, normal(4, 4))
    assert len(asked) == len(set(asked)) >= 1


def test_what_looks_like_an_operator_says_nothing_about_it() -> None:
    real = torch.ops.aten.log1p.default

    class Alike:
        """Equal to the operator, and of an unknown library."""

        namespace, tags, is_view, _schema = "elsewhere", (), False, real._schema

        def __hash__(self) -> int:
            return hash(real)

        def __eq__(self, other: object) -> bool:
            return True

        def name(self) -> str:
            return "aten::log1p"

        def _can_decompose(self) -> bool:
            return False

    assert not operators.facts_of(Alike()).known
    assert operators.facts_of(real).known
