#!/usr/bin/env bash
# Qwen3-30B-A3B: 128 experts, 8 of a token, tensor 4 x pipeline 4 x expert 4; one command over many lines

export CUDA_DEVICE_MAX_CONNECTIONS=1 NCCL_IB_DISABLE=0
TP=${TP:-4}; PP=${PP:-4}; EP=${EP:-4}
SEQ=4096

torchrun --nproc_per_node=8 --nnodes=2 --node_rank="${NODE_RANK:-0}" --master_addr="${MASTER_ADDR:-127.0.0.1}" --master_port=6001 \
    pretrain_gpt.py \
    --use-mcore-models \
    --num-layers 48 --hidden-size 2048 --ffn-hidden-size 6144 \
    --num-attention-heads 32 --group-query-attention --num-query-groups 4 --kv-channels 128 \
    --qk-layernorm --normalization RMSNorm --norm-epsilon 1e-6 \
    --swiglu --disable-bias-linear --untie-embeddings-and-output-weights \
    --position-embedding-type rope --rotary-base 1000000 --rotary-percent 1.0 \
    --seq-length "$SEQ" --max-position-embeddings 40960 \
    --attention-dropout 0.0 --hidden-dropout 0.0 --init-method-std 0.02 \
    --num-experts 128 --moe-router-topk 8 --moe-ffn-hidden-size 1536 \
    --moe-router-score-function softmax --moe-router-dtype fp32 \
    --moe-router-load-balancing-type global_aux_loss --moe-aux-loss-coeff 0.01 \
    --moe-grouped-gemm --moe-token-dispatcher-type alltoall \
    --tensor-model-parallel-size "$TP" --pipeline-model-parallel-size "$PP" --expert-model-parallel-size "$EP" \
    --expert-tensor-parallel-size 1 --sequence-parallel \
    --micro-batch-size 1 --global-batch-size 16 --train-iters 500 \
    --optimizer adam --adam-beta1 0.9 --adam-beta2 0.95 --adam-eps 1e-8 --weight-decay 0.0 --clip-grad 1.0 \
    --lr 1e-5 --lr-decay-style constant --lr-warmup-iters 0 \
    --bf16 --seed 1234 --attention-backend flash \
    --data-path 1 /data/wiki103-megatron_text_document --split "1,0,0" \
    --tokenizer-type NullTokenizer --vocab-size 151936 --make-vocab-size-divisible-by 32 \
    --log-interval 1
