#!/usr/bin/env bash
# Megatron-LM on a GPU node: launch/torchrun.sh PRESET SCRIPT [ARGUMENT ...].
# torchrun reads its own options from PET_* variables: PET_NPROC_PER_NODE=8, PET_NNODES, PET_NODE_RANK, PET_MASTER_ADDR, …
# It ends with 1 whatever the script ended with; the script's own code stands in what torchrun prints.
usage='PRESET SCRIPT [ARGUMENT ...]'
. "$(dirname "$0")/preset.sh"
begin gpu_node "$@"
exec torchrun -m align_hooks.torch_side "${@:2}"
