"""The PyNative trainer: its model and optimizer once built, and its steps.

Patch points: ``Trainer.__init__``, at whose end the model is initialised and the callbacks are made, and a ``TrainerCallback`` of ours
behind the trainer's own, which move the experts' bias in their ``on_step_end``.
"""

import functools
import time

import mindspore
from mindformers.pynative.callback import TrainerCallback

from align_hooks.errors import RefusedRun
from align_hooks.families.own import refuse_without_sizes
from align_hooks.hooking.hook import Args, Function, Instance, Kwargs
from align_hooks.ms_side import state
from align_hooks.ms_side.catalogue import PYNATIVE_TRAINER, training
from align_hooks.ms_side.hooks.config import flat
from align_hooks.ms_side.hooks.model import compute_type, optimizer_state, stands_on, typed, vocabulary
from align_hooks.ms_side.model import built_class, model_of_network
from align_hooks.ms_side.objects import Config
from align_hooks.ms_side.optimizer import groups, kind_of, load_moments, optimizer_facts, refuse_without_moments
from align_hooks.ms_side.place import refuse_other_numbers
from align_hooks.ms_side.pynative.batches import RecordedBatches
from align_hooks.ms_side.pynative.cell_recorder import CellRecorder, check_points, find_points
from align_hooks.ms_side.pynative.config import get
from align_hooks.ms_side.pynative.current import PynativeStepValues
from align_hooks.ms_side.pynative.rehearsal import contiguous
from align_hooks.ms_side.pynative.routing import check_replay, routers_of
from align_hooks.ms_side.pynative.shards import parameters_of_rank
from align_hooks.ms_side.pynative.sparse import indexers_of
from align_hooks.ms_side.pynative.step import PynativeStep, clip_norm
from align_hooks.ms_side.seeds import read_back
from align_hooks.ms_side.session import MsSession
from align_hooks.quantities.activations import ACTIVATIONS
from align_hooks.quantities.optimizer_state import OPTIMIZER_STATE
from align_hooks.session.loading import layer_facts, load_state, say_own_names
from align_hooks.session.step import record_state, record_step


