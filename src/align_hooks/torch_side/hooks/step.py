"""The step of a Megatron run that just ended, as a :class:`align_hooks.session.step.Step`.

All device numbers of a step, losses, norms and sketches, come to the host in one transfer when it has ended.
"""

import functools
import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from msgspec import Struct

from align_hooks.errors import RefusedRun
from align_hooks.names.blocks import Array
from align_hooks.record.format.missing_batch import MissingBatchReason
from align_hooks.record.format.random_states import changes, digest
from align_hooks.record.format.sequence import slices_of
from align_hooks.record.format.state import BUFFER
from align_hooks.record.format.terms import AUXILIARY, PREDICTION, Z_LOSS
from align_hooks.record.format.token_digest import CALLED, text
from align_hooks.record.format.token_digest import digest as digest_of_tokens
from align_hooks.record.read.batch import joined
from align_hooks.record.write.step_files import StepActivations, StepBatch, StepChoices
from align_hooks.session.step import LocalNorms
from align_hooks.torch_side.arrays import fetched, in_fp64, number
from align_hooks.torch_side.micro_batch import DOCUMENTS
from align_hooks.torch_side.objects import Tensor
from align_hooks.torch_side.place import rank_slices
from align_hooks.torch_side.routing import are_captured, choices
from align_hooks.torch_side.run_arguments import get_args, num_micro_batches, samples_of_step
from align_hooks.torch_side.sequence_sums import IS_SCALED, IS_SUMMED, MicroBatchLoss, own_part
from align_hooks.torch_side.session import CurrentStep, TorchSession
from align_hooks.torch_side.state import digests
from align_hooks.torch_side.token_digest import OF_KNOWN

TOKENS, KNOWN = "digest of the tokens", "digest of known tokens"
NORMS, COMPUTED, SKETCHES, TOTAL, WEIGHTS, SUMS = "norms", "weights", "sketches", "total", "weights of tokens", "sums"
"""Kinds of vectors."""
NORM_FIELDS = ("norm", "same", "others")
"""Fields of FrameworkNorm on the device."""


