"""YAML files that MindFormers' wheels ship, and launch scripts that an engineer wrote for them with a few mistakes in each."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from align_hooks.checklist.result import CLEAN, DIFFERS, UNDECIDED


def rows(names: str) -> frozenset[str]:
    """Ids of rows."""
    return frozenset(names.split())


@dataclass(frozen=True)
class Pair:
    """A script and a YAML.

    ``mistakes`` are pieces of the script and what a careful engineer would have written; ``planted`` are the rows that they make differ.
    ``inherent`` rows differ whatever the script says. ``untold`` are rows of which a file says nothing, ``free`` those that may be so.
    ``courses`` are learning rate and weight decay of every step, of the script as it stands and without its mistakes.
    """

    script: str
    yaml: str
    mistakes: Mapping[str, str]
    planted: frozenset[str]
    courses: tuple[bool | None, bool | None] = (True, True)
    right_courses: tuple[bool | None, bool | None] = (True, True)
    inherent: frozenset[str] = frozenset()
    untold: frozenset[str] = frozenset()
    free: frozenset[str] = frozenset()
    older: bool = False
    right_exit: int = CLEAN


COUNTED = rows("choices_that_this_loss_counts")
"""A load-balancing loss beside a bias of the experts or groups: Megatron-LM counts what the scores alone would choose, MindFormers what was
chosen."""
OLD_LLAMA = rows("optimizer type_of_the_main_weights shuffle pad_token_id")
"""FP32StateAdamWeightDecay is the operator AdamWeightDecay, which corrects no bias: its first step is 3.16 times as long as Adam's with the
default betas, and Megatron-LM cannot be told to do the same. These files hold the weights in float16, and update them in it. Their data
is shuffled, which Megatron's is not but by its own data set."""
HIDES = rows("pad_token_id")
"""Tokens of this id are hidden from the attention, and where no loss mask is fed from the loss: 151643 of Qwen3 is its end of a document,
0 of Llama 2 its unknown token."""
OF_DATA = rows("lr_decay_iters")
"""MindDataset names no seed, and total_steps: -1 leaves the length to it."""

older_llama = partial(
    Pair, courses=(None, True), right_courses=(None, True), inherent=OLD_LLAMA, untold=OF_DATA, older=True, right_exit=DIFFERS
)

