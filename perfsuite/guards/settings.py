"""The settings of torch that both sides share: modes, precisions, preferences, hooks, profilers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from perfsuite.guards.dispatch import dispatch_modes, keys, observed, write_dispatch_modes
from perfsuite.guards.overrides import overridden, write_overridden
from perfsuite.guards.stack import EMPTY, Stack, stack_of, stack_of_one


@dataclass(frozen=True)
class Setting:
    """One setting that both sides share: its reader, its writer, and its value in a fresh process."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], Any] | None = None
    """Puts a value back; None if nothing can."""
    default: Any = None
    """None: any value may be that of a fresh process."""
    slows: bool | Callable[[Any, Any], bool] = True
    """True if a change (old, new) can slow the rival or widen a limit. Another change is only told."""
    say: Callable[[Any, Any], str] = "from {} to {}".format

    def matters(self, old: Any, new: Any) -> bool:
        """True if this change can slow the rival or widen a limit."""
        return self.slows(old, new) if callable(self.slows) else self.slows

    def told(self, old: Any, new: Any) -> str:
        """A change in words."""
        return f"{self.name} {self.say(old, new)}"


@lru_cache(maxsize=1)
def settings_of_torch() -> tuple[Setting, ...]:
    """All settings of torch that are watched; torch versions that lack one leave it out."""
    return (*_modes(), *_numbers(), *_attention(), *_libraries(), *_precisions(), *_watchers(), *_hooks())


@lru_cache(maxsize=1)
def precisions_of_torch() -> tuple[Setting, ...]:
    """The settings of torch that say how exactly a library computes, such as those of TF32."""
    return tuple(_precisions())


def modes() -> tuple[int, int]:
    """The numbers of function modes and of dispatch modes that are on."""
    of_functions, of_dispatch = _lengths()
    return of_functions(), of_dispatch()


@lru_cache(maxsize=1)
def _lengths() -> tuple[Callable[[], int], Callable[[], int]]:
    from torch._C import _len_torch_dispatch_stack, _len_torch_function_stack

    return _len_torch_function_stack, _len_torch_dispatch_stack


def _modes() -> Iterator[Setting]:
    """Modes that stay on: each call of torch passes through them, the rival's too."""
    import torch

    core = torch._C
    yield Setting("function modes", _function_modes, _write_function_modes)
    yield Setting("dispatch modes", dispatch_modes, write_dispatch_modes)
    state: Any = getattr(core, "_get_torch_function_state", None)
    if state is not None:
        names = {one.value: name for name, one in type(state()).__members__.items()}
        on, label = core._is_torch_function_enabled, "torch functions of subclasses"  # reading the state takes longer
        yield Setting(label, lambda: "ENABLED" if on() else names[state().value], default="ENABLED")
    if (context := getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None)) is not None:
        yield Setting(
            "default device",
            lambda: stack_of_one(vars(context).get("device_context")),  # without an exception where it is not set
            lambda old: setattr(context, "device_context", old.items[0]),
        )
    for device in ("cpu", "cuda"):
        yield Setting(
            f"autocast on {device}",
            partial(torch.is_autocast_enabled, device),
            partial(torch.set_autocast_enabled, device),
            False,
        )
        yield Setting(
            f"autocast's dtype on {device}",
            partial(torch.get_autocast_dtype, device),
            partial(torch.set_autocast_dtype, device),
        )
    yield Setting("autocast's cache", torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled, True)
    yield Setting("inference mode", torch.is_inference_mode_enabled, _write_inference_mode, False)
    yield Setting("gradients", torch.is_grad_enabled, torch._C._set_grad_enabled)
    yield Setting("anomaly detection", torch.is_anomaly_enabled, torch.set_anomaly_enabled, False)
    yield Setting("tracing", lambda: core._get_tracing_state() is not None, default=False)
    for label in ("include", "exclude"):  # behind the modes above, which change these keys as well
        yield Setting(f"dispatch keys that calls {label}", *keys(label))