class MegatronStep(Struct, frozen=True, dict=True):
    """The step that just ended."""

    session: TorchSession
    step: int
    on_host: Mapping[str, Tensor | float]
    """Numbers on the host by kind and name: ``loss 0``, ``update grad_norm``."""
    vectors: dict[str, Array]
    """Host vectors by kind: norms and sketches of gradients, tokens of each expert, buffers, weights of tokens."""
    skipped: bool
    seconds: float
    current: CurrentStep
    """The gathered values of the step."""

    @functools.cached_property
    def numbers(self) -> dict[str, float]:
        """Those that were fetched as numbers of Python, made where they are first asked for."""
        return {key: number(value) if isinstance(value, torch.Tensor) else value for key, value in self.on_host.items()}

    def of_kind(self, kind: str) -> dict[str, float]:
        """Return the numbers of a kind by name."""
        return {key.removeprefix(f"{kind} "): value for key, value in self.numbers.items() if key.startswith(f"{kind} ")}

    def batch(self) -> StepBatch:
        """Return the micro-batches that the model consumed."""
        # every chunk of a virtual pipeline sees each micro-batch: the first reads tokens, the last labels and their mask
        chunks = [self.micro_batches(index) for index in sorted(self.current.attempt.micro_batches)]
        merged = [{name: array for part in reversed(parts) for name, array in part.items()} for parts in zip(*chunks, strict=True)]
        if 0 < sum(DOCUMENTS in part for part in merged) < len(merged):
            self.session.see_unseen({MissingBatchReason.DOCUMENTS})
        arrays, rows = joined(merged)
        experts = {name: [int(count) for count in self.vectors[f"experts {name}"]] for name in self.current.attempt.expert_counts}
        return StepBatch(arrays, rows, slices=slices(self.session, arrays), experts=experts)

    def micro_batches(self, chunk: int) -> list[dict[str, Array]]:
        """Return the arrays of each micro-batch of a model chunk; keep and print why some are missing."""
        parts = []
        for index, batch in enumerate(self.current.attempt.micro_batches[chunk]):
            loss = None if batch.loss is None else self.losses[batch.loss][0]
            arrays, unseen = batch.arrays(self.vectors.get(f"{WEIGHTS} {chunk} {index}"), loss)
            self.session.see_unseen(unseen)
            parts.append(arrays)
        return parts

    def routing(self) -> StepChoices | None:
        """Return the experts that the routing hook kept."""
        return choices(self.session)

    def activations(self) -> StepActivations | None:
        """Return the recorded values of the points."""
        return None if self.current.probes is None else self.current.probes.made()

    def local_norms(self) -> LocalNorms:
        """Return the norms that the gradients hook computed."""
        parameters, norms = self.session.parameters, self.current.norms
        squared = {} if norms is None else norms.named(self.squares)
        assert parameters is not None
        if missing := [native for native, pieces in parameters.trained_names if not squared.keys() >= pieces]:
            raise RefusedRun(f"the gradient of {missing[0]} was never seen ready; this optimizer prepares it elsewhere")
        computed = self.current.computed
        weights = {} if computed is None else computed.named(computed.squares(self.vectors[COMPUTED]))
        return LocalNorms("reduced", squared, parameters.counted_names, parameters.part_names, self.framework_norms(), weights)

    @functools.cached_property
    def squares(self) -> Array:
        """The squared sum of each piece of the gradients."""
        norms = self.current.norms
        return np.empty(0) if norms is None else norms.squares(self.vectors[NORMS])

    def framework_norms(self) -> list[dict[str, float]]:
        """Return Megatron's norms, each with the exact squared part of this rank."""
        if self.current.norms is None:
            return []
        of_tensor = self.current.norms.by_tensor(self.squares)
        norms = []
        for index, theirs in enumerate(self.current.framework_norms):
            norm, same, others = (self.numbers[f"framework {index} {key}"] for key in NORM_FIELDS)
            exact = math.fsum([others, *(of_tensor.get(place, 0.0) for place in theirs.of)])
            norms.append({"norm": norm, "first": theirs.first, "ranks": theirs.ranks, "same": same * same, "exact": exact})
        return norms

    def gradient_sketches(self) -> Callable[[], Mapping[str, list[float]]] | None:
        """Return what names the sketches that the gradients hook computed."""
        sketches, norms = self.current.sketches, self.current.norms
        if sketches is None or norms is None:
            return None
        sums, squares = self.vectors[SKETCHES], self.squares
        return lambda: sketches.named(sums, norms.named(squares))

    @functools.cached_property
    def losses(self) -> list[MicroBatchLoss]:
        """The results of each micro-batch's loss function for this rank's own tokens, and the part of each that was differentiated."""
        losses, counts = self.of_kind("loss"), self.of_kind("tokens")
        made: list[MicroBatchLoss] = []
        for index, loss in losses.items():
            tokens = counts.get(index)
            # in a schedule with its own forward pass only the formula is known
            objective = self.numbers[f"objective {index}"] if self.saw_objectives else loss * self.scale(tokens, len(losses))
            made.append(own_part(loss, tokens, objective, self.vectors.get(f"{SUMS} {index}"), self.session.place["cp_size"]))
        return made

    @property
    def saw_objectives(self) -> bool:
        """Whether the differentiated part of each loss was seen."""
        return len(self.of_kind("objective")) == len(self.of_kind("loss"))

    def row(self) -> tuple[Callable[[], dict[str, object]], int]:
        """Return :meth:`scalars` and the bytes that it holds, and let go of what it does not need: rows may wait for the disk."""
        current = self.current
        if CALLED in self.session.recording.given_up:
            current.attempt.tokens = None
        current.let_go()
        for key in [key for key in self.vectors if not key.startswith((TOTAL, SUMS, BUFFER))]:
            del self.vectors[key]
        held: list[Array | Tensor] = [*self.vectors.values(), *(current.attempt.tokens.on_host if current.attempt.tokens else ())]
        held += [state for states in current.attempt.random for state in states.values()]
        made = functools.partial(self.scalars, get_args().consumed_train_samples + samples_of_step(), num_micro_batches())
        return made, sum(each.nbytes for each in held)

    def scalars(self, consumed_samples: int, micro_batches: int) -> dict[str, object]:
        """Return the step's scalars at full precision.

        ``loss`` is the mean over valid tokens, or over micro-batches with ``valid_tokens`` None where the loss function returns no number
        of tokens. ``objective_loss`` is the differentiated loss: the mean over micro-batches of their token means, or the mean over all
        tokens with ``--calculate-per-token-loss``. ``micro_batches`` are (sum of losses, tokens, part of the objective), from the first
        tensor-parallel rank of the last stage."""
        session, args = self.session, get_args()
        losses, tokens, objectives, divisors = zip(*self.losses, strict=True) if self.losses else ((), (), (), ())
        counts = [count for count in tokens if count is not None]
        counted, total = len(counts) == len(losses), sum(counts)
        shares = zip(losses, divisors, objectives, strict=True)
        mean = sum(losses) / (total if counted else len(losses)) if losses and (total or not counted) else None
        update = self.current.update | self.of_kind("update")
        norm, clip, total_norms = update.get("grad_norm"), update.get("clip_grad"), self.current.update_norms
        generators = [digests(states) for states in self.current.attempt.random]  # torch's are known from the first forward pass on
        buffers = {key: digest(vector) for key, vector in self.vectors.items() if key.startswith(BUFFER)}
        return {
            "step": self.step,
            "loss": mean,
            "objective_loss": sum(objectives) / ((total or 1) if args.calculate_per_token_loss else 1) if losses else None,
            # a loop of one's own may return its mean and a 1
            "valid_tokens": int(total) if counted and not (session.own_loop and 0 < total <= len(losses)) else None,
            "consumed_samples": consumed_samples,
            "grad_norm": norm,
            "squared": float(total_norms.squares(self.vectors[TOTAL]).sum()) if total_norms is not None else None,
            "clip_coefficient": min(1.0, clip / (norm + 1e-6)) if clip and norm is not None else 1.0,
            "learning_rate": self.current.learning_rate,
            "loss_scale": update.get("loss_scale", 1.0),
            "skipped": self.skipped,
            "terms": self.terms(total, micro_batches),
            "seconds": self.seconds,
            "micro_batches": [*map(list, shares)] if self.saw_objectives and session.place["tp"] == 0 else [],
            "random": changes([{**self.current.random, **dict(*generators[:1])}, *generators]),
            "state": self.current.state | self.of_kind("state") | buffers,
            "token_digest": self.token_digest(),
            "unrecorded_inputs": sorted(session.unrecorded),
            "unseen": sorted(reason.value for reason in self.current.unseen),
        }

    def scale(self, tokens: float | None, micro_batches: int) -> float:
        """Return the schedule's factor of a loss function's result, see :mod:`.train_step`."""
        ranks = self.session.place["cp_size"]
        if tokens is None:
            return ranks / micro_batches
        return 1.0 if get_args().calculate_per_token_loss else (ranks if IS_SUMMED else 1) / max(tokens, 1) / micro_batches

    def token_digest(self) -> str:
        """Return the digest of the step's tokens; empty on a rank without tokens, and where the device computes digests wrongly."""
        session, tokens = self.session, self.current.attempt.tokens
        if tokens is None:
            return ""
        if tokens.on_host:
            return digest_of_tokens(*(part.numpy() for part in tokens.on_host))
        if (known := self.numbers.get(KNOWN)) is not None:
            first, session.digests = session.digests is None, text(int(known)) == OF_KNOWN
            if first and not session.digests:
                session.say("this device does not add up integers of 64 bits: rows have no digest of their tokens")
        number = self.numbers.get(TOKENS)
        return "" if number is None or not session.digests else text(int(number))

    def terms(self, tokens: float, micro_batches: int) -> dict[str, float] | None:
        """Return this rank's part of the other terms of the loss; None without terms, under CUDA graphs, or for an unknown divisor."""
        args, place = get_args(), self.session.place
        if not (args.num_experts or getattr(args, "mtp_num_layers", None)) or are_captured():
            return None
        data, context = place["dp_size"], place["cp_size"]
        balanced = data if IS_SCALED else data * context
        ranks = {AUXILIARY: balanced, Z_LOSS: balanced, PREDICTION: data * context}
        divisor: float = micro_batches
        if args.calculate_per_token_loss:
            if ranks[PREDICTION] > 1 or place["pp_size"] > 1 or not tokens:
                return None
            divisor = tokens
        here = self.of_kind("term")  # the ranks of a sequence each have a part of the balancing term
        if place["tp"]:  # tensor-parallel ranks have the same prediction term
            here.pop(PREDICTION, None)
        return {name: term / divisor / ranks[name] for name, term in here.items()}


