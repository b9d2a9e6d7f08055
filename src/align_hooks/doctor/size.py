"""The size of a training, from its configuration or from a record, and the disk and memory that it takes, before it is started."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from align_hooks.checklist.canonical_values import UNSET
from align_hooks.checklist.family_match import described, layers_with_experts
from align_hooks.checklist.tables import ROW
from align_hooks.configuration.values import FRAMEWORKS, Configuration
from align_hooks.doctor.patch_points import Device
from align_hooks.families.family import size_of
from align_hooks.quantities.kind import Quantity
from align_hooks.quantities.local_norms import LOCAL_NORMS
from align_hooks.quantities.registry import KINDS, TENSORS
from align_hooks.quantities.sketches import GRADIENT_SKETCHES
from align_hooks.record.reader import Run
from align_hooks.record.write.plan import ELEMENT, batches, tensors, token_bytes
from align_hooks.settings import PREFIX, Settings

TOKENS = tuple(kind for kind in KINDS if kind.token_bytes or kind.choice_bytes)
LARGE = (*TENSORS, *TOKENS)
"""Quantities that are as large as the model, or grow with a batch; all others are small."""
BEYOND = 10**15
"""A number above every size of a training; a float represents each smaller integer exactly."""


class Size(Struct, frozen=True):
    """The size of a training; None where its source does not have a number."""

    elements: int | None
    """Trainable elements of the model, over all ranks."""
    tokens: int | None
    """Tokens of a step."""
    steps: int | None
    parts: int
    """Parts into which tensor and pipeline parallelism divide the model."""
    source: str
    choices: int = 0
    """Experts of a token, over all layers."""
    rows: int | None = None
    """Rows of the embedding."""
    micro_batch: int | None = None
    """Sequences of a micro-batch."""
    sequence: int | None = None
    """Tokens of a sequence."""


def of_run(run: Run) -> Size:
    """Return the size of a recorded run."""
    shards = [shard for rank in run.manifests for shard in run.shards(rank)]
    elements = sum(shard.elements for shard in shards if shard.counted)
    parts = max((manifest.size("tp") * manifest.size("pp") for manifest in run.manifests.values()), default=1)
    rows, length = run.facts.training.global_batch_size, run.facts.training.sequence_length
    sequence = length if isinstance(length, int) else None
    tokens = rows * sequence if rows is not None and sequence is not None else None
    layers = {shard.name.partition(".experts.")[0] for shard in shards if ".experts." in shard.name}
    chosen = run.facts.model.get("num_experts_per_tok")
    choices = len(layers) * chosen if isinstance(chosen, int) else 0
    of_pass = run.facts.padded_vocabulary, run.facts.training.micro_batch_size, sequence
    return Size(elements or None, tokens, run.facts.planned_steps, parts, str(run.path), choices, *of_pass)


def of_configuration(configuration: Configuration) -> Size:
    """Return the size that a configuration describes, of a decoder with usual or latent attention, dense or with experts."""
    rows = ConfigurationReader(configuration)
    batch, sequence, steps = (rows.count(name) for name in ("global_batch_size", "seq_length", "train-iters"))
    parts = math.prod(rows.count(name) or 1 for name in ("model_parallel", "pipeline_stage"))
    try:
        elements = parameters(configuration)
    except TypeError:  # a size is not known
        elements = None
    layers = layers_with_experts(configuration)
    choices = (layers.sparse if layers is not None else 0) * (rows.count("num_experts_chosen") or 0)
    of_pass = rows.count("rows_of_the_embedding"), rows.count("micro_batch_size"), sequence
    return Size(elements, batch and sequence and batch * sequence, steps, parts, configuration.source, choices, *of_pass)


def parameters(configuration: Configuration) -> int:
    """Return the trainable elements of a configuration's model, of a family or not; raises TypeError where a size is not known."""
    family, rows = described(configuration), ConfigurationReader(configuration)
    if family is None:
        return _of_any_decoder(rows)
    sparse = layers_with_experts(configuration)
    counted = {"sparse_layers": sparse.sparse, "dense_layers": rows.number("num_layers") - sparse.sparse} if sparse is not None else {}

    def size(name: str) -> int:
        if name == "mtp_layers":
            return rows.count("mtp_num_layers") or 0
        return counted[name] if name in counted else size_of(name, rows.number)

    return family.elements(size, tied=rows.value("tied_embeddings") is True, lacked=family.lacked(rows.value))


class ConfigurationReader(Struct, frozen=True):
    """A reader of a configuration by rows of the CheckList."""

    configuration: Configuration

    def value(self, name: str) -> object:
        """Return the meaning of a row; None where it is not known."""
        canonical = ROW[name].read(self.configuration).canonical
        return None if canonical is UNSET else canonical

    def number(self, name: str) -> int:
        """Return the number of a row; raises TypeError where it is not known."""
        value = self.value(name)
        if not isinstance(value, int | float) or not abs(value) < BEYOND:
            raise TypeError(f"{name} is not known")
        return int(value)

    def count(self, name: str) -> int | None:
        """Return the number of a row if it is above 0; None for any other value."""
        value = self.value(name)
        return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < BEYOND else None


