"""A step of training: the optimizer against torch's, the count of parameters, the prediction beside a measured peak."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from perfsuite.cli import memory_measured
from perfsuite.cli.main import main
from perfsuite.memory import training_measured
from perfsuite.memory.model import activation_bytes
from perfsuite.memory.training_measured import TrainingPeak, predict
from perfsuite.memory.training_step import Layer, MixedAdamW, Shape, training

SMALL = Shape(layers=2, hidden=32, heads=4, seq=16, batch=2)


def test_parameters_are_counted_as_the_layers_have_them() -> None:
    layers = [Layer(SMALL, "flash", dtype=torch.bfloat16) for _ in range(SMALL.layers)]
    assert sum(one.numel() for layer in layers for one in layer.parameters()) == SMALL.parameters


def test_the_optimizer_does_what_torch_s_adamw_does() -> None:
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(5, 7, generator=generator)
    ours, theirs = (torch.nn.Parameter(start.clone()) for _ in range(2))
    mine = MixedAdamW([ours], rate=0.02, decay=0.1)
    reference = torch.optim.AdamW([theirs], lr=0.02, weight_decay=0.1)
    for _ in range(5):
        gradient = torch.randn(5, 7, generator=generator)
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        mine.step()
        reference.step()
    torch.testing.assert_close(ours, theirs)


def test_sixteen_bit_parameters_follow_their_masters() -> None:
    parameter = torch.nn.Parameter(torch.ones(8, dtype=torch.bfloat16))
    optimizer = MixedAdamW([parameter], rate=1e-4, decay=0.0)
    for _ in range(30):  # each step is far below a bfloat16's resolution at 1
        parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    assert float(optimizer.masters[0][0]) == pytest.approx(1.0 - 30e-4, rel=1e-4)
    assert float(parameter.detach()[0]) == pytest.approx(1.0 - 30e-4, rel=4e-3)


@pytest.mark.parametrize("kept", ["standard", "flash", "checkpointed"])
def test_steps_run_and_leave_gradients_allocated(kept: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[MixedAdamW] = []
    plain = MixedAdamW.__init__

    def note(self: MixedAdamW, *arguments: Any, **options: Any) -> None:
        plain(self, *arguments, **options)
        made.append(self)

    monkeypatch.setattr(MixedAdamW, "__init__", note)
    step = training(SMALL, kept, "cpu")
    before = [one.clone() for one in made[0].masters]
    step()
    step()
    assert made[0].steps == 2
    assert all(one.grad is not None and not one.grad.any() for one in made[0].parameters)
    assert any(not torch.equal(old, new) for old, new in zip(before, made[0].masters, strict=True))


def test_the_prediction_is_state_and_activations() -> None:
    found = predict(SMALL, "checkpointed", 1e6)
    assert found.state == 16.0 * SMALL.parameters
    assert found.activations == activation_bytes(2, 32, 4, 16, 2).checkpointed
    assert found.off == pytest.approx((1e6 - found.predicted) / 1e6)
    assert TrainingPeak(10.0, 10.4, "flash", 5.0, 5.0).holds
    assert not TrainingPeak(10.0, 10.6, "flash", 5.0, 5.0).holds


@pytest.mark.parametrize(
    ("sizes", "said"), [({"hidden": 30}, "it must divide hidden, which is 30"), ({"layers": 0}, "layers is 0")]
)
def test_shapes_are_checked(sizes: dict[str, int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Shape(**({"layers": 2, "hidden": 32, "heads": 4, "seq": 16, "batch": 2} | sizes))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A card on which every step takes 1 % more than predicted."""
    monkeypatch.setattr(memory_measured, "cards", lambda at_least=1: ())

    def one_more(shape: Shape, kept: Any) -> TrainingPeak:
        return predict(shape, kept, 1.01 * predict(shape, kept, 1.0).predicted)

    monkeypatch.setattr(training_measured, "measure", one_more)


COMMAND = ["memory", "training", "--layers", "2", "--hidden", "64", "--heads", "4", "--seq", "16", "--measure"]


@pytest.mark.usefixtures("measured")
def test_the_command_shows_prediction_and_peak(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMAND, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["activations"] for row in told["rows"]] == ["standard", "flash", "checkpointed"]
    assert told["rows"][0]["off"] == pytest.approx(0.01 / 1.01)
    assert main(COMMAND) == 0
    assert "+1.0%" in capsys.readouterr().out


def test_bad_input_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main([*COMMAND, "--states", "adamw-fp32"]) == 2
    assert "--measure trains with adamw-mixed" in capsys.readouterr().err
    assert main([*COMMAND[:-1], "--heads", "5", "--measure"]) == 2
    assert "heads is 5; it must divide hidden" in capsys.readouterr().err
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert main(COMMAND) == 2
    assert "a GPU is needed" in capsys.readouterr().err


@pytest.mark.gpu
@pytest.mark.parametrize("kept", ["standard", "flash", "checkpointed"])
def test_the_model_holds_on_a_card(kept: Any, gpu: Any) -> None:
    found = training_measured.measure(Shape(layers=12, hidden=1024, heads=16, seq=1024, batch=4), kept)
    assert found.holds, f"{found.predicted:.4g} predicted, {found.measured:.4g} measured"
