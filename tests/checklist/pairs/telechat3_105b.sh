#!/bin/bash
# TeleChat3-105B-A4B: 45 layers, 192 experts and one shared, data 4 x tensor 8 x pipeline 8
MODEL_SIZE=${1:-105B}
export CUDA_DEVICE_MAX_CONNECTIONS=1

case $MODEL_SIZE in
    36B)
        LAYERS=64; HIDDEN=6144; HEADS=48
        ;;
    105B)
        LAYERS=45; HIDDEN=2560; HEADS=32
        ;;
    *)
        echo "no such model: $MODEL_SIZE"; exit 1
        ;;
esac

TP=8
PP=8
DP=4
MICRO_BATCHES=8
GLOBAL_BATCH=$(( DP * MICRO_BATCHES ))

ARGS=(
    --num-layers $LAYERS
    --hidden-size $HIDDEN
    --num-attention-heads $HEADS
    --ffn-hidden-size 7680
    --normalization RMSNorm
    --norm-epsilon 1e-6
    --swiglu
    --disable-bias-linear
    --untie-embeddings-and-output-weights
    --seq-length 4096
    --max-position-embeddings 4096
    --position-embedding-type rope
    --init-method-std 0.01
    --attention-dropout 0.0
    --hidden-dropout 0.0
    --fp32-residual-connection
)
ARGS+=(
    --multi-latent-attention
    --q-lora-rank 1536
    --kv-lora-rank 512
    --qk-head-dim 128
    --qk-pos-emb-head-dim 64
    --v-head-dim 128
    --qk-layernorm
    --rope-type rope
    --rotary-base 10000
)
ARGS+=(
    --num-experts 192
    --moe-router-topk 4
    --moe-ffn-hidden-size 1536
    --moe-shared-expert-intermediate-size 3072
    --moe-layer-freq "([0]*1+[1]*44)"
    --moe-router-score-function sigmoid
    --moe-router-topk-scaling-factor 2.8
    --moe-router-enable-expert-bias
    --moe-router-bias-update-rate 0.001
    --moe-router-load-balancing-type seq_aux_loss
    --moe-aux-loss-coeff 0.001
    --moe-router-dtype fp32
    --moe-grouped-gemm
    --moe-token-dispatcher-type alltoall
    --mtp-num-layers 1
)
ARGS+=(
    --micro-batch-size 1
    --global-batch-size $GLOBAL_BATCH
    --train-iters 250
    --lr 2e-4
    --lr-warmup-iters 2000
    --lr-decay-iters 2400000
    --lr-decay-style constant
    --adam-beta1 0.9
    --adam-beta2 0.95
    --adam-eps 1e-8
    --weight-decay 0.1
    --clip-grad 1.0
    --bf16
    --deterministic-mode
    --seed 1234
    --tensor-model-parallel-size $TP
    --pipeline-model-parallel-size $PP
    --decoder-last-pipeline-num-layers 3
    --sequence-parallel
    --use-distributed-optimizer
    --data-path 1 /dataset_path
    --split 1,0,0
    --tokenizer-type NullTokenizer
    --vocab-size 131072
)

torchrun --nproc_per_node 8 --nnodes 32 pretrain_gpt.py "${ARGS[@]}"
