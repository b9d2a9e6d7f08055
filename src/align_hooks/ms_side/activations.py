"""The points of the model in a step: their choice, a teacher's values in their place, and their recorded values.

Points are compiled in at the first ``on_train_step_begin``, which has the batch of the graph (:mod:`.points` says how). As for token losses
the model must be called with the full batch: only semi-automatic parallelism, which is refused, cuts a batch into micro-batches."""

import mindspore
import numpy as np

from align_hooks.errors import RefusedRun
from align_hooks.ms_side.activations_of_newer import of_newer
from align_hooks.ms_side.activations_of_older import of_older
from align_hooks.ms_side.devices import refuse_large
from align_hooks.ms_side.model import is_per_token, model_of
from align_hooks.ms_side.place import place, summed
from align_hooks.ms_side.point_builder import Builder, of_points
from align_hooks.ms_side.points import TokenLayout
from align_hooks.ms_side.session import MsSession
from align_hooks.ms_side.token_losses import is_called_whole
from align_hooks.names import points
from align_hooks.names.blocks import Array
from align_hooks.names.points import GRADIENT
from align_hooks.quantities.activations import ACTIVATIONS, FILTER, WHOLE
from align_hooks.record.write.step_files import StepActivations
from align_hooks.settings import PREFIX

VARIABLE = f"{PREFIX}ACTIVATIONS"


def refuse_unseen(session: MsSession) -> None:
    """Refuse, before training, the activations of a job with cut batches or with a model of unknown points."""
    if not session.settings.steps(ACTIVATIONS) and session.teacher is None:
        return
    variable = VARIABLE if session.settings.steps(ACTIVATIONS) else f"{PREFIX}TEACHER"
    model = model_of(session.train_cell)
    if session.sizes is not None or not is_called_whole(session.train_cell):
        raise RefusedRun(f"{variable} is for jobs of MindFormers whose model is called with a rank's whole batch; unset it")
    if model.built is None:
        raise RefusedRun(
            f"{variable}: points are known of newer models and of LlamaForCausalLM, this is {type(model.network).__name__}; unset it"
        )


def keep_activations(session: MsSession, rows: int, length: int) -> None:
    """Put the points into the model, for this rank's batches; refuse points that do not fit the device."""
    assert session.parameters is not None
    settings, model = session.settings, model_of(session.train_cell)
    asked = bool(settings.steps(ACTIVATIONS)) and session.recording.writer is not None
    data = place(session.launch)["dp"]
    build = Builder(
        TokenLayout(rows, length, data * rows, by_position=model.is_newer),
        session.parameters.dims.vocabulary,
        wanted=points.chosen(settings.patterns(FILTER).parts or ("*",)) if asked else lambda name: False,
        whole=points.chosen(settings.patterns(WHOLE).parts if asked else ()),
        forced=session.teacher.forces if session.teacher is not None else lambda name: False,
        on_host=mindspore.get_context("device_target") == "CPU",
        prefix="mindformers:" if model.misfits else "",
    )
    (of_newer if model.is_newer else of_older)(build, model)
    session.refuse_unmatched(build.known)
    session.points = build.made
    if needed := sum(point.bytes for point in build.made):
        session.say(f"points of the model take {needed / 1e6:.1f} MB of device memory in every step")
    refuse_large("points of the model need", needed, f"choose fewer in {VARIABLE}_FILTER and {VARIABLE}_TENSORS")
    whole = points.chosen(settings.patterns(WHOLE).parts)
    kept = sum(view.width for point in build.made for view in point.views if whole(view.name))
    session.announce_activations(2 * 4 * kept * rows * length, session.planned or range(1))


def check_teacher(session: MsSession, planned: range) -> None:
    """Refuse, before training, a teacher that does not fit the ``planned`` steps; widths are checked once points are built."""
    teacher = session.teacher
    if teacher is None:
        return
    if is_per_token(session.train_cell):
        raise RefusedRun(
            f"{PREFIX}TEACHER: with calculate_per_token_loss gradients are divided by the tokens behind the backward pass; drop either"
        )
    recorded = teacher.run.activations(teacher.recorded[0])
    widths = {name: recorded.width(name) for name in recorded.points if teacher.forces(name) and recorded.has_tensor(name)}
    session.check_teacher(widths, planned, None, None)


def give_values(session: MsSession, step: int, loss_scale: float) -> None:
    """Set the points to the teacher's values of a forced step, or to the model's own values."""
    teacher = session.teacher
    if teacher is None:
        return
    forced, factor = step in teacher.steps, np.float32(scale(session, loss_scale))
    for point in (point for point in session.points if point.forces):
        name, rows = point.views[-1].name, slice(point.layout.first, point.layout.first + point.layout.rows)
        if not forced:
            point.give(None)
            continue
        value, gradient = teacher.tensor(step, name)[rows], teacher.tensor(step, name + GRADIENT)[rows]
        if value.shape != (point.layout.rows, point.layout.length, point.views[-1].width):
            raise RefusedRun(
                f"{PREFIX}TEACHER={teacher.source}: step {step} has {list(value.shape)} of {name}, this run "
                f"{[point.layout.rows, point.layout.length, point.views[-1].width]}; train on the batches of that run"
            )
        point.give(value, gradient * factor)
    if forced:
        teacher.made.add(step)


def scale(session: MsSession, loss_scale: float) -> float:
    """Return the divisor from a gradient in the backward pass to the gradient of the reduced objective."""
    # with a per-token loss MindFormers divides by the tokens of the step later, and sums over ranks
    return loss_scale * (1 if is_per_token(session.train_cell) or summed(session.launch) else session.launch.world_size)


def made(session: MsSession, loss_scale: float) -> StepActivations | None:
    """Return the values of the ended step's points; None without points."""
    wanted = points.chosen(session.settings.patterns(FILTER).parts or ("*",))
    whole = points.chosen(session.settings.patterns(WHOLE).parts)
    sums: dict[str, Array] = {}
    tensors: dict[str, Array] = {}
    widths: dict[str, int] = {}
    for point in session.points:
        for backward, suffix in ((False, ""), (True, GRADIENT)):
            for name, numbers, tensor in point.values(backward=backward):
                if wanted(name):
                    sums[name + suffix] = numbers
                    if tensor is not None and whole(name):
                        tensors[name + suffix] = tensor
        widths |= {view.name: view.width for view in point.views if wanted(view.name)}
    if not sums:
        return None
    layout, factor = session.points[0].layout, 1.0 / scale(session, loss_scale)
    by_tokens = is_per_token(session.train_cell)
    return StepActivations(sums, tensors, of_points(widths, [layout.rows], layout.length, factor, by_tokens=by_tokens))
