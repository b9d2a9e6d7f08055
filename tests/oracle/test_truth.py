"""The truth is the model's: its points are those that other code sees in the whole model, and its gradients are derivatives to fp64."""

from collections import deque
from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from msgspec.structs import replace

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from align_hooks.comparison.arbitration import PointKind  # noqa: E402
from align_hooks.oracle.inputs import Inputs  # noqa: E402
from align_hooks.oracle.passes import Pass  # noqa: E402
from align_hooks.oracle.points import PointRows  # noqa: E402
from oracle.models import FAMILIES, ROWS, SEQUENCE, batch_of, facts_of, inputs_of, model_of, token_losses, unstacked, weights_of  # noqa: E402
from synthetic import relative_error  # noqa: E402

WHOLE = [name for name in FAMILIES if name != "deepseek_v3_mtp"]
"""Those that transformers runs as they are."""


def whole(parts: Iterator[PointRows], kind: PointKind) -> dict[str, np.ndarray]:
    """Points put together from their rows, in the order in which they came."""
    rows: dict[str, list[PointRows]] = {}
    for part in parts:
        if part.kind is kind and part.tokens is None:
            rows.setdefault(part.point, []).append(part)
    return {name: np.concatenate([part.array for part in sorted(of, key=lambda part: part.first)]) for name, of in rows.items()}


def values(truth: Pass) -> dict[str, np.ndarray]:
    return whole(truth.values(), PointKind.VALUE)


@pytest.mark.parametrize("family", WHOLE)
def test_points_are_those_that_hooks_see_in_the_whole_model(family: str) -> None:
    """In fp32, with hooks placed by hand; so within its rounding."""
    configuration, model = FAMILIES[family], model_of(FAMILIES[family])
    inputs = inputs_of(configuration, weights_of(model), batch_of(rows=((ROWS,),)))
    inputs = replace(inputs, objective=replace(inputs.objective, shares=None))  # the language model's alone, no balance of experts
    truth = Pass(configuration, inputs, "float64")
    ours = values(truth)
    gradients = list(truth.gradients())
    theirs = seen(model, inputs)
    flowing = whole(iter(gradients), PointKind.GRADIENT)
    assert len(theirs) > 15
    assert theirs.keys() <= ours.keys()
    for name, tensor in theirs.items():
        canonical = tensor.detach().numpy().reshape(ROWS, SEQUENCE, -1).reshape(ours[name].shape)
        assert ours[name].shape[:2] == (ROWS, SEQUENCE), name
        assert relative_error(ours[name], canonical) < 2e-6, name
        assert tensor.grad is not None, name
        assert relative_error(flowing[name], tensor.grad.numpy().reshape(flowing[name].shape)) < 1e-5, name
    parameters = whole(iter(gradients), PointKind.PARAMETER)
    given = {name: np.zeros(one.shape) if one.grad is None else one.grad.numpy() for name, one in model.named_parameters()}
    for name, found in unstacked(given).items():
        assert relative_error(parameters[name], found) < 2e-5 or not found.any(), name


def test_each_expert_has_the_tokens_that_chose_it() -> None:
    """Where all experts are one module too."""
    configuration, model = FAMILIES["gpt_oss"], model_of(FAMILIES["gpt_oss"])
    parts = list(Pass(configuration, inputs_of(configuration, weights_of(model), batch_of(rows=((ROWS,),))), "float64").values())
    weights = {part.first: part.array for part in parts if part.point == "model.layers.1.mlp.gate.weights"}
    experts = [part for part in parts if part.point.startswith("model.layers.1.mlp.experts.")]
    assert len(experts) > ROWS
    for part in experts:
        chosen = np.flatnonzero(weights[part.first][0, :, int(part.point.rpartition(".")[2])])
        assert part.tokens is not None
        assert sorted(part.tokens) == chosen.tolist()


