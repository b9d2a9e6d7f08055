"""What a run is beside its model: training control, what the processes ran in, and whether a pair keeps to the guide's set-ups.

None of the training control table changes a step. A set-up is stage 1's for finding a fault, or the standard's default test.
"""

from __future__ import annotations

from functools import partial

from align_hooks.checklist.lookup import LAYERS, are_numbers, model
from align_hooks.checklist.mindformers_models import default
from align_hooks.checklist.resolvers import environment, initialisation, layout, precision, schedule, structure
from align_hooks.checklist.resolvers.environment import PAIRS, variable
from align_hooks.checklist.row import CheckRow, Effect, Keeps, Occasion, Recommendation, RowGroup, SideSpec, ToCanonical, Worded
from align_hooks.checklist.tables.optimizer import STYLES
from align_hooks.configuration.values import Setting
from align_hooks.messages import Argument, Message, message, terms

control = partial(CheckRow, group=RowGroup.TRAINING_CONTROL, effect=Effect.NOTHING)


def megatron_only(name: str, otherwise: Setting = None) -> CheckRow:
    """Return the row of a setting of Megatron's that MindFormers has no counterpart of."""
    return control(name, SideSpec((name.replace("-", "_"),), otherwise), SideSpec())


def of_callback(kind: str, key: str) -> ToCanonical:
    """Return a form that finds a setting of a callback in MindFormers' list; Megatron's value stays unchanged."""

    def form(value: Setting) -> Setting:
        if not isinstance(value, list):
            return value
        return next((callback.get(key) for callback in value if isinstance(callback, dict) and callback.get("type") == kind), None)

    return form


CONTROL = (
    control(
        "train-iters",
        SideSpec(("train_iters", "train_samples", "global_batch_size"), read=schedule.megatron_steps),
        SideSpec(("train_dataset.data_loader.sizes", "runner_config.epochs", "lr_schedule.total_steps"), read=schedule.mindformers_steps),
        harmless_if=schedule.ends_earlier,
    ),
    control(
        "train-samples",
        SideSpec(("train_samples", "train_iters"), read=schedule.samples),
        SideSpec(("train_dataset.data_loader.sizes", "runner_config.epochs"), read=schedule.samples),
        harmless_if=schedule.ends_earlier,
    ),
    control(
        "log-interval",
        SideSpec(("log_interval",), 100),
        SideSpec(("callbacks",), None),
        form=of_callback("MFLossMonitor", "per_print_times"),
    ),
    megatron_only("eval-iters", 100),
    megatron_only("eval-interval"),
    control("save", SideSpec(("save",), None), SideSpec(("output_dir",), None), form=None),
    control(
        "save-interval",
        SideSpec(("save_interval",), None),
        SideSpec(("callbacks",), None),
        form=of_callback("CheckpointMonitor", "save_checkpoint_steps"),
    ),
    megatron_only("non-persistent-save-interval"),
    megatron_only("non-persistent-ckpt-type"),
    megatron_only("pretrained-checkpoint"),
    control("ckpt-step", SideSpec(("ckpt_step",), None), SideSpec(("resume_training",), None)),
    control(
        "load",
        SideSpec(("load",), read=initialisation.loads),
        SideSpec((*initialisation.LOADED, *initialisation.OF_MODEL), read=initialisation.loads, beside=("run_mode", "auto_trans_ckpt")),
        advice=Recommendation(message("advice.same_weights"), bool, kept_by=initialisation.weights_loaded),
        by_hand=message("by_hand.same_weights"),
    ),
    control(
        "exit-interval",
        SideSpec(("exit_interval",), None),
        SideSpec(("callbacks", "runner_config.stop_step"), None),
        form=of_callback("TrainCallBack", "stop_step"),
    ),
    megatron_only("exit-duration-in-mins"),
)


machine = partial(CheckRow, group=RowGroup.ENVIRONMENT, effect=Effect.NOTHING)
machine_rounding = partial(machine, effect=Effect.ROUNDING)


def switched(name: str, advice: Message, keeps: Keeps) -> CheckRow:
    """Return the row of a variable that either side may set and that changes only the order of computation."""
    either = SideSpec(read=variable(name))
    return machine_rounding(name, either, either, form=None, advice=Recommendation(advice, keeps))


def megatron_variable(name: str, advice: Argument, *kept: str | None) -> CheckRow:
    """Return the row of a variable on which a GPU's bitwise repeatability depends."""
    keeps = Recommendation(advice, lambda value: value in kept)
    return machine_rounding(name, SideSpec(read=variable(name)), SideSpec(), form=None, advice=keeps)