def _numbers() -> Iterator[Setting]:
    import torch

    yield Setting("torch.num_threads", torch.get_num_threads, torch.set_num_threads)
    yield Setting("torch.default_dtype", torch.get_default_dtype, torch.set_default_dtype, torch.float32)
    yield Setting("flushing of denormals", _flushes_denormals, torch.set_flush_denormal, False)
    yield Setting(
        "torch.deterministic_algorithms",
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda old: torch._C._set_deterministic_algorithms(old[0], warn_only=old[1]),
        (False, False),
        say=lambda old, new: f"from {old[0]} to {new[0]}",
    )
    deterministic = sys.modules.get("torch.utils.deterministic")
    if deterministic is not None:
        read = _core("_get_deterministic_fill_uninitialized_memory")
        name, label = "fill_uninitialized_memory", "filling of uninitialized memory"
        yield _attribute(deterministic, name, label, read=read, slows=False)
    always = _core("_get_warnAlways", torch.is_warn_always_enabled)
    yield Setting("torch's warnings always", always, torch.set_warn_always, slows=False)


def _attention() -> Iterator[Setting]:
    import torch

    cuda = torch.backends.cuda
    for label, name in (("flash", "flash"), ("efficient", "mem_efficient"), ("math", "math"), ("cuDNN", "cudnn")):
        read = _core(f"_get_{name}_sdp_enabled", getattr(cuda, f"{name}_sdp_enabled"))
        yield Setting(f"SDPA's {label} backend", read, getattr(cuda, f"enable_{name}_sdp"), True)
    yield Setting(
        "SDPA's math backend in 16 bits",
        _core("_get_math_sdp_allow_fp16_bf16_reduction", cuda.fp16_bf16_reduction_math_sdp_allowed),
        cuda.allow_fp16_bf16_reduction_math_sdp,
        False,
    )
    yield from _pair("order of SDPA's backends", "_get_sdp_priority_order", "_set_sdp_priority_order")


def _libraries() -> Iterator[Setting]:
    import torch

    cudnn = torch.backends.cudnn
    for name, default in (("enabled", True), ("deterministic", False)):
        read = _core(f"_get_cudnn_{name}")
        yield _attribute(cudnn, name, f"torch.backends.cudnn.{name}", default, read=read)
    yield from _pair("cuDNN's benchmark mode", "_get_cudnn_benchmark", "_set_cudnn_benchmark")
    yield from _pair("preferred BLAS library", "_get_blas_preferred_backend", "_set_blas_preferred_backend")
    yield from _pair("preferred linalg library", "_get_linalg_preferred_backend", "_set_linalg_preferred_backend")
    yield from _pair("oneDNN", "_get_mkldnn_enabled", "_set_mkldnn_enabled", True)
    yield from _pair("oneDNN's deterministic mode", "_get_mkldnn_deterministic", "_set_mkldnn_deterministic")
    yield from _pair("NNPACK", "_get_nnpack_enabled", "_set_nnpack_enabled")
    yield from _pair("SMs left free", "_get_sm_carveout_experimental", "_set_sm_carveout_experimental")
    yield _property("enabled")
    yield _property("strategy")
    yield Setting("torch.compile's stance", _stance, _write_stance)
    yield Setting("share of the card's memory", _memory_fraction, _write_memory_fraction, slows=False)
    yield Setting("current CUDA device", _current_device, _write_current_device)
    yield Setting("operators overridden in torch", overridden, write_overridden, Stack(()))


def _precisions() -> Iterator[Setting]:
    """A rival that computes less exactly has a wider limit; one that computes more exactly is slower."""
    import torch

    core, matmul = torch._C, torch.backends.cuda.matmul
    read = _core("_get_cublas_allow_fp16_accumulation")
    yield _attribute(matmul, "allow_fp16_accumulation", "cuBLAS's float16 accumulation", False, read=read)
    for kind in ("fp16", "bf16"):
        name = f"allow_{kind}_reduced_precision_reduction"
        yield Setting(f"cuBLAS's sums in {kind}", getattr(core, f"_get_cublas_{name}"), partial(setattr, matmul, name))
    for backend in ("generic", "cuda", "mkldnn"):
        for operation in ("all",) if backend == "generic" else ("all", "matmul", "conv", "rnn"):
            yield Setting(
                f"precision of float32 on {backend}, {operation}",
                partial(core._get_fp32_precision_getter, backend, operation),
                partial(core._set_fp32_precision_setter, backend, operation),
            )
    yield Setting("float32 matmul precision", _matmul_precision, _write_matmul_precision)


def _watchers() -> Iterator[Setting]:
    import torch

    yield Setting("torch's profiler", torch.autograd._profiler_enabled, _stop_profiler, False)
    if (read := observed()) is not None:
        # Nobody takes it away: an observer that ends when somebody else has removed it ends the process.
        yield Setting("observers of torch's operators", read, default=False)


