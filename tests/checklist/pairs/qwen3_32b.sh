#!/bin/bash
# Qwen3-32B from scratch on two nodes of eight GPUs, tensor 4 x pipeline 4, to be held against configs/qwen3/pretrain_qwen3_32b_4k.yaml
set -euo pipefail

export CUDA_DEVICE_MAX_CONNECTIONS=1

GPUS_PER_NODE=8
NUM_NODES=${NUM_NODES:-2}
MASTER_ADDR=${MASTER_ADDR:-localhost}
MASTER_PORT=${MASTER_PORT:-6000}
NODE_RANK=${NODE_RANK:-0}

CHECKPOINT_PATH=${CHECKPOINT_PATH:-checkpoints/qwen3_32b}
DATA_PATH=${DATA_PATH:-/data/wiki103-megatron_text_document}
SEQ_LENGTH=4096

DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NUM_NODES
    --node_rank $NODE_RANK
    --master_addr $MASTER_ADDR
    --master_port $MASTER_PORT
)

MODEL_ARGS=(
    --num-layers 64
    --hidden-size 5120
    --ffn-hidden-size 25600
    --num-attention-heads 64
    --group-query-attention
    --num-query-groups 8
    --seq-length $SEQ_LENGTH
    --max-position-embeddings $SEQ_LENGTH
    --position-embedding-type rope
    --rotary-base 10000
    --normalization RMSNorm
    --norm-epsilon 1e-6
    --qk-layernorm
    --swiglu
    --disable-bias-linear
    --untie-embeddings-and-output-weights
    --init-method-std 0.02
    --attention-dropout 0.0
    --attention-backend flash
    --fp32-residual-connection
    --make-vocab-size-divisible-by 32   # 32 x tensor 4: 151936 rows, as MindFormers has
)

TRAINING_ARGS=(
    --micro-batch-size 1
    --global-batch-size 4
    --train-iters 4000
    --optimizer adam
    --adam-beta1 0.9
    --adam-beta2 0.95
    --adam-eps 1e-8
    --weight-decay 0.0
    --clip-grad 1.0
    --lr 1e-6
    --lr-decay-style constant
    --lr-warmup-iters 40
    --bf16
    --seed 1234
)

PARALLEL_ARGS=(
    --tensor-model-parallel-size 4
    --pipeline-model-parallel-size 4
)

DATA_ARGS=(
    --data-path 1 $DATA_PATH
    --split 1,0,0
    --tokenizer-type NullTokenizer
    --vocab-size 151936
)

OUTPUT_ARGS=(
    --log-interval 1
    --save-interval 5000
    --save "$CHECKPOINT_PATH"
)

torchrun "${DISTRIBUTED_ARGS[@]}" pretrain_gpt.py \
    "${MODEL_ARGS[@]}" \
    "${TRAINING_ARGS[@]}" \
    "${PARALLEL_ARGS[@]}" \
    "${DATA_ARGS[@]}" \
    "${OUTPUT_ARGS[@]}"