ENVIRONMENT = (
    machine(
        Worded("framework"),
        SideSpec(read=environment.version("megatron-core")),
        SideSpec(read=environment.version("mindformers")),
        form=None,
        by_hand=message("by_hand.record_versions"),
    ),
    machine(
        Worded("mindspore_beside_mindformers"),
        SideSpec(),
        SideSpec(read=environment.paired),
        by_hand=message(
            "by_hand.versions",
            pairs=terms(message("by_hand.version_pair", mindformers=name, mindspore=released) for name, released in PAIRS.items()),
        ),
        advice=Recommendation(message("advice.released_with"), lambda pair: pair.fits),
    ),
    machine("CANN", SideSpec(), SideSpec(), by_hand=message("by_hand.cann")),
    machine(Worded("difference_from_the_open_source_model"), SideSpec(), SideSpec(), by_hand=message("by_hand.shipped_folder")),
    machine_rounding(
        Worded("deterministic_algorithms"),
        SideSpec(("deterministic_mode",), read=environment.deterministic_megatron),
        SideSpec(("train_precision_sync", "context.deterministic"), read=environment.deterministic_mindformers),
        advice=Recommendation(message("advice.deterministic"), lambda on: on in (True, "ON")),
    ),
    machine("seed", SideSpec(("seed",), 1234), SideSpec(("seed",), 1)),
    machine(
        "MS_ASCEND_CHECK_OVERFLOW_MODE",
        SideSpec(),
        SideSpec(read=variable("MS_ASCEND_CHECK_OVERFLOW_MODE")),
        by_hand=message("by_hand.overflow_mode"),
        advice=Recommendation(message("advice.infnan"), lambda mode: mode in (None, "INFNAN_MODE")),
    ),
    machine_rounding(
        "enable_graph_kernel",
        SideSpec(),
        SideSpec(("context.enable_graph_kernel", "context.graph_kernel_flags"), None),
        advice=Recommendation(message("advice.off"), lambda on: not on),
    ),
    machine_rounding(
        "jit_level",
        SideSpec(),
        SideSpec(("context.jit_config.jit_level", "context.jit_level"), None),
        advice=Recommendation(message("advice.jit_level"), lambda level: level in (None, "O0")),
    ),
    switched("HCCL_DETERMINISTIC", message("advice.true_on_npus"), lambda on: on is None or str(on).lower() in ("true", "strict")),
    switched("ASCEND_LAUNCH_BLOCKING", message("advice.one_on_npus"), lambda on: on is None or str(on) == "1"),
    megatron_variable("NCCL_ALGO", message("advice.ring"), None, "Ring", "^NVLS"),
    megatron_variable("CUBLAS_WORKSPACE_CONFIG", ":4096:8", None, ":4096:8", ":16:8"),
    megatron_variable("NVTE_ALLOW_NONDETERMINISTIC_ALGO", "0", None, "0"),
)


set_up = partial(CheckRow, group=RowGroup.SET_UPS, effect=Effect.NOTHING)
fault, acceptance = partial(Recommendation, setup=Occasion.FINDING_A_FAULT), partial(Recommendation, setup=Occasion.ACCEPTANCE)
"""Values that the guide sets for an occasion; both sides are compared with them, not with each other."""

SETUP = (
    set_up(
        Worded("layers_in_a_small_model"),
        SideSpec(("num_layers", "encoder_num_layers")),
        SideSpec(LAYERS, default("num_layers")),
        advice=fault("2", lambda layers: are_numbers(layers) and layers <= 2),
    ),
    set_up(
        Worded("constant_learning_rate"),
        SideSpec(("lr_decay_style",), "linear"),
        SideSpec(("lr_schedule.type",), "constant"),
        advice=fault("constant", lambda style: style == "constant"),
        form=lambda kind: STYLES.get(str(kind), str(kind).lower()),
    ),
    set_up(
        Worded("no_warm_up"),
        SideSpec(("lr_warmup_iters", "lr_warmup_samples", "lr_warmup_fraction"), read=schedule.warm),
        SideSpec(("lr_schedule.warmup_steps", "lr_schedule.warmup_ratio"), read=schedule.warm),
        advice=fault(message("advice.no_steps"), lambda steps: not steps),
    ),
    set_up(
        "adam_eps",
        SideSpec(("adam_eps",), 1e-8),
        SideSpec(("optimizer.eps",), 1e-8),
        advice=fault("1e-8", lambda eps: are_numbers(eps) and abs(eps - 1e-8) < 1e-14),
    ),
    set_up(
        Worded("no_dropout"),
        SideSpec(("attention_dropout", "hidden_dropout"), read=structure.dropout),
        SideSpec(model("attention_dropout", "hidden_dropout"), read=structure.dropout),
        advice=fault("0", lambda rate: rate == 0),
    ),
    set_up(
        Worded("one_parallel_feature_at_a_time"),
        SideSpec(read=layout.split),
        SideSpec(read=layout.split),
        advice=fault(message("advice.not_split"), lambda ways: not ways.on),
    ),
    set_up(
        "bfloat16",
        SideSpec(read=precision.megatron_compute),
        SideSpec(read=precision.mindformers_compute),
        advice=acceptance("bfloat16", lambda kind: kind == "bfloat16"),
    ),
    set_up(
        Worded("data_parallelism_alone"),
        SideSpec(read=layout.split),
        SideSpec(read=layout.split),
        advice=acceptance(message("advice.data_parallel_only"), lambda ways: not ways.on),
    ),
    set_up(
        Worded("eight_cards_of_one_machine"),
        SideSpec(read=layout.megatron_cards),
        SideSpec(read=layout.mindformers_cards),
        advice=acceptance(message("advice.eight_cards"), lambda ranks: ranks == 8),
    ),
    set_up(
        Worded("a_thousand_steps_and_more"),
        SideSpec(read=schedule.megatron_steps),
        SideSpec(read=schedule.mindformers_steps),
        advice=acceptance(message("advice.a_thousand_steps"), lambda steps: are_numbers(steps) and steps >= 1000),
    ),
    set_up(
        Worded("data_set"),
        SideSpec(("data_path",), None),
        SideSpec(("train_dataset.data_loader.config.data_path", "train_dataset.data_loader.dataset_dir"), None),
        form=None,
        advice=acceptance(message("advice.data_sets"), lambda path: any(name in str(path).lower() for name in ("wiki", "alpaca"))),
    ),
)
