"""Records whose numbers Hugging Face's own fp32 model made, one of them with a fault: the command names the side that has it."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from align_hooks import open_run  # noqa: E402
from align_hooks import oracle as library  # noqa: E402
from align_hooks.comparison.arbitration import Arbitration, PointKind, Ruling  # noqa: E402
from align_hooks.errors import AlignHooksError, RecordError, UnsupportedVersion  # noqa: E402
from align_hooks.messages import Side  # noqa: E402
from align_hooks.oracle.arbitrate import arbitrate  # noqa: E402
from invoked import command  # noqa: E402
from oracle.models import ARGUMENTS, FAMILIES, batch_of, model_of, token_losses, weights_of  # noqa: E402
from synthetic import Synthetic, row  # noqa: E402

Change = Callable[[Any], object]
REFERENCE, CANDIDATE = Side.REFERENCE, Side.CANDIDATE
ROUTER = "model.layers.0.mlp.gate"
ASKED = {"batches": "all", "gradients": "all", "weights": "all"}


def made(family: str, change: Change | None = None, *, settings: Mapping[str, str] = ASKED, **facts: object) -> Synthetic:
    """A run of one step, as Hugging Face's model trains; ``change`` puts a fault into the model after its weights were recorded."""
    model, batch = model_of(FAMILIES[family]), batch_of(rows=((3,),))
    weights = weights_of(model)
    if change is not None:
        change(model)
    tokens, labels, mask = map(torch.from_numpy, (batch.tokens, batch.labels, batch.loss_mask))
    losses = token_losses(model(tokens).logits, labels)
    ((losses * mask).sum() / mask.sum()).backward()
    gradients = {name: np.zeros(tuple(p.shape), np.float32) if p.grad is None else p.grad.numpy() for name, p in model.named_parameters()}
    run = Synthetic(
        settings=dict(settings),
        shapes={name: tensor.shape for name, tensor in weights.items()},
        rows=[row(0)],
        batches={0: {"tokens": batch.tokens.copy(), "labels": batch.labels.copy(), "loss_mask": batch.loss_mask.copy()}},
        weights={0: weights, 1: weights},
        gradients={0: gradients},
        model=dict(FAMILIES[family]),
        facts={"arguments": {**ARGUMENTS, "moe_router_load_balancing_type": "none"}, **facts},
    )
    run.batches[0]["token_losses"] = losses.detach().numpy()
    return run


def held(where: Path, ours: Synthetic, theirs: Synthetic, **options: Any) -> Arbitration:
    """What is said of two runs."""
    return arbitrate(*(open_run(run.write(where / name)) for name, run in (("ours", ours), ("theirs", theirs))), **options)


def times(factor: float, module: str, name: str) -> Change:
    """A fault: a number of a module is another one."""

    def change(model: Any) -> None:
        part = model.get_submodule(module)
        setattr(part, name, factor * getattr(part, name))

    return change


