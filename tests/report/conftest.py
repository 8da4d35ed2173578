"""A case of a record, for the tests of what is rendered from records."""

from __future__ import annotations

from typing import Any

from perfsuite.record.case import Case


def case(name: str = "8x8x8 float16", **changes: Any) -> Case:
    values: dict[str, Any] = {
        "schema": 1,
        "family": "gemm",
        "name": name,
        "params": {"dtype": "float16"},
        "candidate": "kernels.gemm",
        "rival": "cublas",
        "speed": 0.95,
        "speed_low": 0.945,
        "speed_high": 0.955,
        "target": 0.9,
        "verdict": "MET",
        "reason": "fast-enough",
        "sentence": "0.950 of cublas [0.945, 0.955], at least 0.900 asked",
        "candidate_seconds": 1.05e-5,
        "rival_seconds": 1e-5,
        "commit": "c0ffee" * 6,
        "dirty": False,
        "gpu": "NVIDIA H200",
        "torch": "2.13.0",
        "cuda": "13.0",
        "harness": "1",
        "clock": "graph",
        "cache": "cold",
        "test": "tests/test_it.py::test_it",
    }
    values["case"] = f"kernels.gemm gemm {name} vs cublas"
    return Case.of_json(values | changes, name)
