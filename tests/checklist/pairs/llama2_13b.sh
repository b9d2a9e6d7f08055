#!/bin/bash
# LLaMA2-13B in bfloat16 on eight GPUs, data parallel alone; defaults are left to Megatron-LM where they are thought to fit
set -e
WORLD=8
MBS=4
GBS=$((MBS * WORLD))
if [ -z "$DATA_PATH" ]; then
    DATA_PATH=/data/wikitext_text_document
fi

run() {
    torchrun --standalone --nproc_per_node $WORLD pretrain_gpt.py "$@"
}

run \
    --num-layers 40 \
    --hidden-size 5120 \
    --num-attention-heads 40 \
    --swiglu \
    --seq-length 4096 \
    --max-position-embeddings 4096 \
    --position-embedding-type rope \
    --normalization RMSNorm \
    --disable-bias-linear \
    --attention-dropout 0 \
    --hidden-dropout 0 \
    --init-method-std 0.01 \
    --vocab-size 32000 \
    --micro-batch-size $MBS \
    --global-batch-size $GBS \
    --train-iters 5000 \
    --lr 1e-5 \
    --min-lr 0 \
    --lr-decay-style cosine \
    --lr-warmup-fraction 0.03 \
    --adam-beta2 0.95 \
    --bf16 \
    --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 \
    --use-distributed-optimizer \
    --data-path "$DATA_PATH" \
    --tokenizer-type Llama2Tokenizer --tokenizer-model /data/tokenizer.model
