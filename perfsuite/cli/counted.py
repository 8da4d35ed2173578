"""The program that `perfsuite counters` runs under ncu: one untimed call between the profiler's start and stop."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from perfsuite.analyze.workload import WorkloadError, started
from perfsuite.cli.workloads import workload
from perfsuite.outcome import UserError


def main(arguments: Sequence[str]) -> int:
    """Call the workload `arguments[0]`, run by the kernel `arguments[1]` if one is given."""
    import torch

    text, *candidate = arguments
    try:
        call = started(workload(text, candidate[0] if candidate else None))
    except (UserError, WorkloadError) as error:
        print(f"perfsuite counters: {error}", file=sys.stderr)
        return 2
    call()  # a warm-up; the call in started() has loaded the kernels
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStart()
    call()
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
