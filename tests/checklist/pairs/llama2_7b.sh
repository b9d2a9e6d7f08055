#!/bin/bash
# LLaMA2-7B on one node of eight GPUs
export CUDA_DEVICE_MAX_CONNECTIONS=1

DATA_PATH=${DATA_PATH:-/data/wikitext_text_document}
TOKENIZER_MODEL=${TOKENIZER_MODEL:-/data/tokenizer.model}

GPT_ARGS="
    --num-layers 32 \
    --hidden-size 4096 \
    --ffn-hidden-size 11008 \
    --num-attention-heads 32 \
    --seq-length 4096 \
    --max-position-embeddings 4096 \
    --position-embedding-type rope \
    --rotary-base 10000 \
    --normalization RMSNorm \
    --norm-epsilon 1e-6 \
    --swiglu \
    --disable-bias-linear \
    --untie-embeddings-and-output-weights \
    --attention-dropout 0.0 \
    --hidden-dropout 0.0 \
    --init-method-std 0.01 \
    --vocab-size 32000 \
    --make-vocab-size-divisible-by 16 \
    --bf16 \
    --tensor-model-parallel-size 2 \
    --pipeline-model-parallel-size 1 \
    --use-flash-attn
"

TRAIN_ARGS="
    --micro-batch-size 1 \
    --global-batch-size 64 \
    --train-iters 1000 \
    --lr 1e-5 \
    --min-lr 0.0 \
    --lr-decay-style cosine \
    --lr-warmup-fraction 0.03 \
    --adam-beta1 0.9 \
    --adam-beta2 0.999 \
    --adam-eps 1e-8 \
    --weight-decay 0.0 \
    --clip-grad 1.0 \
    --initial-loss-scale 65536 \
    --loss-scale-window 1000 \
    --hysteresis 1 \
    --seed 42
"

torchrun --nproc_per_node 8 --nnodes 1 --master_addr localhost --master_port 6000 pretrain_gpt.py \
    $GPT_ARGS \
    $TRAIN_ARGS \
    --data-path $DATA_PATH \
    --tokenizer-type Llama2Tokenizer \
    --tokenizer-model $TOKENIZER_MODEL
