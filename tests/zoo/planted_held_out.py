"""``pretrain_gpt.py`` with one misalignment of :mod:`zoo.held_out`, named by the variable PLANTED, put into Megatron before it trains."""

import os
import runpy
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as functional
from megatron.core import parallel_state, tensor_parallel
from megatron.core.models.common.embeddings.language_model_embedding import LanguageModelEmbedding
from megatron.core.models.common.embeddings.rotary_pos_embedding import RotaryEmbedding
from megatron.core.optimizer import optimizer
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
from megatron.core.pipeline_parallel import schedules
from megatron.core.tensor_parallel import random
from megatron.core.tensor_parallel.cross_entropy import VocabParallelCrossEntropy
from megatron.core.tensor_parallel.layers import VocabParallelEmbedding
from megatron.training import training
from megatron.training.datasets.data_samplers import MegatronPretrainingSampler
from planted_megatron import (
    PLANTS,
    Change,
    around,
    built,
    core_attentions,
    gradients,
    inputs,
    language_loss,
    output,
    plant,
    plants,
    rotary,
    stepped,
)

# ---- seams


def at_once(change: Change) -> None:
    """Change Megatron before anything is built."""
    change()


def loaded(change: Change) -> None:
    """Hand parameters by name, the optimizers of torch and the schedule to ``change`` when a checkpoint has been loaded."""

    def load(original: Any, model: Any, optimizer: Any, schedule: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(model, optimizer, schedule, *args, **kwargs)
        parameters = {name: parameter for part in model for name, parameter in part.named_parameters()}
        change(parameters, [each.optimizer for each in getattr(optimizer, "chained_optimizers", [optimizer])], schedule)
        return result

    around(training, "load_checkpoint", load)


def updated(change: Change) -> None:
    """Let ``change`` call the step of torch's optimizer."""
    stepped(lambda original, self, *args, **kwargs: change(lambda: original(self, *args, **kwargs)))


def main_of(parameter: Any) -> Any:
    """The parameter that the optimizer updates: of bfloat16 its float32 copy."""
    return getattr(parameter, "main_param", parameter)


def states(adams: list[Any]) -> list[Any]:
    """The state of every parameter."""
    return [state for adam in adams for state in adam.state.values()]


def rank() -> int:
    """Of two."""
    return torch.distributed.get_rank()


# ---- changes of one expression

plants(
    loaded,
    changes={
        "moments_not_restored": lambda named, adams, schedule: [
            state[key].zero_() for state in states(adams) for key in ("exp_avg", "exp_avg_sq")
        ],
        "first_moment_not_restored": lambda named, adams, schedule: [state["exp_avg"].zero_() for state in states(adams)],
        "update_count_lost": lambda named, adams, schedule: [state["step"].zero_() for state in states(adams)],
        # one batch of four further
        "schedule_stepped_twice": lambda named, adams, schedule: schedule.step(increment=4),
    },
)
plants(
    rotary,
    changes={
        # positions are those of the flattened [s, b]; what is added by the row alone does not matter
        "positions_over_rows": lambda original, x, freqs, *args, **kw: original(x, freqs * x.shape[1], *args, **kw),
        "rope_not_assigned": lambda original, x, *args, **kw: x,
    },
)
plants(
    gradients,
    changes={
        "data_parallel_summed": lambda name, gradient: gradient.mul_(parallel_state.get_data_parallel_world_size()),
        # two micro-batches
        "divided_again": lambda name, gradient: gradient.div_(2),
    },
)
plants(
    core_attentions,
    1,
    changes={
        "rows_flattened": lambda core: output(core, lambda x: x.reshape(x.shape[1], x.shape[0], -1).transpose(0, 1).contiguous()),
        "values_detached": lambda core: core.register_forward_pre_hook(lambda core, given: (*given[:2], given[2].detach(), *given[3:])),
    },
)


# ---- what a step starts from


@plant(at_once)
def random_state_not_put_back() -> None:
    random._fork_rng = nullcontext


@plant(at_once)
def recomputed_with_other_masks() -> None:
    """Recomputation draws from where the random state happens to be, and puts that back."""
    put_back = random._set_all_rng_states

    @contextmanager
    def fork() -> Iterator[None]:
        before = random._get_all_rng_states()
        yield
        put_back(*before)

    random._fork_rng, random._set_all_rng_states = fork, lambda *states: None


@plant(built)
def running_mean_kept(model: Any) -> None:
    """Layer 1's first norm takes off a tenth of what it put out on average in the last micro-batch."""
    kept: list[Any] = [0.0]

    def less(x: Any) -> Any:
        mean, kept[0] = kept[0], 0.1 * x.detach().mean(dim=(0, 1))
        return x - mean

    output(model.decoder.layers[1].input_layernorm, less)


@plant(core_attentions, 0)
def keys_cached(core: Any) -> None:
    """The first four keys are those of the last micro-batch."""
    kept: list[Any] = []

    def cached(core: Any, given: Any) -> Any:
        query, key, *rest = given
        kept.append(key[:4].detach())
        return (query, torch.cat((kept[-2], key[4:])), *rest) if len(kept) > 1 else given

    core.register_forward_pre_hook(cached)


lookups = count()


@plant(around, RotaryEmbedding, "forward")
def rotary_cache_stretched(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    """Angles are right when they are made, and 2 % too large when they are asked for again."""
    return original(self, *args, **kwargs) * (1.02 if next(lookups) else 1.0)


@plant(around, LanguageModelEmbedding, "forward")
def dropout_outside_its_state(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    """The embedding's dropout is drawn from the state that all tensor-parallel ranks share."""
    tracker, tensor_parallel.get_cuda_rng_tracker = tensor_parallel.get_cuda_rng_tracker, lambda: SimpleNamespace(fork=nullcontext)
    try:
        return original(self, *args, **kwargs)
    finally:
        tensor_parallel.get_cuda_rng_tracker = tracker


last_gradients: list[Any] = [0.0]


@plant(gradients)
def gradient_left_over(name: str, gradient: Any) -> None:
    """One gradient starts at half of what it was a step ago."""
    if name.endswith("layers.0.mlp.linear_fc2.weight"):
        before, last_gradients[0] = last_gradients[0], gradient.clone()
        gradient.add_(0.5 * before)


# ---- resumption


@plant(loaded)
def moments_exchanged(named: dict[str, Any], adams: list[Any], schedule: Any) -> None:
    """The output projections of the two layers have each other's moments."""
    first, second = (main_of(weight) for name, weight in named.items() if name.endswith("linear_proj.weight"))
    state = next(adam.state for adam in adams if first in adam.state)
    state[first], state[second] = state[second], state[first]


@plant(around, training, "load_checkpoint")
def weight_not_restored(original: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
    """One weight stays as the model was built with it."""
    parameters = {name: parameter for part in model for name, parameter in part.named_parameters()}
    weight = next(parameter for name, parameter in parameters.items() if name.endswith("layers.1.mlp.linear_fc2.weight"))
    initial = weight.detach().clone()
    result = original(model, *args, **kwargs)
    weight.data.copy_(initial)
    main_of(weight).data.copy_(initial)
    return result


@plant(loaded)
def schedule_not_restored(named: dict[str, Any], adams: list[Any], schedule: Any) -> None:
    schedule.num_steps = 0
    schedule.step(increment=0)


@plant(around, training, "build_pretraining_data_loader")
def sampler_anew(original: Any, data: Any, consumed: int, *args: Any, **kwargs: Any) -> Any:
    """Samples are counted from the first one again."""
    return original(data, 0, *args, **kwargs)


# ---- rows of a micro-batch


@plant(language_loss)
def labels_flattened(original: Any, self: Any, labels: Any, logits: Any) -> Any:
    return original(self, labels.t().reshape(labels.shape), logits)


@plant(around, schedules, "forward_step_calc_loss")
def rows_averaged(original: Any, model: Any, output: Any, loss_function: Any, *args: Any, **kwargs: Any) -> Any:
    """A micro-batch's loss is the mean of its rows' means."""
    mask = getattr(loss_function, "__wrapped__", loss_function).args[0]

    def averaged(losses: Any, *given: Any, **named: Any) -> Any:
        _, tokens, report = loss_function(losses, *given, **named)
        rows = (losses.float() * mask).sum(1) / mask.sum(1)
        return rows.mean() * tokens, tokens, report

    return original(model, output, averaged, *args, **kwargs)


# ---- ranks


@plant(built)
def weight_of_rank_1_late(model: Any) -> None:
    """Layer 1's second projection is last step's on data-parallel rank 1."""
    kept: list[Any] = []
    linear = model.decoder.layers[1].mlp.linear_fc2

    def step(original: Any) -> Any:
        kept[:] = [linear.weight.detach().clone()]
        return original()

    def forward(x: Any) -> Any:
        late = (kept[0] - linear.weight).detach() if kept and rank() == 1 else 0.0
        return functional.linear(x, linear.weight + late), None

    linear.forward = forward
    updated(step)


def shard_off(at: int) -> Change:
    """One tensor-parallel rank looks up the next row of its shard."""

    def forward(original: Any, self: Any, ids: Any) -> Any:
        start, size = self.vocab_start_index, self.vocab_end_index - self.vocab_start_index
        mine = (ids >= start) & (ids < start + size)
        return original(self, torch.where(mine, start + (ids - start + 1) % size, ids) if rank() == at else ids)

    return forward


plants(around, VocabParallelEmbedding, "forward", changes={"embedding_shard_0_off": shard_off(0), "embedding_shard_off": shard_off(1)})


@plant(built)
def norm_of_rank_1_doubled(model: Any) -> None:
    """Rank 1 updates one norm twice as far."""

    def step(original: Any) -> Any:
        weight = main_of(model.decoder.layers[1].input_layernorm.weight)
        before = weight.detach().clone()
        result = original()
        if rank() == 1:
            weight.data.add_(weight.data - before)
        return result

    updated(step)


@plant(around, MegatronPretrainingSampler, "__init__")
def rows_of_rank_0_twice(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    """Every data-parallel rank samples as rank 0."""
    original(self, *args, **(kwargs | {"data_parallel_rank": 0}))


@plant(around, VocabParallelCrossEntropy, "calculate_cross_entropy_loss")
def partition_doubled(original: Any, exponentials: Any, predicted: Any, total: Any) -> Any:
    """The sum over the vocabulary counts twice."""
    return original(exponentials, predicted, total * 2)


@plant(around, VocabParallelCrossEntropy, "calculate_predicted_logits")
def maximum_not_reduced(original: Any, logits: Any, target: Any, largest: Any, *args: Any) -> Any:
    return original(logits, target, logits.max(-1)[0], *args)


@plant(at_once)
def replicas_counted_twice() -> None:
    """No weight is taken for a replica in the global norm."""
    optimizer.tensor_parallel.param_is_not_tensor_parallel_duplicate = lambda *args, **kwargs: True


@plant(built)
def final_norm_not_reduced(model: Any) -> None:
    """The final norm does not say that its gradient is a part of a sum."""
    model.decoder.final_layernorm.weight.sequence_parallel = False


# ---- the backward pass alone


class Backward(torch.autograd.Function):
    """The identity, whose gradient is ``change`` of the right one."""

    @staticmethod
    def forward(ctx: Any, x: Any, change: Any) -> Any:
        ctx.change = change
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return ctx.change(gradient), None


@plant(built)
def mlp_gradient_scaled(model: Any) -> None:
    """Nine tenths of the gradient reach layer 1's activation."""
    inputs(model.decoder.layers[1].mlp.linear_fc2, lambda x: (Backward.apply(x, lambda gradient: gradient * 0.9),))


@plant(core_attentions, 0)
def heads_detached(core: Any) -> None:
    def detach(context: Any) -> Any:
        half = context.shape[-1] // 2
        return torch.cat((context[..., :half].detach(), context[..., half:]), dim=-1)

    output(core, detach)


@plant(built)
def residual_gradient_in_bfloat16(model: Any) -> None:
    """What flows back from layer 1 to layer 0 is rounded."""
    output(model.decoder.layers[0], lambda x: Backward.apply(x, lambda gradient: gradient.bfloat16().to(gradient.dtype)))


class Norm(torch.autograd.Function):
    """RMSNorm with its backward written out, ``whole`` or without the term of the mean."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, eps: float, whole: bool) -> Any:
        ctx.save_for_backward(x, weight)
        ctx.eps, ctx.whole = eps, whole
        return functional.rms_norm(x, weight.shape, weight, eps)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        x, weight = (tensor.float() for tensor in ctx.saved_tensors)
        root = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + ctx.eps)
        straight, unit = gradient.float() * weight, x * root
        less = unit * (straight * unit).mean(-1, keepdim=True) if ctx.whole else 0.0
        return (root * (straight - less)).to(gradient.dtype), (gradient.float() * unit).sum((0, 1)).to(gradient.dtype), None, None


def final_norm(model: Any, whole: bool) -> None:
    """Compute the final norm by :class:`Norm`."""
    norm = model.decoder.final_layernorm
    norm.forward = lambda x: Norm.apply(x, norm.weight, norm.eps, whole)


@plant(built)
def final_norm_without_mean(model: Any) -> None:
    """The final norm is differentiated as if its root were constant."""
    final_norm(model, whole=False)


@plant(built)
def final_norm_by_hand(model: Any) -> None:
    """The final norm is differentiated rightly, in another order."""
    final_norm(model, whole=True)


class Softmax(torch.autograd.Function):
    """Probabilities that are there already, differentiated by their scores as if each stood alone."""

    @staticmethod
    def forward(ctx: Any, scores: Any, probabilities: Any) -> Any:
        ctx.save_for_backward(probabilities)
        return probabilities.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return ctx.saved_tensors[0] * gradient, None


@plant(core_attentions, 1)
def softmax_without_sum(core: Any) -> None:
    softmax = core.scale_mask_softmax
    right = softmax.forward

    def forward(scores: Any, *args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            probabilities = right(scores.clone(), *args, **kwargs)
        return Softmax.apply(scores, probabilities)

    softmax.forward = forward


class Lookup(torch.autograd.Function):
    """Rows by id, whose gradient keeps the last of what belongs to a row."""

    @staticmethod
    def forward(ctx: Any, weight: Any, ids: Any) -> Any:
        ctx.save_for_backward(ids)
        ctx.shape = weight.shape
        return weight[ids]

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        rows = gradient.new_zeros(ctx.shape)
        rows[ctx.saved_tensors[0].reshape(-1)] = gradient.reshape(-1, ctx.shape[1])
        return rows, None


@plant(built)
def embedding_gradient_once(model: Any) -> None:
    """Of all occurrences of a token in a micro-batch one is differentiated."""
    words = model.embedding.word_embeddings
    words.forward = lambda ids: Lookup.apply(words.weight, ids)


# ---- as users met them


@plant(built)
def only_last_micro_batch(model: Any) -> None:
    """What earlier micro-batches left in the gradients is cleared."""

    def backward(original: Any, *args: Any, **kwargs: Any) -> Any:
        for parameter in model.parameters():
            parameter.main_grad.zero_()
        return original(*args, **kwargs)

    around(schedules, "backward_step", backward)


@plant(built)
def updates_smaller(model: Any) -> None:
    def step(original: Any) -> Any:
        parameters = [main_of(parameter) for parameter in model.parameters()]
        before = [parameter.detach().clone() for parameter in parameters]
        result = original()
        for parameter, start in zip(parameters, before, strict=True):
            parameter.data.lerp_(start, 1 / 3)
        return result

    updated(step)


increments = count()


@plant(around, OptimizerParamScheduler, "step")
def schedule_lags(original: Any, self: Any, increment: int) -> Any:
    """The schedule's first step is lost."""
    return original(self, 0 if increment and next(increments) == 0 else increment)


if __name__ == "__main__":
    PLANTS[os.environ["PLANTED"]]()
    runpy.run_path(str(Path(__file__).parents[2] / "launch" / "pretrain_gpt.py"), run_name="__main__")