def wrap(session: MsSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> None:
    """Call ``Trainer.__init__`` with recorded batches for its data set, and prepare what it has built."""
    if session.settings.replay_batches is not None:
        instance._create_dataset = functools.partial(recorded_batches, session, instance)
    wrapped(*args, **kwargs)
    if not session.begun or instance.callback_handler is None:  # a trainer that only generates text
        return
    if session.settings.device == "cpu":
        for network in instance.model:
            contiguous(network)
    if training(session.settings):
        prepare(session, instance)
        instance.callback_handler.callbacks.append(PynativeRecorder(session, instance))


def recorded_batches(session: MsSession, trainer: Instance, dataset: object, config: Config, **options: object) -> RecordedBatches | None:
    """Return the data set of ``Trainer._create_dataset``: for training recorded batches, for evaluation none."""
    return RecordedBatches(session, by_step=hasattr(trainer, "_split_micro_batch")) if config is trainer.config.train_dataset else None


def prepare(session: MsSession, trainer: Instance) -> None:
    """Name the parameters of the model, and find its routers, its indexers and its points."""
    if session.launch.world_size > 1:
        if hasattr(trainer, "_split_micro_batch"):
            raise RefusedRun("several ranks of the PyNative trainer of MindFormers 2.0 were not tried; use 2.1, or unset the variables")
        refuse_other_numbers(session.launch)
    if len(trainer.model) != 1:
        raise RefusedRun(f"the model is {len(trainer.model)} parts of a pipeline, which this version does not read; use one stage")
    network = trainer.model[0]
    kind = built_class(network).__name__
    if built_class(getattr(network, "model", None)).__name__ != "GPTModel" or kind.startswith("Training"):
        raise RefusedRun(f"{kind} is no PyNative model of MindFormers; train it by the static graph, with --mode 0")
    if kind_of(trainer.optimizer) is None and (session.settings.steps(OPTIMIZER_STATE) or session.settings.load_weights):
        session.say(f"the optimizer is {type(trainer.optimizer).__name__}, whose state is neither recorded nor loaded")
    model = session.model = model_of_network(network)
    rows = vocabulary(session)
    with refuse_without_sizes():
        session.model_config = model.facts(rows)
    session.parameters = parameters_of_rank(trainer.optimizer.parameters, model, rows, session.launch)
    say_own_names(session, model.family.name if model.family else "", model.misfits, (each.fused for each in session.parameters.state))
    if session.place["tp_size"] == 1:  # else each rank chooses for a part of the sequence
        routers_of(session, network)
        indexers_of(session, network)
    session.cell_points = find_points(session)


class PynativeRecorder(TrainerCallback):  # type: ignore[misc]
    """Opens and closes the session's steps."""

    def __init__(self, session: MsSession, trainer: Instance) -> None:
        self.session, self.trainer = session, trainer
        self.recorder: CellRecorder | None = None

    def on_train_begin(self, args: Config, progress: Instance, **others: object) -> None:
        """Load weights, describe the run, record the initial weights."""
        session, optimizer = self.session, self.trainer.optimizer
        with session.recording.isolate_failures("what the run is"), session.beginning():
            assert session.parameters is not None
            if session.settings.load_weights is not None:
                load_state(session, compute_type(session.model), functools.partial(load_moments, optimizer, session.parameters))
                if hasattr(optimizer, "reload_main_params_from_model"):
                    optimizer.reload_main_params_from_model()
            if session.replay is not None:
                session.replay.first = progress.global_step
                progress.max_steps = min(progress.max_steps, session.replay.last + 1)  # the schedule keeps its length
            steps = range(progress.global_step, progress.max_steps)
            if session.settings.steps(OPTIMIZER_STATE):
                refuse_without_moments(optimizer)
            check_replay(session, steps)
            check_points(session, steps)
            session.groups = tuple(groups(optimizer, session.parameters))
            session.describe(place=session.place, facts=self.facts(), steps=steps)
            record_state(session, steps.start, functools.partial(optimizer_state, session, optimizer))

    def on_step_begin(self, args: Config, progress: Instance, **others: object) -> None:
        """Open a step."""
        session = self.session
        with session.recording.isolate_failures("the state that the step starts from"):
            session.step = progress.global_step
            session.current = PynativeStepValues(started=time.perf_counter(), skipped=getattr(progress, "skipped_steps", 0))
            forced = session.teacher is not None and session.step in session.teacher.steps
            wanted = session.cell_points and (session.recording.wants(ACTIVATIONS) or forced)
            self.recorder = CellRecorder(session, session.cell_points) if wanted else None
            if self.recorder is not None:
                self.recorder.begin()
            if session.recording.is_on:
                state.keep(session, self.trainer.optimizer)

    def on_step_end(self, args: Config, progress: Instance, **others: Instance) -> None:
        """Close a step; its row of scalars comes last and completes it."""
        session, current = self.session, self.session.current
        with session.recording.isolate_failures("the numbers of the step"):
            assert current is not None and session.step is not None
            if self.recorder is not None:
                self.recorder.end()
            skipped = getattr(progress, "skipped_steps", 0) > current.skipped
            seconds = time.perf_counter() - current.started
            consumed = getattr(progress, "consumed_samples", 0)  # 2.0 does not count them
            ended = PynativeStep(session, session.step, current, others["loss"], seconds, skipped, consumed, self.recorder)
            record_step(session, ended, functools.partial(optimizer_state, session, self.trainer.optimizer))
        session.step = session.current = None

    def facts(self) -> dict[str, object]:
        """Return the facts of the run for ``run.json``."""
        session, config, network = self.session, self.session.config, self.trainer.model[0]
        parameters = session.parameters
        assert parameters is not None
        return {
            "framework": "MindFormers",
            "trainer": PYNATIVE_TRAINER,
            **stands_on(),
            "model": session.model_config,
            "padded_vocabulary": parameters.dims.padded or None,
            "optimizer": optimizer_facts(self.trainer.optimizer, clip_norm(session), parameters) | {"loss_scale": 1.0},
            "training": {
                "micro_batch_size": get(config, "training.local_batch_size"),
                "global_batch_size": get(config, "training.global_batch_size"),
                "sequence_length": get(config, "model.seq_length"),
                "train_steps": get(config, "training.steps"),
                "per_token_loss": bool(getattr(network.model, "calculate_per_token_loss", False)),
                "compute_type": compute_type(session.model),
                "products": {"format": ""},  # nothing in its training quantises
                "gradients_summed_over_ranks": False,
            },
            "determinism": read_back() | {"config.seed": get(config, "training.seed"), "mode": mindspore.get_context("mode")},
            "layers": layer_facts(typed(network), {id(parameter.model): parameter.fused.pieces for parameter in parameters}),
            "classes": sorted({built_class(part).__name__ for _, part in network.cells_and_names()}),
            "arguments": flat(config.to_dict()),
        }
