"""Stage 1 of the guide for a command of yours: two layers, a constant learning rate, no warm-up, no dropout.

``python launch/shrink.py COMMAND …`` prints one line for everything it changes and starts the changed command in its place.
Megatron's flags are appended to your own, where argparse lets the last one win; MindFormers reads a changed copy of your
YAML. No file of yours is written to: weights are neither loaded nor saved either, since those of the whole model do not fit.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LAYERS = 2

FLAGS = (
    ("--num-layers", None, str(LAYERS)),
    ("--lr-decay-style", "linear", "constant"),
    ("--lr-warmup-iters", "0", "0"),
    ("--lr-warmup-samples", "0", "0"),
    ("--attention-dropout", "0.1", "0"),
    ("--hidden-dropout", "0.1", "0"),
    ("--recompute-num-layers", "1", "1"),
)
"""Megatron's flag, its default (0.12 to 0.19), and what it is set to where it differs."""

LEFT_OUT = {
    "--lr-warmup-fraction": "no warm-up",
    "--moe-input-jitter-eps": "no randomness",
    "--load": "those weights are of the whole model",
    "--pretrained-checkpoint": "those weights are of the whole model",
    "--save": "two layers do not belong among its checkpoints",
    "--load_checkpoint": "those weights are of the whole model",
    "--resume_training": "those weights are of the whole model",
}
"""Flags with one value that have no value of theirs for "off"."""

REFUSED = {
    "--yaml-cfg": "its YAML replaces the command line; give flags",
    "--use-checkpoint-args": "it takes the layers from a checkpoint; leave it out",
    "--hybrid-layer-pattern": "it names every layer; write it for 2",
    "--hybrid-override-pattern": "it names every layer; write it for 2",
    "--pipeline-model-parallel-layout": "it names every layer; leave it out",
    "--decoder-first-pipeline-num-layers": "it spreads more than 2 layers over stages; leave it out",
    "--decoder-last-pipeline-num-layers": "it spreads more than 2 layers over stages; leave it out",
    "--num-layers-per-virtual-pipeline-stage": "2 layers are too few for virtual stages; leave it out",
    "--num-virtual-stages-per-pipeline-rank": "2 layers are too few for virtual stages; leave it out",
    "--account-for-embedding-in-pipeline-split": "2 layers are too few for it; leave it out",
    "--account-for-loss-in-pipeline-split": "2 layers are too few for it; leave it out",
    "--encoder-num-layers": "it excludes --num-layers; give --num-layers",
    "--decoder-num-layers": "an encoder-decoder has no one number of layers",
    "--options": "it would set YAML keys again; write them into the YAML",
    "--pretrained_model_dir": "write it into the YAML",
}

PATTERNS = ("--moe-layer-freq", "--linear-attention-freq")
"""Flags that hold a whole number, or a list with one entry a layer."""


class Refused(Exception):
    """What cannot be shrunk: the thing and the way out, in one line."""


def main(command: Sequence[str]) -> None:
    """Change the command and become it."""
    if not command or command[0] in ("-h", "--help"):
        sys.exit("usage: python launch/shrink.py COMMAND [ARGUMENT ...]")
    try:
        changed, said = shrink(list(command))
    except Refused as refused:
        print(f"shrink: {refused}", file=sys.stderr)
        sys.exit(2)
    print("\n".join(f"shrink: {line} (guide, stage 1)" for line in said), flush=True)
    try:
        os.execvp(changed[0], changed)
    except OSError as error:
        sys.exit(f"shrink: cannot start {changed[0]}: {error.strerror}")


