"""Findings from made-up observations; products and loaders watched on the CPU; scripts run and refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from perfsuite.analyze import diagnosed, watching
from perfsuite.analyze.diagnosed import ScriptError, run_script
from perfsuite.analyze.diagnosis import Observed, Place, Product, examine
from perfsuite.cli.commands import diagnose
from perfsuite.cli.main import main

FINE = Observed(seconds=1.0, busy_seconds=0.9, kernels=100, allocated_peak=9e8, reserved_peak=1e9)
HALF = Product("mm", 64, 1024, 1024, 1, "float16", Place("model.py", 7))


def whats(seen: Observed) -> list[str]:
    return [finding.what for finding in examine(seen)]


def test_where_nothing_is_wrong_nothing_is_found() -> None:
    assert examine(FINE) == []
    assert examine(replace(FINE, products=(HALF,))) == []


def test_waits_are_told_with_their_lines_most_frequent_first() -> None:
    [found] = examine(replace(FINE, calls=2, waits={Place("a.py", 3): 2, Place("b.py", 9): 8}))
    assert found.what == "hidden synchronisation"
    assert "5 times a call" in found.evidence
    assert found.places == ("b.py:9 (8x)", "a.py:3 (2x)")


def test_an_idle_device_is_launch_bound_unless_it_waits_for_data() -> None:
    idle = replace(FINE, busy_seconds=0.2, kernels=1000)
    [found] = examine(idle)
    assert found.what == "launch bound"
    assert "busy for 20% of 1000 ms, with 1000 kernels of 200 us" in found.evidence
    assert whats(replace(idle, loading_seconds=0.7, batches=10)) == ["data loading"]


def test_slow_loading_is_told_with_its_settings() -> None:
    [found] = examine(replace(FINE, loading_seconds=0.5, batches=20, workers=0, pinned=False))
    assert found.evidence == "waited 50% of the time for 20 batches (25 ms each; 0 workers, pageable memory)"
    assert examine(replace(FINE, loading_seconds=0.1, batches=20)) == []


@pytest.mark.parametrize(
    ("product", "sizes"),
    [
        (replace(HALF, n=1023), ("n 1023",)),
        (replace(HALF, n=1023, k=4), ("n 1023", "k 4")),
        (replace(HALF, m=63), ()),  # rows need no alignment
        (replace(HALF, dtype="int8", n=1032), ("n 1032",)),
        (replace(HALF, dtype="float32", n=1023), ()),
        (Product("flash_attention", 64, 63, 129, 16, "float16", None), ("head_dim 129",)),
        (Product("flash_attention", 64, 63, 128, 16, "float16", None), ()),
    ],
)
def test_contiguous_sizes_are_held_against_the_vector_length(product: Product, sizes: tuple[str, ...]) -> None:
    assert product.misaligned == sizes
    assert ("misaligned sizes" in whats(replace(FINE, products=(product,)))) == bool(sizes)


def test_misaligned_products_are_weighed_by_their_flops() -> None:
    [found] = examine(replace(FINE, products=(replace(HALF, k=1020), replace(HALF, m=192), replace(HALF, k=1020))))
    assert "40% of the FLOPs" in found.evidence
    assert found.places == ("model.py:7: mm k 1020, float16",)


def test_float32_products_use_no_tensor_cores_unless_tf32_is_allowed() -> None:
    single = replace(FINE, products=(replace(HALF, dtype="float32"),))
    [found] = examine(single)
    assert (found.what, found.places) == ("tensor cores not used", ("model.py:7: mm 64x1024x1024, float32",))
    assert examine(replace(single, tf32=True)) == []


def test_fragmentation_needs_much_reserved_and_little_used() -> None:
    assert whats(replace(FINE, allocated_peak=5e8)) == ["fragmentation"]
    assert whats(replace(FINE, allocated_peak=1e6, reserved_peak=2e6)) == []
    [found] = examine(replace(FINE, retries=3, out_of_memory=1))
    assert "3 allocations only after the cache was emptied, 1 out of memory" in found.evidence


def test_many_places_are_cut_short() -> None:
    [found] = examine(replace(FINE, waits={Place("a.py", line): 1 for line in range(9)}))
    assert len(found.places) == 6
    assert found.places[-1] == "and 4 more"


def test_products_are_watched_with_their_lines() -> None:
    a, b, x = torch.ones(4, 8), torch.ones(8, 3), torch.ones(2, 4, 8)
    layer = torch.nn.Linear(8, 5)
    q = torch.ones(1, 2, 6, 16)
    with watching.products() as found:
        torch.mm(a, b)
        layer(x)
        torch.bmm(x, x.mT)
        torch.nn.functional.scaled_dot_product_attention(q, q, q)
    seen = [(one.operator, one.batch, one.m, one.n, one.k) for one in found]
    assert seen[:3] == [("mm", 1, 4, 3, 8), ("addmm", 1, 8, 5, 8), ("bmm", 2, 4, 4, 8)]
    assert ("scaled_dot_product_attention", 2, 6, 6, 16) in seen
    assert found[0].place is not None
    assert found[0].place.file.endswith("test_diagnose.py")
    assert found[0].dtype == "float32"


@pytest.mark.parametrize(
    ("operator", "args", "shape"),
    [
        ("cuda_llm_ops.gemm.default", (torch.ones(2, 3), torch.ones(3, 5)), (2, 5, 3)),
        ("cuda_llm_ops.flash_attention.default", (torch.ones(1, 2, 7, 16), torch.ones(1, 2, 9, 16)), (7, 9, 16)),
        ("aten.baddbmm.default", (torch.ones(1), torch.ones(4, 2, 3), torch.ones(4, 3, 5)), (2, 5, 3)),
        ("aten.add.Tensor", (torch.ones(2, 3), torch.ones(2, 3)), None),
        ("aten.mm.default", (torch.ones(2, 3),), None),
    ],
)
def test_operators_become_products(operator: str, args: Any, shape: tuple[int, ...] | None) -> None:
    found = watching.product_of(operator, args)
    assert (None if found is None else (found.m, found.n, found.k)) == shape


def test_loaders_are_timed() -> None:
    data = torch.utils.data.TensorDataset(torch.ones(6, 2))
    plain = torch.utils.data.dataloader._BaseDataLoaderIter.__next__
    with watching.loading() as found:
        assert len(list(torch.utils.data.DataLoader(data, batch_size=2))) == 3
    assert (found.batches, found.workers, found.pinned) == (3, 0, False)
    assert 0.0 < found.seconds < 10.0
    assert torch.utils.data.dataloader._BaseDataLoaderIter.__next__ is plain


def test_a_script_runs_as_main_with_its_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "helper.py").write_text("WORD = 'helped'\n")
    script = tmp_path / "script.py"
    script.write_text("import sys, helper\nprint(__name__, helper.WORD, sys.argv[1:])\nsys.exit(0)\n")
    run_script(script, ["--steps", "2"])
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "__main__ helped ['--steps', '2']\n")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x = 1\nraise KeyError('lost')\n", r"script.py line 2 fails with KeyError: 'lost'"),
        ("import sys\nsys.exit(3)\n", r"script.py ends with exit code 3"),
        ("x = = 1\n", r"script.py fails with SyntaxError"),
    ],
)
def test_a_script_that_fails_is_named_with_its_line(text: str, why: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(text)
    with pytest.raises(ScriptError, match=why):
        run_script(script, [])


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["nowhere.py"], "there is no script nowhere.py"),
        (["gemm:64x64x64", "--candidate", "cublas", "--args", "x"], "--args are arguments of a script"),
        (["gemm:64x64", "--candidate", "cublas"], "it must be m x n x k"),
        ([__file__, "--candidate", "cublas"], "a script calls its own kernels"),
        ([__file__, "--args", "'open"], "No closing quotation"),
    ],
)
def test_bad_input_is_named(command: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", *command]) == 2
    assert said in capsys.readouterr().err


def test_findings_are_printed_with_advice(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(diagnose, "cards", lambda: ())
    seen = replace(FINE, waits={Place("model.py", 12): 4})
    monkeypatch.setattr(diagnosed, "of_workload", lambda workload: seen)
    asked = ["diagnose", "gemm:64x64x64", "--candidate", "cublas"]
    assert main(asked) == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "gemm:64x64x64: 1 found; device busy 90% of 1000 ms"
    assert printed[1:3] == ["hidden synchronisation: the host waited for the device 4 times", "  model.py:12 (4x)"]
    assert printed[3].startswith("  -> keep values on the device")
    assert main([*asked, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["observed"]["waits"] == {"model.py:12": 4}
    monkeypatch.setattr(diagnosed, "of_workload", lambda workload: FINE)
    assert main(asked) == 0


SCRIPT = """
import torch
x = torch.ones(256, 256, device="cuda")
for step in range(50):
    x = x * 1.0001
    if x.sum().item() < 0:
        break
y = x @ x
"""


@pytest.mark.gpu
def test_a_script_s_waits_are_found_on_their_line(tmp_path: Path, gpu: Any) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    found = {finding.what: finding for finding in examine(diagnosed.of_script(script, []))}
    assert found["hidden synchronisation"].places == (f"{script}:6 (50x)",)
    assert "launch bound" in found
    assert found["tensor cores not used"].places == (f"{script}:8: mm 256x256x256, float32",)
