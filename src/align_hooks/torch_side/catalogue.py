"""Every hook on Megatron-LM, read top to bottom in the order of a run. Imports no framework."""

import functools
from typing import Any

from align_hooks.hooking.hook import Hook, hook_at
from align_hooks.quantities.activations import ACTIVATIONS
from align_hooks.quantities.batches import BATCHES
from align_hooks.quantities.local_norms import LOCAL_NORMS
from align_hooks.quantities.registry import KINDS
from align_hooks.quantities.routing import ROUTING
from align_hooks.settings import Settings

CORE = ">=0.12,<=0.20.0"
LEGACY = ">=0.12,<0.17"  # megatron.legacy.fused_kernels was removed in 0.17
TORCH = ">=2.4,<2.14"
_INSTALL = "align_hooks.torch_side.rehearsal:install"


def _rehearsing(settings: Settings) -> bool:
    return settings.device == "cpu"


def _recorded(settings: Settings) -> bool:
    return settings.run is not None


def _recording(settings: Settings) -> bool:
    return _recorded(settings) or bool(settings.steps(LOCAL_NORMS))


def _training(settings: Settings) -> bool:
    """Return whether hooks see or change the training loop, or load weights into its model."""
    return _stepping(settings) or settings.load_weights is not None


def _stepping(settings: Settings) -> bool:
    replayed = (settings.replay_batches, settings.inject_gradients, settings.replay_routing, settings.teacher)
    return _recording(settings) or any(source is not None for source in replayed)


def _gradients(settings: Settings) -> bool:
    return any(settings.steps(kind) for kind in KINDS if kind.of_gradients) or settings.inject_gradients is not None


