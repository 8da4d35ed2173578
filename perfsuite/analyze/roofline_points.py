"""The cases of a record as points of a roofline."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from perfsuite.analyze.roofline import Cost
from perfsuite.analyze.roofline_ceilings import Ceilings
from perfsuite.record.case import Case
from perfsuite.report.figures import short_types
from perfsuite.report.rebuilt import problem_of


@dataclass(frozen=True)
class Point:
    """One kernel on one problem."""

    kernel: str
    """The candidate's or the rival's name."""
    label: str
    dtype: str
    intensity: float
    """FLOPs a byte, of the bytes that must cross device memory."""
    achieved: float
    """FLOPs a second."""
    attainable: float
    bound: str
    """ "memory" or "compute", by the ridge point."""
    rival: bool

    @property
    def share(self) -> float:
        """Achieved over attainable. Above 1 the bytes came from a cache, or a ceiling is too low."""
        return self.achieved / self.attainable


def points(cases: Iterable[Case], ceilings: Ceilings) -> tuple[list[Point], list[str]]:
    """Every timed side of every case, each kernel once a problem; and the cases left out, with the reason."""
    found: dict[tuple[str, str, str], Point] = {}
    left_out = []
    for case in cases:
        problem = problem_of(case)
        if problem is None or problem.flops is None or problem.bytes is None:
            left_out.append(f"{case.case}: its FLOPs and bytes are not known")
            continue
        cost, dtype = Cost(problem.flops, problem.bytes), str(case.params.get("dtype"))
        if dtype not in ceilings.by_dtype:
            left_out.append(f"{case.case}: no ceiling is known for {dtype}")
            continue
        ceiling = ceilings.by_dtype[dtype]
        sides = (
            (case.candidate, case.candidate_seconds, False),
            (case.rival, case.rival_seconds, True),
        )
        timed = [(name, seconds, is_rival) for name, seconds, is_rival in sides if name and seconds]
        if not timed:
            left_out.append(f"{case.case}: it was not timed")
        for name, seconds, is_rival in timed:
            text = f"{name.rpartition('.')[2]} {short_types(case.name)}"
            point = Point(
                name.rpartition(".")[2],
                text,
                dtype,
                cost.intensity,
                cost.flops / seconds,
                ceiling.attainable(cost.intensity),
                ceiling.bound(cost.intensity),
                is_rival,
            )
            found.setdefault((case.family, case.name, name), point)
    return sorted(found.values(), key=lambda point: (point.dtype, point.intensity, point.rival, point.kernel)), left_out
