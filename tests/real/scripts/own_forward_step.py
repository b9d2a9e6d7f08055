"""launch/pretrain_gpt.py with a forward_step and a loss function of one's own, in the form that OWN_FORM names.

The mask is made of the labels and is handed to nobody but the loss: a token counts whose label 3 does not divide. With WITNESS, the losses
and the final parameters go there to the bit, a file a rank.
"""

import functools
import os
import sys
from pathlib import Path

import numpy as np
import torch
from megatron.core import parallel_state
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(Path(__file__).parents[3] / "launch"))

import pretrain_gpt as script

seen: dict = {"losses": [], "chunks": []}


def mask_of(labels):
    """A token counts whose label 3 does not divide; in FRACTIONAL forms, half where it is odd."""
    counts = (labels % 3 != 0).float()
    return counts * torch.where(labels % 2 == 1, 0.5, 1.0) if "fractional" in os.environ["OWN_FORM"] else counts


def reduced(mask, output):
    """What the script's own loss function returns; in forms of two elements the mean and the report alone."""
    losses, weights = output.float().view(-1), mask.view(-1)
    total, tokens = (losses * weights).sum(), (weights > 0).sum().to(torch.int)
    seen["losses"].append(float(total.detach()))
    if "over the sequence" in os.environ["OWN_FORM"]:
        return over_sequence(total, tokens)
    mean = {"lm loss": (total / tokens.clamp(min=1)).detach().clone()}
    return (total / weights.sum().clamp(min=1), mean) if "two elements" in os.environ["OWN_FORM"] else (total, tokens, mean)


def over_sequence(total, tokens):
    """The mean over the ranks of a sequence, as MindSpeed-LLM's fine-tuning has it, or in the form "half" no number of theirs."""
    sums = torch.cat([total.view(1), tokens.view(1)])
    torch.distributed.all_reduce(sums, group=parallel_state.get_context_parallel_group())
    mean = sums[0] / sums[1]
    return (0.5 if "half" in os.environ["OWN_FORM"] else 1.0) * mean, {"lm loss": mean.detach().clone()}


class Objective:
    """A loss function that is a method of something that keeps the mask."""

    def __init__(self, mask):
        self.kept = {"weights": mask}

    def __call__(self, output):
        return reduced(self.kept["weights"], output)


def labels_first(labels, mask, output):
    return reduced(mask, output)


def returned(output, mask, labels):
    """What forward_step returns, by the form."""
    form = os.environ["OWN_FORM"].removesuffix(", two elements").removesuffix(", fractional")
    kept = {"mask": mask}
    if form == "scalar" and mask is not None:  # on the last stage
        result = reduced(mask, output)
        return result[0], lambda total: (total, *result[1:])
    functions = {
        "closure": lambda out: reduced(kept["mask"], out),
        "method": Objective(mask).__call__,
        "keyword": functools.partial(lambda output, own: reduced(own, output), own=mask),
        "flat": functools.partial(reduced, None if mask is None else mask.view(-1)),
        "labels first": functools.partial(labels_first, labels, mask),
        "partial": functools.partial(reduced, mask),
    }
    return output, functions.get(form, functions["closure"])


def forward_step(data_iterator, model):
    form, batch = os.environ["OWN_FORM"], script.get_batch(data_iterator)
    labels = batch["labels"]
    mask = None if labels is None else mask_of(labels)
    inputs = batch["tokens"], batch["position_ids"], batch.get("attention_mask")
    if form == "own cross entropy":
        logits = model(*inputs)
        output = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.view(-1), reduction="none").view_as(labels)
    elif form == "recomputed":
        output = checkpoint(lambda tokens: model(tokens, *inputs[1:], labels=labels), inputs[0], use_reentrant=False)
    else:
        output = model(*inputs, labels=labels)
    if form == "twice":
        output = 0.5 * (output + model(*inputs, labels=labels))
    if form == "teacher":
        with torch.no_grad():
            seen["teacher"] = float(model(*inputs, labels=labels).sum())
    if not any(model is chunk for chunk in seen["chunks"]):
        seen["chunks"].append(model)
    return returned(output, mask, labels)


if __name__ == "__main__":
    script.datasets_provider.is_distributed = True
    arguments = script.parse_and_validate_args()
    container = script.pretrain_cfg_container_from_args(arguments, script.gpt_config_from_args(arguments))
    script.pretrain(container, script.datasets_provider, script.ModelType.encoder_or_decoder, forward_step)
    if "WITNESS" in os.environ:
        named = [(f"{number} {name}", tensor) for number, chunk in enumerate(seen["chunks"]) for name, tensor in chunk.named_parameters()]
        parameters = {name: tensor.detach().float().numpy() for name, tensor in named}
        np.savez(os.environ["WITNESS"].format(rank=os.environ.get("RANK", 0)), **parameters, losses=np.array(seen["losses"]))
