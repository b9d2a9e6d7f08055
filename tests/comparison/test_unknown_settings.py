"""A setting that is unknown is equal to nothing, and differs from nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from align_hooks.checkpoints.model import model_of
from align_hooks.comparison.settings import hyper_parameters, model_settings
from align_hooks.comparison.verdict import Verdict
from align_hooks.errors import RecordError
from align_hooks.hf_side.inputs import refuse_unknown
from align_hooks.messages import rendered
from align_hooks.quantities.weights import UNKNOWN, unknown_of
from align_hooks.record import layout
from align_hooks.record.schema import Group, Optimizer
from align_hooks.report.configuration import models
from comparison.conftest import Compared
from synthetic import CONFIG, Synthetic, begun, tensors, whole_shards
from worded import arguments

KNOWN = {"model_type": "llama", "hidden_size": 64, "rope_theta": 1e4, "rope_scaling": None}
LACKING = {"model_type": "llama", "hidden_size": 64, "rope_scaling": None, UNKNOWN: ["rope_theta"]}


@pytest.mark.parametrize("pair", [(KNOWN, LACKING), (LACKING, KNOWN), (LACKING, LACKING)])
def test_of_a_model(pair: tuple[dict[str, Any], dict[str, Any]]) -> None:
    assert model_settings(*pair) == []
    assert not any(row.differs for row in models(pair))
    assert [found.name for found in model_settings(pair[0], pair[1] | {"hidden_size": 32})] == ["hidden_size"]


def test_what_a_record_names_as_unknown_need_not_be_names() -> None:
    assert unknown_of({UNKNOWN: "all"}) == [] and unknown_of({UNKNOWN: [1]}) == ["1"]


def test_a_comparison_says_it_and_stays_aligned(compared: Compared, candidate: Synthetic) -> None:
    candidate.model = {"model_type": CONFIG["model_type"], UNKNOWN: ["hidden_size"]}
    result = compared(candidate)
    assert result.verdict is Verdict.ALIGNED
    assert rendered(arguments("notes.unknown_settings", *result.notes)["names"]) == "hidden_size"


@pytest.mark.parametrize("field", ["type", "loss_scale", "decoupled_weight_decay"])
def test_of_an_optimizer(field: str) -> None:
    whole = {"groups": (), "type": "AdamW", "loss_scale": 1.0, "decoupled_weight_decay": True, "clip_grad": None}
    assert hyper_parameters(Optimizer(**whole), Optimizer(**whole | {field: None})) == []
    assert [found.name for found in hyper_parameters(Optimizer(**whole), Optimizer(**whole | {"clip_grad": 1.0}))] == ["clip_grad"]


@pytest.mark.parametrize("field", ["learning_rate", "betas", "eps", "weight_decay", "bias_correction"])
def test_of_a_group(field: str) -> None:
    known: dict[str, Any] = {"learning_rate": 1e-3, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1, "bias_correction": True}
    sides = [Optimizer((Group(("a",), **settings),), "AdamW") for settings in (known, known | {field: None})]
    assert hyper_parameters(*sides) == hyper_parameters(*reversed(sides)) == []


@pytest.mark.parametrize("read", [lambda: model_of(LACKING, Path("run.json")), lambda: refuse_unknown(LACKING, tensors(1))])
def test_what_needs_the_setting_refuses_by_its_name(read: Callable[[], object]) -> None:
    with pytest.raises(RecordError, match="rope_theta"):
        read()


@pytest.mark.parametrize("lacks", [False, True])
def test_recorded_weights_have_no_configuration_that_would_mean_defaults(tmp_path: Path, lacks: bool) -> None:
    writer = begun(tmp_path / "run", weights="0")
    writer.describe(place={"dp": 0, "tp": 0, "pp": 0}, shards=whole_shards(), facts={}, steps=range(1))
    writer.weights(0, tensors(100), LACKING if lacks else KNOWN)
    assert (layout.step(tmp_path / "run", 0, 0) / layout.CONFIG).exists() == (not lacks)
