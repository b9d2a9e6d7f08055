#!/bin/bash
# LLaMA2-70B, eight nodes: data 2 x tensor 4 x pipeline 8
export CUDA_DEVICE_MAX_CONNECTIONS=1
NODES="${NODES:-8}"
TP=4 PP=8 DP=2
MICRO=1
STEPS_OF_PIPELINE=128
GLOBAL=$((MICRO * DP * STEPS_OF_PIPELINE))

LAUNCH=(torchrun --nproc_per_node 8 --nnodes "$NODES" --rdzv_id llama --rdzv_backend c10d --rdzv_endpoint "${HEAD:-head}:29400")

SIZES=(--num-layers 80 --hidden-size 8192 --num-attention-heads 64 --ffn-hidden-size 28672)
# grouped queries
SIZES+=(--num-query-groups 8)
SIZES+=(--seq-length 4096 --max-position-embeddings 4096 --vocab-size 32000 --make-vocab-size-divisible-by 16)

STYLE=(
    --position-embedding-type rope
    --normalization RMSNorm --norm-epsilon 1e-5
    --swiglu --disable-bias-linear --untie-embeddings-and-output-weights
    --attention-dropout 0.0 --hidden-dropout 0.0
    --init-method-std 0.01
)

TRAIN=(
    --micro-batch-size $MICRO --global-batch-size $GLOBAL --train-iters 2000
    --lr 1e-5 --min-lr 0.0 --lr-decay-style cosine --lr-warmup-fraction 0.03
    --adam-beta1 0.9 --adam-beta2 0.95 --adam-eps 1e-8
    --weight-decay 0.1 --clip-grad 1.0
    --fp16 --initial-loss-scale 65536 --loss-scale-window 1000 --hysteresis 1
    --seed 0
)

SPLIT=(--tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP --sequence-parallel --use-distributed-optimizer)

"${LAUNCH[@]}" pretrain_gpt.py "${SIZES[@]}" "${STYLE[@]}" "${TRAIN[@]}" "${SPLIT[@]}" \
    --data-path "${DATA:-/data/alpaca_text_document}" --tokenizer-type Llama2Tokenizer --tokenizer-model /data/tokenizer.model
