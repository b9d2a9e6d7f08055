#!/usr/bin/env bash
# Megatron-LM with MindSpeed on Ascend, one node or several: start this on every node, with that node's NODE_RANK.
#   MASTER_ADDR=10.0.0.1 NODE_RANK=0 RUN=/shared/runs/mindspeed launch/examples/mindspeed_nodes.sh …arguments of the script…
# The script imports MindSpeed's adaptor itself: MindSpeed-LLM's pretrain_gpt.py does, and Megatron-LM's own gets the line
# `import mindspeed.megatron_adaptor` below its `import torch`, as MindSpeed's README says.
# To change: the variables below. Presets: gpu_node (MindSpeed wants CUDA_DEVICE_MAX_CONNECTIONS=1 too), and any of ../presets by
# PRESET; a candidate wants REFERENCE=DIRECTORY too. With no shared file system: see gpu_nodes.sh.
# HCCL_DETERMINISTIC and ASCEND_LAUNCH_BLOCKING are set by ALIGN_HOOKS_DETERMINISTIC=1 itself, which most presets hold.
# Afterwards, anywhere: align-hooks show runs/mindspeed; align-hooks compare REFERENCE runs/mindspeed
set -euo pipefail
PRESET=${PRESET:-step1_reference}
SCRIPT=${SCRIPT:-pretrain_gpt.py}
CANN=${CANN:-/usr/local/Ascend/ascend-toolkit}
export PET_NNODES=${NNODES:-1}
export PET_NPROC_PER_NODE=${NPUS_PER_NODE:-8}
export PET_NODE_RANK=${NODE_RANK:?which node this is, from 0}
export PET_MASTER_ADDR=${MASTER_ADDR:?the address of node 0, spelled alike on every node}
export PET_MASTER_PORT=${MASTER_PORT:-6000}
export RUN=${RUN:?where to record}
export HCCL_CONNECT_TIMEOUT=${HCCL_CONNECT_TIMEOUT:-3600}  # seconds; recording makes ranks wait for each other longer
export HCCL_EXEC_TIMEOUT=${HCCL_EXEC_TIMEOUT:-3600}
export PYTORCH_NPU_ALLOC_CONF=${PYTORCH_NPU_ALLOC_CONF:-expandable_segments:True}
if [[ -n ${IFNAME:-} ]]; then export HCCL_SOCKET_IFNAME=$IFNAME GLOO_SOCKET_IFNAME=$IFNAME; fi  # where a node has several networks

if [[ -z ${ASCEND_TOOLKIT_HOME:-} ]]; then
  set +u  # it reads variables that nobody set
  . "$CANN/set_env.sh"
  set -u
fi
exec "$(dirname "$0")/../torchrun.sh" "$PRESET" "$SCRIPT" "$@"
