# Sourced by cpu.sh, torchrun.sh and msrun.sh. `begin NODE "$@"` checks the script's own arguments PRESET SCRIPT … and exports
# presets/PRESET.env and presets/NODE.env. A variable that is set already is the caller's and stays.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

refuse() {
  echo "launch: $1" >&2
  exit 2
}

python=$(command -v "${PYTHON:-python}") || refuse "there is no ${PYTHON:-python}; name the environment's: PYTHON=/path/to/python $0 …"
PATH=$(dirname "$python"):$PATH  # msrun starts the python that it finds there

# A preset names its directories as a container mounts them; outside one, RUN and REFERENCE say where they are.
place() {
  local mount=/align_hooks/$2 rest
  rest=${1#"$mount"}
  if [[ $rest == "$1" ]]; then
    echo "$1"
  elif [[ -n $3 ]]; then
    echo "$3$rest"
  elif [[ -d $mount ]]; then
    echo "$1"
  else
    refuse "$4 is $1: say where that is, $5=DIRECTORY $0 …"
  fi
}

load() {
  local file=$here/presets/$1.env name value
  [[ -f $file ]] || refuse "no preset $1; there are: $(cd "$here/presets" && echo *.env | sed 's/\.env//g')"
  while IFS='=' read -r name value; do
    if [[ -z $name || $name == \#* || -n ${!name+set} ]]; then continue; fi
    value=$(place "$value" run "${RUN:-}" "$name" RUN) || exit
    value=$(place "$value" reference "${REFERENCE:-}" "$name" REFERENCE) || exit
    export "$name=$value"
  done < "$file"
}

begin() {
  (($# >= 3)) || refuse "usage: [RUN=DIRECTORY] [REFERENCE=DIRECTORY] $0 $usage"
  load "$2"
  load "$1"
  env | sed -n 's/^ALIGN_HOOKS_/launch: &/p' | sort >&2
}
