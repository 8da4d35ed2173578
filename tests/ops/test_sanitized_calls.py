"""The calls that a sanitizer watches are right on the CPU, and a wrong one is told. A card runs the same."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the operators need torch")

import cuda_llm_ops  # noqa: E402
import sanitized  # noqa: E402


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanitized, "DEVICE", "cpu")


@pytest.mark.parametrize("family", sanitized.FAMILIES)
def test_all_are_right_here(family: str, capsys: pytest.CaptureFixture[str]) -> None:
    names = [name for name, _ in sanitized.calls([family])]
    assert len(names) == len(set(names))
    assert sanitized.main(["--family", family, "--part", "0", "3"]) == 0
    assert f"{len(names[::3])} calls" in capsys.readouterr().out


def test_a_wrong_answer_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    right = cuda_llm_ops.weight_only_gemm

    def wrong(x: Any, *weights: Any, **options: Any) -> Any:
        return right(x, *weights, **options) * (1.1 if x.shape[0] == 12 else 1.0)

    monkeypatch.setattr(cuda_llm_ops, "weight_only_gemm", wrong)
    assert sanitized.main(["--family", "weight-only"]) == 1
    told = capsys.readouterr().out
    assert "weight-only 12x272x256 group 64 float16: an error is" in told
    assert "weight-only 5x" not in told


def test_calls_are_named_before_what_a_tool_prints_of_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The record of the sanitizers reads these lines."""
    monkeypatch.setattr(sanitized, "calls", lambda _: [(name, lambda: print("found")) for name in ("one", "two")])
    assert sanitized.main(["--named"]) == 0
    assert capsys.readouterr().out.startswith("call: one\nfound\ncall: two\nfound\n2 calls in")
    assert sanitized.main([]) == 0
    assert capsys.readouterr().out.startswith("found\nfound\n2 calls in")


def test_too_little_time_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert sanitized.main(["--family", "decode", "--seconds", "0"]) == 3
    assert "out of time" in capsys.readouterr().out


def test_launched_instances_are_counted_by_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = "void cuda_llm_ops::cuda::fp8::sm90::fp8_few_rows<cuda_llm_ops::cuda::fp8::sm90::Tile<"
    counts = Counter({f"{begin}E4m3, {n}> >(A)": n for n in (8, 16)})
    built = [{"family": "fp8_gemm sm90 e4m3", "name": name, "dynamic_shared": 0} for name in ("a", "b", "c")]
    monkeypatch.setattr(cuda_llm_ops, "kernel_attributes", lambda: [*built, {"family": "gemm", "name": "d"}])
    assert list(sanitized.told(counts, 1024)) == [
        "fp8_few_rows: 2 instances, 24 launches",
        "built: fp8_gemm sm90 e4m3: 3",
    ]


@pytest.mark.parametrize(
    ("shared", "chosen"),
    [
        (227, ["128", "192_128", "192_large", "other"]),
        (163, ["128", "192", "192_128", "other"]),
        (99, ["128_small", "192_small", "other"]),
    ],
)
def test_tiles_for_other_devices_are_left_out(shared: int, chosen: list[str]) -> None:
    sizes = {"128": 100, "192_128": 150, "192_large": 200, "192": 150, "128_small": 90, "192_small": 90}
    kernels = [
        {"name": f"mma_backward_{of}_{dtype}_{size}", "dynamic_shared": (kilobytes - 8 * (of == "queries")) * 1024}
        for dtype in ("float16", "bfloat16")
        for size, kilobytes in sizes.items()
        for of in ("keys", "queries")
    ]
    kernels += [{"name": f"sm90_backward_{of}_{dtype}_other", "dynamic_shared": 0} for of in "ab" for dtype in "cd"]
    found = Counter(one["name"].split("_", 4)[4] for one in sanitized.choosable(kernels, shared * 1024))
    assert found == Counter(dict.fromkeys(chosen, 4))


def test_other_kernels_of_that_name_are_not_the_backwards() -> None:
    name = "void cuda_llm_ops::cuda::{}::kernel<cuda_llm_ops::cuda::{}::D64<__half, (Way)1>>(P)"
    counts = Counter({name.format(*[of] * 2): 1 for of in ("backward", "attention::mma")})
    found = Counter({one: n for one, n in counts.items() if sanitized.is_counted(one)})
    assert next(sanitized.told(found, 0)) == "backward::kernel: 1 instances, 1 launches"