def shrink(command: list[str]) -> tuple[list[str], list[str]]:
    """The changed command, and a line for every change. Raises Refused."""
    for flag, why in REFUSED.items():
        if value(command, flag) is not None:
            raise Refused(f"{flag}: {why}")
    config, layers = value(command, "--config"), value(command, "--num-layers")
    if (config is None) == (layers is None):
        raise Refused(
            "cannot tell Megatron-LM from MindFormers: one of --num-layers N and --config FILE.yaml has to stand in the command itself, "
            "not in a script that it starts"
        )
    said: list[str] = []
    for flag, why in LEFT_OUT.items():
        if (given := value(command, flag)) is not None:
            said.append(f"{flag}: {given} -> left out, {why}")
            command = without(command, flag)
    return megatron(command, said) if config is None else mindformers(command, config, said)


def value(command: Sequence[str], flag: str) -> str | None:
    """What argparse would read for a flag: its last value, "" where it stands alone; None where it is not there."""
    found = None
    for index, word in enumerate(command):
        if word.startswith(f"{flag}="):
            found = word.partition("=")[2]
        elif word == flag:
            following = command[index + 1] if index + 1 < len(command) else ""
            found = "" if following.startswith("--") else following
    return found


def without(command: Sequence[str], flag: str) -> list[str]:
    """The command less every occurrence of a flag and its value."""
    kept: list[str] = []
    words = iter(enumerate(command))
    for index, word in words:
        if word == flag:
            if not "".join(command[index + 1 : index + 2]).startswith("--"):
                next(words, None)
        elif not word.startswith(f"{flag}="):
            kept.append(word)
    return kept


def megatron(command: list[str], said: list[str]) -> tuple[list[str], list[str]]:
    """Flags appended to Megatron's own."""
    divides("--pipeline-model-parallel-size", value(command, "--pipeline-model-parallel-size") or 1)
    for flag in PATTERNS:
        if (given := value(command, flag)) is not None and not given.isdigit():
            raise Refused(f"{flag} {given}: it names every layer; write it for {LAYERS}")
    for flag, default, wanted in FLAGS:
        given = value(command, flag) or default
        if not same(given, wanted):
            command = [*command, flag, wanted]
            said.append(f"{flag}: {given} -> {wanted}")
    return command, said


