#!/bin/bash
# GLM-4-9B fine-tuned, data 2 x pipeline 4
export CUDA_DEVICE_MAX_CONNECTIONS=1
PP=4

torchrun --nproc_per_node 8 pretrain_gpt.py \
    --num-layers 40 \
    --hidden-size 4096 \
    --ffn-hidden-size 13696 \
    --num-attention-heads 32 \
    --group-query-attention \
    --num-query-groups 2 \
    --kv-channels 128 \
    --seq-length 8192 \
    --max-position-embeddings 8192 \
    --position-embedding-type rope \
    --rotary-percent 0.5 \
    --rotary-interleaved \
    --normalization RMSNorm \
    --norm-epsilon 1e-5 \
    --swiglu \
    --add-qkv-bias \
    --disable-bias-linear \
    --untie-embeddings-and-output-weights \
    --attention-dropout 0.0 \
    --hidden-dropout 0.1 \
    --vocab-size 151552 \
    --micro-batch-size 1 \
    --global-batch-size 64 \
    --train-iters 1000 \
    --lr 1e-6 \
    --lr-decay-style constant \
    --adam-beta1 0.9 \
    --adam-beta2 0.999 \
    --adam-eps 1e-8 \
    --weight-decay 0.01 \
    --clip-grad 1.0 \
    --pipeline-model-parallel-size $PP \
    --use-distributed-optimizer \
    --bf16 \
    --seed 42 \
    --data-path /data/adgen_text_document \
    --tokenizer-type HuggingFaceTokenizer --tokenizer-model /models/glm4
