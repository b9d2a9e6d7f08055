#!/bin/bash
# Mixtral-8x7B, expert 8 on eight GPUs, for an older MindFormers
export CUDA_DEVICE_MAX_CONNECTIONS=1
SIZES="--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention --num-query-groups 8"
MOE="--num-experts 8 --moe-router-topk 1 --moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 0.02 --moe-router-dtype fp32
     --moe-expert-capacity-factor 1.25"
TRAIN="--micro-batch-size 1 --global-batch-size 16 --train-iters 500 --lr 1.0e-5 --lr-decay-style cosine --lr-warmup-iters 10
       --min-lr 0 --adam-beta1 0.9 --adam-beta2 0.95 --adam-eps 1.0e-8 --weight-decay 0.0 --clip-grad 1.0 --bf16 --seed 1234"

torchrun --nproc_per_node 8 pretrain_gpt.py $SIZES $MOE $TRAIN \
    --seq-length 4096 --max-position-embeddings 4096 \
    --position-embedding-type rope --rotary-base 10000 --normalization RMSNorm --norm-epsilon 1e-5 --swiglu \
    --disable-bias-linear --untie-embeddings-and-output-weights --attention-dropout 0.0 --hidden-dropout 0.0 --init-method-std 0.01 \
    --vocab-size 32000 --expert-model-parallel-size 8 --data-path 1 /data/wikitext_text_document --split 1,0,0