def to_host(session: TorchSession) -> tuple[dict[str, Tensor | float], dict[str, Array]]:
    """Transfer all device numbers and vectors of the step to the host at once."""
    current, attempt = session.current, session.current.attempt
    named: dict[str, Tensor | float] = {f"loss {index}": loss for index, (loss, _) in enumerate(attempt.losses)}
    named |= {f"tokens {index}": tokens for index, (_, tokens) in enumerate(attempt.losses) if tokens is not None}
    named |= {f"objective {index}": value for index, value in enumerate(attempt.objectives)}
    named |= {f"term {name}": value for name, value in attempt.terms.items()}
    named |= {f"framework {index} {key}": getattr(norm, key) for index, norm in enumerate(current.framework_norms) for key in NORM_FIELDS}
    for kind, numbers in (("update", current.update), ("state", current.state)):
        named |= {f"{kind} {key}": value for key, value in numbers.items() if isinstance(value, torch.Tensor)}
    nothing: dict[str, Tensor] = {}
    named |= session.recording.best_effort(CALLED, functools.partial(of_tokens, session), nothing)
    many = ((NORMS, current.norms), (COMPUTED, current.computed), (SKETCHES, current.sketches), (TOTAL, current.update_norms))
    vectors = {kind: left.numbers for kind, left in many if left is not None}
    vectors |= {f"{SUMS} {index}": sums for index, sums in attempt.sums.items()}
    vectors |= {f"experts {name}": counts for name, counts in attempt.expert_counts.items()}
    vectors |= {f"{BUFFER}{name}": buffer for name, buffer in current.buffers.items()}
    for chunk, batches in attempt.micro_batches.items():
        vectors |= {f"{WEIGHTS} {chunk} {number}": batch.weights for number, batch in enumerate(batches) if batch.weights is not None}
    on_host = fetched(vectors | {key: value for key, value in named.items() if isinstance(value, torch.Tensor)})
    return named | {key: on_host[key] for key in named if key in on_host}, {key: in_fp64(on_host[key]) for key in vectors}


def of_tokens(session: TorchSession) -> dict[str, Tensor]:
    """Return the digest of the step's tokens, and before the first result the digest of known tokens; empty on a rank without tokens."""
    tokens = session.current.attempt.tokens
    if tokens is None:
        return {}
    numbers = {TOKENS: tokens.upper()} | ({KNOWN: tokens.of_known()} if session.digests is None else {})
    return {name: number for name, number in numbers.items() if number is not None}


def slices(session: TorchSession, arrays: Mapping[str, Array]) -> list[list[int]] | None:
    """Return the slices [start, stop) of the sequence on this context-parallel rank; None without context parallelism."""
    place, args = session.place, get_args()
    if place["cp_size"] == 1:
        return None
    tell = "position_ids" in arrays and not args.reset_position_ids and DOCUMENTS not in arrays
    in_ids = slices_of(arrays["position_ids"], args.seq_length) if tell else None
    return in_ids or rank_slices(place, args.seq_length)
