"""Forms of arguments and results: nests of every kind, sparse and nested tensors, views, numbers, empty results."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from perfsuite.case.run import compare
from perfsuite.guards.poison import poison
from perfsuite.oracle import Judgement, LibraryWrongError, examine
from perfsuite.outcome import Reason, UnjudgeableError, Verdict
from perfsuite.problems import Custom
from perfsuite.problems.tensors import copy_in_place, leaves_in, map_tensors, same_bits, tensors_in
from perfsuite.settings import Settings

torch = pytest.importorskip("torch")


class Pair(NamedTuple):
    values: Any
    indices: Any


class Turned(NamedTuple):
    indices: Any
    values: Any


@dataclasses.dataclass(frozen=True)
class Loss:
    loss: Any
    parts: Any = None


@dataclasses.dataclass(slots=True)
class Slotted:
    loss: Any
    parts: Any


class Registered:
    def __init__(self, one: Any, two: Any) -> None:
        self.one, self.two = one, two


torch.utils._pytree.register_pytree_node(
    Registered, lambda value: ([value.one, value.two], None), lambda parts, _: Registered(*parts)
)


class Unknown:
    def __init__(self, values: Any) -> None:
        self.values = values


def csr(values: Any) -> Any:
    return (values * (values > 0)).to_sparse_csr()


def jagged(values: Any) -> Any:
    return torch.nested.nested_tensor([values[:3], values[3:]], layout=torch.jagged)


NESTS: dict[str, Callable[[Any], Any]] = {
    "named tuple": lambda x: Pair(x * 2, x + 1),
    "torch's return type": lambda x: torch.sort(x, -1),
    "dictionary": lambda x: {"loss": x.sum(-1), "logits": [x.exp(), None, 3]},
    "ordered dictionary": lambda x: collections.OrderedDict(b=x * 2, a=x + 1),
    "dictionary with default": lambda x: collections.defaultdict(list, a=x + 1),
    "dataclass": lambda x: Loss(x.sum(-1), (x, x * 3)),
    "dataclass with slots": lambda x: Slotted(x.sum(-1), (x * 2, x * 3)),
    "registered class": lambda x: Registered(x * 2, {"three": x * 3}),
    "COO": lambda x: (x * (x > 0)).to_sparse(),
    "CSR": csr,
    "CSC": lambda x: (x * (x > 0)).to_sparse_csc(),
    "BSR": lambda x: (x * (x > 0)).to_sparse_bsr((2, 2)),
    "jagged": jagged,
    "nested": lambda x: torch.nested.nested_tensor([x[:3], x[3:]]),
    "complex": lambda x: torch.complex(x, x * 2),
    "numbers": lambda x: (x.sum().item(), int(x.shape[0]), True, "sum", None),
    "expanded": lambda x: x.sum(-1, keepdim=True).expand(-1, 7),
    "strided": lambda x: (x * 2)[:, ::2],
    "size by data": lambda x: x[x > 0] * 2,
}


@pytest.mark.parametrize("name", NESTS)
def test_a_nest_is_taken_apart_copied_and_put_together(name: str) -> None:
    nest = NESTS[name](torch.randn(8, 6))
    copy = map_tensors(nest, copy_in_place)
    assert type(copy) is type(nest)
    assert same_bits(nest, copy)
    assert [path for path, _ in leaves_in(nest)] == [path for path, _ in leaves_in(copy)]
    ours, theirs = list(tensors_in(nest)), list(tensors_in(copy))
    assert [one.stride() for one in ours] == [one.stride() for one in theirs]
    addresses = {one.untyped_storage().data_ptr() for one in ours if one.numel()}
    assert not addresses & {one.untyped_storage().data_ptr() for one in theirs if one.numel()}


def judged(candidate: Any, rival: Any, *args: Any, **kwargs: Any) -> Judgement:
    problem = Custom(args or (torch.randn(8, 6),), kwargs, against=rival, label="form")
    return examine(problem, candidate, torch.Generator().manual_seed(0), adversarial=False)


@pytest.mark.parametrize("name", NESTS)
def test_a_result_of_every_form_is_judged(name: str) -> None:
    make = NESTS[name]
    found = judged(lambda x: make(x.clone()), make)
    assert found.ok, found.sentence
    broken = judged(lambda x: make(x * 1.01 + 0.01), make)
    assert not broken.ok
    assert broken.reason in (Reason.INACCURATE, Reason.BAD_SHAPE, Reason.NOT_FINITE), broken.sentence


@pytest.mark.parametrize("name", NESTS)
def test_an_argument_of_every_form_is_redrawn(name: str) -> None:
    problem = Custom((NESTS[name](torch.randn(8, 6)),), {"more": NESTS[name](torch.randn(8, 6))})
    generator = torch.Generator().manual_seed(0)
    one, other = problem.inputs(generator), problem.inputs(generator)
    nests = (problem.args, problem.kwargs)
    given = list(tensors_in(nests))
    for drawn in (one, other):
        found = list(tensors_in(drawn))
        assert [(x.shape, x.stride(), x.dtype) for x in found] == [(x.shape, x.stride(), x.dtype) for x in given]
    if given:
        assert not same_bits(one, other)


def test_sparse_and_nested_arguments_keep_the_places_of_their_values() -> None:
    problem = Custom((csr(torch.randn(8, 6)), torch.randn(6, 3)), against=lambda a, b: a @ b, label="spmm")
    drawn = problem.inputs(torch.Generator().manual_seed(0)).args[0]
    assert torch.equal(drawn.col_indices(), problem.args[0].col_indices())
    assert judged(lambda a, b: a.to_dense() @ b, lambda a, b: a @ b, *problem.args).ok
    assert not judged(lambda a, b: a.to_dense() @ b * 1.1, lambda a, b: a @ b, *problem.args).ok
    two = (jagged(torch.randn(8, 6)), torch.randn(8, 6))
    offsets = two[0].offsets()
    pair = torch.nested.nested_tensor_from_jagged(two[1], offsets)
    assert judged(lambda a, b: b + a, lambda a, b: a + b, two[0], pair).ok  # both still have the same offsets


def test_tensors_in_keyword_arguments_and_containers_are_judged() -> None:
    def rival(one: dict[str, Any], *, more: Loss, scale: float) -> Any:
        return one["x"] @ more.loss * scale

    arguments = {"one": {"x": torch.randn(8, 6)}, "more": Loss(torch.randn(6, 4)), "scale": 2.0}
    problem = Custom((), arguments, against=rival, label="keywords")
    generator = torch.Generator().manual_seed(0)
    assert examine(problem, lambda one, more, scale: (one["x"] * scale) @ more.loss, generator).ok
    assert not examine(problem, lambda one, more, scale: one["x"] @ more.loss, generator).ok


def test_equivalent_kinds_are_accepted() -> None:
    assert judged(lambda x: (x * 2, x + 1), NESTS["named tuple"]).ok
    assert judged(lambda x: [*torch.sort(x, -1)], NESTS["torch's return type"]).ok
    assert judged(lambda x: Pair(*torch.sort(x, -1)), NESTS["torch's return type"]).ok
    turned = judged(lambda x: {"logits": (x.exp(), None, 3), "loss": x.sum(-1)}, NESTS["dictionary"])
    assert turned.ok, turned.sentence


@pytest.mark.parametrize(
    ("candidate", "rival", "words"),
    [
        (lambda x: Turned(x, x * 2), NESTS["named tuple"], "the output is a .*Turned of 2; the library's is a .*Pair"),
        (lambda x: {"loss": x.sum(-1)}, NESTS["dictionary"], "with the keys 'loss'; the library's is a dict"),
        (
            lambda x: {"loss": x.sum(-1), "logits": [x.exp(), x, 3]},
            NESTS["dictionary"],
            r'output\["logits"\]\[1\] is a tensor; the library\'s is None',
        ),
        (lambda x: Loss(x.sum(-1), x), NESTS["dataclass"], "output.parts is a tensor; the library's is a tuple of 2"),
        (lambda x: Loss(x.sum(-1), (x, x[1:])), NESTS["dataclass"], r"output.parts\[1\] has shape"),
        (lambda x: x.sum(), lambda x: x.sum().item(), "is a tensor; the library's is a float"),
        (lambda x: (x.sum().item(), 8, True, "mean", None), NESTS["numbers"], r"output\[3\] is 'mean'; it must be"),
        (lambda x: x.to_sparse(), csr, "is a sparse_coo tensor; the library's is a sparse_csr tensor"),
        (lambda x: [Unknown(x)], lambda x: [x], r"output\[0\] is a .*Unknown; allowed are tensors and numbers"),
    ],
)
def test_another_structure_is_wrong_at_its_path(candidate: Any, rival: Any, words: str) -> None:
    found = judged(candidate, rival)
    assert not found.ok
    assert found.reason in (Reason.BAD_TYPE, Reason.BAD_SHAPE, Reason.INACCURATE)
    import re

    assert re.search(words, found.sentence), found.sentence


def test_the_path_of_a_wrong_leaf_is_named() -> None:
    found = judged(lambda x: {"loss": x.sum(-1), "logits": [x.exp() * 1.1, None, 3]}, NESTS["dictionary"])
    assert found.reason is Reason.INACCURATE
    assert found.sentence.startswith('output["logits"][0]: '), found.sentence


@pytest.mark.parametrize("candidate", [Unknown, lambda x: x * 1])
def test_a_form_that_cannot_be_judged_is_no_fault_of_the_candidate(candidate: Any) -> None:
    with pytest.raises(UnjudgeableError, match=r"its result is a .*Unknown; .*register_pytree_node"):
        judged(candidate, Unknown)


class Sum:
    """Adds to what it keeps."""

    def __init__(self) -> None:
        self.kept: Any = 0

    def __call__(self, x: Any) -> Any:
        self.kept = self.kept + x
        return self.kept


def test_memory_and_state_that_calls_share_are_usage_errors() -> None:
    buffer, other = torch.empty(8, 6), torch.empty(8, 6)
    into, rivals = (functools.partial(torch.mul, other=2, out=out) for out in (buffer, other))
    with pytest.raises(UnjudgeableError, match="a call of the candidate overwrites the result of the call before it"):
        judged(lambda x: into(x), lambda x: x + x)
    with pytest.raises(UnjudgeableError, match=r"of the rival overwrites .* an argument that the call writes \(out=\)"):
        judged(lambda x: x + x, lambda x: rivals(x))
    wrong = judged(lambda x: into(x).add_(1), lambda x: x + x)
    assert (wrong.ok, wrong.reason) == (False, Reason.INACCURATE)
    table = torch.rand(6)
    assert judged(lambda x: (x * 2, table), lambda x: (x + x, table.clone())).ok
    with pytest.raises(UnjudgeableError, match=r"keeps state between calls.*prepare the state by perf\(..., reset=f\)"):
        judged(Sum(), Sum())


def test_sums_in_free_order_are_no_state_that_a_rival_keeps() -> None:
    def noisy(x: torch.Tensor) -> torch.Tensor:
        return -x * (1 + 1e-6 * torch.rand(()))

    problem = Custom((torch.randn(128, 64),), against=noisy, reference=lambda x: x * 1, label="form")
    with pytest.raises(LibraryWrongError):
        examine(problem, lambda x: x * 1, torch.Generator().manual_seed(0), adversarial=False)


def test_arguments_that_cannot_be_drawn_are_usage_errors() -> None:
    coded = torch.randn(8, 6).to(torch.float8_e4m3fn).view(torch.float4_e2m1fn_x2)
    with pytest.raises(UnjudgeableError, match=r"cannot be drawn anew .*; give args= as a callable"):
        judged(lambda x: x.view(torch.uint8) + 0, lambda x: 0 + x.view(torch.uint8), coded)
    unsigned = torch.randint(0, 9, (8, 6)).to(torch.uint16)
    assert judged(lambda x: x.long() * 2, lambda x: x.long() + x.long(), unsigned).ok
    assert judged(lambda x: x.exp(), lambda x: torch.exp(x), torch.randn(1)).ok


def test_a_result_of_nothing_is_a_usage_error() -> None:
    with pytest.raises(UnjudgeableError, match="returns nothing that could be compared"):
        judged(lambda x: None, lambda x: None)


def test_an_empty_result_says_that_nothing_was_compared() -> None:
    found = judged(lambda x: x[:0] * 2, lambda x: x[:0] * 2)
    assert found.ok
    assert found.sentence == "nothing was compared: the result has no elements"


def test_a_view_of_an_argument_is_allowed_where_the_rival_returns_one() -> None:
    assert judged(lambda x: x.t(), lambda x: x.mT).ok
    found = judged(lambda x: x.t(), lambda x: x.t().clone())
    assert found.reason is Reason.BAD_TYPE
    assert "lies in the memory of an input; it must have memory of its own, as the rival's has" in found.sentence
    other = judged(lambda x, y: (x + y, y), lambda x, y: (x + y, y.clone()), torch.randn(4), torch.randn(4))
    assert not other.ok


def test_numbers_are_compared_with_those_of_float64() -> None:
    assert judged(lambda x: x.double().sum().item(), lambda x: x.sum().item()).ok
    assert not judged(lambda x: 1.01 * x.sum().item(), lambda x: x.sum().item()).ok


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "int8", "uint8", "int16", "int32", "int64", "bool"])
def test_tensors_of_every_dtype_are_redrawn_and_judged(dtype: str) -> None:
    kind = getattr(torch, dtype)
    given = torch.randint(0, 2 if dtype == "bool" else 100, (64, 32)).to(kind)

    def doubled(x: Any) -> Any:
        return x.float() * 2

    assert judged(lambda x: x.float() + x.float(), doubled, given).ok
    assert not judged(lambda x: x.float() * 2 + 1, doubled, given).ok
    if not dtype.startswith("float8"):
        same = judged(lambda x: x.view(torch.uint8).clone().view(kind), lambda x: x.clone(), given)
        assert same.ok, same.sentence


@pytest.mark.parametrize(
    ("candidate", "rival"),
    [
        (lambda a, b: {"one": (a @ b, b.mT), "two": [a.sum()]}, lambda a, b: {"two": [a.sum()], "one": (a @ b, b.t())}),
        (lambda a, b: a.sum(-1, keepdim=True).expand(-1, 9) * 1, lambda a, b: a.sum(-1, keepdim=True).expand(-1, 9)),
        (lambda a, b: a.sum(-1, keepdim=True).expand(-1, 9), lambda a, b: a.sum(-1, keepdim=True).expand(-1, 9)),
        (lambda a, b: Loss((a @ b).sum().item(), a[a > 0]), lambda a, b: Loss((a @ b).sum().item(), a[a > 0])),
        (lambda a, b: (a @ b).relu().to_sparse_csr(), lambda a, b: (a @ b).relu().to_sparse_csr()),
    ],
    ids=["views in a dictionary", "expanded and dense", "expanded", "number and size by data", "sparse"],
)
def test_results_of_these_forms_are_timed_and_judged(candidate: Any, rival: Any) -> None:
    settings = Settings(device="cpu", seconds=0.02)
    problem = Custom((torch.randn(32, 16), torch.randn(16, 16)), against=rival, label="timed")
    found = compare(problem, candidate, at_least=0.01, settings=settings)
    assert found.verdict is not Verdict.WRONG, found.sentence
    assert found.rounds


def test_an_answer_that_is_wrong_in_timed_calls_only_is_found_in_a_nest() -> None:
    calls = 0

    def candidate(a: Any) -> dict[str, Any]:
        nonlocal calls
        calls += 1
        return {"x": a * 2, "y": a + (1 if calls < 4 else 2)}

    problem = Custom((torch.randn(32, 16),), against=lambda a: {"y": a + 1, "x": a * 2}, label="timed")
    found = compare(problem, candidate, at_least=0.01, settings=Settings(device="cpu", seconds=0.02))
    assert found.verdict is Verdict.WRONG
    assert 'output["y"]: ' in found.sentence


@pytest.mark.parametrize("make", [lambda: torch.randn(8, 1).expand(8, 6), lambda: torch.randn(20).unfold(0, 4, 2)])
def test_elements_that_share_memory_do_so_in_copies_and_are_poisoned(make: Any) -> None:
    tensor = make()
    copy = copy_in_place(tensor)
    assert torch.equal(copy, tensor)
    assert copy.stride() == tensor.stride()
    poison(copy)
    assert copy.isnan().all()
    assert not tensor.isnan().any()
    drawn = Custom((tensor,)).inputs(torch.Generator().manual_seed(0)).args[0]
    assert drawn.stride() == tensor.stride()
    assert not torch.equal(drawn, tensor)


def test_integers_are_put_in_order_anew_only_where_nothing_else_varies() -> None:
    keys, offsets = torch.randint(0, 99, (64,)), torch.arange(0, 65, 4)

    def drawn(*args: Any) -> Any:
        return Custom(args).inputs(torch.Generator().manual_seed(0)).args

    alone = drawn(keys, offsets)
    assert not torch.equal(alone[0], keys)
    assert set(alone[0].tolist()) <= set(keys.tolist())
    order = torch.randperm(64)
    assert sorted(drawn(order)[0].tolist()) == sorted(order.tolist())
    assert torch.equal(alone[1], offsets)
    assert torch.equal(drawn(keys, torch.randn(4))[0], keys)


def test_a_histogram_of_integers_is_judged() -> None:
    def counted(keys: Any) -> Any:
        return torch.zeros(99).index_add_(0, keys, torch.ones(64)).long()

    keys = torch.randint(0, 99, (64,))
    assert judged(lambda x: torch.bincount(x, minlength=99), counted, keys).ok
    assert not judged(lambda x: torch.bincount(x.clamp(min=50), minlength=99), counted, keys).ok


@pytest.mark.parametrize("make", [lambda x: x.softmax(-1), lambda x: x.log_softmax(-1), lambda x: x.exp() * 1e4])
def test_values_of_one_sign_keep_it(make: Any) -> None:
    given = make(torch.randn(64, 32))
    drawn = Custom((given,)).inputs(torch.Generator().manual_seed(0)).args[0]
    assert not torch.equal(drawn, given)
    assert (drawn.sign() * given.sign().median() >= 0).all()
    hard = Custom((given,)).inputs(torch.Generator().manual_seed(0), distribution="dominant").args[0]
    assert (hard.sign() * given.sign().median() >= 0).all()