FSDP_2 = "megatron.core.distributed.fsdp.src.megatron_fsdp.experimental"
REHEARSAL = {
    "helpers": (CORE, "megatron.core.datasets.utils", "uses the compiled data set helper of a wheel"),
    "norms": (CORE, "megatron.core.transformer.torch_norm", "lets torch's norms take a part of the sequence"),
    "attention": (
        CORE,
        "megatron.core.transformer.dot_product_attention",
        "lets the queries of one context-parallel rank see the keys of all",
    ),
    "engine": (CORE, "megatron.core.extensions.transformer_engine", "builds a HybridModel without Transformer Engine"),
    "query_norms": (CORE, "megatron.core.transformer.attention", "gives a HybridModel's queries and keys their norms"),
    "latent_norms": (CORE, "megatron.core.transformer.mla_qk_norm_config", "the same for latent attention"),
    "latent": (CORE, "megatron.core.transformer.multi_latent_attention", "builds the projections of a HybridModel's latent attention"),
    "router": (CORE, "megatron.core.transformer.moe.moe_utils", "lets experts of 0.13 to 0.16 choose without Transformer Engine"),
    "fully_sharded": (CORE, "megatron.core.distributed.torch_fully_sharded_data_parallel", "shards over ranks of CPUs"),
    "fully_sharded_2": (CORE, f"{FSDP_2}.fully_shard", "the same of Megatron-FSDP 2"),
    "experts": (CORE, "megatron.core.transformer.mlp", "lets experts have biases"),
    "layer_wise": (CORE, "megatron.core.optimizer.layer_wise_optimizer", "hands weights round without NCCL"),
    "warm_up": (CORE, "megatron.training.initialize", "starts from the same weights however the model is cut"),
    "fused_kernels": (LEGACY, "megatron.legacy.fused_kernels", "starts 0.12 to 0.16 without a CUDA compiler"),
}
"""Hooks of a rehearsal on modules that a sound run may never import: versions, trigger, and why."""
FORWARD = {
    "forward": "gpt.gpt_model:GPTModel",
    "forward_of_hybrid": "hybrid.hybrid_model:HybridModel",
    "forward_of_mamba": "mamba.mamba_model:MambaModel",  # in 0.17; later derived from HybridModel
}
"""Hooks of the models that can be recorded, of which a run has one."""
SCHEDULES = ("no_pipelining", "pipelining_without_interleaving", "pipelining_with_interleaving")
OWN_LOOP = {
    "scheduler": ("optimizer_param_scheduler:OptimizerParamScheduler.__init__", "knows the schedule of a loop that is not Megatron-LM's"),
    "zero_grad_buffer": (
        "distributed.distributed_data_parallel:DistributedDataParallel.zero_grad_buffer",
        "ends a step of such a loop that makes no update",
    ),
    "forward_backward": (
        f"pipeline_parallel.schedules:{','.join(map('forward_backward_{}'.format, SCHEDULES))}",
        "begins such a loop's steps",
    ),
}
"""Hooks of a loop that calls megatron.core itself: point and why."""
SAVING: dict[str, Any] = {
    "asked": _recorded,
    "handler": "checkpoint:wrap",
    "why": "writes the steps of a checkpoint before the checkpoint, so that a job that resumes from it lacks none",
}
"""What hooks on the saving of a checkpoint share."""
_hook = functools.partial(hook_at, handlers="align_hooks.torch_side.hooks")
_megatron = functools.partial(_hook, package="megatron-core", supports=CORE)
_in_step = functools.partial(_megatron, in_step=True)
_perhaps = functools.partial(_in_step, must_fire=False)
_bridge = functools.partial(_hook, package="megatron-bridge", supports="", must_fire=False)
_mindspeed = _hook(
    "mindspeed",
    "mindspeed.patch_utils",
    asked=Settings.any_set,
    package="mindspeed",
    supports="",
    handler="mindspeed:install",
    why="lets MindSpeed patch Megatron as if we were not there",
    must_fire=False,
)
HOOKS: tuple[Hook, ...] = (
    Hook("rehearsal", _rehearsing, "torch", TORCH, trigger="torch", handler=_INSTALL, why="answers for CUDA from the CPU"),
    *(
        Hook(f"rehearsal_{name}", _rehearsing, "megatron-core", versions, trigger, f"{_INSTALL}_{name}", why, must_fire=False)
        for name, (versions, trigger, why) in REHEARSAL.items()
    ),
    _mindspeed,
    _megatron(
        "arguments",
        "megatron.training.arguments:parse_args",
        asked=Settings.any_set,
        why="sets seed, determinism, learning rate and replay before anything is derived from the arguments",
    ),
    _megatron(
        "model",
        "megatron.training.training:setup_model_and_optimizer",
        asked=_training,
        why="loads weights, describes the run, records the initial state",
    ),
    _megatron(
        "data",
        "megatron.training.training:build_train_valid_test_data_iterators",
        asked=lambda settings: settings.replay_batches is not None,
        why="feeds recorded batches",
    ),
    _in_step("train_step", "megatron.training.training:train_step", asked=_stepping, why="knows the step, its losses and when it is over"),
    _in_step(
        "rerun",
        "megatron.core.rerun_state_machine:RerunStateMachine.should_run_forward_backward",
        asked=_recording,
        handler="train_step:rerun",
        why="lets a repeated forward-backward replace the first",
    ),
    *(
        _in_step(
            name,
            f"megatron.core.models.{point}.forward",
            asked=_stepping,
            handler="forward:wrap",
            why="sees the batch that the model consumes, and what else it is given",
            variant=point,
            must_fire=name == "forward",
        )
        for name, point in FORWARD.items()
    ),
    _perhaps(
        "routing",
        "megatron.core.transformer.moe.router:TopKRouter.routing",
        asked=lambda settings: any(settings.steps(kind) for kind in (BATCHES, ROUTING, ACTIVATIONS)),
        why="sees what a router makes of its input, and to which experts each token is given",
    ),
    _perhaps(
        "auxiliary",
        "megatron.core.transformer.moe.moe_utils:MoEAuxLossAutoScaler.forward",
        asked=_recorded,
        handler="terms:auxiliary",
        why="sees what balances experts join the loss",
    ),
    _perhaps(
        "z_loss",
        "megatron.core.transformer.moe.router:TopKRouter.apply_z_loss",
        asked=_recorded,
        handler="terms:z_loss",
        why="tells what holds a router's logits small from what balances experts",
    ),
    _perhaps(
        "prediction",
        "megatron.core.transformer.multi_token_prediction:MTPLossAutoScaler.forward",
        asked=_recorded,
        handler="terms:prediction",
        why="sees what predicts further tokens join the loss",
    ),
    _in_step(
        "gradients",
        "megatron.core.optimizer.optimizer:MixedPrecisionOptimizer.prepare_grads,FP32Optimizer.prepare_grads",
        asked=_gradients,
        why="reads and injects gradients: reduced, unscaled, not yet clipped",
    ),
    _perhaps(
        "objective",
        "megatron.core.pipeline_parallel.schedules:forward_step",
        asked=_recorded,
        handler="train_step:objective",
        why="sees what is differentiated",
    ),
    _perhaps(
        "norm",
        "megatron.core.optimizer.clip_grads:get_grad_norm_fp32",
        asked=lambda settings: _recorded(settings) and bool(settings.steps(LOCAL_NORMS)),
        why="sees of which gradients the global norm is taken",
    ),
    _perhaps("checkpoint", "megatron.training.checkpointing:save_checkpoint", **SAVING),
    _bridge("bridge_checkpoint", "megatron.bridge.training.checkpointing:save_checkpoint", in_step=True, **SAVING),
    _megatron(
        "optimizer",
        "megatron.core.optimizer:get_megatron_optimizer",
        asked=Settings.any_set,
        handler="own_loop:optimizer",
        why="knows what a loop that is not Megatron-LM's trains",
        must_fire=False,
    ),
    *(
        _perhaps(name, f"megatron.core.{point}", asked=_training, handler=f"own_loop:{name}", why=why)
        for name, (point, why) in OWN_LOOP.items()
    ),
    _bridge(
        "bridge_config",
        "megatron.bridge.training.config:runtime_config_update",
        asked=Settings.any_set,
        handler="bridge:config",
        why="sets seed, determinism, learning rate and replay before anything is derived from Megatron-Bridge's configuration",
    ),
    _bridge(
        "bridge_setup",
        "megatron.bridge.training.setup:setup",
        asked=_training,
        handler="bridge:setup",
        why="loads weights, describes the run, records the initial state",
    ),
    _in_step(
        "update",
        "megatron.core.optimizer.optimizer:MixedPrecisionOptimizer.step,FP32Optimizer.step,ChainedOptimizer.step",
        asked=_stepping,
        why="reads learning rate, loss scale and gradient norm of the update, with which the step of a loop of one's own ends",
    ),
)
_witness = functools.partial(_megatron, asked=Settings.any_set)
WITNESS: tuple[Hook, ...] = (
    _mindspeed,
    _witness("event_files", "megatron.training.arguments:parse_args", handler="witness:arguments", why="lets nothing write event files"),
    _witness("saving", "megatron.training.checkpointing:save_checkpoint", handler="witness:checkpoint", why="saves nothing"),
    _witness("evaluating", "megatron.training.training:evaluate_and_print_results", handler="witness:evaluation", why="evaluates nothing"),
    _witness(
        "step", "megatron.training.training:train_step", handler="witness:step", why="limits the steps, and keeps what must not change"
    ),
)
"""Hooks of the witness below ``prove``, attached whatever is set."""
