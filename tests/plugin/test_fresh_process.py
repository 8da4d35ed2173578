"""A suspect's second opinion comes from a process of its own."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

from perfsuite.pytest_plugin.fresh import Waiting, rounds_elsewhere, rounds_in


def test_a_process_of_its_own_measures_the_case(tmp_path: Path) -> None:
    file = tmp_path / "test_case.py"
    file.write_text(
        textwrap.dedent(
            """
            import os
            import pytest
            import torch
            from perfsuite import Gemm

            @pytest.mark.perf_target(against="cublas", at_least=0.1)
            def test_mm(perf):
                with open("pids", "a") as pids:
                    print(os.getpid(), os.environ["PERFSUITE_FRESH"], file=pids)
                perf(Gemm(16, 16, 16, dtype="float32"), torch.mm)
            """
        )
    )
    rounds = rounds_elsewhere("test_case.py::test_mm", 0, root=tmp_path, options=["--perf-portable"])
    assert len(rounds) >= 4
    assert all(one.candidate_seconds > 0.0 for one in rounds)
    (line,) = (tmp_path / "pids").read_text().splitlines()
    assert line.endswith(" 1")
    assert rounds_elsewhere("test_case.py::test_other", 0, root=tmp_path, options=["--perf-portable"]) == []


def test_a_process_may_wait_for_the_next_suspect(tmp_path: Path) -> None:
    waiting = Waiting(tmp_path)
    (tmp_path / "test_it.py").write_text("import os\ndef test_it(): open('pid', 'w').write(str(os.getpid()))\n")
    assert waiting.run(["-q", "-p", "no:cacheprovider", "test_it.py"])
    assert (tmp_path / "pid").read_text() == str(waiting._process.pid)
    assert waiting._process.returncode == 0


def test_a_process_that_nobody_needed_is_ended(tmp_path: Path) -> None:
    waiting = Waiting(tmp_path)
    assert waiting._process.poll() is None
    waiting.end()
    assert waiting._process.returncode is not None
    left = Waiting(tmp_path)
    assert left._process.stdin is not None
    left._process.stdin.close()  # as when the process that waits for it dies
    assert left._process.wait(60.0) == 0


def test_a_record_that_is_none_gives_no_rounds(tmp_path: Path) -> None:
    assert rounds_in(tmp_path / "none.jsonl", "test", 0) == []
    (tmp_path / "cut.jsonl").write_text(json.dumps({"case": "x"})[:-3])
    assert rounds_in(tmp_path / "cut.jsonl", "test", 0) == []
