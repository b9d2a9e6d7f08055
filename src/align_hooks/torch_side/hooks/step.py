"""What a Megatron run can say of the step that just ended, as :class:`align_hooks.session.step.Step` asks for it.

All device numbers of a step come to the host in one transfer, when it has ended: losses, norms and sketches were left on the device until
then.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from megatron.core.num_microbatches_calculator import get_num_microbatches
from megatron.training import get_args

from align_hooks.errors import RefusedRun
from align_hooks.record.batch import joined
from align_hooks.record.random_states import changes
from align_hooks.record.sequence import slices_of, zigzag
from align_hooks.session.step import Batch, LocalNorms
from align_hooks.torch_side.session import TorchSession

TAKEN = ("norm", "same", "exact")


@dataclass(frozen=True)
class Ended:
    """The step that just ended, as :class:`align_hooks.session.step.Step` asks for it; ``numbers`` are all of its device numbers."""

    session: TorchSession
    step: int
    numbers: dict[str, Any]
    skipped: bool
    seconds: float

    def batch(self) -> Batch:
        """The micro-batches that the model consumed. Every chunk of a virtual pipeline sees each: the first takes tokens, the last labels
        and their mask."""
        chunks = [self.session.micro_batches[index] for index in sorted(self.session.micro_batches)]
        merged = [{name: array for part in reversed(parts) for name, array in part.items()} for parts in zip(*chunks, strict=True)]
        arrays, rows = joined(merged)
        return Batch(arrays, rows, slices=slices(self.session, arrays))

    def local_norms(self) -> LocalNorms:
        """The norms that the gradients hook left on the device."""
        parameters = self.session.parameters
        assert parameters is not None
        squared = {key.removeprefix("norm "): value for key, value in self.numbers.items() if key.startswith("norm ")}
        missing = [
            parameter.fused.native
            for parameter, _ in parameters.held
            if parameter.model.requires_grad and not squared.keys() >= {*parameter.fused.pieces}
        ]
        if missing:
            raise RefusedRun(f"the gradient of {missing[0]} was never seen ready; this optimizer prepares it elsewhere")
        counted = {name for parameter in parameters if parameter.counted for name in parameter.fused.pieces}
        parts = {name for parameter in parameters for name in parameter.fused.cut}
        taken = [norm | {key: self.numbers[f"taken {index} {key}"] for key in TAKEN} for index, norm in enumerate(self.session.taken)]
        return LocalNorms("reduced", squared, counted, parts, taken)

    def gradient_sketches(self) -> dict[str, list[float]]:
        """The sketches that the gradients hook left on the device."""
        return {key.removeprefix("sketch "): value for key, value in self.numbers.items() if key.startswith("sketch ")}

    def row(self) -> dict[str, Any]:
        """The step's scalars."""
        return row(self.session, self.step, self.numbers, skipped=self.skipped, seconds=self.seconds)


def to_host(session: TorchSession) -> dict[str, Any]:
    """All device numbers of the step, in one transfer: losses, tokens, loss scale, gradient norm, squared sums, sketches (a list each)."""
    named: dict[str, Any] = {f"loss {index}": loss for index, (loss, _) in enumerate(session.losses)}
    named |= {f"tokens {index}": tokens for index, (_, tokens) in enumerate(session.losses)}
    named |= {f"objective {index}": value for index, value in enumerate(session.objectives)}
    named |= {f"taken {index} {key}": one[key] for index, one in enumerate(session.taken) for key in TAKEN}
    named |= {f"update {key}": value for key, value in session.update.items() if isinstance(value, torch.Tensor)}
    named |= {f"norm {name}": value for name, value in session.norms.items()}
    named |= {f"sketch {name}": value for name, value in session.sketches.items()}
    device = next((value.device for value in named.values() if isinstance(value, torch.Tensor)), "cpu")
    on_device = {key: torch.as_tensor(value, device=device).detach().double().reshape(-1) for key, value in named.items()}
    values = iter(torch.cat(list(on_device.values())).tolist() if on_device else [])
    taken = {key: list(itertools.islice(values, len(tensor))) for key, tensor in on_device.items()}
    numbers = {key: found if key.startswith("sketch ") else found[0] for key, found in taken.items()}
    return numbers | {f"update {k}": v for k, v in session.update.items() if not isinstance(v, torch.Tensor)}


def slices(session: TorchSession, arrays: Mapping[str, Any]) -> list[list[int]] | None:
    """The positions [start, stop) of the sequence that this context-parallel rank was given; None without context parallelism."""
    place, args = session.place, get_args()
    if place["cp_size"] == 1:
        return None
    shown = slices_of(arrays["position_ids"], args.seq_length) if "position_ids" in arrays and not args.reset_position_ids else None
    return shown or zigzag(place["cp"], place["cp_size"], args.seq_length)


def row(session: TorchSession, step: int, numbers: dict[str, Any], *, skipped: bool, seconds: float) -> dict[str, Any]:
    """The step's scalars, at full precision from their source.

    ``loss`` is the sum over valid tokens divided by their number. ``objective_loss`` is what was differentiated: the
    mean over micro-batches of their token means, or with ``--calculate-per-token-loss`` the sum that is divided by the number of
    all tokens later. ``micro_batches`` are a micro-batch's sum of losses, tokens, and part of the objective, from the first
    tensor-parallel rank of the last stage. ``random`` are digests of the random state, ``unrecorded_inputs`` what else the model was given.
    """
    args = get_args()
    losses, tokens, objectives = (
        [value for key, value in numbers.items() if key.startswith(f"{kind} ")] for kind in ("loss", "tokens", "objective")
    )
    total = sum(tokens)
    loss = sum(losses) / total if total else None
    seen = len(objectives) == len(losses)
    if not seen:  # a schedule of the framework's with a forward pass of its own: what it differentiates is not known but said
        scale = [1.0 if args.calculate_per_token_loss else 1 / max(count, 1) / len(losses) for count in tokens]
        objectives = [value * factor for value, factor in zip(losses, scale, strict=True)]
    norm, clip = numbers.get("update grad_norm"), numbers.get("update clip_grad")
    return {
        "step": step,
        "loss": loss,
        "objective_loss": sum(objectives) / ((total or 1) if args.calculate_per_token_loss else 1) if losses else None,
        "valid_tokens": int(total),
        "consumed_samples": args.consumed_train_samples + args.micro_batch_size * args.data_parallel_size * get_num_microbatches(),
        "grad_norm": norm,
        "squared": numbers.get("update squared"),
        "clip_coefficient": min(1.0, clip / (norm + 1e-6)) if clip and norm is not None else 1.0,
        "learning_rate": numbers.get("update learning_rate"),
        "loss_scale": numbers.get("update loss_scale", 1.0),
        "skipped": skipped,
        "seconds": seconds,
        "micro_batches": [list(one) for one in zip(losses, tokens, objectives, strict=True)] if seen and session.place["tp"] == 0 else [],
        "random": changes(session.random),
        "unrecorded_inputs": sorted(session.unrecorded),
    }
