"""The oracle against answers whose faults are known: honest ones pass, each planted fault gets its reason."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsuite.guards.poison import POISON_HALF
from perfsuite.oracle import Judgement, LibraryWrongError, ReferenceUnavailableError, check, examine
from perfsuite.oracle.effort import MOST_FLOPS, Examined, on_adversarial_values, rows_to_check, timed_calls_judged
from perfsuite.oracle.measures import measure
from perfsuite.oracle.yardstick import require_plausible
from perfsuite.outcome import Reason
from perfsuite.problems import DISTRIBUTIONS, Attention, Custom, Decode, Gemm, Inputs
from perfsuite.problems.exact import BLOCK_BYTES

torch = pytest.importorskip("torch")

edges = st.sampled_from([1, 2, 7, 15, 16, 17, 31, 33, 61, 63, 64, 65, 97, 127, 129])


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator("cpu").manual_seed(seed)


def judge(problem, candidate, *, seed=0, adversarial=False, **options) -> Judgement:
    return examine(problem, candidate, seeded(seed), adversarial=adversarial, **options)


def sums_in_blocks(a, b):
    """An honest kernel: float32 sums of 32 terms at a time, rounded once."""
    total = torch.zeros((*a.shape[:-1], b.shape[-1]))
    for k in range(0, a.shape[-1], 32):
        total += a[..., k : k + 32].float() @ b[..., k : k + 32, :].float()
    return total.to(a.dtype)


def sums_in_float16(a, b):
    """The downgrade of tensor cores with float16 accumulators: the running sum is rounded every 16 terms."""
    total = torch.zeros((*a.shape[:-1], b.shape[-1]), dtype=torch.float16)
    for k in range(0, a.shape[-1], 16):
        total = (total.float() + a[..., k : k + 16].float() @ b[..., k : k + 16, :].float()).half()
    return total


def online_attention(q, k, v, is_causal=False, scale=None, weights=None):
    """An honest flash attention: blocks of 64 keys, float32 statistics, weights rounded to the operands' dtype."""
    group = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(group, 1).float() for t in (k, v))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    best = torch.full((*q.shape[:-1], 1), -math.inf)
    total, out = torch.zeros_like(best), torch.zeros(q.shape)
    seen = torch.arange(q.shape[2])[:, None]
    for start in range(0, k.shape[2], 64):
        logits = q.float() @ k[:, :, start : start + 64].mT * scale
        if is_causal:
            logits.masked_fill_(torch.arange(start, start + logits.shape[-1]) > seen, -math.inf)
        higher = torch.maximum(best, logits.amax(-1, keepdim=True))
        shrink, p = (best - higher).exp(), (logits - higher).exp()
        total = total * shrink + p.sum(-1, keepdim=True)
        p = p.to(weights or q.dtype).float()
        out, best = out * shrink + p @ v[:, :, start : start + 64], higher
    return (out / total).to(q.dtype)


def attention_with_fp8_weights(q, k, v, **options):
    return online_attention(q, k, v, weights=torch.float8_e4m3fn, **options)


def in_int8(values, block):
    """`values` rounded to int8 with one scale for each block of the last axis."""
    blocks = values.float().unflatten(-1, (-1, block))
    scale = blocks.abs().amax(-1, keepdim=True) / 127
    return ((blocks / scale).round() * scale).reshape(values.shape)


# -- the reference ---------------------------------------------------------------------------------------------------


@given(m=edges, n=edges, k=edges, batch=st.sampled_from([None, 1, 3]), trans=st.booleans())
@settings(max_examples=25, deadline=None)
def test_the_gemm_reference_is_the_float64_product(m, n, k, batch, trans):
    problem = Gemm(m, n, k, batch=batch, trans_b=trans)
    inputs = problem.inputs(seeded())
    a, b = inputs.args
    torch.testing.assert_close(problem.answer(inputs), a.double() @ b.double(), rtol=1e-13, atol=1e-12)
    rows = torch.tensor([0, m - 1])
    torch.testing.assert_close(problem.answer(inputs, rows=rows), (a.double() @ b.double())[..., rows, :])


