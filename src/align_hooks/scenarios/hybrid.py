"""The migration of a GPTModel to a HybridModel of the same layers: the second command, and both as a ladder of two rungs.

Megatron-LM's 0.19 calls GPTModel deprecated, and its guide asks to validate that both are numerically equivalent.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from align_hooks.checklist.resolvers.experts import layer_digits
from align_hooks.configuration.hybrid import LAYERS, PATTERNS
from align_hooks.configuration.megatron import read_command
from align_hooks.configuration.values import MEGATRON, Configuration, ConfigurationError, Setting
from align_hooks.names.hybrid import pattern_of_blocks
from align_hooks.scenarios.plan import ExperimentPlan, FrameworkCommand, Rung

GPT, HYBRID = "pretrain_gpt.py", "pretrain_hybrid.py"
SPECIFICATION = ("--spec", "megatron.core.models.hybrid.hybrid_layer_specs", "hybrid_stack_spec")
"""Megatron-LM's own layers of such a model."""
RECORD = {"BATCHES": "all", "LOCAL_NORMS": "all", "WEIGHTS": "0-3", "GRADIENTS": "0-2", "ACTIVATIONS": "0"}
BY_LAYER = (
    *("window_attn_skip_freq", "no_rope_freq", "linear_attention_freq", "experimental_attention_variant", "use_rope_scaling"),
    *("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers", "num_layers_per_virtual_pipeline_stage"),
    *("num_virtual_stages_per_pipeline_rank", "pipeline_model_parallel_layout"),
)
"""Settings that say something else of a HybridModel than of a GPTModel."""
BY_HAND = "give the HybridModel's command by --to"


def migration(command: Sequence[str], to: str | None, folder: Path, steps: int | None) -> ExperimentPlan:
    """Return both trainings; ``to`` is the HybridModel's command, None for the one that follows from the GPTModel's.

    Raises ConfigurationError where it does not follow."""
    commands = {"GPTModel": shlex.join(command), "HybridModel": shlex.join(of_hybrid(command)) if to is None else to}
    if steps is not None:
        for words in commands.values():
            if not re.search(r"\.py\b", words):
                raise ConfigurationError(f"--steps reaches no script inside {words.split(' ')[0]}; set --exit-interval {steps} in it")
        commands = {name: f"{words} --exit-interval {steps}" for name, words in commands.items()}
    sides = {name: FrameworkCommand(words) for name, words in commands.items()}
    rungs = tuple(Rung(side, side=side) for side in sides)
    return ExperimentPlan(folder=str(folder), rungs=rungs, sides=sides, record=RECORD)


def of_hybrid(words: Sequence[str]) -> list[str]:
    """Return the words of the command that trains the layers of a GPTModel's command as a HybridModel."""
    at = next((at for at, word in enumerate(words) if Path(word).name == GPT), None)
    if at is None:
        raise ConfigurationError(f"the command does not name {GPT} itself, so that nothing follows for {HYBRID}; {BY_HAND}")
    script = Path(words[at]).with_name(HYBRID)
    if not script.is_file():
        raise ConfigurationError(f"there is no {script} beside {words[at]}; {BY_HAND}")
    read = read_command(shlex.join(words), os.environ)
    if read.side != MEGATRON or any(value_in(read, name) for name in (*PATTERNS, "spec", "heterogeneous_layers_config_path")):
        raise ConfigurationError(f"the command has layers of its own (a pattern, or --spec), or is not Megatron-LM's; {BY_HAND}")
    if by_layer := [f"--{name.replace('_', '-')}" for name in BY_LAYER if value_in(read, name)]:
        raise ConfigurationError(f"a HybridModel counts {' and '.join(by_layer)} by its own layers, or has no such setting; {BY_HAND}")
    kept = list(without(words[at + 1 :], {name.replace("_", "-") for name in LAYERS}))
    return [*words[:at], str(script), *kept, "--hybrid-layer-pattern", pattern(read), *SPECIFICATION]


def pattern(read: Configuration) -> str:
    """Return the pattern of a command's layers; raises ConfigurationError where the command does not tell them."""
    layers, predicted = value_in(read, "num_layers"), value_in(read, "mtp_num_layers") or 0
    freq = value_in(read, "moe_layer_freq")
    digits = "0" * int(layers or 0) if not value_in(read, "num_experts") else layer_digits(1 if freq is None else freq, layers)
    if not isinstance(digits, str) or not digits:
        raise ConfigurationError(f"the command does not tell which layers it has (--num-layers, --moe-layer-freq); {BY_HAND}")
    latent = bool(value_in(read, "multi_latent_attention"))
    return pattern_of_blocks([digit == "1" for digit in digits], predicted=int(predicted), latent=latent)


def value_in(read: Configuration, name: str) -> Setting:
    """Return the value of an argument; None where it is not set."""
    return read.values[name].value if name in read.values else None


def without(words: Sequence[str], flags: set[str]) -> Iterator[str]:
    """Yield words without some flags and their values."""
    left_out = False
    for word in words:
        if word.startswith("--"):
            left_out = word[2:].partition("=")[0] in flags
        if not left_out:
            yield word
