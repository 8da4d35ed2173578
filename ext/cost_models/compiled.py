"""A cost model that is compiled for the host from the header of its kernels, and the fit of its structs."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from cost_models import constants, host_library, least_squares
from cost_models.errors import UsageError
from cost_models.fitted import Fitted
from cost_models.least_squares import Vector
from cost_models.times import Rows, Seconds


class CompiledModel:
    """A model of one struct of constants, or of two: one for plans whose field `flag` is zero, one for the others."""

    def __init__(
        self,
        header: Path,
        sources: Sequence[Path],
        structs: Mapping[str, str],
        fields: Sequence[str],
        flag: str | None = None,
        shares: Collection[str] = (),
    ) -> None:
        """structs: name -> the library's function that counts its doubles; the second is that of the flag.

        fields: those of a row. shares: constants that cannot be above 1. UsageError if header and library disagree.
        """
        self.header = header
        self.constants = {struct: constants.read(header, struct) for struct in structs}
        self._flag, self._shares = None if flag is None else fields.index(flag), shares
        self._library = host_library.load(list(sources))
        counted = tuple(getattr(self._library, count)() for count in structs.values())
        read = tuple(len(self.constants[struct]) for struct in structs)
        if counted != read or self._library.fields_of_a_row() != len(fields):
            raise UsageError(f"{header}: the structs have {counted} doubles but {read} lines 'double name = value;'")

    def microseconds(self, rows: Rows, given: dict[str, Vector], *, choosing: bool = False) -> Seconds:
        """The time of each row with these constants. choosing: with the margins that a plan must earn, for gemm."""
        rows = np.ascontiguousarray(rows, dtype=np.int32)
        out = np.empty(len(rows))
        doubles = ctypes.POINTER(ctypes.c_double)
        (self._library.choosing if choosing else self._library.microseconds)(
            rows.ctypes.data_as(ctypes.POINTER(ctypes.c_int32)),
            ctypes.c_int64(len(rows)),
            *(np.ascontiguousarray(given[struct]).ctypes.data_as(doubles) for struct in self.constants),
            out.ctypes.data_as(doubles),
        )
        return out

    def start(self) -> dict[str, Vector]:
        """The constants of the header."""
        return {struct: np.array(list(values.values())) for struct, values in self.constants.items()}

    def fit(
        self, rows: Rows, measured: Seconds, start: dict[str, Vector] | None = None, *, near: float = 0.0
    ) -> list[Fitted]:
        """Fit each struct to the times of its plans; one without times stays as it is. near: as in least_squares."""
        begin, fitted = start or self.start(), []
        for number, struct in enumerate(self.constants):
            chosen = np.full(len(rows), True) if self._flag is None else (rows[:, self._flag] != 0) == (number == 1)
            if not chosen.any():
                continue
            mine, names = rows[chosen], list(self.constants[struct])

            def model(values: Vector, mine: Rows = mine, struct: str = struct) -> Vector:
                return self.microseconds(mine, {**begin, struct: values})

            most = np.array([1.0 if name in self._shares else np.inf for name in names])
            found = least_squares.fit(model, begin[struct], measured[chosen], most, near=near)
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
