"""The memory models: the figures of the literature, growth by definition, predictions against a peak, the command."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perfsuite.cli.main import main
from perfsuite.memory import model as model
from perfsuite.memory import planning
from perfsuite.memory.measured import hold_against
from perfsuite.problems import Attention
from perfsuite.report import units

GB, MIB = 1e9, 2**20


@pytest.mark.parametrize(("dtype", "gigabytes"), [("fp32", 28), ("fp16", 14), ("bf16", 14), ("int8", 7), ("int4", 3.5)])
def test_weights_of_seven_billion_parameters(dtype: str, gigabytes: float) -> None:
    assert model.parameter_bytes(7e9, dtype) == gigabytes * GB


@pytest.mark.parametrize("states", sorted(model.STATES))
def test_adamw_keeps_sixteen_bytes_a_parameter(states: str) -> None:
    assert sum(model.training_bytes(7e9, states).values()) == 112 * GB


def test_kv_cache_of_llama_2_7b() -> None:
    assert model.kv_cache_bytes(32, 32, 128, 4096) == 2 * 2**30
    assert model.kv_cache_bytes(32, 32, 128, 4096, batch=8) == 16 * 2**30
    assert model.kv_cache_bytes(32, 8, 128, 4096) * 4 == model.kv_cache_bytes(32, 32, 128, 4096), "grouped queries"


def test_inference_of_seven_billion_parameters_at_4096() -> None:
    parts = model.inference_bytes(7e9, layers=32, kv_heads=32, head_dim=128, seq=4096)
    assert sum(parts.values()) == pytest.approx(16 * GB, rel=0.01)
    quantised = model.inference_bytes(
        7e9, layers=32, kv_heads=32, head_dim=128, seq=4096, dtype="int4", kv_dtype="int8"
    )
    assert quantised == {"weights": 3.5 * GB, "KV cache": 2**30}


def test_activations_of_gpt_3_as_published() -> None:
    """Korthikanti et al. (2022), section 4: at 5 a s / h = 80 the attention's part is 70 % of the layer's 114 sbh."""
    kept = model.activation_bytes(1, hidden=12288, heads=96, seq=2048, batch=1)
    sbh = 2048 * 12288
    assert kept.standard == (34 + 80) * sbh
    assert kept.flash == 34 * sbh
    assert kept.checkpointed == (2 + 34) * sbh
    assert model.activation_bytes(96, 12288, 96, 2048, 1).checkpointed == (96 * 2 + 34) * sbh


@pytest.mark.parametrize(("seq", "one_head"), [(512, 524_288), (4096, 33_554_432), (131072, 34_359_738_368)])
def test_scores_of_one_head_and_of_all(seq: int, one_head: int) -> None:
    memory = model.attention_bytes(1, 16, seq, 64)
    assert memory.scores_of_one_head == one_head
    assert memory.scores == 16 * one_head
    assert memory.inputs == 3 * 16 * seq * 64 * 2
    assert memory.statistics == 16 * seq * 8


def test_flash_is_linear_in_the_length_and_standard_is_not() -> None:
    short, long = (model.attention_bytes(2, 8, seq, 64) for seq in (4096, 8192))
    assert long.flash == 2 * short.flash
    assert 3.5 < long.standard / short.standard < 4.0
    assert short.saving == short.standard / short.flash


def test_grouped_and_crossed_attention_counts_what_is_there() -> None:
    memory = model.attention_bytes(2, 8, 16, 64, kv_heads=2, seq_kv=1024, dtype="fp32", scores_dtype="fp32")
    assert memory.inputs == 4 * (2 * 8 * 16 * 64 + 2 * 2 * 2 * 1024 * 64)
    assert memory.scores == 4 * 2 * 8 * 16 * 1024


def test_the_guides_own_formula_gives_131_mebibytes() -> None:
    assert planning.with_working_set(model.attention_bytes(2, 16, 8192, 64)) / MIB == pytest.approx(131.2)


@pytest.mark.parametrize(
    ("sample", "limit", "fixed", "batch"),
    [(10, 12, 0, 1), (10, 11.9, 0, 0), (10, 24, 0, 2), (10, 100, 0, 8), (10, 100, 52, 4), (10, 100, 200, 0)],
)
def test_largest_batch_is_a_power_of_two_that_fits_with_a_fifth_to_spare(
    sample: float, limit: float, fixed: float, batch: int
) -> None:
    found = planning.largest_batch(sample, limit, fixed_bytes=fixed)
    assert found == batch
    assert fixed + 2 * max(found, 0.5) * sample * 1.2 > limit


def test_alignment_rounds_up() -> None:
    assert [planning.aligned(size) for size in (1, 16, 17, 129)] == [16, 16, 32, 144]
    assert planning.aligned(129, 8) == 136


@pytest.mark.parametrize(
    ("text", "value"), [("7B", 7e9), ("125m", 125e6), ("6.74e9", 6.74e9), (" 2 k ", 2000.0), ("12", 12.0)]
)
def test_counts(text: str, value: float) -> None:
    assert units.count(text) == value


@pytest.mark.parametrize(("text", "value"), [("80GB", 80e9), ("24GiB", 24 * 2**30), ("1.5kb", 1500.0), ("7B", 7.0)])
def test_sizes(text: str, value: float) -> None:
    assert units.size(text) == value


@pytest.mark.parametrize("text", ["", "B", "-1", "0", "7Q", "1.2.3", "nan", "inf", "1e999", "seven"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        units.count(text)
    with pytest.raises(ValueError, match="is not"):
        units.size(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [(64, "64 B"), (2**31, "2.15 GB (2.00 GiB)"), (999.6e9, "1.00 TB (931 GiB)"), (5e15, "5000 TB (4547 TiB)")],
)
def test_bytes_as_text(value: float, text: str) -> None:
    assert units.text_of(value) == text


def test_a_prediction_is_held_against_inputs_and_peak() -> None:
    problem = Attention(2, 8, 1024, 64)
    memory = model.attention_bytes(2, 8, 1024, 64)
    calls: list[Any] = []

    def peak(asked: Attention, candidate: Any) -> float:
        calls.append((asked, candidate))
        return memory.output

    found = hold_against(problem, print, peak, algorithm="flash")
    assert calls == [(problem, print)]
    assert found.measured == memory.inputs + memory.output
    assert found.predicted == memory.flash
    assert found.holds
    far = hold_against(problem, print, peak, algorithm="standard", scores_dtype="fp32")
    assert far.predicted == memory.inputs + memory.output + 2 * memory.scores
    assert far.off < -0.05
    assert not far.holds


def reckoned(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert main(["memory", *arguments, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert isinstance(rows, list)
    return rows


def test_the_command_reckons(capsys: pytest.CaptureFixture[str]) -> None:
    lengths = reckoned(capsys, "attention", "--seq-lengths", "512", "131072", "--heads", "32", "--limit", "80GB")
    assert [row["scores_of_one_head_bytes"] for row in lengths] == [2 * 512**2, 2 * 131072**2]
    assert lengths[0]["largest_batch"] > lengths[1]["largest_batch"] > 0
    assert [row["weights_bytes"] / GB for row in reckoned(capsys, "inference")] == [28, 14, 7, 3.5]
    assert {row["state_bytes"] / GB for row in reckoned(capsys, "training")} == {112}
    assert reckoned(capsys, "kv-cache", "--batch", "8")[0]["total_bytes"] == 16 * 2**30


def test_the_command_prints_both_kinds_of_units(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory", "kv-cache", "--seq", "4096"]) == 0
    assert "2.15 GB (2.00 GiB)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["attention", "--heads", "0"], "heads is 0"),
        (["attention", "--heads", "8", "--kv-heads", "3"], "kv_heads is 3; it must divide heads"),
        (["attention", "--limit", "much"], "'much' is not a size"),
        (["inference", "--parameters", "7Q"], "'7Q' is not a positive number"),
        (["kv-cache", "--batch", "-1"], "batch is -1"),
        (["attention", "--dtype", "int8", "--measure", "math:sqrt"], "--measure takes one of fp32"),
        (["attention", "--measure", "math.sqrt"], "write module:function"),
        (["attention", "--measure", "no_such_module:f"], "cannot be imported"),
        (["attention", "--measure", "math:nothing"], "math has no nothing"),
        (["attention", "--measure", "math:pi"], "it must be a function"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["memory", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert words in said.err
    assert said.err.count("\n") == 1


def test_measuring_without_a_gpu_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert main(["memory", "attention", "--measure", "math:sqrt"]) == 2
    assert "a GPU is needed, and " in capsys.readouterr().err


def test_a_measured_peak_far_from_its_prediction_is_exit_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from perfsuite.analyze import resources
    from perfsuite.cli import memory_measured

    monkeypatch.setattr(memory_measured, "cards", lambda: ())
    monkeypatch.setattr(resources, "peak_bytes", lambda problem, candidate: problem.bytes / 4)
    command = ["memory", "attention", "--seq-lengths", "1024", "2048", "--measure", "math:sqrt"]
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["measured_bytes"] == 4 * 16 * 1024 * 64 * 2
    assert main([*command, "--algorithm", "standard"]) == 1
    assert "off" in capsys.readouterr().out
