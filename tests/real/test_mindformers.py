"""MindFormers on its own: the import form, the guide's YAML, fused projections, the loss mask."""

from pathlib import Path

import numpy as np
import pytest

from align_hooks import open_run
from real import frameworks
from real.test_by_hand import NEEDED
from real.test_pair import third_opinion
from synthetic import save_by_hand

PADDED = {"model.model_config.pad_token_id": 0}


def test_the_import_form_works_after_mindformers_was_imported_and_with_a_yaml_by_hand(reference: Path) -> None:
    change = {"train_dataset.data_loader.dataset_dir": str(reference), **NEEDED}
    given = {"script": frameworks.SCRIPTS / "import_form.py", "launcher": (), "change": change, "LOAD_WEIGHTS": reference}
    done = frameworks.kept(frameworks.mindformers, RUN="run", **given, **frameworks.EVERYTHING)
    frameworks.aligned(reference, done.run)
    assert open_run(done.run).facts.environment["PYTHONHASHSEED"]["effective"] is False
    assert "never" not in done.ours


def test_fused_projections_are_split_into_their_pieces(reference: Path) -> None:
    change = {"model.model_config.qkv_concat": True}
    path = frameworks.recorded(frameworks.mindformers, change=change, **frameworks.fed_by(reference))
    natives = [shard.native for shard in open_run(path).shards(0)]
    assert any(native.endswith("w_qkv.weight") for native in natives)
    assert any(native.endswith("w_gate_hidden.weight") for native in natives)
    frameworks.aligned(reference, path)


@pytest.mark.slow
def test_rates_that_differ_by_group_stand_in_the_order_of_the_groups(reference: Path) -> None:
    """Both schedules warm up, so that all rates are 0 at first and only the schedules tell the groups apart."""
    schedule = {"type": "ConstantWarmUpLR", "learning_rate": 1e-3, "warmup_steps": 2, "total_steps": frameworks.STEPS}
    grouped = {"default": schedule, "grouped": [schedule | {"learning_rate": 1e-4, "params": ["*tok_embeddings*"]}]}
    change = {"grouped_lr_schedule": grouped}
    run = open_run(frameworks.recorded(frameworks.mindformers, change=change, **frameworks.fed_by(reference)))
    groups = run.facts.optimizer.groups
    slower = [group.parameters == ("model.embed_tokens.weight",) for group in groups]
    assert (len(groups), sum(slower)) == (3, 1)
    assert sorted(name for group in groups for name in group.parameters) == sorted(run.weights(0))
    rates = [row["learning_rate"] for row in run.scalars()]
    assert rates[0] == 0.0
    assert rates[1] == pytest.approx([5e-5 if slow else 5e-4 for slow in slower])
    assert rates[2] == pytest.approx([1e-4 if slow else 1e-3 for slow in slower])


def masked_batch(where: Path) -> None:
    random = np.random.RandomState(0)
    ids = random.randint(0, 4, (4, 129))  # every fourth token has the id of the padding
    mask = random.randint(0, 2, (4, 128)).astype(np.float32)
    save_by_hand(where, 0, {"tokens": ids[:, :-1], "labels": ids[:, 1:], "loss_mask": mask})


def test_the_loss_weighs_tokens_by_the_mask_and_not_by_the_pad_id(reference: Path) -> None:
    by_hand = frameworks.derived(masked_batch)
    variables = {"RUN": "run", "REPLAY_BATCHES": by_hand, "LOAD_WEIGHTS": reference}
    run = open_run(frameworks.kept(frameworks.mindformers, change=PADDED, **variables, BATCHES="0", WEIGHTS="0").run)
    (mask,) = by_hand.rglob("loss_mask.npy")
    assert 0 < run.scalars()[0]["valid_tokens"] == np.load(mask).sum() < 512
    assert run.scalars()[0]["loss"] == pytest.approx(third_opinion(run)[0], rel=1e-6)


def masked_batches(where: Path) -> None:
    random = np.random.RandomState(0)
    for step in range(frameworks.STEPS):
        mask = random.randint(0, 2, (4, 128)).astype(np.float32)
        mask[:2, -1] = 0, 1
        tokens, labels = random.randint(0, 4, (2, 4, 128))  # every fourth token has the id of the padding
        save_by_hand(where, step, {"tokens": tokens, "labels": labels, "loss_mask": mask})


@pytest.mark.slow
def test_a_llama_that_cuts_its_batch_and_takes_no_mask_makes_the_same_of_it(reference: Path) -> None:
    """As that of MindFormers 1.3, against the installed one under ``input_sliced_sig: True``, to the bit."""
    runs = {}
    for name, script in (("cut", frameworks.LAUNCH / "run_mindformer.py"), ("uncut", frameworks.SCRIPTS / "older_llama.py")):
        fed = {"REPLAY_BATCHES": frameworks.derived(masked_batches), "LOAD_WEIGHTS": reference}
        runs[name] = open_run(frameworks.recorded(frameworks.mindformers, script=script, change=PADDED, **fed))
    overrides = {override.what for override in runs["uncut"].facts.overrides}
    assert "model.model_config.input_sliced_sig" not in overrides
    assert [row["loss"] for row in runs["cut"].scalars()] == [row["loss"] for row in runs["uncut"].scalars()]
    for step in range(frameworks.STEPS):
        cut, uncut = (run.batch(step).arrays() for run in runs.values())
        counts = cut["loss_mask"] > 0
        assert (uncut["loss_mask"] == cut["loss_mask"]).all()
        assert (uncut["tokens"] == cut["tokens"]).all()
        assert (uncut["labels"] == cut["labels"])[counts].all()
        assert (uncut["token_losses"] == cut["token_losses"])[counts].all()
        gradients = [run.gradients(step) for run in runs.values()]
        assert [name for name in gradients[0] if (gradients[0][name] != gradients[1][name]).any()] == []


@pytest.mark.slow
def test_the_fused_projections_of_such_a_llama_are_refused(reference: Path) -> None:
    given = {"script": frameworks.SCRIPTS / "older_llama.py", "change": {"model.model_config.qkv_concat": True}}
    ended = frameworks.kept(frameworks.mindformers, 2, RUN="run", REPLAY_BATCHES=reference, **given)
    assert "qkv_concat joins queries, keys and values otherwise" in ended.ours