def _of_any_decoder(rows: ConfigurationReader) -> int:
    """Return the elements of a decoder with usual or latent attention, dense or with experts, without multi-token prediction."""
    hidden, layers, heads = map(rows.number, ("hidden_size", "num_layers", "num_heads"))
    bias = bool(rows.value("bias_of_linear_layers"))
    if rows.value("multi_latent_attention") is True:
        key, plain, rotary, value = map(rows.number, ("kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim"))
        query, queries = rows.number("q_lora_rank") if rows.value("q_lora_rank") else 0, heads * (plain + rotary)
        attention = hidden * query + query + query * queries if query else hidden * queries
        attention += hidden * (key + rotary) + key + key * heads * (plain + value) + heads * value * hidden
    else:
        groups, size = map(rows.number, ("n_kv_heads", "head_dim"))
        attention = hidden * size * (2 * heads + 2 * groups) + bias * hidden
        attention += bool(rows.value("bias_of_queries_keys_and_values")) * (heads + 2 * groups) * size
        attention += 2 * size * (rows.value("norm_of_queries_and_keys") is True)
    gates = 3 if rows.value("gated_linear_unit") else 2

    def mlp(size: int) -> int:
        return gates * hidden * size + bias * ((gates - 1) * size + hidden)

    norm = hidden * (2 if rows.value("normalization") == "layernorm" else 1)
    embeddings = 1 if rows.value("tied_embeddings") is True else 2
    total = layers * (attention + 2 * norm) + norm + rows.number("rows_of_the_embedding") * hidden * embeddings
    if rows.value("position_embedding_type") == "learned_absolute":
        total += rows.number("max_position_embeddings") * hidden
    dense = layers
    if rows.value("expert_num"):
        which = layers_with_experts(rows.configuration)
        if which is None:
            raise TypeError("which layers have experts is not known")
        dense -= which.sparse
        shared = mlp(rows.number("size_of_the_shared_experts")) if rows.value("size_of_the_shared_experts") else 0
        total += which.sparse * (rows.number("expert_num") * (mlp(rows.number("size_of_an_expert")) + hidden) + shared)
    return total + (dense * mlp(rows.number("intermediate_size")) if dense else 0)


def existing(path: Path) -> Path:
    """Return a path if it exists, else its nearest parent that does."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


def disk(settings: Settings, size: Size | None) -> tuple[str, str]:
    """Return free and needed disk space, and a problem where it does not fit; both empty where nothing is recorded."""
    if settings.run is None:
        return "", ""
    base = existing(settings.run)
    free = shutil.disk_usage(base).free
    there = f"{base} has {billions(free)}B free"
    if not _wanted(settings, LARGE):
        return f"{there}; no tensor and no batch is recorded", ""
    lacking, steps = unknown(settings, size), planned(settings, size)
    if size is None or (lacking and (size.elements or size.tokens) is None):
        return f"{there}; {lacking}", ""
    least = range(max(_named(settings), 1) if steps is None else steps)
    sets, count = tensors(settings, least), batches(settings, least)
    of_tensors, of_batches = _bytes(settings, size, least)
    parts = [f"{sets} times {billions(size.elements or 0)} parameters in fp32"] * bool(sets and size.elements)
    parts += [f"{count} batches of {size.tokens} tokens"] * bool(count and size.tokens)
    needed = of_tensors + of_batches
    taken = f"recording takes {'at least ' if lacking else ''}{billions(needed)}B"
    text = f"{there}; {taken} ({', '.join(parts)}; {size.source})"
    if needed <= free:
        return text, ""
    kinds = LARGE if of_tensors >= of_batches else (*TOKENS, *TENSORS)  # the largest is named first
    names = ", ".join(PREFIX + kind.variable.upper() for kind in _wanted(settings, kinds))
    return text, f"{taken} and {there}; choose fewer steps in {names}, or another disk"


def unknown(settings: Settings, size: Size | None) -> str:
    """Return which number is missing for the size of recording, and the source that has it; empty where none is missing."""
    if settings.run is None or not _wanted(settings, LARGE):
        return ""
    lacks = "what recording takes is not known"
    if size is None:
        return f"{lacks}: name what is to be run, or a recorded run of that model, align-hooks doctor FILE"
    if _wanted(settings, TENSORS) and size.elements is None:
        return f"{lacks}: {size.source} does not tell the size of the model; name a recorded run of it"
    if _wanted(settings, TOKENS) and size.tokens is None:
        return f"{lacks}: {size.source} does not tell how many tokens a step has; name a recorded run of it"
    if planned(settings, size) is not None:
        return ""
    first, second = (sum(_bytes(settings, size, range(steps))) for steps in (1, 2))
    return f"{lacks}: {size.source} does not tell how many steps are made; each takes {billions(second - first)}B"


def _wanted(settings: Settings, kinds: Sequence[Quantity]) -> list[Quantity]:
    return [kind for kind in kinds if settings.steps(kind)]


def _bytes(settings: Settings, size: Size, steps: range) -> tuple[int, int]:
    """Return the bytes of the tensors of ``steps``, and of the batches."""
    return ELEMENT * (size.elements or 0) * tensors(settings, steps), (size.tokens or 0) * token_bytes(settings, steps, size.choices)


def _named(settings: Settings) -> int:
    """Return the number of steps up to the last that a variable names; 0 where none is named."""
    asked = [settings.steps(kind).last for kind in LARGE]
    return max((last + 1 for last in asked if last is not None), default=0)


def planned(settings: Settings, size: Size | None) -> int | None:
    """Return the number of steps of a run, or of those that the settings name; None where they ask for ``all`` of unknown number."""
    if size is not None and size.steps is not None:
        return size.steps
    return None if any(settings.steps(kind).ranges is None for kind in LARGE) else _named(settings)


class Rehearsal(NamedTuple):
    """Host memory of a framework on a CPU in fp32, at most 15 % above measurements on two layers at four sizes."""

    base: float
    """Bytes of the process before there is a model."""
    states: int
    """Copies of the weights: the weights, gradients, Adam's moments, and intermediate ones."""
    logits: int
    """Copies of the logits of a forward pass."""


