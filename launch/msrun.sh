#!/usr/bin/env bash
# MindFormers on an Ascend node: launch/msrun.sh PRESET SCRIPT [ARGUMENT ...].
# msrun's options come as WORKER_NUM, LOCAL_WORKER_NUM, MASTER_ADDR, MASTER_PORT, NODE_RANK and LOG_DIR.
usage='PRESET SCRIPT [ARGUMENT ...]'
. "$(dirname "$0")/preset.sh"
begin ascend_node "$@"
workers=${WORKER_NUM:-1}
options=(--worker_num "$workers" --local_worker_num "${LOCAL_WORKER_NUM:-$workers}" --join True --log_dir "${LOG_DIR:-msrun_log}")
options+=(--master_addr "${MASTER_ADDR:-127.0.0.1}" --master_port "${MASTER_PORT:-8118}")
if [[ -n ${NODE_RANK:-} ]]; then options+=(--node_rank "$NODE_RANK"); fi
exec msrun "${options[@]}" python -m align_hooks.ms_side "${@:2}"