@given(seq_q=edges, seq_kv=edges, head_dim=edges, causal=st.booleans(), kv_heads=st.sampled_from([1, 2, 4]))
@settings(max_examples=25, deadline=None)
def test_the_attention_reference_is_sdpa_in_float64(seq_q, seq_kv, head_dim, causal, kv_heads):
    problem = Attention(2, 4, seq_q, head_dim, seq_kv=seq_kv, kv_heads=kv_heads, causal=causal, scale=0.3)
    inputs = problem.inputs(seeded())
    wide = [t.double() for t in inputs.args]
    expected = problem.rival("sdpa:math")(*wide, **inputs.kwargs)
    torch.testing.assert_close(problem.answer(inputs), expected, rtol=1e-12, atol=1e-13)
    rows = torch.tensor([seq_q - 1, 0])
    torch.testing.assert_close(problem.answer(inputs, rows=rows), expected[:, :, rows], rtol=1e-12, atol=1e-13)


def test_the_reference_does_not_depend_on_its_blocks(monkeypatch):
    problems = [Gemm(70, 30, 50, batch=2), Attention(2, 4, 70, 16, seq_kv=90, kv_heads=2, causal=True)]
    whole = [problem.answer(problem.inputs(seeded())) for problem in problems]
    monkeypatch.setitem(BLOCK_BYTES, "cpu", 8 * 90 * 7)
    for problem, expected in zip(problems, whole, strict=True):
        torch.testing.assert_close(problem.answer(problem.inputs(seeded())), expected, rtol=1e-12, atol=1e-13)


def test_a_case_too_large_for_a_cpu_is_checked_in_rows_drawn_at_random(monkeypatch):
    monkeypatch.setitem(MOST_FLOPS, "cpu", 1e6)
    for problem, candidate in (
        (Gemm(512, 64, 64), sums_in_blocks),
        (Attention(1, 2, 512, 16, causal=True), online_attention),
    ):
        assert "rows drawn at random" in judge(problem, candidate).sentence
        assert judge(problem, candidate).ok

        def half_of_it(*args, candidate=candidate, **kwargs):
            out = candidate(*args, **kwargs)
            out[..., 256:, :] = 0
            return out

        assert not judge(problem, half_of_it).ok


def test_only_what_is_dear_is_examined_in_part(monkeypatch):
    """On a GPU: rows of the calls around the timed ones; these whole, but fewer of them."""
    small, large, long = Gemm(512, 512, 512), Gemm(8192, 8192, 8192), Decode(64, 32, 32768, 128, kv_heads=8)
    assert rows_to_check(small, "cuda") is None
    assert rows_to_check(large, "cuda", whole=True) is None
    rows = rows_to_check(large, "cuda")
    share = int(8192 * 1e11 / large.flops)
    assert share - 2 <= len(rows) <= share  # the first and the last may have been drawn as well
    assert {0, 8191} <= set(rows.tolist())
    assert [timed_calls_judged(one) for one in (small, large, long)] == [3, 1, 1]
    assert [on_adversarial_values(one, "cuda") for one in (small, large, long)] == [True, False, False]
    monkeypatch.setitem(MOST_FLOPS, "cuda", 1e6)
    assert 16 <= len(rows_to_check(Gemm(512, 64, 64), "cuda")) < 512


def test_a_candidate_is_examined_once_at_a_problem():
    found = Examined()
    found.note(online_attention, Gemm(8, 8, 8), "normal")
    assert found.has(online_attention, Gemm(8, 8, 8), "normal")
    for others in ((online_attention, Gemm(8, 8, 9), "normal"), (online_attention, Gemm(8, 8, 8), "tiny")):
        assert not found.has(*others)
    assert not found.has(sums_in_blocks, Gemm(8, 8, 8), "normal")
    assert not found.has(online_attention, Gemm(8, 8, 8), ("normal", "sdpa"))
    # Nobody is taken for a function that is gone, or for one that it says it equals; and a number is never kept.
    found.note(lambda: None, Gemm(8, 8, 8), "normal")
    assert not found.has(lambda: None, Gemm(8, 8, 8), "normal")
    found.note(7, Gemm(8, 8, 8), "normal")
    assert not found.has(7, Gemm(8, 8, 8), "normal")

    class Alike:
        def __eq__(self, other):
            return True

        def __hash__(self):
            return hash(sums_in_blocks)

        def __call__(self, a, b):
            return a

    found.note(sums_in_blocks, Gemm(8, 8, 8), "normal")
    assert not found.has(Alike(), Gemm(8, 8, 8), "normal")


