#!/usr/bin/env bash
# MindFormers behind its own scripts/msrun_launcher.sh, one node or several: start this on every node, with that node's NODE_RANK.
#   MINDFORMERS=/opt/mindformers MASTER_ADDR=10.0.0.1 NODE_RANK=0 RUN=/shared/runs/mindformers REFERENCE=/shared/runs/megatron \
#     launch/examples/msrun_launcher.sh --config llama.yaml
# To change: the variables below. Presets: ascend_node, and any of ../presets by PRESET. The YAML needs use_parallel: True.
# With no shared file system: see gpu_nodes.sh; a candidate needs all of the reference on every node.
# Two things that msrun_launcher.sh leaves open and that are set here: JOIN=True, because by default it returns while the workers
# go on, and then nobody hears how they end; and NODE_RANK, without which MindSpore numbers ranks late. With one worker it starts
# nothing: use ../cpu.sh, or `python -m align_hooks.ms_side`.
# Afterwards, anywhere: align-hooks compare runs/megatron runs/mindformers
set -euo pipefail
PRESET=${PRESET:-step1_candidate}
MINDFORMERS=${MINDFORMERS:?the checkout that holds scripts/msrun_launcher.sh and run_mindformer.py}
SCRIPT=${SCRIPT:-$MINDFORMERS/run_mindformer.py}
WORKERS=${WORKERS:-16}
WORKERS_PER_NODE=${WORKERS_PER_NODE:-8}
MASTER_ADDR=${MASTER_ADDR:?the address of node 0; 127.0.0.1 where it is the only one}
MASTER_PORT=${MASTER_PORT:-8118}
NODE_RANK=${NODE_RANK:-0}
LOG_DIR=${LOG_DIR:-output/msrun_log}
TIMEOUT=${TIMEOUT:-7200}  # seconds until all workers have to be there
RUN=${RUN:?where to record}

usage='[ARGUMENT OF run_mindformer.py ...]'
. "$(dirname "$0")/../preset.sh"
begin ascend_node "$PRESET" "$SCRIPT"
command=$(printf '%q ' "$SCRIPT" "$@")  # msrun_launcher.sh hands it to eval
nodes=("$WORKERS" "$WORKERS_PER_NODE" "$MASTER_ADDR" "$MASTER_PORT" "$NODE_RANK" "$LOG_DIR" True "$TIMEOUT")
exec python -m align_hooks run -- bash "$MINDFORMERS/scripts/msrun_launcher.sh" "$command" "${nodes[@]}"
