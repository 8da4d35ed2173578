"""Float64 forms of operators that exist in narrow dtypes only, each beside a formula or another operator of torch."""

from __future__ import annotations

import pytest

from perfsuite.problems.float64.equivalents import equivalent

torch = pytest.importorskip("torch")
F, nn = torch.nn.functional, torch.nn


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def near(one, other) -> None:
    torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-13)


def test_most_operators_have_a_form_themselves() -> None:
    assert equivalent("aten::mm") is None


@pytest.mark.parametrize(
    ("name", "rest", "bias"),
    [
        ("flash_attention", (0.0, True), False),
        ("efficient_attention", (False, 0.0, True), True),
        ("cudnn_attention", (False, 0.0, True), True),
        ("fused_attention_overrideable", (0.0, True), True),
    ],
)
def test_fused_attention(name, rest, bias) -> None:
    q, k, v = normal(2, 4, 12, 8), normal(2, 2, 12, 8), normal(2, 2, 12, 8)
    form = equivalent(f"aten::_scaled_dot_product_{name}")
    own = (q, torch.zeros(2, 4, 12), "rest")
    given = (q, k, v, None, *rest) if bias else (q, k, v, *rest)
    out, sums, kept = form(own, *given, scale=0.3)
    near(out, F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3, enable_gqa=True))
    assert sums.shape == (2, 4, 12)
    assert kept == "rest"
    if bias:
        mask = normal(12, 12)
        out = form(own, q, k, v, mask, *rest[:-1])[0]
        near(out, F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True))
    with pytest.raises(NotImplementedError, match="dropped"):
        form(own, *given[:-2], 0.5)


def test_root_mean_square_norm() -> None:
    x, weight = normal(6, 16), normal(16)
    form = equivalent("aten::_fused_rms_norm")
    near(form((x, None), x, [16], weight, 1e-3)[0], F.rms_norm(x, (16,), weight, 1e-3))
    half = x.half()
    expected = x * (x.square().mean(-1, keepdim=True) + torch.finfo(torch.float16).eps).rsqrt()
    near(form((half, None), x, [16])[0], expected)


@pytest.mark.parametrize(
    ("rows", "columns"),
    [((1,), (1,)), ((8, 1), (1, 6)), ((8, 4), (4, 6)), ((2, 4), (4, 2))],
    ids=["one", "a row", "a block of a row", "a square block"],
)
def test_scaled_products(rows, columns) -> None:
    a, b, one, other, bias = normal(8, 16), normal(16, 6), normal(*rows).abs(), normal(*columns).abs(), normal(6)

    def spread(scale, shape):
        for axis, size in enumerate(shape):
            scale = scale.expand(*[1] * len(shape)) if scale.numel() == 1 else scale
            scale = scale.repeat_interleave(size // scale.shape[axis], axis)
        return scale

    expected = (a * spread(one, a.shape)) @ (b * spread(other, b.shape)) + bias
    near(equivalent("aten::_scaled_mm")(None, a, b, one, other, bias), expected)
    near(equivalent("aten::_scaled_mm_v2")(None, a, b, [one], [0], [0], [other], [0], [0], bias, None), expected)
    with pytest.raises(NotImplementedError, match="swizzled"):
        equivalent("aten::_scaled_mm_v2")(None, a, b, [one], [0], [1], [other], [0], [0], bias, None)


def test_grouped_products() -> None:
    form, ends = equivalent("aten::_grouped_mm"), torch.tensor([3, 3, 10])
    a, b = normal(10, 4), normal(3, 4, 5)
    out = form(normal(10, 5), a, b, ends)
    near(out, torch.cat([a[:3] @ b[0], a[3:] @ b[2]]))
    near(form(None, normal(3, 2, 4), b), normal(3, 2, 4) @ b)
    whole = form(None, a.T, normal(10, 5), ends)
    near(whole[0], a.T[:, :3] @ normal(10, 5)[:3])
    assert not whole[1].any()
    near(form(normal(2, 10), normal(3, 2, 4), normal(4, 10), ends)[:, 3:], normal(3, 2, 4)[2] @ normal(4, 10)[:, 3:])


@pytest.mark.parametrize(("kind", "mode"), [(nn.RNN, 1), (nn.LSTM, 2), (nn.GRU, 3)])
@pytest.mark.parametrize("biased", [True, False])
def test_recurrent_layers(kind, mode, biased) -> None:
    layer = kind(5, 7, 2, bias=biased, batch_first=True, bidirectional=True).double()
    x, state = normal(3, 4, 5), torch.zeros(4, 3, 7, dtype=torch.float64)
    cell = state if mode == 2 else None
    own = (None, None, None, "reserve", "weights")
    each = 4 if biased else 2
    form = equivalent("aten::_cudnn_rnn")
    found = form(own, x, layer._flat_weights, each, None, state, cell, mode, 7, 0, 2, True, 0.0, False, True, [], None)
    near(found[0], layer(x)[0])
    assert found[3:] == ("reserve", "weights")


def test_dropout_keeps_the_mask_that_was_drawn() -> None:
    x, mask = normal(4, 4), torch.rand(4, 4) > 0.5
    near(equivalent("aten::native_dropout")((x, mask), x, 0.25, True)[0], x * mask / 0.75)
    near(equivalent("aten::native_dropout")((x, mask), x, 0.25, False)[0], x)


def test_batch_norm_and_packed_weights() -> None:
    x, mean, var = normal(6, 3), torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    own = (x, torch.zeros(3), torch.zeros(3), "reserve")
    found = equivalent("aten::cudnn_batch_norm")(own, x, None, None, mean, var, True, 0.1, 1e-5)
    near(found[0], F.batch_norm(x, None, None, training=True))
    assert found[3] == "reserve"
    codes = torch.randint(-127, 128, (5, 3), dtype=torch.int8)
    scales = normal(5)
    near(equivalent("aten::_weight_int8pack_mm")(None, x, codes, scales), x @ (codes.double() * scales[:, None]).T)
