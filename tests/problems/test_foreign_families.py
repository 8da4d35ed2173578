"""Families that a test file defines for itself: all checks that the built-in ones have, on awkward shapes too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

torch = pytest.importorskip("torch", reason="inputs are drawn with torch")

from perfsuite import Problem, Reason, Settings, Verdict, compare  # noqa: E402
from perfsuite.case.checks import _examined  # noqa: E402
from perfsuite.oracle import ReferenceUnavailableError, WeakProblemError, examine  # noqa: E402
from perfsuite.oracle.cache import VARIABLE, cached_reference  # noqa: E402
from perfsuite.oracle.effort import Examined  # noqa: E402
from perfsuite.problems import Inputs  # noqa: E402
from perfsuite.problems.distributions import draw  # noqa: E402
from perfsuite.problems.exact import running  # noqa: E402

EPS = 1e-6


def normed(x: torch.Tensor) -> torch.Tensor:
    return x * (x.square().mean(-1, keepdim=True) + EPS).rsqrt()


@dataclass(frozen=True)
class Norm(Problem):
    """Rows of x (rows, columns) over their root mean square."""

    family: ClassVar[str] = "norm"
    rows: int
    columns: int
    dtype: str = "float32"

    @property
    def row_count(self) -> int | None:
        return self.rows

    @property
    def flops(self) -> float:
        return 4.0 * self.rows * self.columns

    def inputs(self, generator: torch.Generator, *, distribution: str = "normal") -> Inputs:
        shape, dtype = (self.rows, self.columns), getattr(torch, self.dtype)
        return Inputs((draw(distribution, shape, dtype, generator),))

    def reference(self, inputs: Inputs, *, rows: torch.Tensor | None = None) -> Any:
        (x,) = inputs.args
        return normed((x if rows is None else x.index_select(-2, rows)).double())

    def own_rivals(self) -> Mapping[str, Callable[..., Any]]:
        return {"torch": lambda x: torch.nn.functional.rms_norm(x, x.shape[-1:], eps=EPS)}

    def neighbour(self, near: Callable[[int], int]) -> Problem | None:
        return replace(self, rows=near(self.rows), columns=near(self.columns))


@dataclass(frozen=True)
class Shares(Norm):
    """Softmax: its answer to constant rows, and to rows of one column, is the same for all inputs."""

    family: ClassVar[str] = "shares"

    def reference(self, inputs: Inputs, *, rows: torch.Tensor | None = None) -> Any:
        (x,) = inputs.args
        return (x if rows is None else x.index_select(-2, rows)).double().softmax(-1)

    def own_rivals(self) -> Mapping[str, Callable[..., Any]]:
        return {"torch": lambda x: x.softmax(-1)}


@dataclass(frozen=True)
class Total(Problem):
    """The sum of each row: a result of one dimension, whose rows cannot be computed alone."""

    family: ClassVar[str] = "total"
    rows: int
    columns: int

    def inputs(self, generator: torch.Generator, *, distribution: str = "normal") -> Inputs:
        return Inputs((draw(distribution, (self.rows, self.columns), torch.float32, generator),))

    def reference(self, inputs: Inputs, *, rows: torch.Tensor | None = None) -> Any:
        return inputs.args[0].double().sum(-1)

    def own_rivals(self) -> Mapping[str, Callable[..., Any]]:
        return {"torch": lambda x: x.sum(-1)}

    def in_order(
        self, inputs: Inputs, right: torch.Tensor, rows: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        (x,) = inputs.args
        return running(x, x.new_ones(self.columns, 1))[:, 0], right


@dataclass(frozen=True)
class NormAndScale(Norm):
    """Two results: the normed rows and, in one column, what each was divided by."""

    family: ClassVar[str] = "norm-and-scale"

    def reference(self, inputs: Inputs, *, rows: torch.Tensor | None = None) -> Any:
        (x,) = inputs.args
        return both((x if rows is None else x.index_select(-2, rows)).double())

    def own_rivals(self) -> Mapping[str, Callable[..., Any]]:
        return {"torch": both}


def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = (x.square().mean(-1, keepdim=True) + EPS).sqrt()
    return x / scale, scale


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


RIGHT: list[tuple[Problem, Callable[..., Any]]] = [
    (Norm(40, 64), normed),
    (Norm(40, 64, "bfloat16"), lambda x: normed(x.float()).to(x.dtype)),
    (Norm(1, 64), normed),
    (Shares(9, 33), lambda x: torch.softmax(x - x.amax(-1, keepdim=True), -1)),
    (Shares(1, 300), lambda x: torch.softmax(x, -1)),
    (Total(70, 130), lambda x: x @ x.new_ones(x.shape[-1])),
    (Total(1, 1), lambda x: x[:, 0].clone()),
    (NormAndScale(24, 48), lambda x: list(both(x))),
]


@pytest.mark.parametrize(("problem", "kernel"), RIGHT, ids=lambda value: getattr(value, "name", ""))
def test_a_right_kernel_passes_on_ordinary_and_hard_inputs(problem: Problem, kernel: Callable[..., Any]) -> None:
    judgement = examine(problem, kernel, generator(), held_out=True)
    assert judgement.ok, judgement.sentence


@pytest.mark.parametrize("problem", [Norm(40, 64), NormAndScale(40, 64)])
def test_a_kernel_that_is_wrong_on_hard_inputs_alone_is_found(problem: Norm) -> None:
    library = problem.library()
    found = examine(problem, lambda x: library(x.clamp(-20, 20)), generator())
    assert found.reason is Reason.INACCURATE
    assert "on inputs of the distribution dominant" in found.sentence


def for_listed_sizes(x: torch.Tensor) -> torch.Tensor:
    return normed(x) if x.shape == (40, 64) else torch.zeros_like(x)


def test_a_kernel_that_is_wrong_at_sizes_nobody_listed_is_found() -> None:
    assert examine(Norm(40, 64), for_listed_sizes, generator()).ok
    found = examine(Norm(40, 64), for_listed_sizes, generator(), held_out=True)
    assert not found.ok
    assert "which nobody listed" in found.sentence


@dataclass(frozen=True)
class WithoutRival(Norm):
    """A family without a library: each case must name one."""

    def own_rivals(self) -> Mapping[str, Callable[..., Any]]:
        return {}


def test_unlisted_sizes_are_examined_against_the_rival_of_the_case() -> None:
    problem = WithoutRival(40, 64)
    assert problem.default_rival is None
    found = examine(problem, for_listed_sizes, generator(), rival=normed, held_out=True)
    assert not found.ok
    assert "which nobody listed" in found.sentence
    with pytest.raises(ReferenceUnavailableError, match="no library to compare with"):
        examine(problem, normed, generator())


@pytest.mark.parametrize(
    ("result", "at"),
    [(0, "the first result"), (1, "the second result")],
    ids=["first", "second"],
)
def test_each_of_two_results_is_judged(result: int, at: str) -> None:
    def off(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = list(both(x))
        made[result] = made[result] * 1.001
        return tuple(made)

    assert examine(NormAndScale(40, 64), off, generator()).reason is Reason.INACCURATE, at


def test_a_kernel_that_varies_is_found() -> None:
    turn = iter(range(1000))

    def varying(x: torch.Tensor) -> torch.Tensor:
        out = normed(x)
        out[0, 0] = torch.nextafter(out[0, 0], torch.tensor(9.0)) if next(turn) % 2 else out[0, 0]
        return out

    assert examine(Norm(40, 64), varying, generator()).reason is Reason.NOT_DETERMINISTIC


@dataclass(frozen=True)
class Constant(Norm):
    def inputs(self, generator: torch.Generator, *, distribution: str = "normal") -> Inputs:
        return Inputs((torch.ones(self.rows, self.columns),))


@dataclass(frozen=True)
class Repeated(Norm):
    def inputs(self, generator: torch.Generator, *, distribution: str = "normal") -> Inputs:
        return super().inputs(torch.Generator().manual_seed(0), distribution=distribution)


@pytest.mark.parametrize(("problem", "words"), [(Constant(8, 8), "are constant"), (Repeated(8, 8), "is the same")])
def test_problems_that_a_wrong_kernel_could_pass_are_refused(problem: Problem, words: str) -> None:
    with pytest.raises(WeakProblemError, match=words):
        examine(problem, normed, generator())


@dataclass(frozen=True)
class Single(Norm):
    def reference(self, inputs: Inputs, *, rows: torch.Tensor | None = None) -> Any:
        return normed(inputs.args[0])


@dataclass(frozen=True)
class AllRows(Norm):
    """It has a row count, but computes all rows whichever are asked for."""

    def reference(self, inputs: Inputs, *, rows: torch.Tensor | None = None) -> Any:
        return normed(inputs.args[0].double())


def test_a_reference_of_lower_precision_is_refused() -> None:
    with pytest.raises(ReferenceUnavailableError, match=r"of norm 8x8 float32 returns torch\.float32; it must"):
        examine(Single(8, 8), normed, generator())


def test_a_reference_that_ignores_the_rows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfsuite.oracle.effort.MOST_FLOPS", {"cpu": 1.0})
    with pytest.raises(ReferenceUnavailableError, match=r"returns shape \(512, 8\) for 1[456] rows"):
        examine(AllRows(512, 8), normed, generator())
    assert examine(Norm(512, 8), normed, generator()).ok


def test_large_answers_are_kept_between_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    monkeypatch.setattr("perfsuite.oracle.cache.WORTH_FLOPS", 0.0)
    problem = Norm(40, 64)
    inputs = problem.inputs(generator())
    first = cached_reference(problem, inputs).values
    (file,) = tmp_path.iterdir()
    assert torch.equal(cached_reference(problem, inputs).values, first)
    file.write_bytes(torch.zeros(40 * 64, dtype=torch.float64).numpy().tobytes())
    assert torch.equal(cached_reference(problem, inputs).values, first)


@dataclass(frozen=True)
class Listed(Norm):
    """A list among its fields makes it unhashable."""

    shape: list[int] = field(default_factory=list)


def test_an_equal_problem_is_examined_once_and_an_unhashable_one_every_time() -> None:
    memo = Examined()
    memo.note(normed, Norm(8, 8), "normal")
    assert memo.has(normed, Norm(8, 8), "normal")
    assert not memo.has(normed, Norm(8, 9), "normal")
    assert not memo.has(normed, Shares(8, 8), "normal")
    memo.note(normed, Listed(8, 8), "normal")
    assert not memo.has(normed, Listed(8, 8), "normal")


@pytest.fixture
def settings() -> Iterator[Settings]:
    yield Settings(device="cpu", seconds=0.2)
    _examined._found.clear()


def test_a_case_is_timed_and_its_timed_calls_are_judged(settings: Settings) -> None:
    for problem, kernel in ((Norm(64, 256), normed), (NormAndScale(64, 256), both), (Listed(64, 256), normed)):
        found = compare(problem, kernel, at_least=0.0001, settings=settings)
        assert found.verdict is Verdict.MET, found.sentence
        assert found.family == problem.family

    calls = 0

    def lazy(x: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return normed(x) if calls < 12 else torch.zeros_like(x)

    assert compare(Norm(64, 256), lazy, at_least=0.0001, settings=settings).verdict is Verdict.WRONG