REHEARSALS = {"torch": Rehearsal(1.1e9, 5, 2), "ms": Rehearsal(1.6e9, 16, 18)}


def memory(side: str, settings: Settings, size: Size | None, devices: Sequence[Device]) -> Iterator[tuple[str, str]]:
    """Yield the host and device memory that recording takes, each with a problem where it does not fit."""
    if size is None or size.elements is None:
        return
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    if settings.device == "cpu" and size.rows is not None and size.sequence is not None and size.tokens is not None:
        base, states, logits = REHEARSALS[side]
        # without pipeline stages, MindFormers runs the global batch at once
        tokens = size.tokens if side == "ms" or size.micro_batch is None else size.micro_batch * size.sequence
        states, logits = states * ELEMENT * size.elements, logits * ELEMENT * tokens * size.rows
        of_states, of_logits = f"{billions(states)}B for {billions(size.elements)} parameters", f"{billions(logits)}B for logits"
        parts = f"{of_states}, {of_logits} of {tokens} tokens by {size.rows}"
        needed = base + states + logits
        text = f"a rehearsal of {FRAMEWORKS[side]} takes about {billions(needed)}B of memory ({parts}); {billions(free)}B are free"
        smaller = "the batch and the sequence" if logits > states else "hidden size and layers"
        yield text, f"{text}; make the vocabulary smaller, and {smaller} (docs/rehearsal.md)" if needed > free else ""
    part = ELEMENT * size.elements // size.parts
    cut = f" of {size.parts} that tensor and pipeline parallelism make" if size.parts > 1 else ""
    if _wanted(settings, TENSORS):
        text = f"to write tensors each rank holds its part{cut} in host memory, at most {billions(part)}B; {billions(free)}B are free"
        problem = f"{text}; record {PREFIX}SKETCHES in the place of tensors, or cut the model further"
        yield text, problem if part > free else ""
    is_cut = size.parts > 1  # then norms and sketches are taken of gradients that were kept
    keeping = [kind for kind in KINDS if kind.kept_on_device or (is_cut and kind in (LOCAL_NORMS, GRADIENT_SKETCHES))]
    captured = bool(_wanted(settings, keeping)) + (settings.inject_gradients is not None)
    if side == "ms" and captured:
        kept = "gradients" if captured == 1 else "gradients, its own and injected ones,"
        needed, least = captured * part, min((device["free"] for device in devices if device["free"]), default=None)
        text = f"MindFormers keeps {kept} on the device: {billions(needed)}B a rank"
        text += "" if least is None else f"; {billions(least)}B are free"
        less = f"keep {PREFIX}LOCAL_NORMS and {PREFIX}SKETCHES, which need little of it"
        none = f"unset {PREFIX}GRADIENTS, {PREFIX}SKETCHES and {PREFIX}LOCAL_NORMS, which all need it where tensors are cut"
        problem = f"{text}; {none if is_cut else less}"
        yield text, problem if least is not None and needed > least else ""


def billions(number: float) -> str:
    """Return a count with three digits and a unit: ``7.24 G``, ``31.2 M``."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number / 1e3:.3g} k" if number >= 1e3 else f"{number:.0f} "
