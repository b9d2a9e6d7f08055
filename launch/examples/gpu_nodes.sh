#!/usr/bin/env bash
# Megatron-LM on several GPU nodes: start this on every node, with that node's NODE_RANK.
#   MASTER_ADDR=10.0.0.1 NODE_RANK=0 RUN=/shared/runs/megatron launch/examples/gpu_nodes.sh …arguments of the script…
# To change: the variables below. Presets: gpu_node, and any of ../presets by PRESET; a candidate wants REFERENCE=DIRECTORY too.
# RUN is one directory on a file system that all nodes share. Where there is none, give each node an empty directory of its own and
# carry them together afterwards, all files of all nodes, into one new directory:
#   rsync -a node0:/local/runs/megatron/ runs/megatron/ && rsync -a node1:/local/runs/megatron/ runs/megatron/
# Afterwards, anywhere: align-hooks show runs/megatron; align-hooks compare REFERENCE runs/megatron
set -euo pipefail
PRESET=${PRESET:-step1_reference}
SCRIPT=${SCRIPT:-pretrain_gpt.py}
export PET_NNODES=${NNODES:-2}
export PET_NPROC_PER_NODE=${GPUS_PER_NODE:-8}
export PET_NODE_RANK=${NODE_RANK:?which node this is, from 0}
export PET_MASTER_ADDR=${MASTER_ADDR:?the address of node 0, spelled alike on every node}
export PET_MASTER_PORT=${MASTER_PORT:-29500}
export RUN=${RUN:?where to record}

exec "$(dirname "$0")/../torchrun.sh" "$PRESET" "$SCRIPT" "$@"
