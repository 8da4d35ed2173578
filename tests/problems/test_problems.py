"""What a problem says of itself: shapes, costs, inputs, rival, and errors that name what is wrong."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsuite.problems import DISTRIBUTIONS, Attention, Custom, Gemm, Problem, RivalUnavailableError

torch = pytest.importorskip("torch")

edges = st.sampled_from([1, 2, 7, 15, 16, 17, 31, 33, 61, 63, 64, 65, 97, 127, 129])


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator("cpu").manual_seed(seed)


def test_importing_problems_imports_neither_torch_nor_numpy():
    code = "import sys, perfsuite.problems; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@given(m=edges, n=edges, k=edges, batch=st.sampled_from([None, 1, 3]), trans=st.tuples(st.booleans(), st.booleans()))
@settings(max_examples=40, deadline=None)
def test_a_gemm_gives_its_rival_what_it_promises(m, n, k, batch, trans):
    problem = Gemm(m, n, k, "float32", trans_a=trans[0], trans_b=trans[1], batch=batch)
    inputs = problem.inputs(seeded())
    a, b = inputs.args
    lead = () if batch is None else (batch,)
    assert a.shape == (*lead, m, k)
    assert b.shape == (*lead, k, n)
    assert a.is_contiguous() != (trans[0] and m > 1 and k > 1)
    out = inputs.call(problem.rival("cublas"))
    assert out.shape == (*lead, m, n)
    torch.testing.assert_close(out, a @ b)
    assert problem.flops == 2 * (batch or 1) * m * n * k
    assert problem.bytes == sum(t.numel() * t.element_size() for t in (a, b, out))


def test_transposition_changes_the_layout_and_not_the_values():
    plain = Gemm(8, 5, 3).inputs(seeded()).args
    stored = Gemm(8, 5, 3, trans_a=True, trans_b=True).inputs(seeded()).args
    for one, other in zip(plain, stored, strict=True):
        assert torch.equal(one, other)
        assert one.stride() != other.stride()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("batch", [None, 2])
def test_a_float32_result_of_16_bit_operands(dtype, batch):
    problem = Gemm(9, 8, 7, dtype, out_dtype="float32", batch=batch)
    inputs = problem.inputs(seeded())
    out = inputs.call(problem.rival("cublas"))
    assert out.dtype == torch.float32
    a, b = inputs.args
    torch.testing.assert_close(out, (a.double() @ b.double()).float())


@given(
    heads=st.sampled_from([(1, 1), (4, 4), (4, 2), (6, 1)]),
    seq_q=edges,
    seq_kv=edges,
    head_dim=st.sampled_from([1, 8, 33, 129]),
    causal=st.booleans(),
    scale=st.sampled_from([None, 0.5]),
)
@settings(max_examples=40, deadline=None)
def test_an_attention_gives_its_rival_what_it_promises(heads, seq_q, seq_kv, head_dim, causal, scale):
    problem = Attention(
        2, heads[0], seq_q, head_dim, seq_kv=seq_kv, kv_heads=heads[1], causal=causal, scale=scale, dtype="float32"
    )
    inputs = problem.inputs(seeded())
    q, k, v = inputs.args
    out = inputs.call(problem.rival("sdpa"))
    assert out.shape == q.shape == (2, heads[0], seq_q, head_dim)
    assert k.shape == v.shape == (2, heads[1], seq_kv, head_dim)
    k, v = (t.repeat_interleave(heads[0] // heads[1], 1) for t in (k, v))
    logits = q @ k.mT * problem.scaling
    seen = torch.ones(seq_q, seq_kv, dtype=torch.bool)
    if causal:
        seen = seen.tril()
    torch.testing.assert_close(out, logits.masked_fill(~seen, float("-inf")).softmax(-1) @ v)
    assert problem.flops == 4 * 2 * heads[0] * head_dim * int(seen.sum())
    assert inputs.kwargs == ({"is_causal": True} if causal else {}) | ({} if scale is None else {"scale": scale})


def test_the_bytes_of_attention_leave_out_keys_that_no_query_sees():
    assert Attention(1, 1, 4, 8, dtype="float32").bytes == 4 * 4 * 8 * 4
    assert Attention(1, 1, 4, 8, seq_kv=100, causal=True, dtype="float32").bytes == 4 * 4 * 8 * 4
    assert Attention(1, 4, 1, 8, seq_kv=100, kv_heads=1).bytes == (2 * 4 + 2 * 100) * 8 * 2


@pytest.mark.parametrize("backend", ["sdpa:flash", "sdpa:math"])
def test_named_backends_that_the_cpu_has(backend):
    problem = Attention(1, 2, 16, 8, kv_heads=1, dtype="float32")
    inputs = problem.inputs(seeded())
    torch.testing.assert_close(inputs.call(problem.rival(backend)), inputs.call(problem.rival("sdpa")))


@pytest.mark.parametrize("backend", ["sdpa:cudnn", "sdpa:efficient"])
def test_a_backend_that_cannot_run_says_why(backend):
    problem = Attention(1, 2, 16, 8)
    with pytest.raises(RivalUnavailableError, match=f"{backend} cannot run this problem: .* GPU only"):
        problem.inputs(seeded()).call(problem.rival(backend))


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Gemm(0, 1, 1), ValueError, "m is 0; it must be a whole number of at least 1"),
        (lambda: Gemm(1, True, 1), ValueError, "n is True"),
        (lambda: Gemm(1, 1, 2.5), TypeError, "k is 2.5"),
        (lambda: Gemm(1, 1, 1, "int8"), ValueError, "dtype is 'int8'; it must be one of float32, float16, bfloat16"),
        (lambda: Gemm(1, 1, 1, out_dtype="bfloat16"), ValueError, "out_dtype is 'bfloat16'; .* float16, float32"),
        (lambda: Gemm(1, 1, 1, batch=0), ValueError, "batch is 0"),
        (lambda: Gemm(1, 1, 1, trans_a=1), TypeError, "trans_a is 1; it must be True or False"),
        (lambda: Gemm(1, 1, 1).rival("sdpa"), ValueError, "must be one of cublas, cublas:tuned"),
        (lambda: Attention(1, 6, 8, 8, kv_heads=4), ValueError, "kv_heads is 4; it must divide heads, which is 6"),
        (lambda: Attention(1, 1, 8, 8, scale=-1.0), ValueError, "scale is -1.0"),
        (lambda: Attention(1, 1, 8, 8, scale=float("nan")), ValueError, "scale is nan"),
        (lambda: Attention(1, 1, 8, 8, scale="big"), TypeError, "scale is 'big'"),
        (lambda: Attention(1, 1, 8, 8, value_dim=9), ValueError, "value_dim is 9; it must be at most head_dim, .* 8"),
        (lambda: Attention(1, 1, 8, 8, value_dim=0), ValueError, "value_dim is 0; it must be a whole number"),
        (lambda: Attention(1, 1, 8, 8).rival("cublas"), ValueError, "sdpa, sdpa:flash, sdpa:cudnn"),
        (lambda: Gemm(1, 1, 1).inputs(seeded(), distribution="zeros"), ValueError, "distribution is 'zeros'; .*normal"),
        (lambda: Custom(torch.ones(2)), TypeError, r"write args=\(tensor,\)"),
        (lambda: Custom((1,), flops=0), ValueError, "flops is 0"),
        (lambda: Custom((1,), against=3), TypeError, "against is 3; it must be a callable"),
        (lambda: Custom((1,)).rival("sdpa"), ValueError, "has none"),
        (lambda: Custom((1,), against=torch.mm).rival("sdpa"), ValueError, "is 'mm'"),
    ],
)
def test_bad_parameters_are_named(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_dtypes_may_be_given_as_torch_dtypes_and_names_tell_cases_apart():
    assert Gemm(1, 2, 3, torch.bfloat16) == Gemm(1, 2, 3, "bfloat16")
    problems = [
        Gemm(1, 2, 3),
        Gemm(1, 2, 3, trans_b=True),
        Gemm(1, 2, 3, out_dtype="float32"),
        Gemm(1, 2, 3, batch=4),
        Attention(1, 2, 3, 4),
        Attention(1, 2, 3, 4, kv_heads=1),
        Attention(1, 2, 3, 4, seq_kv=5),
        Attention(1, 2, 3, 4, causal=True),
        Attention(1, 2, 3, 4, scale=2.0),
        Attention(1, 2, 3, 4, value_dim=3),
        Custom((torch.ones(2),), label="copy"),
    ]
    assert len({problem.name for problem in problems}) == len(problems)
    assert all(isinstance(problem, Problem) for problem in problems)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_inputs_are_fresh_seeded_and_never_zero(distribution, dtype):
    for problem in (Gemm(33, 40, 65, dtype), Attention(2, 4, 33, 16, kv_heads=2, causal=True, dtype=dtype)):
        first, again, other = (problem.inputs(seeded(s), distribution=distribution).args for s in (1, 1, 2))
        for one, same, different in zip(first, again, other, strict=True):
            assert torch.equal(one.nan_to_num(7.0), same.nan_to_num(7.0))
            assert not torch.equal(one.nan_to_num(7.0), different.nan_to_num(7.0))
            assert one.dtype == getattr(torch, dtype)
            assert (one != 0).float().mean() > 0.95


def test_each_distribution_is_what_it_is_called():
    gemm = Gemm(64, 64, 256)

    def a_of(distribution: str) -> torch.Tensor:
        return gemm.inputs(seeded(), distribution=distribution).args[0].double()

    assert a_of("uniform").abs().max() <= 1
    wide = a_of("cancellation")
    assert wide.abs().max() / wide.abs().min() > 1000
    assert wide.sum(-1).abs().max() < 1e-9
    heavy = a_of("heavy-tails")
    assert (heavy**4).mean() / (heavy**2).mean() ** 2 > 10
    constant = a_of("constant-rows")
    assert (constant == constant[:, :1]).all()
    alternating = a_of("alternating")
    assert (alternating[:, ::2] >= 0).all()
    assert (alternating[:, 1::2] <= 0).all()
    assert a_of("tiny").abs().median() < torch.finfo(torch.float16).tiny
    planted = a_of("non-finite")
    assert planted.isnan().any(-1).sum() == 1
    assert planted.isinf().any(-1).sum() == 2


@pytest.mark.parametrize("causal", [False, True])
def test_a_dominant_logit_takes_nearly_all_of_its_row(causal):
    problem = Attention(1, 4, 64, 64, kv_heads=2, causal=causal, dtype="float32")
    q, k, _ = problem.inputs(seeded(), distribution="dominant").args
    logits = q @ k.repeat_interleave(2, 1).mT * problem.scaling
    if causal:
        logits = logits.masked_fill(~torch.ones(64, 64, dtype=torch.bool).tril(), float("-inf"))
    weights = logits.softmax(-1).amax(-1)
    assert weights.min() > 0.5
    assert weights.median() > 0.99


def test_custom_redraws_values_and_keeps_indices():
    table = torch.arange(10)
    codes = torch.arange(100, dtype=torch.uint8)
    weights = 5 + 0.01 * torch.randn(64, 8)
    problem = Custom((weights.t(), table, codes, torch.ones(3), 2), {"mask": torch.tensor([True, False])}, label="x")
    inputs = problem.inputs(seeded())
    fresh, indices, values, constant, plain = inputs.args
    assert fresh.stride() == weights.t().stride()
    assert not torch.equal(fresh, weights.t())
    assert abs(fresh.mean() - 5) < 0.01
    assert 0.005 < fresh.std() < 0.02
    assert torch.equal(indices, table)
    assert indices.data_ptr() != table.data_ptr()
    assert not torch.equal(values, codes)
    assert torch.equal(values.sort().values, codes)
    assert torch.equal(constant, torch.ones(3))
    assert plain == 2
    assert inputs.kwargs["mask"].tolist() == [True, False]


def test_custom_asks_a_callable_each_time():
    problem = Custom(lambda generator: (torch.rand(4, generator=generator),), against=torch.neg)
    generator = seeded()
    one, other = problem.inputs(generator), problem.inputs(generator)
    assert not torch.equal(one.args[0], other.args[0])
    assert problem.default_rival == "neg"
    assert torch.equal(one.call(problem.rival("neg")), -one.args[0])
