"""``pretrain_gpt.py`` with one misalignment of :mod:`zoo.held_out`, named by the variable PLANTED, put into Megatron before it trains."""

from __future__ import annotations

import os
import runpy
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
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
from planted_megatron import around, built, core_attentions, gradients, inputs, language_loss, output, rotary

ADAM = (torch.optim.Adam, torch.optim.AdamW)

# ---- what a step starts from


def random_state_not_put_back() -> None:
    """The random state stays as recomputation leaves it."""
    random._fork_rng = nullcontext


def recomputed_with_other_masks() -> None:
    """Recomputation draws from where the random state happens to be, and puts that back."""
    put_back = random._set_all_rng_states

    @contextmanager
    def fork() -> Iterator[None]:
        held = random._get_all_rng_states()
        yield
        put_back(*held)

    random._fork_rng, random._set_all_rng_states = fork, lambda *states: None


def running_mean_kept() -> None:
    """Layer 1's first norm takes off a tenth of what it put out on average in the last micro-batch."""

    def change(model: Any) -> None:
        kept: list[Any] = [0.0]

        def less(found: Any) -> Any:
            mean, kept[0] = kept[0], 0.1 * found.detach().mean(dim=(0, 1))
            return found - mean

        output(model.decoder.layers[1].input_layernorm, less)

    built(change)


def keys_cached() -> None:
    """The first four keys of layer 0 are those of the last micro-batch."""
    kept: list[Any] = []

    def cached(core: Any, given: Any) -> Any:
        query, key, *rest = given
        kept.append(key[:4].detach())
        return (query, torch.cat((kept[-2], key[4:])), *rest) if len(kept) > 1 else given

    core_attentions(lambda core: core.register_forward_pre_hook(cached), layer=0)


