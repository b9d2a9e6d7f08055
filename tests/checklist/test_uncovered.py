"""Settings that no row looks at: one that is not known to change nothing keeps a check from being clean."""

from fnmatch import fnmatchcase
from typing import Any

import pytest

from align_hooks.checklist.result import CLEAN, UNDECIDED, check
from align_hooks.checklist.row import Effect
from align_hooks.checklist.tables import ROWS
from align_hooks.checklist.uncovered import FILE, changing_nothing
from align_hooks.configuration.megatron import ARGUMENTS, read_command
from align_hooks.configuration.recorded import recorded
from align_hooks.configuration.values import MEGATRON, MINDFORMERS
from align_hooks.messages import message
from align_hooks.report.check import headline
from checklist.exercises import EXPERTS, NEW, OLD, megatron, mindformers
from worded import messages

MATTER: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "forced routing": (EXPERTS, {"moe-router-force-load-balancing": ""}, {}),
    "frozen layers": (NEW, {"freeze-all-layers": ""}, {}),
    "filling in the middle": (NEW, {"fim-data": ""}, {}),
    "fine-tuning samples": (NEW, {"sft": ""}, {}),
    "steps that are left out": (NEW, {"iterations-to-skip": "3 4"}, {}),
    "latent experts": (EXPERTS, {"moe-latent-size": 64}, {}),
    "layers without positions": (NEW, {}, {"m.nope_layer_interval": 2}),
    "forced routing of the candidate": (EXPERTS, {}, {"m.moe_router_force_expert_balance": True}),
    "ends of documents": (NEW, {}, {"m.use_eod_reset": True}),
    "another attention": (NEW, {}, {"m.experimental_attention_variant": "dsa"}),
    "a flag of a patched framework": (OLD, {"my-own-attention": "local"}, {}),
    "a key of a patched framework": (OLD, {}, {"flux.capacitor": 1.21}),
}
HARMLESS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "logs": (NEW, {"log-throughput": "", "tensorboard-dir": "/logs", "timing-log-level": 2}, {"profile": True}),
    "checkpoints": (NEW, {"ckpt-format": "torch", "async-save": ""}, {"auto_trans_ckpt": True}),
    "communication": (NEW, {"ddp-bucket-size": 4000, "tp-comm-overlap-ag": ""}, {"parallel.full_batch": False}),
    "defaults": (
        NEW,
        {"dataloader-type": "single", "mup-width-mult": 1.0},
        {"m.moe_router_force_expert_balance": False, "m.beta_fast": 32},
    ),
    "a checkpoint's state that is left out": (NEW, {"no-load-optim": "", "no-load-rng": "", "finetune": ""}, {}),
    "nothing": (NEW, {}, {"m.nope_layer_interval": None}),
    "inference": (OLD, {"inference-max-requests": 3}, {"m.top_k": 3}),
}


@pytest.mark.parametrize(("style", "flags", "keys"), MATTER.values(), ids=MATTER)
def test_a_setting_that_may_change_the_result_is_listed_and_not_clean(style: str, flags: dict[str, Any], keys: dict[str, Any]) -> None:
    checklist = check(megatron(style, flags), mindformers(style, keys))
    assert checklist.exit_code == UNDECIDED
    named = [name.replace("-", "_") for name in flags] + [name.replace("m.", "model.model_config.", 1) for name in keys]
    assert [setting.name for _, setting in checklist.uncovered] == named
    assert message("headline.not_covered", count=1) in messages(headline(checklist))


@pytest.mark.parametrize(("style", "flags", "keys"), HARMLESS.values(), ids=HARMLESS)
def test_a_setting_that_is_known_to_change_nothing_leaves_a_check_clean(style: str, flags: dict[str, Any], keys: dict[str, Any]) -> None:
    checklist = check(megatron(style, flags), mindformers(style, keys))
    assert (checklist.exit_code, checklist.uncovered) == (CLEAN, [])


def test_of_two_sides_of_one_framework_what_is_alike_does_not_matter() -> None:
    sides = [megatron(NEW, {"sft": "", "fim-rate": rate}) for rate in (0.25, 0.25, 0.75)]
    assert check(sides[0], sides[1]).exit_code == CLEAN
    different = check(sides[0], sides[2])
    assert (different.exit_code, {setting.name for _, setting in different.uncovered}) == (UNDECIDED, {"fim_rate"})


def test_a_record_that_holds_every_default_is_clean() -> None:
    """Megatron's record holds all of its arguments, most of them as nobody set them."""
    command = "torchrun pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --lr 1e-3 --train-iters 3 --seq-length 8"
    told = {name: value.value for name, value in read_command(command, {}).values.items()}
    facts = {"side": "torch", "arguments": {name: str(value) for name, value in {**ARGUMENTS, **told}.items()}}
    changed = {"side": "torch", "arguments": facts["arguments"] | {"freeze_all_layers": "True"}}
    assert check(recorded(facts, "a"), recorded(facts, "b")).uncovered == []
    assert [setting.name for _, setting in check(recorded(changed, "a"), read_command(command, {})).uncovered] == ["freeze_all_layers"]


def test_what_changes_nothing_is_none_of_what_a_row_says_changes_the_result() -> None:
    for framework in (MEGATRON, MINDFORMERS):
        spec = [row.megatron if framework == MEGATRON else row.mindformers for row in ROWS if row.effect is Effect.RESULT]
        keys = {key for side in spec for key in side.keys}
        patterns = [pattern for pattern, at in changing_nothing()[framework] if at is None]
        assert [(key, pattern) for key in keys for pattern in patterns if fnmatchcase(key, pattern)] == [], framework


def test_every_name_that_changes_nothing_is_megatrons() -> None:
    """A pattern that matches nothing is a slip of the pen; what only a record holds has names that no flag has."""
    flags = FILE.read_text(encoding="utf-8").partition("# what a record holds beside")[0]
    opposites = {name.partition("_")[2] for name in ARGUMENTS if name.startswith(("no_", "disable_"))}
    known = [pattern for pattern, _ in changing_nothing()[MEGATRON] if pattern in flags.split()]
    assert len(known) > 150
    assert [pattern for pattern in known if not any(fnmatchcase(name, pattern) for name in {*ARGUMENTS, *opposites})] == []
