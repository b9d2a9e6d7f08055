"""Settings that the arguments on record hold and ``config.json`` does not, and unknown ones: what they mean, where they are suspected."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from align_hooks.checkpoints.model import model_of
from align_hooks.comparison.diagnosis.hypotheses.registry import HYPOTHESES
from align_hooks.comparison.diagnosis.hypothesis import Fault, likeliest
from align_hooks.comparison.diagnosis.observations import Observations
from align_hooks.comparison.diagnosis.suspects import suspects
from align_hooks.comparison.finding import Finding
from align_hooks.comparison.settings.arguments import LATENT as LATENT_SETTING
from align_hooks.comparison.settings.recorded import argument_settings, hyper_parameters, model_settings
from align_hooks.comparison.stage_result import FaultLocation, StageResult, Status
from align_hooks.comparison.stages.gradients import gradients
from align_hooks.comparison.stages.token_losses import token_losses
from align_hooks.comparison.verdict import Verdict
from align_hooks.errors import RecordError
from align_hooks.messages import Side, rendered
from align_hooks.oracle.inputs import refuse_unknown
from align_hooks.quantities.weights import UNKNOWN, unknown_of
from align_hooks.record.format import layout
from align_hooks.record.format.schema import Facts, OptimizerFacts, ParameterGroup, Training
from align_hooks.report.comparison import to_change
from align_hooks.report.configuration import models
from comparison.conftest import Compared
from comparison.test_blame import bent, noisy, tokens
from synthetic import CONFIG, Synthetic, begun, tensors, whole_shards
from worded import arguments, ids

EXPERTS, LATENT, PREDICTING = {"num_experts": 8}, {"kv_lora_rank": 32, "rope_scaling": None}, {"num_nextn_predict_layers": 1}
YARN = {"kv_lora_rank": 32, "rope_scaling": {"factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0.0}}
CALLBACK = "[{'type': 'TopkBiasBalanceCallback'}]"


def megatron(model: dict[str, Any], micro: int = 4, batch: int = 8, **arguments: object) -> Facts:
    """What Megatron-LM records: every argument, as text."""
    given = {"moe_router_load_balancing_type": "aux_loss", "moe_aux_loss_coeff": 0.0, "moe_z_loss_coeff": None}
    given |= {"rotary_scaling_factor": 1.0, "mscale_all_dim": 0.0} | balanced(**arguments)
    return Facts(side="torch", model=model, arguments=texts(given), training=Training(micro_batch_size=micro, global_batch_size=batch))


def mindformers(model: dict[str, Any], micro: int = 4, batch: int = 8, *, callbacks: str = CALLBACK, **arguments: object) -> Facts:
    """What MindFormers records: what its YAML holds."""
    given = {f"model.model_config.{name}": value for name, value in balanced(**arguments).items()}
    training = Training(micro_batch_size=micro, global_batch_size=batch)
    return Facts(side="ms", model=model, arguments=texts(given | {"callbacks": callbacks}), training=training)


def texts(arguments: dict[str, object]) -> dict[str, object]:
    return {name: str(value) for name, value in arguments.items()}


def balanced(kind: str | None = None, coefficient: object = 0.01, **arguments: object) -> dict[str, object]:
    """Arguments, and those of an auxiliary loss of a kind."""
    return arguments | ({"moe_router_load_balancing_type": kind, "moe_aux_loss_coeff": coefficient} if kind else {})


CHOOSING, DROPS = EXPERTS | {"num_experts_per_tok": 2}, {"moe_expert_capacity_factor": 1.5, "moe_token_drop_policy": "probs"}
NEVER = DROPS | {"moe_expert_capacity_factor": None}
BIAS = {"moe_router_enable_expert_bias": True, "moe_router_bias_update_rate": 1e-3}
MTP = {"mtp_loss_scaling_factor": 0.3}
PAIRS: dict[str, tuple[Facts, Facts, list[str]]] = {
    "coefficient": (megatron(EXPERTS, kind="aux_loss"), mindformers(EXPERTS, moe_aux_loss_coeff=0.1), ["moe_aux_loss_coeff"]),
    "no loss, whatever its coefficient": (megatron(EXPERTS, kind="none"), mindformers(EXPERTS), []),
    "no loss on one side": (megatron(EXPERTS, kind="none"), mindformers(EXPERTS, kind="gbs_aux_loss"), ["moe_aux_loss_coeff"]),
    "of a micro-batch": (megatron(EXPERTS, kind="aux_loss"), mindformers(EXPERTS, kind="sub_seq_aux_loss"), []),
    "by default": (megatron(EXPERTS, kind="aux_loss"), mindformers(EXPERTS, moe_aux_loss_coeff=0.01), []),
    "of a rank": (megatron(EXPERTS, kind="aux_loss"), mindformers(EXPERTS, kind="seq_aux_loss"), []),
    "of the batch": (megatron(EXPERTS, kind="global_aux_loss"), mindformers(EXPERTS, 2, kind="gbs_aux_loss"), []),
    "of a batch of one micro-batch": (megatron(EXPERTS, batch=4, kind="aux_loss"), mindformers(EXPERTS, batch=4, kind="gbs_aux_loss"), []),
    "of a batch of several": (
        megatron(EXPERTS, kind="aux_loss"),
        mindformers(EXPERTS, kind="gbs_aux_loss"),
        ["moe_router_load_balancing_type"],
    ),
    "of a sequence": (
        megatron(EXPERTS, kind="seq_aux_loss"),
        mindformers(EXPERTS, kind="seq_aux_loss"),
        ["moe_router_load_balancing_type"],
    ),
    "of the only one": (megatron(EXPERTS, 1, kind="seq_aux_loss"), mindformers(EXPERTS, 1, kind="seq_aux_loss"), []),
    "of several kinds": (megatron(EXPERTS, kind="['aux_loss', 'seq_aux_loss']"), mindformers(EXPERTS), []),  # type: ignore[arg-type]
    "of several weights": (megatron(EXPERTS, kind="aux_loss", coefficient="[0.1]"), mindformers(EXPERTS), []),  # type: ignore[arg-type]
    "of no number": (megatron(LATENT, rotary_scaling_factor="9" * 400, mscale_all_dim="1e300"), mindformers(LATENT, mscale="x"), []),
    "micro-batch": (megatron(EXPERTS, 2, kind="aux_loss"), mindformers(EXPERTS, kind="sub_seq_aux_loss"), ["micro_batch_size"]),
    "micro-batch, no loss": (megatron(EXPERTS, 2), mindformers(EXPERTS, 4), []),
    "micro-batch, no experts": (megatron({}, 2, kind="aux_loss"), megatron({}, 4, kind="aux_loss"), []),
    "two of Megatron": (megatron(EXPERTS, 2, kind="aux_loss"), megatron(EXPERTS, 4, kind="aux_loss"), ["micro_batch_size"]),
    "logits": (megatron(EXPERTS, moe_z_loss_coeff=1e-3), mindformers(EXPERTS), ["moe_z_loss_coeff"]),
    "room for all tokens": (megatron(CHOOSING, **DROPS | {"moe_expert_capacity_factor": 4.0}), megatron(CHOOSING, **NEVER), []),
    "dropped tokens": (megatron(CHOOSING, **DROPS), megatron(CHOOSING, **NEVER), ["moe_expert_capacity_factor"]),
    "an even share": (
        megatron(EXPERTS, **DROPS),
        megatron(EXPERTS, **DROPS | {"moe_expert_capacity_factor": 4.0}),
        ["moe_expert_capacity_factor"],
    ),
    "other tokens": (
        megatron(CHOOSING, **DROPS),
        megatron(CHOOSING, **DROPS | {"moe_token_drop_policy": "position"}),
        ["moe_token_drop_policy"],
    ),
    "capacity that is not told": (megatron(CHOOSING, **DROPS), mindformers(CHOOSING), []),
    "bias": (megatron(EXPERTS, **BIAS), mindformers(EXPERTS, **BIAS), []),
    "bias not moved": (megatron(EXPERTS, **BIAS), mindformers(EXPERTS, callbacks="[]", **BIAS), ["moe_router_bias_update_rate"]),  # type: ignore[arg-type]
    "bias by default": (megatron(EXPERTS, **BIAS), mindformers(EXPERTS, moe_router_enable_expert_bias=True), []),
    "no bias": (megatron(EXPERTS, moe_router_bias_update_rate=1), mindformers(EXPERTS, moe_router_enable_expert_bias=False), []),
    "prediction": (megatron(PREDICTING, **MTP), mindformers(PREDICTING, mtp_loss_factor=0.1), ["mtp_loss_scaling_factor"]),
    "the same prediction": (megatron(PREDICTING, **MTP), mindformers(PREDICTING, **MTP), []),
    "prediction that is not told": (megatron(PREDICTING, **MTP), mindformers(PREDICTING), []),
    "latent": (megatron(LATENT), mindformers(LATENT), [LATENT_SETTING]),
    "latent, not scaled": (megatron(LATENT), mindformers(LATENT, rotary_scaling_factor=1.0), []),
    "latent, of no weight": (megatron(LATENT, rotary_scaling_factor=40), mindformers(LATENT, mscale=0), []),
    "latent, stretched": (megatron(YARN), mindformers(YARN), [LATENT_SETTING]),
    "latent, no side scaled": (megatron(YARN), megatron(YARN), []),
    "no arguments on record": (megatron(LATENT), Facts(side="ms", model=LATENT), []),
}


@pytest.mark.parametrize(("reference", "candidate", "names"), PAIRS.values(), ids=PAIRS.keys())
def test_settings_are_compared_by_what_they_mean(reference: Facts, candidate: Facts, names: list[str]) -> None:
    assert [finding.name for finding in argument_settings(reference, candidate)] == names
    assert [finding.name for finding in argument_settings(candidate, reference)] == names


def with_loss(coefficient: float, run: Synthetic) -> Synthetic:
    """A run whose model has experts and balances them."""
    run.model |= EXPERTS
    run.facts["arguments"] = megatron(EXPERTS, kind="aux_loss", coefficient=coefficient).arguments
    return run


def test_a_setting_is_suspected_where_it_acts_and_to_be_set_alike_there(compared: Compared, candidate: Synthetic) -> None:
    bent(with_loss(0.1, candidate), noisy(3))
    outcome = compared(candidate, against=with_loss(0.01, Synthetic()))
    assert (outcome.blame.place, outcome.blame.suspects[0].name) == (FaultLocation.GRADIENTS, "moe_aux_loss_coeff")
    assert (outcome.blame.causes[0], ids(outcome.next)[0]) == ("auxiliary_loss", "next.set_as_told")


def test_it_is_no_suspect_before_it_acts(compared: Compared, candidate: Synthetic) -> None:
    tokens(with_loss(0.1, candidate), 0)
    outcome = compared(candidate, against=with_loss(0.01, Synthetic()))
    assert outcome.blame.place is FaultLocation.FORWARD
    assert "moe_aux_loss_coeff" not in [suspect.name for suspect in outcome.blame.suspects]
    assert [finding.name for finding in outcome.settings] == ["moe_aux_loss_coeff"]
    assert ids(outcome.next)[0] != "next.set_as_told"


def test_where_nothing_shows_it_the_verdict_is_open(compared: Compared, candidate: Synthetic) -> None:
    outcome = compared(with_loss(0.1, candidate), against=with_loss(0.01, Synthetic()))
    assert (outcome.verdict, outcome.blame) == (Verdict.INCONCLUSIVE, None)
    assert compared(with_loss(0.01, Synthetic().drifted()), against=with_loss(0.01, Synthetic())).verdict is Verdict.ALIGNED


LAYER = ("self_attn.q_proj", "self_attn.o_proj", "mlp.gate", "mlp.experts.0.up_proj", "mlp.experts.0.down_proj")
NAMES = [*(f"model.layers.{layer}.{kind}.weight" for layer in range(2) for kind in LAYER), "model.norm.weight", "lm_head.weight"]


def seen(stage: Any, names: list[str]) -> Observations:
    """What a comparison saw of a model of one layer and one that predicts, in which these tensors differ, the first most."""
    limit_ratio = dict(zip(names, range(len(names) + 2, 2, -1), strict=True))
    findings = [Finding(name, error=float(limit_ratio.get(name, 0)), limit=1.0, name=name, step=0) for name in names + NAMES]
    of_tensors = StageResult(gradients, Status.DIFFERENT, "", tuple(dict.fromkeys(findings)))
    first = of_tensors if stage is gradients else StageResult(stage, Status.DIFFERENT, "")
    return Observations(first, (first, of_tensors), context())


def context(stored: Sequence[int] = (0,)) -> Any:
    """A comparison of models of one layer, without settings that differ; ``stored`` are the steps whose gradients are on record."""
    runs = [SimpleNamespace(facts=Facts(side="torch")) for _ in Side]
    sides = [*zip(Side, runs, strict=True)]
    pair = SimpleNamespace(layers=1, draws=False, first=0, runs=runs, sides=sides, steps=lambda kind: stored)
    return SimpleNamespace(pair=pair, settings=[], drawn=None, points={})


def causes_of(seen: Observations, place: FaultLocation) -> tuple[str, ...]:
    return tuple(one.cause for one in likeliest(Fault(seen, place, suspects(seen, place)), HYPOTHESES))


def with_findings(seen: Observations, findings: Iterable[Finding]) -> Observations:
    shown = StageResult(gradients, Status.DIFFERENT, "", tuple(findings))
    return replace(seen, first=shown, results=(shown,))


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("mlp.gate.weight", "router"),
        ("block_sparse_moe.gate.weight", "router"),
        ("mlp.experts.3.up_proj.weight", "experts"),
        ("mlp.shared_experts.up_proj.weight", "shared_experts"),
        ("mlp.gate_proj.weight", "mlp"),
        ("self_attn.k_norm.weight", "query_and_key_norms"),
        ("self_attn.kv_a_layernorm.weight", "latent_norms"),
        ("input_layernorm.weight", "norm"),
        ("self_attn.q_proj.bias", "attention_biases"),
        ("self_attn.q_proj.weight", "attention"),
    ],
)
def test_a_part_of_a_family_is_a_cause_of_its_own(name: str, cause: str) -> None:
    assert causes_of(seen(token_losses, [f"model.layers.0.{name}"]), FaultLocation.FORWARD)[0] == cause


def test_several_experts_have_their_router_in_common() -> None:
    up, down, other = (f"model.layers.0.mlp.experts.{part}_proj.weight" for part in ("0.up", "0.down", "1.up"))
    router, elsewhere = "model.layers.0.mlp.gate.weight", "model.layers.1.mlp.experts.1.up_proj.weight"

    def named(*wrong: str) -> list[str]:
        return [suspect.name for suspect in suspects(seen(token_losses, list(wrong)), FaultLocation.FORWARD)]

    assert named(up, other, down, router) == [up, other, router, down]
    assert named(up, other, down) == [up, other, down]  # it is right
    assert named(up, down, router, other) == [up, down, router, other]
    assert named(up, other, elsewhere, router)[2:] == [elsewhere, router]
    assert causes_of(seen(token_losses, [up, other, down, router]), FaultLocation.FORWARD) == ("experts", "router")


@pytest.mark.parametrize(
    ("wrong", "cause"),
    [
        (NAMES[:8][::-1], "auxiliary_loss"),  # from the second router on
        (NAMES[:7][::-1], "backward_at_boundary"),  # from the second attention on
        ([NAMES[9], NAMES[11], *NAMES[:9]], "prediction_loss"),
        ([NAMES[11], *NAMES[:11]], "backward_of_loss"),
    ],
)
def test_gradients_alone_tell_which_loss_is_wrong(wrong: list[str], cause: str) -> None:
    assert causes_of(seen(gradients, wrong), FaultLocation.GRADIENTS)[0] == cause


def test_a_router_that_the_loss_does_not_reach_is_told_from_another_auxiliary_loss() -> None:
    """A tenth of its gradient at most is left: that of the auxiliary loss."""
    other = seen(gradients, NAMES[:8][::-1])
    findings = other.stages[gradients].findings
    lost = with_findings(other, (replace(one, error=0.99, limit=1e-6, scale=0.01) if one.name == NAMES[7] else one for one in findings))
    assert causes_of(lost, FaultLocation.GRADIENTS)[:2] == ("router_detached", "auxiliary_loss")
    assert "router_detached" not in causes_of(other, FaultLocation.GRADIENTS)


def test_micro_batches_that_mindformers_cannot_take_are_given_to_megatron(compared: Compared, candidate: Synthetic) -> None:
    """No *change* tells MindFormers, which takes all rows of a batch at once."""
    reference = with_loss(0.01, Synthetic())
    bent(with_loss(0.01, candidate), noisy(3))
    reference.facts["training"], candidate.facts["training"] = {"micro_batch_size": 1}, {"micro_batch_size": 2}
    outcome = compared(candidate, against=reference)
    assert outcome.blame.suspects[0].name == "micro_batch_size"
    assert [finding.name for finding in to_change(outcome)] == ["micro_batch_size"]
    candidate.side = "ms"
    candidate.facts["arguments"] = mindformers(EXPERTS, moe_router_load_balancing_type="aux_loss", moe_aux_loss_coeff=0.01).arguments
    outcome = compared(candidate, against=reference)
    assert arguments("next.whole_batch", outcome.next)["at_once"] == 2
    assert to_change(outcome) == []


def test_of_estimated_errors_that_large_the_furthest_beyond_its_limit_comes_first() -> None:
    """A sketch tells the size of an error by a few tens of percent, which ranks no tensors that are lost."""
    errors = ((NAMES[1], 0.8, 0.1), (NAMES[0], 1.1, 0.2))
    findings = [Finding(name, error=error, limit=limit, name=name, step=0) for name, error, limit in errors]
    stored = with_findings(seen(gradients, [NAMES[1], NAMES[0]]), findings)
    assert [one.name for one in stored.wrong] == [NAMES[0], NAMES[1]]
    assert [one.name for one in replace(stored, context=context(stored=())).wrong] == [NAMES[1], NAMES[0]]


# ---- a setting that is unknown is equal to nothing, and differs from nothing

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
    assert hyper_parameters(OptimizerFacts(**whole), OptimizerFacts(**whole | {field: None})) == []
    assert [found.name for found in hyper_parameters(OptimizerFacts(**whole), OptimizerFacts(**whole | {"clip_grad": 1.0}))] == [
        "clip_grad"
    ]


@pytest.mark.parametrize("field", ["learning_rate", "betas", "eps", "weight_decay", "bias_correction"])
def test_of_a_group(field: str) -> None:
    known: dict[str, Any] = {"learning_rate": 1e-3, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1, "bias_correction": True}
    sides = [OptimizerFacts((ParameterGroup(("a",), **settings),), "AdamW") for settings in (known, known | {field: None})]
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
