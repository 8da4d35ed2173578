"""The cost model of the Hopper attention kernels, and the fit of every instance's Cost.

A problem's time is `outside + unit * cost`. The cost of the busiest thread block comes from schedule.cu, by the
instance's constants. The unit is the time of a product of 64 queries with one key. Costs compare only between instances
of one head_dim, so each head_dim has a unit of its own and is fitted by itself. The first instance's `full` is held,
because it fixes the unit.
"""

from __future__ import annotations

import ctypes
import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cost_models import constants, host_library, least_squares
from cost_models.errors import UsageError
from cost_models.fitted import Fitted
from cost_models.least_squares import Vector
from cost_models.times import Rows, Seconds

FOLDER = host_library.ROOT / "ext/csrc/cuda/attention/sm90"
HEADER = FOLDER / "instance.h"
FIELDS = (
    *("batch", "heads", "kv_heads", "seq_q", "seq_kv", "head_dim", "causal", "misaligned"),
    *("instance_head_dim", "block_m", "block_n", "cluster", "split_keys", "cross_tile", "stream_k", "part_bytes"),
    "multiprocessors",
)
OUTSIDE = 4.0  # microseconds, at the start of a fit
_ENTRY = re.compile(r'CUDA_LLM_OPS_TYPED_NAME\("", " ([^"]+)"\)(?:,\s*\{([^}]*)\})?')


class AttentionModel:
    """The model, compiled, and every instance's constants."""

    def __init__(self, instances: Path = FOLDER / "instances") -> None:
        self.files = sorted(instances.glob("d*.cu"))  # no realigned rows, no varlen: there is no choice between them
        default = constants.read(HEADER, "Cost")
        self.names = tuple(default)
        self.constants = {
            match[1]: {**default, **_given(match[2] or "", path)}
            for path in self.files
            for match in _ENTRY.finditer(path.read_text())
        }
        sources = [host_library.HERE / "attention_model.cpp", FOLDER / "schedule.cu", FOLDER / "stream_k.cu"]
        self._library = host_library.load(sources, cuda=True)
        counted = self._library.fields_of_a_row(), self._library.instance_constants()
        if counted != (len(FIELDS), len(self.names)):
            raise UsageError(f"the model has {counted} fields and constants; {HEADER} and FIELDS name others")

    def costs(self, rows: Rows, given: npt.NDArray[np.float64]) -> Seconds:
        """The cost of each row, by its own row of constants."""
        rows, given = np.ascontiguousarray(rows, dtype=np.int32), np.ascontiguousarray(given)
        out = np.empty(len(rows))
        doubles = ctypes.POINTER(ctypes.c_double)
        self._library.costs(
            rows.ctypes.data_as(ctypes.POINTER(ctypes.c_int32)),
            ctypes.c_int64(len(rows)),
            given.ctypes.data_as(doubles),
            out.ctypes.data_as(doubles),
        )
        return out

    def fit(
        self, rows: Rows, measured: Seconds, plans: list[str], start: dict[str, dict[str, float]] | None = None
    ) -> list[Fitted]:
        """Fit the instances of each head_dim to their times. `plans` names the instance of each row.

        Raises:
            UsageError: a row names no instance.
        """
        if unknown := sorted(set(plans) - set(self.constants)):
            raise UsageError(f"no instance is called {unknown[0]!r}; they are {', '.join(sorted(self.constants))}")
        head_dims = rows[:, FIELDS.index("instance_head_dim")]
        fitted = []
        for head_dim in sorted(set(head_dims.tolist())):
            chosen = head_dims == head_dim
            mine = [plan for plan, taken in zip(plans, chosen, strict=True) if taken]
            fitted += self._fit_one(rows[chosen], measured[chosen], mine, start or self.constants)
        return fitted

    def microseconds(
        self, rows: Rows, measured: Seconds, plans: list[str], given: dict[str, dict[str, float]] | None = None
    ) -> Seconds:
        """The times of constants, with the unit and the launch of each head_dim that agree best with those measured."""
        used = {**self.constants, **(given or {})}
        cost = self.costs(rows, np.array([[used[plan][name] for name in self.names] for plan in plans]))
        head_dims, out = rows[:, FIELDS.index("instance_head_dim")], np.empty(len(rows))
        for head_dim in set(head_dims.tolist()):
            mine = head_dims == head_dim
            start = np.array([OUTSIDE, float(np.median(measured[mine] / cost[mine]))])

            def times(values: Vector, cost: Seconds = cost[mine]) -> Vector:
                return values[0] + values[1] * cost

            found = least_squares.fit(times, start, measured[mine], np.full(2, np.inf))
            out[mine] = found.constants[0] + found.constants[1] * cost[mine]
        return out

    def _fit_one(
        self, rows: Rows, measured: Seconds, plans: list[str], start: dict[str, dict[str, float]]
    ) -> list[Fitted]:
        instances = list(dict.fromkeys(plans))
        which = np.array([instances.index(plan) for plan in plans])
        table = np.array([[start[instance][name] for name in self.names] for instance in instances])
        free = table > 0  # a constant of 0 is none
        free[0, self.names.index("full")] = False

        def filled(values: Vector) -> npt.NDArray[np.float64]:
            made = table.copy()
            made[free] = values
            return made[which]

        cost = self.costs(rows, filled(table[free]))
        if not np.isfinite(cost).all():
            row = int(np.flatnonzero(~np.isfinite(cost))[0])
            raise UsageError(f"{plans[row]} cannot compute row {dict(zip(FIELDS, rows[row].tolist(), strict=True))}")
        unit = float(np.median(measured / cost))
        begin = np.concatenate([[OUTSIDE, unit], table[free]])
        found = least_squares.fit(
            lambda values: values[0] + values[1] * self.costs(rows, filled(values[2:])),
            begin,
            measured,
            np.full(len(begin), np.inf),
        )
        after = table.copy()
        after[free] = found.constants[2:]
        seen = np.ones_like(free)
        seen[free] = found.seen[2:]
        by_instance: dict[str, int] = defaultdict(int)
        for plan in plans:
            by_instance[plan] += 1
        return [
            Fitted(
                struct=instance,
                before=self.constants[instance],
                after=dict(zip(self.names, after[index].tolist(), strict=True)),
                unseen=tuple(
                    name for place, name in enumerate(self.names) if not seen[index, place] or not table[index, place]
                ),
                times=by_instance[instance],
                error=found.error,
                within=found.within,
            )
            for index, instance in enumerate(instances)
        ]


def _given(text: str, path: Path) -> dict[str, float]:
    """The constants of an initialiser such as `.full = 1.2, .tile = 300`."""
    found = dict(re.findall(r"\.(\w+) = ([\d.]+)", text))
    if len(found) != text.count("="):
        raise UsageError(f"{path}: {{{text}}} is no list of '.name = value'")
    return {name: float(value) for name, value in found.items()}


def write(files: list[Path], fitted: list[Fitted]) -> None:
    """Replace the constants that instances' entries name, to three significant digits."""
    by_name = {one.struct: one.after for one in fitted}
    for path in files:

        def replaced(match: re.Match[str]) -> str:
            after = by_name.get(match[1])
            if after is None or match[2] is None:
                return match[0]
            return re.sub(r"\.(\w+) = [\d.]+", lambda one: f".{one[1]} = {after[one[1]]:.3g}", match[0])

        path.write_text(_ENTRY.sub(replaced, path.read_text()))
