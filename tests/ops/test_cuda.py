"""What only a GPU can show: the current stream and device, capture in a CUDA graph, replay on new data."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch", reason="the operators need torch")

import cuda_llm_ops  # noqa: E402
import ops_reference as reference  # noqa: E402
from torch import Tensor  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.parametrize("name", reference.ATTENTION + reference.GEMM)]
SIZE = 256  # rows and columns, or sequence length


def tensors(name: str, device: str = "cuda") -> list[Tensor]:
    if name in reference.ATTENTION:
        return [torch.randn(2, 4, SIZE, 64, device=device).half() for _ in range(3)]
    return [torch.randn(SIZE, SIZE, device=device).half() for _ in range(2)]


def operator(name: str) -> Callable[..., Tensor]:
    return getattr(cuda_llm_ops, name)  # type: ignore[no-any-return]


def assert_right(name: str, out: Tensor, given: list[Tensor]) -> None:
    if name in reference.ATTENTION:
        reference.assert_right(out, reference.attention(name, *given, False, None))
    else:
        reference.assert_right(out, reference.gemm(*given, out.dtype))


def test_runs_on_the_current_stream(name: str) -> None:
    """Behind a long wait on a side stream, a launch on any other stream would read what is not there yet."""
    given = tensors(name)
    late = [torch.zeros_like(tensor) for tensor in given]
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(50_000_000)
        for destination, tensor in zip(late, given, strict=True):
            destination.copy_(tensor, non_blocking=True)
        out = operator(name)(*late)
    torch.cuda.synchronize()
    assert_right(name, out, given)


def test_does_not_synchronise(name: str) -> None:
    given = tensors(name)
    operator(name)(*given)  # the first call may load modules
    torch.cuda.synchronize()
    torch.cuda._sleep(200_000_000)
    operator(name)(*given)
    done = torch.cuda.Event()
    done.record()
    assert not done.query(), "the call returned only after the device had finished"
    torch.cuda.synchronize()


def test_captured_in_a_graph_and_replayed_on_new_data(name: str) -> None:
    given = tensors(name)
    warm = torch.cuda.Stream()
    with torch.cuda.stream(warm):
        operator(name)(*given)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = operator(name)(*given)
    for _ in range(2):
        for tensor in given:
            tensor.normal_()
        graph.replay()
        torch.cuda.synchronize()
        assert_right(name, out, given)


def test_compiled_with_inductor(name: str) -> None:
    torch.compiler.reset()
    given = tensors(name)
    compiled = torch.compile(lambda *x: operator(name)(*(t * 1 for t in x)), fullgraph=True)
    assert_right(name, compiled(*given), given)


def test_tensors_on_cpu_and_gpu_are_refused(name: str) -> None:
    given = tensors(name)
    given[1] = given[1].cpu()
    with pytest.raises(ValueError, match="must be on one"):
        operator(name)(*given)


@pytest.mark.skipif(not torch.cuda.is_available() or torch.cuda.device_count() < 2, reason="needs a second GPU")
def test_runs_on_the_device_of_its_inputs(name: str) -> None:
    given = tensors(name, "cuda:1")
    with torch.cuda.device(0):
        out = operator(name)(*given)
        assert torch.cuda.current_device() == 0
    assert out.device == torch.device("cuda:1")
    assert_right(name, out, given)


def test_out_of_memory_is_torchs_own_error(name: str) -> None:
    """An output just under 2**31 elements, where the process may have a hundredth of the memory."""
    if name in reference.ATTENTION:
        row = torch.zeros(1, 1, 1, 256, device="cuda")
        arguments = [row.expand(1, 1, 2**22, 256), row, row]
    else:
        element = torch.zeros(1, 1, device="cuda").half()
        arguments = [element.expand(46_000, 1), element.expand(1, 46_000)]
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(0.01)
    try:
        with pytest.raises(torch.OutOfMemoryError, match=rf"{name}: cannot allocate the (output|score matrix)"):
            operator(name)(*arguments)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def test_out_of_memory_in_a_copy_is_torchs_own_error(name: str) -> None:
    """An operand that must be made contiguous first, and cannot."""
    torch.cuda.empty_cache()
    if name in reference.ATTENTION:
        row = torch.zeros(1, 1, 1, 256, device="cuda")
        arguments = [row, *[torch.zeros(1, 1, 1, 1, device="cuda").expand(1, 1, 2**22, 256)] * 2]
    else:
        element = torch.zeros(1, 1, device="cuda").half()
        arguments = [element.expand(46_000, 46_000), element.expand(46_000, 1)]
    torch.cuda.set_per_process_memory_fraction(0.01)
    try:
        with pytest.raises(torch.OutOfMemoryError, match=rf"{name}: cannot allocate the contiguous copy of (a|k)"):
            operator(name)(*arguments)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