def mindformers(command: list[str], name: str, said: list[str]) -> tuple[list[str], list[str]]:
    """A changed copy of the YAML, and ``--config`` pointing to it."""
    import yaml  # comes with MindFormers; Megatron's side needs none

    try:
        config = yaml.safe_load(Path(name).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise Refused(f"--config {name} cannot be read: {error}") from None
    said += shrink_config(config, name)
    copy = Path(tempfile.mkdtemp(prefix="shrink_")) / Path(name).name
    copy.write_text(yaml.safe_dump(config, sort_keys=False, allow_unicode=True), encoding="utf-8")
    said.append(f"--config: {name} -> {copy}")
    return [*without(command, "--config"), "--config", str(copy)], said


def shrink_config(config: Any, name: str) -> list[str]:
    """Change a MindFormers configuration in place; a line for every change. Raises Refused."""
    if not isinstance(config, dict) or not isinstance((config.get("model") or {}).get("model_config"), dict):
        raise Refused(f"{name} has no model.model_config: it is no training configuration of MindFormers")
    if "base_config" in config:
        raise Refused(f"{name}: base_config names another YAML, which has to be written out")
    if config.get("grouped_lr_schedule"):
        raise Refused(f"{name}: grouped_lr_schedule has a rate for every group; leave it out")
    refuse_layers(config, name)
    model = config["model"]["model_config"]
    said: list[str] = []

    def change(section: dict[str, Any], where: str, key: str, wanted: object) -> None:
        if key not in section or not same(section[key], wanted):
            said.append(f"{where}{key}: {section.get(key, 'not set')} -> {wanted!r}")
            section[key] = wanted

    counts = [key for key in ("num_layers", "num_hidden_layers", "n_layer") if key in model] or ["num_hidden_layers"]
    dropouts = [key for key in model if "dropout" in key and type(model[key]) in (int, float)]
    if config.get("use_legacy") is False:  # these models drop out a tenth where the YAML is silent
        dropouts += [key for key in ("hidden_dropout", "attention_dropout") if key not in dropouts]
    for key in counts:
        change(model, "model.model_config.", key, LAYERS)
    for key in dropouts:
        change(model, "model.model_config.", key, 0.0)
    for key, off in (("offset", 0), ("checkpoint_name_or_path", "")):
        if model.get(key):
            change(model, "model.model_config.", key, off)
    for key, off in (("load_checkpoint", ""), ("resume_training", False)):
        if config.get(key):
            change(config, "", key, off)
    recompute = config.get("recompute_config") or {}
    for key in ("recompute", "select_recompute", "select_comm_recompute"):  # lists of layers a stage
        if isinstance(recompute.get(key), list | dict | int) and not isinstance(recompute[key], bool):
            change(recompute, "recompute_config.", key, False)
    constant_rate(config, said)
    callbacks = config.get("callbacks") or []
    if savers := [one["type"] for one in callbacks if str(one.get("type")).startswith("CheckpointMo")]:
        config["callbacks"] = [one for one in callbacks if one["type"] not in savers]
        said.append(f"callbacks: {savers[0]} -> left out, {LEFT_OUT['--save']}")
    return said


def refuse_layers(config: dict[str, Any], name: str) -> None:
    """Refuse what is laid out for more layers than two."""
    divides(f"{name}: parallel_config.pipeline_stage", (config.get("parallel_config") or {}).get("pipeline_stage", 1))
    model = config["model"]["model_config"]
    if not any(key in model for key in ("num_layers", "num_hidden_layers", "n_layer")) and not config.get("pretrained_model_dir"):
        raise Refused(f"{name}: model.model_config has neither num_layers nor num_hidden_layers; write it there")
    if config.get("pretrained_model_dir") and any(Path(config["pretrained_model_dir"]).glob("*.safetensors")):
        raise Refused(f"{name}: pretrained_model_dir holds weights of the whole model; name a directory with its config.json alone")
    if int(model.get("pp_interleave_num") or 1) > 1:
        raise Refused(f"{name}: model.model_config.pp_interleave_num: 2 layers are too few for it; leave it out")
    for section in (model, config.get("moe_config") or {}):
        if int(section.get("first_k_dense_replace") or 0) >= LAYERS:
            raise Refused(f"{name}: first_k_dense_replace leaves no expert among {LAYERS} layers; set it to 1")
        if isinstance(section.get("moe_layer_freq"), list):
            raise Refused(f"{name}: moe_layer_freq names every layer; write it for {LAYERS}")


def constant_rate(config: dict[str, Any], said: list[str]) -> None:
    """The schedule's own rate, from the first step to the last."""
    schedule = config.get("lr_schedule")
    warm_up = schedule and (schedule.get("warmup_steps") or schedule.get("warmup_ratio"))
    if not schedule or (schedule.get("type") == "ConstantWarmUpLR" and not warm_up):
        return
    kept = {key: schedule[key] for key in ("learning_rate", "total_steps") if key in schedule}
    config["lr_schedule"] = {"type": "ConstantWarmUpLR", "warmup_steps": 0} | kept
    said.append(f"lr_schedule: {describe(schedule)} -> {describe(config['lr_schedule'])}")


def describe(schedule: dict[str, Any]) -> str:
    """A schedule on one line."""
    return ", ".join(f"{key} {value}" for key, value in schedule.items())


def divides(what: str, stages: object) -> None:
    """Refuse stages that two layers cannot be spread over."""
    if not str(stages).isdigit() or int(str(stages)) not in (1, LAYERS):
        raise Refused(f"{what} {stages}: {LAYERS} layers go on 1 or {LAYERS} stages; give one of these")


def same(given: object, wanted: object) -> bool:
    """Whether two values of a flag or a key mean the same: 0.0 and 0 do."""
    try:
        return math.isclose(float(str(given)), float(str(wanted)), rel_tol=0, abs_tol=0)
    except ValueError:
        return str(given) == str(wanted)


if __name__ == "__main__":
    main(sys.argv[1:])