def seen(model: torch.nn.Module, inputs: Inputs) -> Mapping[str, torch.Tensor]:
    """What hooks on the whole model see, each tensor with its gradient by the mean loss of all tokens that count."""
    found: dict[str, torch.Tensor] = {}

    def keep(name: str, tensor: torch.Tensor) -> None:
        tensor.retain_grad()
        found[name] = tensor

    def output(name: str) -> object:
        return lambda module, given, made: keep(name, made[0] if isinstance(made, tuple) else made)

    def given(name: str) -> object:
        return lambda module, args, kwargs: keep(name, args[0] if args else kwargs["hidden_states"])

    for number, layer in enumerate(model.model.layers):
        name = f"model.layers.{number}"
        layer.register_forward_hook(output(name))
        layer.self_attn.o_proj.register_forward_pre_hook(given(f"{name}.self_attn.core"), with_kwargs=True)
        layer.post_attention_layernorm.register_forward_pre_hook(given(f"{name}.residual"), with_kwargs=True)
        inner = ["input_layernorm", "post_attention_layernorm", *(f"self_attn.{own}" for own, _ in layer.self_attn.named_children())]
        if not hasattr(layer.mlp, "experts"):
            inner += ["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]
            layer.mlp.down_proj.register_forward_pre_hook(given(f"{name}.mlp.activation"), with_kwargs=True)
        else:
            layer.mlp.register_forward_hook(output(f"{name}.mlp"))
            routed = [] if hasattr(layer.mlp, "router") else ["mlp.gate"]
            inner += ["mlp.shared_experts"] if hasattr(layer.mlp, "shared_experts") else routed
        for own in inner:
            layer.get_submodule(own).register_forward_hook(output(f"{name}.{own}"))
    model.model.embed_tokens.register_forward_hook(output("model.embed_tokens"))
    model.model.norm.register_forward_hook(output("model.norm"))
    logits = model(torch.from_numpy(inputs.batch.tokens)).logits
    keep("lm_head", logits)
    labels, mask = torch.from_numpy(inputs.batch.labels), torch.from_numpy(inputs.batch.loss_mask)
    losses = token_losses(logits, labels)
    keep("token_losses", losses)
    ((losses * mask).sum() / mask.sum()).backward()
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_are_derivatives_of_the_objective_to_fp64(family: str) -> None:
    """By differences, along a direction in all weights at once: a cast to fp32 anywhere would be off by a hundredth."""
    configuration, model = FAMILIES[family], model_of(FAMILIES[family])
    weights, random, step = weights_of(model), np.random.default_rng(1), 2e-6
    truth = Pass(configuration, inputs_of(configuration, weights), "float64")
    deque(truth.values(), maxlen=0)  # gradients follow values
    gradients = whole(truth.gradients(), PointKind.PARAMETER)
    moved = {name: random.standard_normal(tensor.shape) for name, tensor in weights.items() if name in gradients}
    assert gradients.keys() == {name for name in weights if not name.endswith("correction_bias")}
    ahead, behind = (
        objective(configuration, weights, {name: sign * step * direction for name, direction in moved.items()}) for sign in (1, -1)
    )
    derivative = (ahead - behind) / (2 * step)
    wanted = sum(float((gradients[name] * direction).sum()) for name, direction in moved.items())
    assert derivative == pytest.approx(wanted, rel=1e-7)


def objective(configuration: Mapping[str, object], weights: Mapping[str, np.ndarray], moved: Mapping[str, np.ndarray]) -> float:
    """What is differentiated, with weights moved in fp64."""
    elsewhere = type(weights)({name: tensor + moved.get(name, 0.0) for name, tensor in weights.items()})  # type: ignore[call-arg]
    inputs = inputs_of(configuration, elsewhere)  # type: ignore[arg-type]
    truth = Pass(configuration, inputs, "float64")
    losses = values(truth)["token_losses"]
    return float((losses * inputs.objective.tokens).sum()) + sum(truth.terms.values())


def test_rows_of_a_padded_vocabulary_are_in_the_softmax() -> None:
    configuration, model = FAMILIES["llama"], model_of(FAMILIES["llama"])
    weights = weights_of(model)
    plain = values(Pass(configuration, inputs_of(configuration, weights), "float64"))
    weights |= {f"{name}.weight#padding": np.full((4, 16), 0.1, np.float32) for name in ("lm_head", "model.embed_tokens")}
    truth = Pass(configuration, inputs_of(configuration, weights), "float64")
    padded = values(truth)
    assert np.array_equal(padded["lm_head"], plain["lm_head"])
    assert (padded["token_losses"] > plain["token_losses"]).all()
    gradients = whole(truth.gradients(), PointKind.PARAMETER)
    assert gradients["lm_head.weight#padding"].shape == (4, 16)
    assert gradients["lm_head.weight#padding"].any()
    assert not gradients["model.embed_tokens.weight#padding"].any()


def test_tokens_are_given_to_the_experts_of_the_run() -> None:
    """And the router's own choice is what is said of it."""
    configuration, model = FAMILIES["qwen3_moe"], model_of(FAMILIES["qwen3_moe"])
    inputs = inputs_of(configuration, weights_of(model))
    own = whole(Pass(configuration, inputs, "float64").values(), PointKind.CHOICE)
    router = "model.layers.0.mlp.gate"
    given = own[router].astype(np.int16)
    given[1, 4] = next([first, first + 1] for first in range(4) if not {first, first + 1} & set(given[1, 4]))
    truth = Pass(configuration, replace(inputs, choices={router: given}), "float64")
    parts = list(truth.values())
    assert np.array_equal(whole(iter(parts), PointKind.CHOICE)[router], own[router])
    weights = whole(iter(parts), PointKind.VALUE)[f"{router}.weights"]
    assert np.array_equal(np.sort(np.argsort(-weights, -1)[..., :2], -1), given)


def test_half_types_round_weights_as_each_framework_does() -> None:
    configuration, model = FAMILIES["llama"], model_of(FAMILIES["llama"])
    inputs = inputs_of(configuration, weights_of(model), compute_type="bfloat16")
    norm = "model.norm.weight"
    assert inputs.rounded(norm) == inputs.rounded("lm_head.weight") == "bfloat16"
    elsewhere = Inputs(facts_of(configuration, compute_type="bfloat16"), inputs.weights, inputs.batch, inputs.objective)
    assert elsewhere.rounded(norm) == "bfloat16"
    honest = [values(Pass(configuration, inputs, precision))["token_losses"] for precision in ("float64", "bfloat16")]
    assert 1e-4 < relative_error(*honest) < 3e-2
