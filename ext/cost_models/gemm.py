"""The cost model of the Hopper GEMM: its constants, its plans' fields, and the fit of both of its structs."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np

from cost_models import constants, host_library, least_squares
from cost_models.errors import UsageError
from cost_models.fitted import Fitted
from cost_models.least_squares import Vector
from cost_models.times import Rows, Seconds

FOLDER = host_library.ROOT / "ext/csrc/cuda/gemm/sm90"
HEADER = FOLDER / "cost_model.h"
STRUCTS = ("PlanCosts", "MulticastCosts")
FIELDS = (
    *("m", "n", "k", "batch", "out_float"),
    *("persistent", "swap", "pingpong", "multicasts", "p_mn_major", "q_mn_major"),
    *("tile_m", "tile_n", "tile_k", "stages", "shared_bytes", "blocks_per_sm"),
    *("split", "cluster_m", "cluster_n", "parts", "clusters", "multiprocessors"),
)
SHARES = {"balanced", "short_line_bandwidth"}  # constants that cannot be above 1
MULTICASTS = FIELDS.index("multicasts")


class GemmModel:
    """The model, compiled."""

    def __init__(self, header: Path = HEADER) -> None:
        self.header = header
        self.constants = {struct: constants.read(header, struct) for struct in STRUCTS}
        self._library = host_library.load([host_library.HERE / "gemm_model.cpp", FOLDER / "cost_model.cu"])
        counted = self._library.plan_constants(), self._library.multicast_constants()
        read = tuple(len(self.constants[struct]) for struct in STRUCTS)
        if counted != read or self._library.fields_of_a_row() != len(FIELDS):
            raise UsageError(f"{header}: the structs have {counted} doubles but {read} lines 'double name = value;'")

    def microseconds(self, rows: Rows, given: dict[str, Vector]) -> Seconds:
        """The time of each row with these constants."""
        rows = np.ascontiguousarray(rows, dtype=np.int32)
        out = np.empty(len(rows))
        doubles = ctypes.POINTER(ctypes.c_double)
        self._library.microseconds(
            rows.ctypes.data_as(ctypes.POINTER(ctypes.c_int32)),
            ctypes.c_int64(len(rows)),
            *(np.ascontiguousarray(given[struct]).ctypes.data_as(doubles) for struct in STRUCTS),
            out.ctypes.data_as(doubles),
        )
        return out

    def start(self) -> dict[str, Vector]:
        """The constants of the header."""
        return {struct: np.array(list(values.values())) for struct, values in self.constants.items()}

    def fit(self, rows: Rows, measured: Seconds, start: dict[str, Vector] | None = None) -> list[Fitted]:
        """Fit each struct to the times of its plans; a struct without times stays as it is."""
        begin, fitted = start or self.start(), []
        for struct in STRUCTS:
            chosen = (rows[:, MULTICASTS] != 0) == (struct == "MulticastCosts")
            if not chosen.any():
                continue
            mine, names = rows[chosen], list(self.constants[struct])

            def model(values: Vector, mine: Rows = mine, struct: str = struct) -> Vector:
                return self.microseconds(mine, {**begin, struct: values})

            most = np.array([1.0 if name in SHARES else np.inf for name in names])
            found = least_squares.fit(model, begin[struct], measured[chosen], most)
            fitted.append(
                Fitted(
                    struct=struct,
                    before=self.constants[struct],
                    after=dict(zip(names, found.constants.tolist(), strict=True)),
                    unseen=tuple(name for name, seen in zip(names, found.seen, strict=True) if not seen),
                    times=int(chosen.sum()),
                    error=found.error,
                    within=found.within,
                )
            )
        return fitted
