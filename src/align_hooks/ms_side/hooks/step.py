"""The step of a MindFormers run that just ended, as a :class:`align_hooks.session.step.Step`."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct, field

from align_hooks.ms_side.activations import made
from align_hooks.ms_side.arrays import number
from align_hooks.ms_side.batch import DOCUMENTS, LENGTHS, unseen
from align_hooks.ms_side.model import CellParameter, Model, is_per_token
from align_hooks.ms_side.objects import Cell, Tensor
from align_hooks.ms_side.optimizer import clip_norm
from align_hooks.ms_side.place import place, summed
from align_hooks.ms_side.session import MsSession
from align_hooks.names.blocks import Array
from align_hooks.quantities.local_norms import POINT
from align_hooks.record.format.terms import AUXILIARY, PREDICTION
from align_hooks.record.format.token_digest import CALLED, digest
from align_hooks.record.write.step_files import StepActivations, StepBatch, StepChoices
from align_hooks.session.step import LocalNorms

LOSS, OVERFLOW, GLOBAL_NORM = 0, 1, 4
"""Positions in the output of MFTrainOneStepCell, 1.3 to 1.9. Its loss scale, position 2, is already the next step's."""
LANGUAGE_MODEL = "language_model"
TERMS = {LANGUAGE_MODEL: "lm_loss", AUXILIARY: "aux_loss", PREDICTION: "mtp_loss"}
"""A term to its name in the register."""


class UpdateInputs(Struct, frozen=True):
    """The inputs of a step's update."""

    rate: float | list[float] = 0.0
    """The learning rate, or each group's."""
    loss_scale: float = 1.0
    injected_norm: float | None = None
    """The global norm of injected gradients; None without injection."""


class GraphStep(Struct, dict=True):
    """The step that just ended."""

    session: MsSession
    step: int
    outputs: Sequence[Tensor]
    """The training cell's outputs."""
    read_batch: Callable[[], dict[str, Array]]
    update: UpdateInputs
    seconds: float
    squared: dict[str, float] = field(default_factory=dict)
    """The squared sums of the gradients, once read."""

    @cached_property
    def consumed(self) -> dict[str, Array]:
        """Arrays ``[rows, sequence]`` by name, read once."""
        return self.read_batch()

    @cached_property
    def experts(self) -> dict[str, Array]:
        """The experts of each token by the name of a router, ``[rows, sequence, experts a token]``, read once."""
        shape = self.consumed["tokens"].shape
        read = ((choice.name, choice.experts(shape)) for choice in self.session.choices)
        return {name: experts for name, experts in read if experts is not None}

    def batch(self) -> StepBatch:
        """Return the batch that the model consumed, with token losses where kept."""
        session, arrays, job = self.session, dict(self.consumed), self.session.sizes
        losses = session.token_losses.read(arrays["tokens"].shape) if session.token_losses is not None else None
        if losses is not None:
            arrays["token_losses"] = losses
        joined_first = {"micro_batches": job.micro_batches, "whole": job.whole} if job is not None else None
        sizes = {choice.name: choice.facts.experts for choice in session.choices}
        counts = {name: np.bincount(experts.ravel(), minlength=sizes[name]).tolist() for name, experts in self.experts.items()}
        return StepBatch(arrays, [len(arrays["tokens"])], joined_first=joined_first, experts=counts)

    def routing(self) -> StepChoices | None:
        """Return the experts that the Cells in the routers kept."""
        return StepChoices(self.experts, [len(self.consumed["tokens"])]) if self.experts else None

    def activations(self) -> StepActivations | None:
        """Return the values that the points in the model kept."""
        return made(self.session, self.update.loss_scale)

    def local_norms(self) -> LocalNorms | None:
        """Return the capturing Cell's norms; a rank that holds only copies prints none."""
        reducer, parameters = self.session.reducer, self.session.parameters
        if reducer is None or parameters is None:
            return None
        self.squared = reducer.squared_sums()
        prints = reducer.local or any(parameter.counted for parameter in parameters)
        parts = {name for parameter in parameters for name in parameter.fused.cut}
        return LocalNorms(self.session.settings.choice(POINT), self.squared, self.squared if prints else (), parts, self.framework_norms())

    def gradient_sketches(self) -> Callable[[], dict[str, list[float]]] | None:
        """Return the capturing Cell's sketches, read already."""
        made = None if self.session.reducer is None else self.session.reducer.gradient_sketches()
        return None if made is None else lambda: made

    def framework_norms(self) -> list[dict[str, float]]:
        """Return the training cell's global norm, where it is of the gradients whose norms are recorded."""
        session, norm = self.session, self.outputs[GLOBAL_NORM]
        injected = session.injection is not None and self.step in session.injection.steps
        if norm is None or injected or session.settings.choice(POINT) == "local":
            return []
        first, ranks = (session.launch.rank, 1) if session.sizes is None else (0, session.launch.world_size)
        return [{"norm": number(norm), "first": first, "ranks": ranks}]

    def row(self) -> tuple[Callable[[], dict[str, object]], int]:
        """Return the step's scalars, at full precision."""
        session, clip = self.session, clip_norm(self.session.train_cell)
        norm, part = self.global_norm()
        row = {
            "step": self.step,
            **self.losses(),
            "grad_norm": norm,
            "clip_coefficient": min(1.0, clip / (max(norm, clip) + 1e-6)) if clip and norm is not None else 1.0,
            "learning_rate": self.update.rate,
            "loss_scale": self.update.loss_scale,
            "terms": self.terms(),
            "skipped": bool(number(self.outputs[OVERFLOW])),
            "seconds": self.seconds,
            **of_start(session, self.consumed, self.token_digest),
            **part,
        }
        return lambda: row, 0

    def token_digest(self) -> str:
        """Return the digest of the rank's tokens: of a full batch on every rank the data-parallel part."""
        tokens, sizes = self.consumed["tokens"], self.session.sizes
        if sizes is not None and sizes.whole:
            tokens = np.array_split(tokens, sizes.dp)[place(self.session.launch, sizes)["dp"]]
        return digest(tokens)

    def losses(self) -> dict[str, float | None]:
        """Return loss and objective of the step, the number of counted tokens, and the samples consumed until its end."""
        session = self.session
        # of several terms the language model's, None where they are not separate
        has_one = session.model is None or not has_terms(session.model)
        loss = number(self.outputs[LOSS]) if has_one else session.terms.get(LANGUAGE_MODEL)
        ranks, rows = session.launch.world_size, len(self.consumed["tokens"])
        tokens = int((self.consumed["loss_mask"] > 0).sum())
        if session.sizes is None:
            objective = loss * ranks if loss is not None and summed(session.launch) else loss
            samples = rows * ranks * (self.step + 1)
            return {"loss": loss, "objective_loss": objective, "valid_tokens": tokens, "consumed_samples": samples}
        here, per_token = place(session.launch, session.sizes), is_per_token(session.train_cell)
        samples = session.sizes.rows(rows) * (self.step + 1)
        if loss is None:
            return {"loss": None, "objective_loss": None, "valid_tokens": tokens, "consumed_samples": samples}
        return session.sizes.losses(loss, tokens, here, per_token=per_token) | {"consumed_samples": samples}

    def terms(self) -> dict[str, float] | None:
        """Return the other terms of the loss; None where terms are not separate, or where each of several ranks has all of them."""
        if self.session.sizes is not None or self.session.launch.world_size > 1:
            return None
        return {name: term for name, term in self.session.terms.items() if name != LANGUAGE_MODEL} or None

    def global_norm(self) -> tuple[float | None, dict[str, float]]:
        """Return the global norm, or where gradients are cut this rank's squared part, which the reader adds up."""
        session, norm = self.session, self.outputs[GLOBAL_NORM]
        if norm is not None:
            return number(norm), {}
        # without clipping MindFormers computes no norm, and the optimizer's gradients are normed here
        if session.sizes is not None:
            if self.update.injected_norm is not None:
                return None, {"squared": self.update.injected_norm**2}
            if session.parameters is None or not self.squared:
                return None, {}
            names = (name for parameter in session.parameters if parameter.counted for name in parameter.fused.pieces)
            return None, {"squared": sum(self.squared[name] for name in names)}
        if self.update.injected_norm is not None:
            return self.update.injected_norm, {}
        if session.reducer is not None and session.reducer.norms:
            return sum(session.reducer.squared_sums().values()) ** 0.5, {}
        return None, {}