# -- the tolerance ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_honest_kernels_pass_on_every_distribution(distribution, dtype):
    for seed in range(2):
        judgement = judge(Gemm(64, 96, 512, dtype), sums_in_blocks, seed=seed, distribution=distribution)
        assert judgement.ok, judgement.sentence
        problem = Attention(1, 4, 129, 64, kv_heads=2, causal=True, dtype=dtype)
        judgement = judge(problem, online_attention, seed=seed, distribution=distribution)
        assert judgement.ok, judgement.sentence


@given(m=edges, n=edges, k=edges, seed=st.integers(0, 2**31), dtype=st.sampled_from(["float16", "float32"]))
@settings(max_examples=30, deadline=None)
def test_honest_gemms_pass_at_every_shape(m, n, k, seed, dtype):
    judgement = judge(Gemm(m, n, k, dtype), sums_in_blocks, seed=seed)
    assert judgement.ok, judgement.sentence


@given(seq_q=edges, seq_kv=edges, head_dim=edges, seed=st.integers(0, 2**31), causal=st.booleans())
@settings(max_examples=25, deadline=None)
def test_honest_attentions_pass_at_every_shape(seq_q, seq_kv, head_dim, seed, causal):
    problem = Attention(1, 2, seq_q, head_dim, seq_kv=seq_kv, causal=causal, dtype="float16")
    judgement = judge(problem, online_attention, seed=seed)
    assert judgement.ok, judgement.sentence


@pytest.mark.parametrize("seed", range(8))
def test_float16_sums_over_4096_terms_are_caught(seed):
    judgement = judge(Gemm(64, 64, 4096), sums_in_float16, seed=seed)
    assert judgement.reason is Reason.INACCURATE
    assert judgement.candidate_error > judgement.limit > 2 * judgement.rival_error


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("seed", range(4))
def test_weights_rounded_to_fp8_are_caught(seed, dtype):
    problem = Attention(1, 2, 256, 64, causal=bool(seed % 2), dtype=dtype)
    assert judge(problem, attention_with_fp8_weights, seed=seed).reason is Reason.INACCURATE


def test_tf32_products_under_a_float32_name_are_caught():
    def tf32(a, b):
        return (a.view(torch.int32) & ~0x1FFF).view(torch.float32) @ (b.view(torch.int32) & ~0x1FFF).view(torch.float32)

    assert judge(Gemm(64, 64, 256, "float32"), tf32).reason is Reason.INACCURATE


@pytest.mark.parametrize("terms", [256, 1024])
@pytest.mark.parametrize("distribution", ["normal", "constant-rows"])
def test_float32_sums_in_order_are_honest(terms, distribution):
    def in_order(a, b):
        total = torch.zeros(a.shape[0], b.shape[1])
        for k in range(a.shape[1]):
            total.addcmul_(a[:, k : k + 1], b[k : k + 1])
        return total

    for m, n in ((1, 1), (5, 3), (64, 80)):
        judgement = judge(Gemm(m, n, terms, "float32"), in_order, distribution=distribution)
        assert judgement.ok, judgement.sentence


@pytest.mark.parametrize(("m", "n"), [(64, 64), (300, 1), (1, 300), (16, 4096)])
def test_one_wrong_element_is_caught(m, n):
    def almost(a, b):
        out = sums_in_blocks(a, b)
        out.view(-1)[m * n // 3] *= -1
        return out

    assert judge(Gemm(m, n, 64), almost).reason is Reason.INACCURATE
    assert judge(Gemm(m, n, 64, "bfloat16"), almost).reason is Reason.INACCURATE


def test_a_softmax_without_the_maximum_is_caught_on_adversarial_inputs():
    def careless(q, k, v):
        weights = (q.float() @ k.float().mT * q.shape[-1] ** -0.5).exp()
        return (weights @ v.float() / weights.sum(-1, keepdim=True)).to(q.dtype)

    problem = Attention(1, 2, 64, 64)
    assert judge(problem, careless).ok
    judgement = judge(problem, careless, adversarial=True)
    assert judgement.reason in (Reason.NOT_FINITE, Reason.INACCURATE)
    assert "distribution dominant" in judgement.sentence
    assert judge(problem, online_attention, adversarial=True).ok


def test_one_wrong_row_is_caught_though_it_is_small():
    scale = torch.ones(64, 1)
    scale[5] = 1e-3
    problem = Custom(lambda g: (torch.randn(64, 128, generator=g), scale.clone()), against=lambda a, s: a * s)

    def quantised(a, s):
        return torch.where(s < 0.5, (a * s * 1e4).round() / 1e4, a * s)

    judgement = judge(problem, quantised)
    assert judgement.reason is Reason.INACCURATE
    assert judgement.candidate_worst_row > 100 * judgement.candidate_error


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int32])
@pytest.mark.parametrize("shape", [(7, 5), (64, 96), (3, 4, 200), (), (1,)])
def test_what_is_finite_is_measured_the_short_way_to_the_same_figures(dtype, shape, monkeypatch):
    right = torch.randn(shape, generator=seeded(), dtype=torch.float64) * 40
    noise = torch.randn(shape, generator=seeded(1), dtype=torch.float64)
    candidate, library = (right + noise).to(dtype), (right - noise / 2).to(dtype)
    short = measure(candidate, right, library, poison=POISON_HALF)
    monkeypatch.setitem(
        measure.__globals__, "_finite_block", lambda *block: measure.__globals__["_block"](*block, poison=None)
    )
    monkeypatch.setitem(measure.__globals__, "_largest", lambda dtype: -1.0)  # never the short way
    long = measure(candidate, right, library, poison=POISON_HALF)
    for name, value in vars(long).items():
        assert math.isclose(getattr(short, name), value, rel_tol=1e-12), name


