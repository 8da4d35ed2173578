"""The program of a candidate that runs by itself: `python -m perfsuite.judge.alone_call FOLDER MODE`.

MODE is "call" for one call on the first set of inputs, "profiled" for a second one between the profiler's start and
stop, or "times" for the time of a call on each set. `perfsuite.judge.alone` fills the folder.
"""

from __future__ import annotations

import importlib.util
import io
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROUNDS = 5
LOOP_SECONDS = 0.03
PROFILED_CALLS = 10


def main(folder: Path, mode: str) -> None:
    """Call the candidate; write the result's file when all calls have ended."""
    import torch

    request = json.loads((folder / "request.json").read_text())
    sys.path[:] = request["path"]
    for name, file in request["modules"].items():
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    from perfsuite.isolate.source import Received

    sets = torch.load(folder / "inputs.pt", map_location=request["device"], weights_only=False)
    candidate = Received(io.BytesIO((folder / "candidate.pkl").read_bytes())).load()
    calls = [_call(candidate, *one) for one in sets]
    with torch.no_grad():
        found = _times(calls) if mode == "times" else _called(calls[0], profiled=mode == "profiled")
    (folder / "result.json").write_text(json.dumps(found))


def _call(candidate: Callable[..., Any], args: Any, kwargs: Any) -> Callable[[], Any]:
    return lambda: candidate(*args, **kwargs)


def _called(call: Callable[[], Any], *, profiled: bool) -> dict[str, Any]:
    import torch

    call()
    _synchronise()
    if profiled:
        torch.cuda.cudart().cudaProfilerStart()
        call()
        _synchronise()
        torch.cuda.cudart().cudaProfilerStop()
    return {}


def _times(calls: list[Callable[[], Any]]) -> dict[str, Any]:
    """Seconds a call of each set, host seconds of the first, and on a card the time in which its device worked."""
    import torch

    counts = []
    for call in calls:
        call()
        counts.append(max(2, min(2000, math.ceil(LOOP_SECONDS / max(_loop(call, 2)[0], 1e-7)))))
    # In turn, so that a drift of the clock affects all of them; the shortest, because other work only adds time.
    rounds = [[_loop(call, count) for call, count in zip(calls, counts, strict=True)] for _ in range(ROUNDS)]
    found: dict[str, Any] = {
        "seconds": [min(one[place][0] for one in rounds) for place in range(len(calls))],
        "host_seconds": min(one[0][1] for one in rounds),
    }
    if torch.cuda.is_initialized():
        from perfsuite.analyze import timeline

        count = min(PROFILED_CALLS, counts[0])
        occupied = timeline.occupation(timeline.record(calls[0], count), count)
        found |= {"busy": occupied.busy, "communication": occupied.communication, "kernels": occupied.kernels}
    return found


def _loop(call: Callable[[], Any], count: int) -> tuple[float, float]:
    """Seconds a call in a loop that waits at its end, and until the host returned."""
    _synchronise()
    begun = time.perf_counter()
    for _ in range(count):
        call()
    returned = time.perf_counter() - begun
    _synchronise()
    return (time.perf_counter() - begun) / count, returned / count


def _synchronise() -> None:
    import torch

    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
