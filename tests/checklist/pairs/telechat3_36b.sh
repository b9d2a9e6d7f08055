#!/bin/bash
# TeleChat3-36B, tensor 8 x pipeline 2, arguments in strings as the older examples of Megatron-LM have them

export CUDA_DEVICE_MAX_CONNECTIONS=1
export NCCL_ALGO=Ring
export NVTE_ALLOW_NONDETERMINISTIC_ALGO=0

GPUS_PER_NODE=8
NNODES=2
TP=8
PP=2
MBS=1
GBS=$((MBS * 4))
DATA_PATH=/dataset_path
TOKENIZER=/models/telechat3

DISTRIBUTED_ARGS="
    --nproc_per_node $GPUS_PER_NODE \
    --nnodes $NNODES \
    --rdzv_backend c10d
"

GPT_ARGS="
    --tensor-model-parallel-size ${TP} \
    --pipeline-model-parallel-size ${PP} \
    --sequence-parallel \
    --use-distributed-optimizer \
    --num-layers 64 \
    --hidden-size 6144 \
    --ffn-hidden-size 24576 \
    --num-attention-heads 48 \
    --group-query-attention \
    --num-query-groups 8 \
    --seq-length 8192 \
    --max-position-embeddings 8192 \
    --position-embedding-type rope \
    --rotary-base 10000 \
    --normalization RMSNorm \
    --norm-epsilon 1e-5 \
    --swiglu \
    --disable-bias-linear \
    --attention-dropout 0.0 \
    --hidden-dropout 0.0 \
    --init-method-std 0.02 \
    --fp32-residual-connection \
    --recompute-granularity full \
    --recompute-method uniform \
    --recompute-num-layers 1 \
    --deterministic-mode \
    --seed 1234 \
    --bf16
"

TRAIN_ARGS="
    --micro-batch-size ${MBS} \
    --global-batch-size ${GBS} \
    --train-iters 20000 \
    --lr 2.0e-4 \
    --min-lr 2.0e-5 \
    --lr-decay-style cosine \
    --lr-decay-iters 1908000 \
    --lr-warmup-iters 2000 \
    --weight-decay 0.1 \
    --adam-beta1 0.9 \
    --adam-beta2 0.999 \
    --adam-eps 1.0e-8 \
    --clip-grad 1.0
"

DATA_ARGS="
    --data-path $DATA_PATH \
    --tokenizer-type HuggingFaceTokenizer \
    --tokenizer-model $TOKENIZER \
    --reset-attention-mask \
    --split 1,0,0
"

torchrun $DISTRIBUTED_ARGS pretrain_gpt.py \
    $GPT_ARGS \
    $TRAIN_ARGS \
    $DATA_ARGS \
    --distributed-backend nccl \
    --log-interval 1 \
    --save-interval 300 2>&1 | tee telechat3_36b.log