def _hooks() -> Iterator[Setting]:
    import torch

    module = sys.modules["torch.nn.modules.module"]
    for name, value in vars(module).items():
        if name.startswith("_global_") and name.endswith("hooks"):
            yield Setting(f"hooks of all modules ({name[8:]})", partial(_items, value), partial(_write_items, value))
    top = torch._C._autograd._top_saved_tensors_default_hooks
    yield Setting("hooks of saved tensors", lambda: stack_of(top(False) or ()), default=Stack(()))


def _attribute(
    owner: Any, name: str, label: str, default: Any = None, *, read: Callable[[], Any] | None = None, slows: bool = True
) -> Setting:
    return Setting(label, read or partial(getattr, owner, name), partial(setattr, owner, name), default, slows)


def _core(getter: str, otherwise: Callable[[], Any] | None = None) -> Any:
    """The function of torch._C of that name, which takes a fraction of the time of what is in front of it."""
    import torch

    return getattr(torch._C, getter, otherwise)


def _property(name: str) -> Setting:
    """A setting of torch.backends.opt_einsum, which hands on what it does not hold itself, by an exception."""
    import torch

    owner: Any = torch.backends.opt_einsum
    own, behind = vars(owner), vars(getattr(owner, "m", owner))

    def read() -> Any:
        return own[name] if name in own else behind.get(name)

    return Setting(f"torch.backends.opt_einsum.{name}", read, partial(setattr, owner, name))


def _pair(label: str, getter: str, setter: str, default: Any = None) -> Iterator[Setting]:
    """The setting with these two functions of torch._C, if this version has them."""
    import torch

    read, write = getattr(torch._C, getter, None), getattr(torch._C, setter, None)
    if read is not None and write is not None:
        yield Setting(label, read, write, default)


def _function_modes() -> Stack:
    import torch

    count = torch._C._len_torch_function_stack()
    return stack_of([torch._C._get_function_stack_at(place) for place in range(count)]) if count else EMPTY


def _write_function_modes(old: Stack) -> None:
    import torch

    while torch._C._len_torch_function_stack():
        torch._C._pop_torch_function_stack()
    for mode in old.items:
        torch._C._push_on_torch_function_stack(mode)


_inference_modes: list[Any] = []
"""Guards that put the mode back; it would change again if one of them ended."""


def _write_inference_mode(old: bool) -> None:
    import torch

    _inference_modes.append(torch._C._InferenceMode(old))
    _inference_modes[-1].__enter__()


def _matmul_precision() -> str:
    import torch

    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # somebody used the new names, which are settings of their own
        return MIXED


MIXED = "a mix of old and new names"


def _write_matmul_precision(old: str) -> None:
    import torch

    if old != MIXED:
        torch.set_float32_matmul_precision(old)


def _flushes_denormals() -> bool:
    return sys.float_info.min * 0.5 == 0.0


def _stance() -> Any:
    frames = sys.modules.get("torch._dynamo.eval_frame")
    return None if frames is None else Stack([getattr(frames, "_stance", None)])


def _write_stance(old: Stack | None) -> None:
    frames = sys.modules.get("torch._dynamo.eval_frame")
    if frames is not None and old is not None:
        frames._stance = old.items[0]  # type: ignore[attr-defined]


def _memory_fraction() -> float | None:
    import torch

    read = getattr(torch.cuda, "get_per_process_memory_fraction", None)
    return read() if read is not None and torch.cuda.is_initialized() else None


def _write_memory_fraction(old: float | None) -> None:
    import torch

    if old is not None:
        torch.cuda.set_per_process_memory_fraction(old)


def _current_device() -> int | None:
    import torch

    return torch.cuda.current_device() if torch.cuda.is_initialized() else None


def _write_current_device(old: int | None) -> None:
    import torch

    if old is not None:
        torch.cuda.set_device(old)


def _stop_profiler(old: bool) -> None:
    import torch

    if not old and torch.autograd._profiler_enabled():
        torch._C._autograd._disable_profiler()


def _items(hooks: dict[Any, Any]) -> Stack:
    return stack_of([part for pair in hooks.items() for part in pair]) if hooks else EMPTY


def _write_items(hooks: dict[Any, Any], old: Stack) -> None:
    hooks.clear()
    hooks.update(zip(old.items[::2], old.items[1::2], strict=True))