def of_start(session: MsSession, batch: Mapping[str, Array], token_digest: Callable[[], str]) -> dict[str, object]:
    """Return what a row of scalars has of the step's start and of its batch."""
    return {
        "random": [session.random],
        "state": session.state,
        "token_digest": session.recording.best_effort(CALLED, token_digest, ""),
        "unrecorded_inputs": sorted(session.unrecorded - ({LENGTHS} if DOCUMENTS in batch else set())),
        "unseen": unseen(batch, session.unrecorded),
    }


def counted(session: MsSession) -> list[tuple[CellParameter, Tensor]]:
    """Return the parameters for which this rank accounts, each with the buffer of its gradient."""
    assert session.parameters is not None and session.reducer is not None
    pairs = zip(session.parameters, session.reducer.buffers, strict=True)
    return [(parameter, buffer) for parameter, buffer in pairs if parameter.counted]


def has_terms(model: Model) -> bool:
    """Return whether a model's loss may have other terms than the language model's."""
    config = model.config
    return model.is_newer and bool(config.num_moe_experts or config.mtp_num_layers)


def read_terms(cell: Cell, model: Model) -> dict[str, float]:
    """Return the model's loss terms of the ended step; empty without ``print_separate_loss``, which keeps them.

    Patch point: MindFormers' ``parameter_register``, to which ``MFTrainOneStepCell`` adds each term in the graph. ``MFLossMonitor`` empties
    it when a step has ended, so the first callback reads it. Its auxiliary loss lacks the coefficient and is divided by the number of
    layers with experts; the result is the term that was added to the loss."""
    if not getattr(cell, "print_separate_loss", False):
        return {}
    from mindformers.utils.parameter_register import parameter_register as known  # older versions have none, and no model of several terms

    config = model.config
    there = {LANGUAGE_MODEL: True, AUXILIARY: config.num_moe_experts, PREDICTION: config.mtp_num_layers}
    terms = {term: number(known.get(name)) for term, name in TERMS.items() if there[term]}
    if AUXILIARY in terms:
        terms[AUXILIARY] *= float(cell.aux_loss_scale)
    return terms
