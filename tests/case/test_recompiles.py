"""A compiled function that torch has given up compiling is compiled again, before it is judged and timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from perfsuite.case.comparison import Comparison
from perfsuite.case.run import compare
from perfsuite.outcome import Verdict
from perfsuite.problems import Custom
from perfsuite.settings import Settings

torch = pytest.importorskip("torch")

LIMIT = 3


@pytest.fixture(autouse=True)
def few_compilations() -> Iterator[None]:
    torch.compiler.reset()
    with torch._dynamo.config.patch(recompile_limit=LIMIT):
        yield
    torch.compiler.reset()


def square(x: Any) -> Any:
    return x * x


def compiled(calls: list[int], **options: Any) -> Callable[..., Any]:
    """`square` compiled for each size by itself; what is called is noted, by the number of its elements."""

    def backend(graph: Any, _: Any) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            calls.append(args[0].numel())
            return graph.forward(*args)

        return run

    # Another code object each time: the limit is that of a code object.
    source: dict[str, Any] = {}
    exec(compile("def squared(x):\n    return x * x\n", "squared", "exec"), source)
    return torch.compile(source["squared"], backend=backend, dynamic=False, **options)


def judged(candidate: Any, rival: Any, size: int) -> Comparison:
    problem = Custom((torch.randn(size, 64),), against=rival, reference=square, label="square")
    settings = Settings(device="cpu", seed=0, seconds=0.02)
    return compare(problem, candidate, at_least=0.01, settings=settings)


@pytest.mark.parametrize("whole", [False, True], ids=["parts", "one graph"])
@pytest.mark.parametrize("who", ["candidate", "rival"])
def test_the_size_behind_the_last_that_torch_compiles_is_compiled(who: str, whole: bool) -> None:
    calls: list[int] = []
    function = compiled(calls, fullgraph=whole)
    sides = {"candidate": square, "rival": square} | {who: function}
    told = []
    for rows in range(LIMIT + 3):
        calls.clear()
        size = 16 + rows
        found = judged(sides["candidate"], sides["rival"], size)
        assert found.verdict is not Verdict.WRONG, found.sentence
        # Results of other sizes are examined as well; timed calls are those of this one.
        assert calls.count(size * 64) > 20, f"{rows}: it ran uncompiled"
        told.append([one for one in found.warnings if "had given up compiling" in one])
    assert not told[0]
    assert any(told)
    assert all("squared" in one and f"= {LIMIT}" in one for each in told for one in each)
