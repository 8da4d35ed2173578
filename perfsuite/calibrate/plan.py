"""The plan of one calibration process, and the clock that its gates share with its peers."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from perfsuite.calibrate.cases import CalibrationCase
from perfsuite.calibrate.slowed import Slowed
from perfsuite.clock.base import Sides
from perfsuite.device import turns
from perfsuite.settings import DeviceKind

if TYPE_CHECKING:
    from perfsuite.calibrate.planted import SpinCost

SIDE_SECONDS = 0.04
"""Time of a side under each timer: about that of our gate, and less than the timers' defaults (0.1 s of do_bench, 0.2 s
of blocked_autorange, 1 s of pytest-benchmark)."""
PLANTED = (0.0, 0.01)
CORRECTIONS = (0.5, 2.0)
"""The least and the most by which planted work is corrected."""


@dataclass(frozen=True)
class Plan:
    """The work of one process."""

    process: int
    device: DeviceKind
    output: str
    seconds: float
    """Wall time after which no further gate begins."""
    gates: list[tuple[str, float, int]]
    """Case, planted slow-down (0 for none), and how many such gates."""
    calibration: str | None = None
    """The file whose noise figures the gates use."""
    case_count: int = 10
    peers_seconds: float = 0.0
    """Time for the peers' timers, after the gates."""
    setups: int = 0
    """Above 0: no gates, but this number of set-ups of each case, whose rounds show the noise."""
    responses: list[tuple[str, float]] = field(default_factory=list)
    """Cases and planted slow-downs. How much slower they really are is measured behind the noise."""
    isolated: bool = False
    """True for gates that time both sides in processes of their own."""
    beside: int = 1
    """Processes that use the card in turns: they set up beside one another, and one at a time times."""
    lock: str | None = None
    """The lock of those turns."""
    seed: int = 0
    """The first seed of the run. Another run of the same calibration has others, so it draws other values."""

    @classmethod
    def read(cls, file: Path) -> Plan:
        """The plan in a JSON file."""
        values = json.loads(file.read_text())
        for name in ("gates", "responses"):
            values[name] = [tuple(one) for one in values.get(name, ())]
        return cls(**values)

    def peer_row(self, case: str, slowdown: float, peer: str, *, alarm: bool, seconds: float) -> dict[str, Any]:
        """The row of one gate of a peer."""
        row = {"kind": "peer", "process": self.process, "case": case, "slowdown": slowdown}
        return row | {"peer": peer, "alarm": alarm, "seconds": seconds}


def write_row(output: TextIO, row: dict[str, Any]) -> None:
    """Append a row at once, since the command reads the file while the process runs."""
    output.write(json.dumps(row) + "\n")
    output.flush()


def open_clock(plan: Plan, case: CalibrationCase, *, seed: int, slowdown: float = 0.0) -> Any:
    """The product's clock, set up with the kernel on both sides and work planted in the candidate's."""
    import torch

    generator = torch.Generator(device=plan.device).manual_seed(seed)
    sides = Sides(case.function, case.function, lambda: case.problem.inputs(generator))
    clock: Any
    if plan.isolated:
        from perfsuite.calibrate.isolated import CardCalibrationClock, IsolatedCalibrationClock

        kind = CardCalibrationClock if plan.device == "cuda" else IsolatedCalibrationClock
        clock = kind(_planted(plan, case, slowdown), sides, plan.device, seed)
    elif plan.device == "cpu":
        from perfsuite.clock.host import HostClock

        clock = HostClock(Sides(_planted(plan, case, slowdown), case.function, sides.make_inputs), seed=seed)
    else:
        from perfsuite.calibrate.planted import PlantedClock

        seconds, cost = known_costs(plan, case) if slowdown else (0.0, None)
        work = slowdown * correction(plan, case.name, slowdown)
        clock = PlantedClock(sides, seed=seed, slowdown=work, call_seconds=seconds, cost=cost)
    clock.setup()
    return clock


def _planted(plan: Plan, case: CalibrationCase, slowdown: float) -> Callable[..., Any]:
    """The case's function with that much work planted, for a side that is called."""
    if not slowdown:
        return case.function
    if plan.device == "cpu":
        return Slowed(case.function, slowdown)
    seconds, cost = known_costs(plan, case)
    work = slowdown * correction(plan, case.name, slowdown)
    return Slowed(case.function, work, seconds, cost.launch, cost.a_cycle)


def correction(plan: Plan, case: str, slowdown: float) -> float:
    """Work to be planted for a slow-down, over the work that would take this time by itself.

    A kernel may be slowed by less: a card at its limit of power may raise its clock behind work that needs little.
    Measured before the gates; 1 if it was not.
    """
    if plan.calibration is None or not slowdown:
        return 1.0
    known = {one["case"]: one.get("responses", ()) for one in json.loads(Path(plan.calibration).read_text())["cases"]}
    measured = dict(known.get(case, ())).get(slowdown, slowdown)
    least, most = CORRECTIONS
    return min(most, max(least, slowdown / measured)) if measured > 0.0 else most


FILLER_SECONDS, MOST_FILLER_CALLS = 300e-6, 60
"""About the length of the calls before a spin kernel whose cost is measured, and the most of them."""
_COSTS: dict[str, tuple[float, SpinCost]] = {}


def known_costs(plan: Plan, case: CalibrationCase) -> tuple[float, SpinCost]:
    """Seconds of a call of the case's kernel, and the cost of a spin kernel behind it; measured once a process."""
    if case.name not in _COSTS:
        import torch

        from perfsuite.calibrate import planted

        with turns.working():
            turns.alone()
            clock = open_clock(replace(plan, isolated=False), case, seed=plan.process)
            seconds = statistics.median(one.rival_seconds for one in clock.rounds(10))
            clock.close()
            turns.alone()
            inputs = case.problem.inputs(torch.Generator(device=plan.device).manual_seed(plan.process))
            count = max(1, min(MOST_FILLER_CALLS, round(FILLER_SECONDS / seconds)))
            _COSTS[case.name] = seconds, planted.spin_cost(lambda: [inputs.call(case.function) for _ in range(count)])
            turns.beside()
    return _COSTS[case.name]