@pytest.mark.parametrize("where", ["candidate", "library", "right"])
@pytest.mark.parametrize("value", [math.nan, math.inf, 1e5])
def test_one_element_that_is_not_finite_is_counted(where, value):
    right = torch.ones(40, 50, dtype=torch.float64)
    candidate, library = right.half(), right.half()
    {"candidate": candidate, "library": library, "right": right}[where][3, 4] = value  # 1e5 is infinite in float16
    found = measure(candidate, right, library)
    assert math.isfinite(found.frobenius)
    # Where the candidate has what the library has, or what is right, it is not at fault.
    assert found.stray == (1 if where == "candidate" else 0)


def test_errors_are_measured_relative_to_the_reference():
    right = torch.full((4, 128), 2.0, dtype=torch.float64)
    candidate, library = right.float(), right.float()
    candidate[2] += 0.5
    library[:, 0] += 0.25
    found = measure(candidate, right, library)
    assert found.frobenius == pytest.approx(0.5 / 2 / math.sqrt(4))
    assert found.row == pytest.approx(0.25)
    assert found.worst_row == 2
    assert found.element == pytest.approx(0.25)
    assert found.library_frobenius == pytest.approx(0.125 / math.sqrt(128))
    assert found.frobenius_floor == pytest.approx(torch.finfo(torch.float32).eps)


# -- NaN and infinity ------------------------------------------------------------------------------------------------


def test_overflow_where_the_library_overflows_is_right():
    problem = Gemm(32, 32, 64)
    a, b = problem.inputs(seeded()).args
    inputs = Inputs((a * 100, b * 100))
    library = torch.mm(*inputs.args)
    assert 0 < library.isinf().sum() < library.numel()
    assert check(problem, inputs, sums_in_blocks(*inputs.args)).ok
    finite = sums_in_blocks(*inputs.args).nan_to_num(posinf=6e4, neginf=-6e4)
    assert check(problem, inputs, finite).reason is Reason.NOT_FINITE


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_values_that_are_not_finite_and_should_be(value):
    def spoilt(a, b):
        out = a @ b
        out[3, 4] = value
        return out

    assert judge(Gemm(64, 64, 64), spoilt).reason is Reason.NOT_FINITE


def test_hiding_a_nan_is_wrong():
    judgement = judge(Gemm(64, 64, 64), lambda a, b: (a @ b).nan_to_num(), distribution="non-finite")
    assert judgement.reason is Reason.NOT_FINITE


# -- form ------------------------------------------------------------------------------------------------------------


class Lazy(torch.Tensor):
    """A subclass that could put its work off."""


def _with_attribute(a, b):
    out = a @ b
    out.hidden = 1
    return out


