#!/bin/bash
# DeepSeek-V3 671B on 32 nodes: data 4 x tensor 8 x pipeline 8, expert 32
export CUDA_DEVICE_MAX_CONNECTIONS=1

GPUS_PER_NODE=8
NNODES=32
NODE_RANK=${RANK:-0}
TP=8
PP=8
EP=32

DISTRIBUTED_ARGS=(--nproc_per_node "$GPUS_PER_NODE" --nnodes "$NNODES" --node_rank "$NODE_RANK" --master_addr "${MASTER_ADDR:-node0}" --master_port 29500)

MODEL_ARGS=(
    --num-layers 61
    --hidden-size 7168
    --ffn-hidden-size 18432
    --num-attention-heads 128
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
    --make-vocab-size-divisible-by 32
)

# rows of config.json that the YAML leaves to MindFormers' own defaults are written out
MLA_ARGS=(
    --multi-latent-attention
    --q-lora-rank 1536
    --kv-lora-rank 512
    --qk-head-dim 128
    --qk-pos-emb-head-dim 64
    --v-head-dim 128
    --qk-layernorm
    --rope-type yarn
    --rotary-base 10000
)

MOE_ARGS=(
    --num-experts 256
    --moe-router-topk 8
    --moe-ffn-hidden-size 2048
    --moe-shared-expert-intermediate-size 2048
    --moe-layer-freq "([0]*1+[1]*60)"
    --moe-router-score-function sigmoid
    --moe-router-num-groups 8
    --moe-router-group-topk 4
    --moe-router-enable-expert-bias
    --moe-router-bias-update-rate 1e-3
    --moe-router-load-balancing-type seq_aux_loss
    --moe-aux-loss-coeff 1e-4
    --moe-router-dtype fp32
    --moe-grouped-gemm
    --moe-token-dispatcher-type alltoall
    --mtp-num-layers 1
    --mtp-loss-scaling-factor 0.3
)

TRAIN_ARGS=(
    --micro-batch-size 1
    --global-batch-size 128
    --train-iters 1000
    --lr 2e-5
    --lr-warmup-iters 200
    --lr-decay-style constant
    --adam-beta1 0.9
    --adam-beta2 0.95
    --adam-eps 1e-8
    --weight-decay 0.01
    --clip-grad 1.0
    --bf16
    --seed 1234
)

PARALLEL_ARGS=(
    --tensor-model-parallel-size "$TP"
    --pipeline-model-parallel-size "$PP"
    --decoder-last-pipeline-num-layers 5
    --expert-model-parallel-size "$EP"
    --expert-tensor-parallel-size 1
    --sequence-parallel
    --use-distributed-optimizer
)

DATA_ARGS=(--data-path 1 /data/wiki103-megatron_text_document --split 1,0,0 --tokenizer-type NullTokenizer --vocab-size 129280)

torchrun "${DISTRIBUTED_ARGS[@]}" pretrain_gpt.py "${MODEL_ARGS[@]}" "${MLA_ARGS[@]}" "${MOE_ARGS[@]}" "${TRAIN_ARGS[@]}" \
    "${PARALLEL_ARGS[@]}" "${DATA_ARGS[@]}" --log-interval 1
