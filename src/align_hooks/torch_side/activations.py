"""The points of the model in a step: their choice, their recording, and a teacher's values in their place."""

import re
from collections.abc import Iterable, Iterator

from align_hooks.errors import RefusedRun
from align_hooks.names import points
from align_hooks.quantities.activations import ACTIVATIONS, WHOLE
from align_hooks.settings import PREFIX
from align_hooks.torch_side.objects import Module, Tensor
from align_hooks.torch_side.optimizer import chain
from align_hooks.torch_side.place import rows_of_step
from align_hooks.torch_side.probe_recorder import ProbeRecorder, rank_length, wanted
from align_hooks.torch_side.probes import ProbePoint, is_forced, of_chunk
from align_hooks.torch_side.run_arguments import get_args
from align_hooks.torch_side.session import TorchSession


def probes_of(session: TorchSession) -> list[ProbePoint]:
    """Return the probe points of this rank's model that show a recorded or forced point."""
    asked = [wanted(session.settings)] if session.settings.steps(ACTIVATIONS) else []
    asked += [session.teacher.forces] if session.teacher is not None else []
    return [probe for probe in every_probe(session) if any(wants(value.name) for value in probe.values for wants in asked)]


def every_probe(session: TorchSession) -> Iterator[ProbePoint]:
    """Yield all probe points of this rank's model."""
    assert session.parameters is not None
    names = {id(parameter.model): parameter.whole for parameter in session.parameters}
    for chunk in session.chunks:
        yield from of_chunk(chunk, names, session.parameters, session.place)


def refuse_unmatched(session: TorchSession) -> None:
    """Refuse a pattern that matches no point on any rank, and a model that passes a layer several times a micro-batch."""
    assert session.parameters is not None
    if getattr(get_args(), "mtp_use_repeated_layer", False) and (get_args().mtp_num_layers or 0) > 1:
        raise RefusedRun(f"{PREFIX}ACTIVATIONS: --mtp-use-repeated-layer passes a layer several times a micro-batch; drop it, or unset it")
    here = {value.name for probe in every_probe(session) for value in probe.values}
    elsewhere = {re.sub(r"(?<=\blayers\.)\d+", str(layer), name) for name in here for layer in range(session.parameters.layers)}
    known = here | elsewhere | {points.EMBEDDING, points.FINAL_NORM, points.LOGITS, points.TOKEN_LOSSES}
    session.refuse_unmatched(known, lambda pattern: points.EXPERT.search(pattern) is not None)


def router_logits(session: TorchSession, router: Module, logits: Tensor) -> None:
    """Record the numbers of a router's logits."""
    recorder = session.current.probes
    if recorder is None:
        return
    for index, probe in enumerate(recorder.probe_points):
        if probe.module is router and probe.values[0].name.endswith(".gate"):
            recorder.pass_on(index, probe, logits)


def check_teacher(session: TorchSession, planned: range) -> None:
    """Refuse, before training, a teacher whose values do not fit this rank's points or the ``planned`` steps."""
    teacher, args = session.teacher, get_args()
    if teacher is None:
        return
    if args.calculate_per_token_loss:
        raise RefusedRun(
            f"{PREFIX}TEACHER: with --calculate-per-token-loss gradients are divided by the tokens behind the backward pass; drop either"
        )
    widths = {probe.values[0].name: probe.values[0].width for probe in session.probe_points if is_forced(probe, teacher.forces)}
    session.check_teacher(widths, planned, rows_of_step(args), args.seq_length)


def begin(session: TorchSession) -> None:
    """Put probes on the points of the step that begins, where the step is recorded or forced."""
    recording = session.recording
    if not (recording.wants(ACTIVATIONS) or session.teacher is not None):
        return
    forced = session.teacher is not None and session.step in session.teacher.steps
    with recording.must_succeed() if forced else recording.isolate_failures("activations"):
        recorder = ProbeRecorder(session, session.place, session.probe_points, scale=scale(session))
        if recorder.records or forced:
            session.current.probes = recorder
            recorder.begin()


def end(session: TorchSession) -> None:
    """Remove the probes of the step; their numbers stay with the session."""
    if session.current.probes is not None:
        session.current.probes.end()


def scale(session: TorchSession) -> Tensor | float:
    """Return the divisor from a gradient in the backward pass to that of the reduced objective; a loss scale stays on its device."""
    place, args = session.place, get_args()
    # with a per-token loss Megatron divides by the tokens of the step later, and sums over ranks
    ranks = 1 if args.calculate_per_token_loss else place["dp_size"] * place["cp_size"]
    scaled = [leaf for leaf in chain(session.optimizer) if getattr(leaf, "grad_scaler", None) is not None]
    return scaled[0].get_loss_scale().detach().clone() * ranks if scaled else float(ranks)


def bytes_of(session: TorchSession, rows: Iterable[int]) -> int:
    """Return the bytes of the tensors, values and gradients, that a selected step writes on this rank."""
    kept = points.chosen(session.settings.patterns(WHOLE).parts)
    widths = sum(value.columns[1] - value.columns[0] for probe in session.probe_points for value in probe.values if kept(value.name))
    return 2 * 4 * widths * sum(rows) * rank_length(session.place)