@pytest.mark.parametrize(
    ("candidate", "reason", "words"),
    [
        (lambda a, b: (a @ b)[:-1], Reason.BAD_SHAPE, r"\(31, 24\); it must be \(32, 24\)"),
        (lambda a, b: (a @ b).float(), Reason.BAD_DTYPE, "is float32; it must be float16"),
        (lambda a, b: (a @ b).to("meta"), Reason.BAD_TYPE, "must be strided and have memory"),
        (lambda a, b: (a @ b).tolist(), Reason.BAD_TYPE, "is a list of 32; the library's is a tensor"),
        (lambda a, b: None, Reason.BAD_TYPE, "is None; the library's is a tensor"),
        (lambda a, b: [a @ b, a.clone()], Reason.BAD_TYPE, "is a list of 2; the library's is a tensor"),
        (lambda a, b: (a @ b).as_subclass(Lazy), Reason.BAD_TYPE, "must be a plain torch.Tensor"),
        (_with_attribute, Reason.BAD_TYPE, "attributes of its own"),
        (lambda a, b: (a @ b).to_sparse(), Reason.BAD_TYPE, "is a sparse_coo tensor; the library's is a tensor"),
        (lambda a, b: a[:, :24], Reason.BAD_TYPE, "memory of an input"),
    ],
)
def test_results_of_the_wrong_form(candidate, reason, words):
    problem = Gemm(32, 24, 32)
    judgement = judge(problem, candidate)
    assert judgement.reason is reason
    assert not judgement.ok
    assert re.search(words, judgement.sentence)


# -- custom problems -------------------------------------------------------------------------------------------------


def test_a_custom_rival_is_its_own_reference_in_float64():
    problem = Custom((torch.randn(64, 64).half(),), against=lambda x: torch.nn.functional.gelu(x))
    assert judge(problem, lambda x: torch.nn.functional.gelu(x.float()).half()).ok
    assert not judge(problem, lambda x: torch.nn.functional.gelu(x, approximate="tanh") * 1.01).ok


def test_integer_results_must_be_equal():
    codes = torch.randint(0, 100, (64, 64), dtype=torch.uint8)
    problem = Custom((codes,), against=lambda x: x.sort(dim=1).values)
    assert judge(problem, lambda x: x.sort(dim=1).values).ok
    assert judge(problem, lambda x: x.sort(dim=1).values.clamp(min=1)).reason is Reason.INACCURATE


@pytest.mark.parametrize("block", [8, 32, 128])
def test_operands_in_int8_are_no_bfloat16(block) -> None:
    problem = Gemm(128, 128, 128, dtype="bfloat16")
    for seed in range(3):
        assert judge(problem, sums_in_blocks, seed=seed, adversarial=True).ok
        both = judge(problem, lambda a, b: (in_int8(a, block) @ in_int8(b.T, block).T).bfloat16(), seed=seed)
        assert both.reason is Reason.INACCURATE
        one = judge(problem, lambda a, b: (in_int8(a, block) @ b.float()).bfloat16(), seed=seed, adversarial=True)
        assert one.reason is Reason.INACCURATE


MODULES = {
    "linear": lambda x, w: torch.nn.functional.linear(x, w),
    "norm": lambda x, w: torch.nn.functional.rms_norm(x, x.shape[-1:]) * w[0],
    "swiglu": lambda x, w: torch.nn.functional.silu(x) * w,
    "softmax": lambda x, w: (x * w).softmax(-1),
}


@pytest.mark.parametrize("name", MODULES)
def test_results_in_int8_are_no_bfloat16(name) -> None:
    module = MODULES[name]
    problem = Custom(tuple(torch.randn(128, 128).bfloat16() for _ in range(2)), against=module)
    in_float32 = lambda x, w: module(x.float(), w.float()).bfloat16()  # noqa: E731
    assert judge(problem, in_float32).ok
    assert judge(problem, module).ok
    for block in (64, 128):
        verdict = judge(problem, lambda x, w, block=block: in_int8(in_float32(x, w), block).bfloat16())
        assert verdict.reason is Reason.INACCURATE


def test_the_problem_decides_the_dtype() -> None:
    def in_bfloat16(a, b):
        return torch.mm(a, b).bfloat16()

    with pytest.raises(LibraryWrongError, match="the rival returns bfloat16; the right answer is float16"):
        judge(Gemm(64, 64, 64), in_bfloat16, rival=in_bfloat16)


def test_several_results_are_all_checked():
    problem = Custom((torch.randn(64, 64),), against=lambda x: (x.sum(1), x.exp()))
    assert judge(problem, lambda x: (x.sum(1), x.exp())).ok
    assert judge(problem, lambda x: (x.sum(1), x.exp() + 1e-3)).reason is Reason.INACCURATE


