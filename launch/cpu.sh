#!/usr/bin/env bash
# A rehearsal with no accelerator, one process: launch/cpu.sh torch|ms PRESET SCRIPT [ARGUMENT ...]. Exits as the script does.
usage='torch|ms PRESET SCRIPT [ARGUMENT ...]'
. "$(dirname "$0")/preset.sh"
side=${1:-}
[[ $side == torch || $side == ms ]] || refuse "usage: [RUN=DIRECTORY] [REFERENCE=DIRECTORY] $0 $usage"
shift
begin cpu_rehearsal "$@"
exec python -m "align_hooks.${side}_side" "${@:2}"