def rotary_cache_stretched() -> None:
    """Angles are right when they are made, and 2 % too large when they are asked for again."""
    seen: list[int] = []

    def forward(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(1)
        return original(self, *args, **kwargs) * (1.0 if len(seen) == 1 else 1.02)

    around(RotaryEmbedding, "forward", forward)


def dropout_outside_its_state() -> None:
    """The embedding's dropout is drawn from the state that all tensor-parallel ranks share."""

    def forward(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        tracker, tensor_parallel.get_cuda_rng_tracker = tensor_parallel.get_cuda_rng_tracker, lambda: SimpleNamespace(fork=nullcontext)
        try:
            return original(self, *args, **kwargs)
        finally:
            tensor_parallel.get_cuda_rng_tracker = tracker

    around(LanguageModelEmbedding, "forward", forward)


def gradient_left_over() -> None:
    """One gradient starts at half of what it was a step ago."""
    kept: list[Any] = []

    def change(name: str, gradient: Any) -> None:
        if name.endswith("layers.0.mlp.linear_fc2.weight"):
            before = kept[-1] if kept else 0.0
            kept.append(gradient.clone())
            gradient.add_(0.5 * before)

    gradients(change)


# ---- resumption


def loaded(change: Callable[[dict[str, Any], list[Any], Any], None]) -> None:
    """Hand parameters by name, the optimizers of torch and the schedule to ``change`` when a checkpoint has been loaded."""

    def load(original: Any, model: Any, optimizer: Any, schedule: Any, *args: Any, **kwargs: Any) -> Any:
        found = original(model, optimizer, schedule, *args, **kwargs)
        every = {name: one for part in model for name, one in part.named_parameters()}
        change(every, [one.optimizer for one in getattr(optimizer, "chained_optimizers", [optimizer])], schedule)
        return found

    around(training, "load_checkpoint", load)


def main_of(parameter: Any) -> Any:
    """The parameter that the optimizer updates: of bfloat16 its float32 copy."""
    return getattr(parameter, "main_param", parameter)


def states(adams: list[Any]) -> list[Any]:
    """The state of every parameter."""
    return [state for adam in adams for state in adam.state.values()]


def moments_not_restored() -> None:
    """Both moments are zero."""
    loaded(lambda named, adams, schedule: [state[key].zero_() for state in states(adams) for key in ("exp_avg", "exp_avg_sq")])


def first_moment_not_restored() -> None:
    """The first moment is zero."""
    loaded(lambda named, adams, schedule: [state["exp_avg"].zero_() for state in states(adams)])


def update_count_lost() -> None:
    """Adam's count of updates is zero."""
    loaded(lambda named, adams, schedule: [state["step"].zero_() for state in states(adams)])


def moments_exchanged() -> None:
    """The output projections of the two layers have each other's moments."""

    def change(named: dict[str, Any], adams: list[Any], schedule: Any) -> None:
        one, other = (main_of(weight) for name, weight in named.items() if name.endswith("linear_proj.weight"))
        state = next(adam.state for adam in adams if one in adam.state)
        state[one], state[other] = state[other], state[one]

    loaded(change)


def weight_not_restored() -> None:
    """One weight stays as the model was built with it."""

    def load(original: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        weight = next(one for part in model for name, one in part.named_parameters() if name.endswith("layers.1.mlp.linear_fc2.weight"))
        held = weight.detach().clone()
        found = original(model, *args, **kwargs)
        weight.data.copy_(held)
        main_of(weight).data.copy_(held)
        return found

    around(training, "load_checkpoint", load)


def schedule_stepped_twice() -> None:
    """The schedule is one batch of four further."""
    loaded(lambda named, adams, schedule: schedule.step(increment=4))


def schedule_not_restored() -> None:
    """The schedule begins again."""

    def change(named: dict[str, Any], adams: list[Any], schedule: Any) -> None:
        schedule.num_steps = 0
        schedule.step(increment=0)

    loaded(change)


def sampler_anew() -> None:
    """Samples are counted from the first one again."""
    around(training, "build_pretraining_data_loader", lambda original, data, consumed, *args, **kwargs: original(data, 0, *args, **kwargs))


# ---- rows of a micro-batch


def rows_flattened() -> None:
    """What layer 1's attention puts out, ``[s, b, h]``, is flattened and read as ``[b, s, h]``."""
    core_attentions(lambda core: output(core, lambda x: x.reshape(x.shape[1], x.shape[0], -1).transpose(0, 1).contiguous()), layer=1)


def labels_flattened() -> None:
    """Labels are laid out ``[s, b]`` and read as ``[b, s]``."""
    language_loss(lambda original, self, labels, logits: original(self, labels.t().reshape(labels.shape), logits))


def positions_over_rows() -> None:
    """Positions are those of the flattened ``[s, b]``; what is added by the row alone does not matter."""
    rotary(lambda original, tensor, freqs, config, **kw: original(tensor, freqs * tensor.shape[1], config, **kw))


def rows_averaged() -> None:
    """A micro-batch's loss is the mean of its rows' means."""

    def calc(original: Any, model: Any, output: Any, loss_function: Any, *args: Any, **kwargs: Any) -> Any:
        mask = getattr(loss_function, "__wrapped__", loss_function).args[0]

        def averaged(losses: Any, *given: Any, **named: Any) -> Any:
            _, tokens, report = loss_function(losses, *given, **named)
            rows = (losses.float() * mask).sum(1) / mask.sum(1)
            return rows.mean() * tokens, tokens, report

        return original(model, output, averaged, *args, **kwargs)

    around(schedules, "forward_step_calc_loss", calc)


# ---- ranks


def rank() -> int:
    """Of two."""
    return torch.distributed.get_rank()


def updated(change: Callable[[Callable[[], Any]], Any]) -> None:
    """Let ``change`` call the step of torch's optimizer."""
    for kind in ADAM:
        if "step" in vars(kind):
            around(kind, "step", lambda original, self, *args, **kwargs: change(lambda: original(self, *args, **kwargs)))


def weight_of_rank_1_late() -> None:
    """Layer 1's second projection is last step's on data-parallel rank 1."""
    held: list[Any] = []

    def change(model: Any) -> None:
        linear = model.decoder.layers[1].mlp.linear_fc2

        def step(original: Any) -> Any:
            held[:] = [linear.weight.detach().clone()]
            return original()

        def forward(x: Any) -> Any:
            late = (held[0] - linear.weight).detach() if held and rank() == 1 else 0.0
            return functional.linear(x, linear.weight + late), None

        linear.forward = forward
        updated(step)

    built(change)


def shard_off(at: int) -> None:
    """One tensor-parallel rank looks up the next row of its shard."""

    def forward(original: Any, self: Any, ids: Any) -> Any:
        start, size = self.vocab_start_index, self.vocab_end_index - self.vocab_start_index
        mine = (ids >= start) & (ids < start + size)
        return original(self, torch.where(mine, start + (ids - start + 1) % size, ids) if rank() == at else ids)

    around(VocabParallelEmbedding, "forward", forward)


def embedding_shard_off() -> None:
    """Rank 1 looks up the next row."""
    shard_off(1)


def embedding_shard_0_off() -> None:
    """Rank 0 looks up the next row."""
    shard_off(0)


def norm_of_rank_1_doubled() -> None:
    """Rank 1 updates one norm twice as far."""

    def change(model: Any) -> None:
        def step(original: Any) -> Any:
            weight = main_of(model.decoder.layers[1].input_layernorm.weight)
            held = weight.detach().clone()
            found = original()
            if rank() == 1:
                weight.data.add_(weight.data - held)
            return found

        updated(step)

    built(change)


def rows_of_rank_0_twice() -> None:
    """Every data-parallel rank samples as rank 0."""
    around(
        MegatronPretrainingSampler,
        "__init__",
        lambda original, self, *args, **kwargs: original(self, *args, **(kwargs | {"data_parallel_rank": 0})),
    )


def partition_doubled() -> None:
    """The sum over the vocabulary counts twice."""
    around(
        VocabParallelCrossEntropy,
        "calculate_cross_entropy_loss",
        lambda original, exponentials, predicted, total: original(exponentials, predicted, total * 2),
    )


def maximum_not_reduced() -> None:
    """Each tensor-parallel rank takes off the largest of its own logits."""
    around(
        VocabParallelCrossEntropy,
        "calculate_predicted_logits",
        lambda original, logits, target, largest, *args: original(logits, target, logits.max(-1)[0], *args),
    )


def replicas_counted_twice() -> None:
    """No weight is taken for a replica in the global norm."""
    optimizer.tensor_parallel.param_is_not_tensor_parallel_duplicate = lambda *args, **kwargs: True


def final_norm_not_reduced() -> None:
    """The final norm does not say that its gradient is a part of a sum."""
    built(lambda model: setattr(model.decoder.final_layernorm.weight, "sequence_parallel", False))


def data_parallel_summed() -> None:
    """Gradients are summed over data-parallel ranks where Megatron averages."""
    gradients(lambda name, gradient: gradient.mul_(parallel_state.get_data_parallel_world_size()))


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


def mlp_gradient_scaled() -> None:
    """Nine tenths of the gradient reach layer 1's activation."""
    built(lambda model: inputs(model.decoder.layers[1].mlp.linear_fc2, lambda x: (Backward.apply(x, lambda gradient: gradient * 0.9),)))


def heads_detached() -> None:
    """Half of layer 0's heads are not differentiated."""

    def detach(found: Any) -> Any:
        half = found.shape[-1] // 2
        return torch.cat((found[..., :half].detach(), found[..., half:]), dim=-1)

    core_attentions(lambda core: output(core, detach), layer=0)


def residual_gradient_in_bfloat16() -> None:
    """What flows back from layer 1 to layer 0 is rounded."""
    built(
        lambda model: output(model.decoder.layers[0], lambda x: Backward.apply(x, lambda gradient: gradient.bfloat16().to(gradient.dtype)))
    )


class Norm(torch.autograd.Function):
    """RMSNorm with its backward written out, ``whole`` or without the term of the mean."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, eps: float, whole: bool) -> Any:
        ctx.save_for_backward(x, weight)
        ctx.eps, ctx.whole = eps, whole
        return functional.rms_norm(x, weight.shape, weight, eps)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        x, weight = (one.float() for one in ctx.saved_tensors)
        root = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + ctx.eps)
        straight, unit = gradient.float() * weight, x * root
        less = unit * (straight * unit).mean(-1, keepdim=True) if ctx.whole else 0.0
        found = (root * (straight - less)).to(gradient.dtype)
        return found, (gradient.float() * unit).sum((0, 1)).to(gradient.dtype), None, None


def final_norm(whole: bool) -> None:
    """Compute the final norm by :class:`Norm`."""

    def change(model: Any) -> None:
        norm = model.decoder.final_layernorm
        norm.forward = lambda x: Norm.apply(x, norm.weight, norm.eps, whole)

    built(change)


def final_norm_without_mean() -> None:
    """The final norm is differentiated as if its root were constant."""
    final_norm(whole=False)


def final_norm_by_hand() -> None:
    """The final norm is differentiated rightly, in another order."""
    final_norm(whole=True)


def values_detached() -> None:
    """Nothing flows back through layer 1's values."""
    core_attentions(lambda core: core.register_forward_pre_hook(lambda core, given: (*given[:2], given[2].detach(), *given[3:])), layer=1)


class Softmax(torch.autograd.Function):
    """Probabilities that are there already, differentiated by their scores as if each stood alone."""

    @staticmethod
    def forward(ctx: Any, scores: Any, found: Any) -> Any:
        ctx.save_for_backward(found)
        return found.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return ctx.saved_tensors[0] * gradient, None


def softmax_without_sum() -> None:
    """Layer 1's softmax is differentiated elementwise."""

    def change(core: Any) -> None:
        softmax = core.scale_mask_softmax
        right = softmax.forward

        def forward(scores: Any, *args: Any, **kwargs: Any) -> Any:
            with torch.no_grad():
                found = right(scores.clone(), *args, **kwargs)
            return Softmax.apply(scores, found)

        softmax.forward = forward

    core_attentions(change, layer=1)


class Lookup(torch.autograd.Function):
    """Rows by id, whose gradient keeps the last of what belongs to a row."""

    @staticmethod
    def forward(ctx: Any, weight: Any, ids: Any) -> Any:
        ctx.save_for_backward(ids)
        ctx.shape = weight.shape
        return weight[ids]

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        found = gradient.new_zeros(ctx.shape)
        found[ctx.saved_tensors[0].reshape(-1)] = gradient.reshape(-1, ctx.shape[1])
        return found, None


def embedding_gradient_once() -> None:
    """Of all occurrences of a token in a micro-batch one is differentiated."""

    def change(model: Any) -> None:
        words = model.embedding.word_embeddings
        words.forward = lambda ids: Lookup.apply(words.weight, ids)

    built(change)


# ---- as users met them


def only_last_micro_batch() -> None:
    """What earlier micro-batches left in the gradients is cleared."""

    def change(model: Any) -> None:
        def backward(original: Any, *args: Any, **kwargs: Any) -> Any:
            for one in model.parameters():
                one.main_grad.zero_()
            return original(*args, **kwargs)

        around(schedules, "backward_step", backward)

    built(change)


def divided_again() -> None:
    """Gradients are divided by the number of micro-batches, two, once too often."""
    gradients(lambda name, gradient: gradient.div_(2))


def updates_smaller() -> None:
    """Every update is two thirds of what it should be."""

    def change(model: Any) -> None:
        def step(original: Any) -> Any:
            every = [main_of(one) for one in model.parameters()]
            held = [one.detach().clone() for one in every]
            found = original()
            for one, before in zip(every, held, strict=True):
                one.data.lerp_(before, 1 / 3)
            return found

        updated(step)

    built(change)


def schedule_lags() -> None:
    """The schedule's first step is lost."""
    seen: list[int] = []

    def step(original: Any, self: Any, increment: int) -> Any:
        seen.append(increment)
        return original(self, 0 if len([one for one in seen if one]) == 1 else increment)

    around(OptimizerParamScheduler, "step", step)


def rope_not_assigned() -> None:
    """Queries and keys are used as they were before they were turned."""
    rotary(lambda original, tensor, freqs, config, **kw: tensor)


if __name__ == "__main__":
    globals()[os.environ["PLANTED"]]()
    runpy.run_path(str(Path(__file__).parents[2] / "launch" / "pretrain_gpt.py"), run_name="__main__")