def test_with_nothing_to_compare_with_the_error_says_what_to_pass():
    def fails(x):
        raise TypeError("float16 only")

    args = (torch.randn(64, 64).half(),)
    with pytest.raises(ReferenceUnavailableError, match="pass reference= or against="):
        judge(Custom(args, label="alone"), torch.sin)
    with pytest.raises(
        ReferenceUnavailableError, match=r"the reference of sine fails .* float16 only\); give a callable"
    ):
        judge(Custom(args, against=torch.sin, reference=fails, label="sine"), torch.sin)
    assert judge(Custom(args, reference=lambda x: x * 2), lambda x: x * 2).ok


def test_check_needs_no_generator_and_makes_the_library_result_itself():
    problem = Gemm(64, 64, 64)
    inputs = problem.inputs(seeded())
    assert check(problem, inputs, sums_in_blocks(*inputs.args)).ok
    assert not check(problem, inputs, sums_in_blocks(*inputs.args) * 1.01).ok


def shifted_rows(a, b):
    """A library's answer with rows in the wrong places: its error is of the answer's own size."""
    return torch.mm(a, b).roll(1, 0)


@pytest.mark.parametrize("candidate", [torch.mm, shifted_rows, sums_in_float16], ids=["right", "as wrong", "rounded"])
def test_a_library_that_is_wrong_itself_is_no_measure(candidate) -> None:
    with pytest.raises(LibraryWrongError, match=r"wrong on these inputs \(relative error 1\.4 against FP64\)"):
        judge(Gemm(64, 64, 64), candidate, rival=shifted_rows)
    assert judge(Gemm(64, 64, 64), torch.mm).ok


@pytest.mark.parametrize(
    ("rival", "told"),
    [
        (lambda a, b: None, "the rival returns NoneType; "),
        (lambda a, b: torch.mm(a, b)[:, :-1], r"the rival returns \(64, 47\); "),
        (lambda a, b: torch.mm(a, b)[1:], r"the rival returns \(63, 48\); "),
        (lambda a, b: (torch.mm(a, b), a), r"the rival returns \(64, 48\) and \(64, 32\); "),
    ],
    ids=["nothing", "a column less", "a row less", "two"],
)
def test_a_rival_of_another_shape_is_not_the_candidates_fault(rival, told) -> None:
    problem = Gemm(64, 48, 32)
    with pytest.raises(LibraryWrongError, match=told + r"the right answer has the candidate's shape, \(64, 48\)"):
        judge(problem, torch.mm, rival=rival)
    own = Custom(args=problem.inputs(seeded()).args, against=rival, reference=torch.mm, label="own")
    with pytest.raises(LibraryWrongError, match=told):
        check(own, own.inputs(seeded()), torch.mm(*own.args), rival=rival)
    verdict = judge(problem, lambda a, b: torch.mm(a, b)[:-2], rival=rival)
    assert verdict.reason in (Reason.BAD_SHAPE, Reason.BAD_TYPE)


def test_a_rival_and_a_candidate_of_one_wrong_shape() -> None:
    def a_row_less(a, b):
        return torch.mm(a, b)[1:]

    with pytest.raises(LibraryWrongError, match=r"as the candidate does; the right answer has shape \(64, 48\)"):
        judge(Gemm(64, 48, 32), a_row_less, rival=a_row_less)
    own = Custom(args=Gemm(64, 48, 32).inputs(seeded()).args, against=a_row_less, reference=torch.mm, label="own")
    with pytest.raises(ReferenceUnavailableError, match="the reference has shapes"):
        check(own, own.inputs(seeded()), a_row_less(*own.args), rival=a_row_less)


def test_a_candidate_of_another_shape_is_wrong_where_only_the_rival_tells_the_shape() -> None:
    own = Custom(args=Gemm(64, 48, 32).inputs(seeded()).args, against=torch.mm, label="own")
    verdict = check(own, own.inputs(seeded()), torch.mm(*own.args)[1:], rival=torch.mm)
    assert verdict.reason is Reason.BAD_SHAPE


def test_few_elements_may_nearly_cancel_and_subnormal_ones_are_coarse() -> None:
    right = torch.full((8, 8), 1e-9, dtype=torch.float64)
    inputs = Inputs((torch.ones(8, 1, dtype=torch.float16), torch.ones(1, 8, dtype=torch.float16)))
    far = (right + 1e-9).float()
    assert measure(far, right, far).library_frobenius > 0.9
    require_plausible(measure(far, right, far), "normal")
    assert check(Gemm(8, 8, 1), inputs, torch.ones(8, 8, dtype=torch.float16)).ok
    for distribution in DISTRIBUTIONS:
        assert examine(Gemm(96, 96, 96), torch.mm, seeded(), distribution=distribution).ok