EPS, SCALED = times(1000, "model.norm", "variance_epsilon"), times(1.01, "model.layers.1.self_attn", "scaling")
FAULTS: Mapping[str, Change] = {
    "eps": EPS,
    "scaled": SCALED,
    "activation": lambda model: setattr(model.model.layers[0].mlp, "act_fn", torch.nn.GELU()),
    "turned": times(1.001, "model.rotary_emb", "inv_freq"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("planted", [REFERENCE, CANDIDATE])
def test_the_side_with_a_fault_is_the_one_named_wrong(tmp_path: Path, fault: str, planted: Side) -> None:
    runs = [made("llama", FAULTS[fault]), made("llama")]
    said = held(tmp_path, *(runs if planted is REFERENCE else runs[::-1]))
    assert said.alike
    assert said.ruling is (Ruling.REFERENCE_WRONG if planted is REFERENCE else Ruling.CANDIDATE_WRONG)
    first = said.first_wrong
    assert (first.point, first.kind) == ("token_losses", PointKind.VALUE)
    assert first.distances[planted].roundings > 100
    assert first.distances[CANDIDATE if planted is REFERENCE else REFERENCE].roundings < 3


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3_tied", "qwen3_moe"])
def test_honest_sides_are_both_right(tmp_path: Path, family: str) -> None:
    said = held(tmp_path, made(family), made(family))
    assert said.ruling is Ruling.BOTH_RIGHT
    assert {judged.point for judged in said.points if judged.kind is PointKind.PARAMETER} == set(open_run(tmp_path / "ours").gradients(0))


def test_a_fault_of_the_backward_pass_alone_is_found_where_it_begins(tmp_path: Path) -> None:
    wrong = made("llama")
    wrong.gradients[0]["model.layers.1.self_attn.k_proj.weight"] *= np.float32(1.001)
    said = held(tmp_path, made("llama"), wrong)
    assert said.ruling is Ruling.CANDIDATE_WRONG
    assert said.first_wrong.point == "model.layers.1.self_attn.k_proj.weight"
    assert [judged.right(CANDIDATE) for judged in said.points].count(False) == 1


def test_sketches_are_enough_where_no_gradients_are_stored(tmp_path: Path) -> None:
    honest, wrong = (made("llama", settings={"batches": "all", "sketches": "all", "weights": "all"}) for _ in range(2))
    wrong.gradients[0]["lm_head.weight"] = wrong.gradients[0]["lm_head.weight"][::-1].copy()
    said = held(tmp_path, honest, wrong)
    assert said.ruling is Ruling.CANDIDATE_WRONG
    assert said.first_wrong.point == "lm_head.weight"
    assert said.first_wrong.distances[CANDIDATE].estimated


def test_settings_are_the_references_and_are_shown(tmp_path: Path) -> None:
    other = made("llama", EPS)
    other.model["rms_norm_eps"] = 1e-4
    said = held(tmp_path, made("llama"), other)
    assert said.ruling is Ruling.CANDIDATE_WRONG
    assert [finding.name for finding in said.settings] == ["rms_norm_eps"]


def test_sides_on_other_weights_are_each_held_against_their_own(tmp_path: Path) -> None:
    other = made("llama")
    other.weights[0]["lm_head.weight"] *= np.float32(1.01)
    said = held(tmp_path, made("llama"), other)
    assert not said.alike
    assert said.right(REFERENCE)
    assert said.ruling is Ruling.CANDIDATE_WRONG  # its losses are those of the weights without it
    assert held(tmp_path / "again", other, other).ruling is Ruling.NEITHER_RIGHT


def test_both_wrong_alike_is_said(tmp_path: Path) -> None:
    said = held(tmp_path, made("llama", EPS), made("llama", EPS))
    assert said.ruling is Ruling.NEITHER_RIGHT and said.agreed


def test_gradients_that_ranks_sum_are_not_wrong_for_it(tmp_path: Path) -> None:
    run = made("llama", training={"gradients_summed_over_ranks": True, "compute_type": "float32"})
    assert held(tmp_path, made("llama"), run).ruling is Ruling.BOTH_RIGHT  # of one rank


def chosen(family: str, router: str = ROUTER) -> np.ndarray:
    """The experts that Hugging Face's fp32 model gives each token to."""
    model, batch, found = model_of(FAMILIES[family]), batch_of(), []
    model.get_submodule(router).register_forward_hook(lambda module, given, output: found.append(output))
    model(torch.from_numpy(batch.tokens))
    best = found[0].topk(2).indices.sort(-1).values
    return best.view(*batch.tokens.shape, 2).numpy().astype(np.int16)  # type: ignore[union-attr,no-any-return]


def test_a_router_that_chooses_otherwise_is_named(tmp_path: Path) -> None:
    ours, theirs = (made("qwen3_moe", settings=ASKED | {"routing": "all"}) for _ in range(2))
    for run in (ours, theirs):
        run.routing = {0: {router: chosen("qwen3_moe", router) for router in (ROUTER, "model.layers.1.mlp.gate")}}
    assert held(tmp_path / "honest", ours, theirs).ruling is Ruling.BOTH_RIGHT
    theirs.routing[0][ROUTER] = np.sort((theirs.routing[0][ROUTER] + 1) % 4, axis=-1)
    said = held(tmp_path / "wrong", ours, theirs)
    assert said.ruling is Ruling.CANDIDATE_WRONG
    assert (said.first_wrong.point, said.first_wrong.kind) == (ROUTER, PointKind.CHOICE)


def test_counts_of_a_near_tie_leave_open_who_is_wrong(tmp_path: Path) -> None:
    """One token elsewhere, by the counts that come with a batch, and losses that may follow from it."""
    ours, theirs = made("qwen3_moe"), made("qwen3_moe", SCALED)
    for run, moved in ((ours, 0), (theirs, 1)):
        counts = np.bincount(chosen("qwen3_moe").reshape(-1), minlength=6)
        counts[:2] += [moved, -moved]
        run.routing = {0: {ROUTER: np.repeat(np.arange(6, dtype=np.int16), counts)[None, :, None]}}
    said = held(tmp_path, ours, theirs)
    assert said.ruling is Ruling.UNDECIDED
    assert len(said.doubts) == 1


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ({"model_type": "mixtral"}, "mixtral is not judged; the models that are: llama"),
        *(
            (changes, r"config\.json")
            for changes in (
                *({"num_hidden_layers": 10**9}, {"hidden_size": 17}, {"rope_scaling": {"rope_type": "no such"}}),
                *({"hidden_act": "none such"}, {"head_dim": "a"}, {"rms_norm_eps": "small"}),
            )
        ),
    ],
)
def test_a_model_of_no_family_and_a_configuration_that_makes_no_such_model_are_refused(
    tmp_path: Path, model: dict[str, object], why: str
) -> None:
    run = made("llama")
    run.model |= model
    with pytest.raises(RecordError, match=why):
        held(tmp_path, run, run)


