"""The points of the model in a step: which are wanted, what a selected step sees of them, and what a teacher gives in their place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from megatron.core.num_microbatches_calculator import get_num_microbatches
from megatron.training import get_args

from align_hooks.errors import RefusedRun
from align_hooks.names import points
from align_hooks.quantities.activations import ACTIVATIONS, WHOLE
from align_hooks.settings import PREFIX
from align_hooks.torch_side.objects import Module, Tensor
from align_hooks.torch_side.optimizer import chain
from align_hooks.torch_side.probe_recorder import ProbeRecorder, rank_length, wanted
from align_hooks.torch_side.probes import ProbePoint, is_given, of_chunk
from align_hooks.torch_side.session import TorchSession


def probes_of(session: TorchSession) -> list[ProbePoint]:
    """The probe points of this rank's model, those alone of which a point is wanted."""
    asked = wanted(session.settings) if session.settings.steps(ACTIVATIONS) else lambda name: False
    forced = session.teacher.forces if session.teacher is not None else lambda name: False
    return [probe for probe in every_probe(session) if any(asked(value.name) or forced(value.name) for value in probe.values)]


def every_probe(session: TorchSession) -> Iterator[ProbePoint]:
    """The probe points of this rank's model, whatever is asked for."""
    assert session.parameters is not None
    names = {id(parameter.model): parameter.whole for parameter in session.parameters}
    for chunk in session.chunks:
        yield from of_chunk(chunk, names, session.parameters, session.place)


def refuse_unmatched(session: TorchSession) -> None:
    """Refuse, before training, a pattern that matches no point of the model on any rank, with the nearest points; and a model that passes a
    layer several times a micro-batch."""
    assert session.parameters is not None
    if getattr(get_args(), "mtp_use_repeated_layer", False) and (get_args().mtp_num_layers or 0) > 1:
        raise RefusedRun(f"{PREFIX}ACTIVATIONS: --mtp-use-repeated-layer passes a layer several times a micro-batch; drop it, or unset it")
    here = {value.name for probe in every_probe(session) for value in probe.values}
    elsewhere = {re.sub(r"(?<=\blayers\.)\d+", str(layer), name) for name in here for layer in range(session.parameters.layers)}
    known = here | elsewhere | {points.EMBEDDING, points.FINAL_NORM, points.LOGITS, points.TOKEN_LOSSES}
    session.refuse_unmatched(known, lambda pattern: points.EXPERT.search(pattern) is not None)


def router_logits(session: TorchSession, router: Module, logits: Tensor) -> None:
    """Take the numbers of what a router makes of its input."""
    watch = session.current.probes
    if watch is None:
        return
    for index, probe in enumerate(watch.probe_points):
        if probe.module is router and probe.values[0].name.endswith(".gate"):
            watch.pass_on(index, probe, logits)


def check_teacher(session: TorchSession, planned: range) -> None:
    """Hold what a teacher is to give against this rank's points, before training."""
    teacher, args = session.teacher, get_args()
    if teacher is None:
        return
    if args.calculate_per_token_loss:
        raise RefusedRun(
            f"{PREFIX}TEACHER: with --calculate-per-token-loss gradients are divided by the tokens behind the backward pass; drop either"
        )
    widths = {probe.values[0].name: probe.values[0].width for probe in session.probe_points if is_given(probe, teacher.forces)}
    rows = None if getattr(args, "rampup_batch_size", None) else args.micro_batch_size * args.data_parallel_size * get_num_microbatches()
    session.check_teacher(widths, planned, rows, args.seq_length)


def begin(session: TorchSession) -> None:
    """ProbeRecorder the points of the step that begins, where it is selected, or forced."""
    if not (session.recording.wants(ACTIVATIONS) or session.teacher is not None):
        return
    recording = session.recording
    forced = session.teacher is not None and session.step in session.teacher.steps
    with recording.must_succeed() if forced else recording.isolate_failures("activations"):
        watch = ProbeRecorder(session, session.place, session.probe_points, scale=scale(session))
        if watch.records or forced:
            session.current.probes = watch
            watch.begin()


def end(session: TorchSession) -> None:
    """Take the hooks of the step away that watch points; what they saw stays with the session."""
    if session.current.probes is not None:
        session.current.probes.end()


def scale(session: TorchSession) -> Tensor | float:
    """What a gradient that flows is divided by to be that of the reduced objective; with a per-token loss Megatron divides by the tokens
    of the step later still, and sums over ranks. A loss scale is left on its device."""
    place, args = session.place, get_args()
    ranks = 1 if args.calculate_per_token_loss else place["dp_size"] * place["cp_size"]
    scaled = [leaf for leaf in chain(session.optimizer) if getattr(leaf, "grad_scaler", None) is not None]
    return scaled[0].get_loss_scale().detach().clone() * ranks if scaled else float(ranks)


def bytes_of(session: TorchSession, rows: Iterable[int]) -> int:
    """What a selected step writes of whole tensors on this rank, in bytes: values and gradients."""
    kept = points.chosen(session.settings.patterns(WHOLE).parts)
    widths = sum(value.columns[1] - value.columns[0] for probe in session.probe_points for value in probe.values if kept(value.name))
    return 2 * 4 * widths * sum(rows) * rank_length(session.place)