REAL: dict[str, Pair] = {
    "qwen3 32b": Pair(
        "qwen3_32b.sh",
        "qwen3/pretrain_qwen3_32b_4k.yaml",
        {
            "--rotary-base 10000\n": "--rotary-base 1000000\n",
            "--num-query-groups 8\n": "--num-query-groups 8 --kv-channels 128\n",
            "--attention-dropout 0.0\n": "--attention-dropout 0.0 --hidden-dropout 0.0\n",
            "--lr-warmup-iters 40\n": "--lr-warmup-iters 0\n",
        },
        rows("rotary_base head_dim hidden_dropout lr_warmup_iters"),
        courses=(False, True),
        inherent=HIDES,
        right_exit=DIFFERS,
    ),
    "telechat3 36b": Pair(
        "telechat3_36b.sh",
        "telechat3/pretrain_telechat3_36b.yaml",
        {
            "--adam-beta2 0.999": "--adam-beta2 0.95",
            "--disable-bias-linear \\": "--disable-bias-linear --untie-embeddings-and-output-weights \\",
            "--lr-decay-style cosine": "--lr-decay-style constant",
            "    --reset-attention-mask \\\n": "",
        },
        rows("beta2 tied_embeddings lr_decay_style reset_attention_mask"),
        courses=(False, True),
        inherent=HIDES,
        untold=rows("vocab_size rows_of_the_embedding"),  # the tokenizer's, which is not here
        right_exit=DIFFERS,
    ),
    # global_aux_loss of Megatron-LM and gbs_aux_loss of MindFormers are one: the share of every expert over the batch up to now, times the
    # mean score of this micro-batch, times experts and coefficient
    "qwen3 30b a3b": Pair(
        "qwen3_30b_a3b.sh",
        "qwen3_moe/pretrain_qwen3_30b_a3b_4k.yaml",
        {
            "--moe-ffn-hidden-size 1536": "--moe-ffn-hidden-size 768",
            "--moe-router-score-function softmax": "--moe-router-score-function softmax --moe-router-pre-softmax",
            "--moe-aux-loss-coeff 0.01": "--moe-aux-loss-coeff 0.001",
            "--moe-router-topk 8": "--moe-router-topk 8 --moe-router-topk-scaling-factor 1.5",
        },
        rows("size_of_an_expert weights_of_the_chosen_add_up_to_one aux_loss_factor routed_scaling_factor"),
        inherent=HIDES,
        right_exit=DIFFERS,
    ),
    # the file does not ask for YaRN, which MindFormers 1.9 does not take from the family: positions are plain, whatever the paper says
    "deepseek3 671b": Pair(
        "deepseek3_671b.sh",
        "deepseek3/pretrain_deepseek3_671b.yaml",
        {
            "--rope-type yarn\n": "--rope-type rope\n",
            "([0]*1+[1]*60)": "([0]*3+[1]*58)",
            "--moe-router-bias-update-rate 1e-3": "--moe-router-bias-update-rate 1e-4",
            "--moe-router-score-function sigmoid": "--moe-router-score-function sigmoid --moe-router-topk-scaling-factor 2.5",
        },
        rows(
            """rope_scaling rotary_scaling_factor mscale mscale_all_dim layers_with_experts update_rate_of_that_bias
            routed_scaling_factor"""
        ),
        inherent=COUNTED | rows("stretch_of_latent_attentions_scores"),
        right_exit=DIFFERS,
    ),
    # YaRN of MindFormers starts from max_position_embeddings, which is 163840 here; Megatron's latent attention from
    # original_max_position_embeddings, which is 4096 and has no argument: the frequencies differ
    "deepseek3 12b": Pair(
        "deepseek3_12b.args",
        "deepseek3/pretrain_deepseek3_12b_16p_pp16.yaml",
        {"--v-head-dim 128": "--v-head-dim 192", "--moe-router-topk 4": "--moe-router-topk 8", "--clip-grad 0.5": "--clip-grad 1.0"},
        rows("v_head_dim num_experts_chosen clip_grad"),
        inherent=COUNTED | HIDES | rows("original_max_position_embeddings"),
        right_exit=DIFFERS,
    ),
    # the group of the embedding and the output has the rates of the default, so there are no rates of its own
    "telechat3 105b": Pair(
        "telechat3_105b.sh",
        "telechat3_moe/pretrain_telechat3_105b_a4b_4k.yaml",
        {
            "--norm-epsilon 1e-6": "--norm-epsilon 1e-5",
            "--moe-shared-expert-intermediate-size 3072": "--moe-shared-expert-intermediate-size 1536",
            "--mtp-num-layers 1\n": "--mtp-num-layers 1 --mtp-loss-scaling-factor 0.2\n",
        },
        rows("rms_norm_eps size_of_the_shared_experts mtp_loss_scaling_factor"),
        inherent=COUNTED,
        right_exit=DIFFERS,
    ),
    "llama2 7b": older_llama(
        "llama2_7b.sh",
        "llama2/pretrain_llama2_7b.yaml",
        {
            "--norm-epsilon 1e-6": "--norm-epsilon 1e-5",
            "--bf16": "--fp16",
            "--lr 1e-5": "--lr 5e-5",
            "--adam-beta2 0.999": "--adam-beta2 0.95",
        },
        rows("rms_norm_eps compute_dtype lr beta2"),
    ),
    "llama2 13b": older_llama(
        "llama2_13b.sh",
        "llama2/pretrain_llama2_13b_bf16.yaml",
        {
            "    --swiglu \\\n": "    --swiglu --ffn-hidden-size 13824 \\\n",
            "    --disable-bias-linear \\\n": "    --disable-bias-linear --untie-embeddings-and-output-weights \\\n",
            "    --adam-beta2 0.95 \\\n": "    --adam-beta2 0.95 --weight-decay 0 \\\n",
        },
        rows("intermediate_size tied_embeddings weight_decay"),
        courses=(None, False),
        inherent=OLD_LLAMA | rows("type_of_the_embedding"),  # embedding_init_type: bfloat16
    ),
    "llama2 70b": older_llama(
        "llama2_70b.sh",
        "llama2/finetune_llama2_70b.yaml",
        {
            "--num-query-groups 8": "--group-query-attention --num-query-groups 8",
            "--adam-beta2 0.95": "--adam-beta2 0.99",
            "--weight-decay 0.1": "--weight-decay 0.0",
        },
        rows("n_kv_heads beta2 weight_decay"),
        courses=(None, False),
        inherent=OLD_LLAMA,
    ),
    # cosine from 1e-6 to 1e-6 without warm-up is 1e-6 however long it runs; half of a head is turned, as --rotary-percent 0.5 says
    "glm4 9b": Pair(
        "glm4_9b.sh",
        "glm4/finetune_glm4_9b.yaml",
        {
            "--norm-epsilon 1e-5": "--norm-epsilon 1.5625e-07",
            "--hidden-dropout 0.1": "--hidden-dropout 0.0",
            "--global-batch-size 64": "--global-batch-size 128",
        },
        rows("rms_norm_eps hidden_dropout global_batch_size"),
        free=OF_DATA
        | rows("""normalization activation_function gated_linear_unit norm_of_queries_and_keys tied_embeddings
            position_embedding_type rotary_base rotary_percent rotary_interleaved init_method_std"""),
        right_exit=UNDECIDED,
    ),
    "mixtral 8x7b": Pair(
        "mixtral_8x7b.sh",
        "mixtral_8x7b.yaml",
        {"--moe-router-topk 1": "--moe-router-topk 2", "--moe-expert-capacity-factor 1.25": "--moe-expert-capacity-factor 1.1"},
        rows("num_experts_chosen capacity_factor"),
        inherent=HIDES | rows("aux_loss_factor tokens_that_are_dropped"),  # LLaMA's layers add no such loss, and drop second choices first
        right_exit=DIFFERS,
    ),
}