def test_a_record_that_lacks_what_is_needed_or_has_what_none_can_judge_is_refused(tmp_path: Path) -> None:
    honest, odd = made("llama"), made("llama")
    odd.batches[0]["labels"][0, 0] = 40
    for number, (run, step, why) in enumerate(
        (
            (made("llama", settings={"batches": "all"}), None, "record it with ALIGN_HOOKS_WEIGHTS=0"),
            (honest, 1, "has no batches of step 1"),
            (odd, None, "labels of the batch are no ids of a vocabulary of 40"),
            (made("llama", training={"draws": True}), None, "record the run without dropout"),
            (made("qwen3_moe", arguments={"moe_expert_capacity_factor": "1.0"}), None, "experts drop tokens"),
        )
    ):
        with pytest.raises(RecordError, match=why):
            held(tmp_path / str(number), honest, run, step=step)


def test_too_large_a_model_is_refused_before_it_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("align_hooks.oracle.arbitrate.available", lambda free: 1000)
    monkeypatch.setattr("os.sysconf", lambda name: 1)
    with pytest.raises(AlignHooksError, match=r"takes .* GB of memory, and 1e-06 GB are free"):
        held(tmp_path, made("llama"), made("llama"))


@pytest.mark.parametrize(
    ("there", "error", "said"),
    [
        ({"torch": "2.9"}, AlignHooksError, "needs transformers, which is not installed; pip install 'torch>=2.4' transformers"),
        ({}, AlignHooksError, "needs torch"),
        ({"torch": "2.9", "transformers": "5.3.0"}, UnsupportedVersion, "and 5.3.0 is installed; give it an environment of its own"),
        ({"torch": "2.9", "transformers": "4.51.3"}, UnsupportedVersion, "4.51.3 is installed"),
        ({"torch": "2.9", "transformers": "5.0.0rc1"}, UnsupportedVersion, "5.0.0rc1 is installed"),
    ],
)
def test_libraries_that_are_missing_or_others_are_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, there: dict[str, str], error: type[Exception], said: str
) -> None:
    monkeypatch.setattr(library, "version", there.__getitem__)
    monkeypatch.setattr(library, "PackageNotFoundError", KeyError)
    with pytest.raises(error) as refused:
        library.refuse_lacking()
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_command_says_who_is_right_and_writes_all_of_it(tmp_path: Path) -> None:
    runs = [run.write(tmp_path / name) for name, run in (("ours", made("llama")), ("theirs", made("llama", SCALED)))]
    done = command("arbitrate", *runs, "--json", tmp_path / "it.json")
    assert done.returncode == 1, done.stderr
    assert done.stderr == ""
    assert done.stdout.startswith("candidate wrong: ")
    written = json.loads((tmp_path / "it.json").read_text())
    assert (written["ruling"], written["exit_code"], written["step"]) == ("candidate wrong", 1, 0)
    assert written["first"] == {"reference": None, "candidate": {"point": "token_losses", "of": "value"}}
    assert len(written["points"]) == 1 + 21
    assert written["points"][0]["closer"] == "reference"
    shutil.rmtree(runs[1])
    assert command("arbitrate", *runs).returncode == 3


def test_skipped_steps_have_no_gradients_to_judge(tmp_path: Path) -> None:
    run = made("llama")
    run.rows[0]["skipped"] = True
    said = held(tmp_path, run, run)
    assert [judged.point for judged in said.points] == ["token_losses"]
    assert said.ruling is Ruling.BOTH_RIGHT


def test_the_arbitration_is_data(tmp_path: Path) -> None:
    said = held(tmp_path, made("llama"), made("llama"))
    assert replace(said, alike=False).ruling is Ruling.UNDECIDED
    assert [side.path for side in said.sides] == [str(tmp_path / name) for name in ("ours", "theirs")]
