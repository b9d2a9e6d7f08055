"""What was written to mislead ``check``: scripts as bash runs them or said not to be followed, values that are no numbers, bombs."""

from __future__ import annotations

import os
import subprocess
import warnings
from pathlib import Path
from typing import Any

import pytest

from align_hooks.checklist.result import CLEAN, DIFFERS, UNDECIDED
from align_hooks.checklist.sides import check
from align_hooks.configuration.megatron import read_script, read_words
from align_hooks.configuration.script import Script, Word
from align_hooks.configuration.values import Configuration, ConfigurationError
from align_hooks.messages import message
from checklist.test_command import command, configuration, script
from checklist.test_readers import BOMB, bash_says, values
from work import at_most

TRAIN = "torchrun pretrain_gpt.py --num-layers 2"
ENOUGH = 10_000_000
"""Calls that reading a hostile file may take; the hardest takes 2.6 million."""
SOURCED = {
    "settings.sh": 'LR=1e-4\nLAYERS=(--num-layers 2)\nadd() { MORE+=(--seed "$1"); }\n',
    "early.sh": "LR=1e-4\nreturn 0\nLR=1e-5\n",
    "args.sh": "LR=$1\n",
    "chain.sh": "source settings.sh\nLR=3e-4\n",
    "quits.sh": "LR=1e-4\nexit 0\n",
}

FOLLOWED = {
    "quoting: adjacent": "@TRAIN --lr 1'e'\"-4\" --save /a\"b c\"'d'",
    "quoting: escaped": '@TRAIN --lr 1e-4 --save a\\ b\\"c --split "9\\"8"',
    "quoting: single in double": '@TRAIN --lr 1e-4 --save "it\'s"',
    "quoting: dollar single": "@TRAIN --lr 1e-4 --save '$HOME' --split \"\\$X\"",
    "quoting: backslash n": '@TRAIN --lr 1e-4 --save "a\\nb" --split a\\nb',
    "quoting: empty": 'E=\'\'\n@TRAIN --lr 1e-4 --save "" $E --split "$E" --seed 7',
    "quoting: tilde quoted": '@TRAIN --lr 1e-4 --save "~/x"',
    "quoting: glob quoted": "@TRAIN --lr 1e-4 --data-path '*.sh' --seed 7",
    "quoting: var with spaces in word": "A='x y'\n@TRAIN --lr 1e-4 --data-path a$A/b",
    "quoting: var longest name": "N=2\nNN=3\n@TRAIN --lr 1e-4 --save $NN$N",
    "arrays: append string": 'A=(--lr 1e-4)\nA+=0\n@TRAIN "${A[@]}"',
    "arrays: string as array": "A='--lr 1e-4'\nA+=(--seed 7)\n@TRAIN ${A[@]}",
    "arrays: empty": 'A=()\n@TRAIN --lr 1e-4 "${A[@]}" --seed 7 ${A[@]}',
    "arrays: empty default": "A=()\n@TRAIN --lr 1e-4 --seed ${A[@]:-7}",
    "arrays: star quoted": 'A=(98 2 0)\n@TRAIN --lr 1e-4 --data-path "${A[*]}"',
    "arrays: star": "A=('98 1' 2)\n@TRAIN --lr 1e-4 --data-path ${A[*]}",
    "arrays: copy": 'A=(--lr 1e-4)\nB=("${A[@]}" --seed 7)\n@TRAIN "${B[@]}"',
    "arrays: copy string": "A=(--lr 1e-4 --seed 7)\nB=${A[@]}\n@TRAIN $B",
    "arrays: comments": 'A=(\n  --lr 1e-4  # the rate\n  # --lr 2e-4\n  --seed 7 # \'quote\n)\n@TRAIN "${A[@]}"',
    "arrays: trailing backslash": 'A=(\n  --lr 1e-4 \\\n  --seed 7 \\\n)\n@TRAIN "${A[@]}"',
    "arrays: backslash and comment": 'A=(\n  --lr 1e-4 \\\n  # --seed 8\n  --seed 7\n)\n@TRAIN "${A[@]}"',
    "arrays: hash inside": "A=(--lr 1e-4 --save a#b --split '#c')\n@TRAIN \"${A[@]}\"",
    "arrays: declare -a": 'declare -a A=(--lr 1e-4)\n@TRAIN "${A[@]}"',
    "array hash close": 'A=(--lr 1e-4 # )\n)\n@TRAIN "${A[@]}"',
    "array one line comment": 'A=(--lr 1e-4) # A+=(--seed 7)\n@TRAIN "${A[@]}"',
    "array nested parens": 'A=(--lr 1e-4 --split "(1,2)" --moe \'([0]*3+[1])*2\')\n@TRAIN "${A[@]}"',
    "arr nested": 'A=(--lr 1e-4)\nB=(--seed 7)\nC=(${A[@]} ${B[*]} "${A[0]}x" 1)\n@TRAIN "${C[@]}"',
    "arr unset all": 'A=(--lr 9)\nunset A\nA+=(--lr 1e-4)\n@TRAIN "${A[@]}"',
    "expansions: default": "L=''\n@TRAIN --lr ${LR:-1e-4} --seed ${L:-7} --pp ${L-8} --tp ${M-9}",
    "expansions: default nested": "B=7\n@TRAIN --lr ${LR:-${MIN:-1e-4}} --seed ${S:-$B}",
    "expansions: default words": "@TRAIN ${MORE:---lr 1e-4 --seed 7}",
    "expansions: default assign": ': ${LR:=1e-4}\n: "${S:=7}"\n@TRAIN --lr $LR --seed $S',
    "expansions: assign not colon": 'S=\n: ${S=7}\n: ${LR=1e-4}\n@TRAIN --lr $LR --pp "$S"',
    "expansions: alt": "W=x\nE=\n@TRAIN --lr 1e-4 ${W:+--seed 7} ${E:+--pp 2} ${E+--tp 3} ${U+--cp 4}",
    "expansions: alt arr": "A=(1)\nB=()\n@TRAIN --lr 1e-4 ${A[@]:+--seed 7} ${B[@]:+--pp 2}",
    "expansions: alt arr safe": 'A=(--lr 1e-4)\n@TRAIN ${A[@]+"${A[@]}"}',
    "expansions: error set": "LR=1e-4\n@TRAIN --lr ${LR:?need it}",
    "expansions: default empty": "@TRAIN --lr 1e-4 --seed 7${NOPE:-} --save a${NOPE-}b ${NOPE:-}",
    "expansions: positional default": "@TRAIN --lr ${1:-1e-4} --seed ${2:-7} --pp ${10:-3}",
    "expansions: self": 'A=1\nA=${A}2\nA="$A 3"\n@TRAIN --lr 1e-4 --data-path $A',
    "echo default": "echo ${LR:=1e-4}\n@TRAIN --lr ${LR:-9}",
    "cond default": "if [ ${LR:=1e-4} = 9 ]; then :; fi\n@TRAIN --lr ${LR:-9}",
    "sub default": "( : ${LR:=9} )\n@TRAIN --lr ${LR:-1e-4}",
    "functions: at star": 'f() { @TRAIN "$@" --data-path "$*"; }\nf --lr 1e-4',
    "functions: at unquoted": "f() { @TRAIN $@; }\nf --lr 1e-4 --data-path 'a b'",
    "functions: at array": 'f() { A=("$@"); @TRAIN "${A[@]}"; }\nf --lr 1e-4 --data-path \'a b\'',
    "functions: shift": 'f() { N=$1; shift; @TRAIN --seed $N "$@"; }\nf 7 --lr 1e-4',
    "functions: shift 2": 'f() { shift 2; @TRAIN "$@" --pp $#; }\nf a b --lr 1e-4',
    "functions: nested": "f() { g() { LR=$1; }; g 1e-4; }\nf 1e-5\n@TRAIN --lr $LR",
    "functions: nested args": 'g() { LR=$2; }\nf() { g "$2" "$1"; S=$1; }\nf 1e-4 7\n@TRAIN --lr $LR --seed $S',
    "functions: redefine": "f() { LR=1e-5; }\nf() { LR=1e-4; }\nf\n@TRAIN --lr $LR",
    "functions: keyword": "function f { LR=$1; }\nf 1e-4\n@TRAIN --lr $LR",
    "functions: local": "LR=1e-4\nf() { local LR=1e-5; }\nf\n@TRAIN --lr $LR",
    "functions: local many": "A=1\nB=2\nf() { local A=8 B=9; local C; C=5; }\nf\n@TRAIN --lr 1e-4 --seed $A$B${C:-x}",
    "functions: local dynamic": "LR=1e-5\ng() { @TRAIN --lr $LR; }\nf() { local LR=1e-4; g; }\nf",
    "functions: local set by inner": "LR=1e-4\ng() { LR=9; }\nf() { local LR; g; }\nf\n@TRAIN --lr $LR",
    "functions: local array": 'A=(--lr 1e-4)\nf() { local -a A=(--lr 9); }\nf\n@TRAIN "${A[@]}"',
    "functions: local append": 'A=(--lr)\nf() { A+=(1e-4); }\nf\n@TRAIN "${A[@]}"',
    "functions: declare local": "LR=1e-4\nf() { declare LR=9; typeset S=9; }\nf\n@TRAIN --lr $LR --seed ${S:-7}",
    "functions: local return": "LR=1e-4\nf() { local LR=9; return; }\nf\n@TRAIN --lr $LR",
    "functions: readonly in func": "f() { readonly LR=1e-4; }\nf\n@TRAIN --lr $LR",
    "functions: export in func": "f() { export LR=1e-4; }\nf\n@TRAIN --lr $LR",
    "functions: prefix": "f() { @TRAIN --lr $LR; }\nLR=1e-4 f",
    "functions: recursion": "f() { if [ $1 -gt 0 ]; then f $(($1 - 1)); else LR=1e-4; fi; }\nf 3\n@TRAIN --lr $LR",
    "functions: overrides set": 'f() { set -- --lr 1e-4; @TRAIN "$@"; }\nset -- 9\nf',
    "set args": 'set -- --lr 1e-4\n@TRAIN "$@" --seed $#',
    "set args append": 'set -- --lr 1e-4\nset -- "$@" --seed 7\n@TRAIN "$@"',
    "local x=$1 y=$2": "f() { local L=$1 S=$2; shift 2; @TRAIN --lr $L --seed $S $@; }\nf 1e-4 7 --pp 1",
    "case: case": 'S=7B\ncase "$S" in 7b) LR=9;; 7B|8B) LR=1e-4;; *) LR=8;; esac\n@TRAIN --lr $LR',
    "case: glob": "S=llama-7b\ncase $S in llama*) LR=1e-4;; esac\n@TRAIN --lr $LR",
    "case: quoted glob": "S=llama\ncase $S in 'l*') LR=9;; l*) LR=1e-4;; esac\n@TRAIN --lr $LR",
    "case: var pattern": "S=abc\nP='a*'\ncase $S in \"$P\") LR=9;; $P) LR=1e-4;; esac\n@TRAIN --lr $LR",
    "case: none": "LR=1e-4\ncase x in a) LR=9;; esac\n@TRAIN --lr $LR",
    "case: class": "S=b2\ncase $S in [!a-z]*) LR=9;; [a-z][0-9]) LR=1e-4;; esac\n@TRAIN --lr $LR",
    "lists: pipe group": "LR=1e-4\n{ LR=9; } | cat\n@TRAIN --lr $LR",
    "lists: function in pipe": "LR=1e-4\nf() { LR=9; }\nf | cat\n@TRAIN --lr $LR",
    "loops: while pipe": "LR=1e-4\necho x | while read X; do LR=9; done\n@TRAIN --lr $LR",
    "here-documents: assign": "LR=1e-4\ncat > x.txt <<EOF\nLR=9\ntorchrun pretrain_gpt.py --num-layers 99 --lr 9\nEOF\n@TRAIN --lr $LR",
    "here-documents: dash": "LR=1e-4\ncat > x.txt <<-'EOF'\n\tLR=9\n\tEOF\n@TRAIN --lr $LR",
    "here-documents: with backslash": "cat > x <<EOF\na \\\nb\nEOF\n@TRAIN --lr 1e-4",
    "here-documents: herestring": "@TRAIN --lr 1e-4 <<< '--seed 9' --pp 1",
    "heredoc in func": "f() {\ncat <<EOF\n}\nLR=9\nEOF\nLR=1e-4\n}\nf > /dev/null\n@TRAIN --lr $LR",
    "heredoc quote": "cat <<'E O'\nLR=9\nE O\nLR=1e-4\n@TRAIN --lr $LR",
    "heredoc pipe": "cat <<EOF | cat\nLR=9\nEOF\nLR=1e-4\n@TRAIN --lr $LR",
    "conditions: double glob": "S=llama\nif [[ $S == l* ]]; then LR=1e-4; else LR=9; fi\n@TRAIN --lr $LR",
    "conditions: double quoted glob": 'S=llama\nif [[ $S == "l*" ]]; then LR=9; else LR=1e-4; fi\n@TRAIN --lr $LR',
    "conditions: not": "if ! [ 1 = 2 ]; then LR=1e-4; else LR=9; fi\n@TRAIN --lr $LR",
    "conditions: -z multi": "A='x y'\nif [[ -z $A ]]; then LR=9; else LR=1e-4; fi\n@TRAIN --lr $LR",
    "conditions: elif": "A=2\n"
    "if [ $A -eq 1 ]; then LR=9; elif [ $A -eq 2 ]; then LR=1e-4; elif [ $A -eq 2 ]; then LR=8; else LR=7; fi\n@TRAIN --lr $LR",
    "conditions: nested if": "A=1\nB=2\nif [ $A = 1 ]; then if [ $B = 3 ]; then LR=9; else LR=1e-4; fi; fi\n@TRAIN --lr $LR",
    "conditions: cond uses default": 'if [ "${MODE:-full}" = full ]; then LR=1e-4; else LR=9; fi\n@TRAIN --lr $LR',
    "conditions: nargs": "if [ $# -lt 1 ]; then LR=1e-4; else LR=9; fi\n@TRAIN --lr $LR",
    "conditions: nargs exit": 'LR=1e-4\nif [ "$#" -ge 1 ]; then exit 1; fi\n@TRAIN --lr $LR',
    "conditions: x trick set": 'M=a\nif [ "x$M" != "x" ]; then LR=1e-4; else LR=9; fi\n@TRAIN --lr $LR',
    "if time": "if [[ -n ${LR+x} ]]; then LR=9; else LR=1e-4; fi\n@TRAIN --lr $LR",
    "if plus": "LR=1e-4\nif [ -z ${LR+x} ]; then LR=9; fi\n@TRAIN --lr $LR",
    "lists: and chain": "A=1\n[ $A = 1 ] && B=2 && LR=1e-4\n@TRAIN --lr $LR --seed $B",
    "lists: or chain": "A=1\n[ $A = 2 ] || [ $A = 3 ] || LR=1e-4\n@TRAIN --lr $LR",
    "lists: and or": "A=1\n[ $A = 2 ] && LR=9 || LR=1e-4\n@TRAIN --lr $LR",
    "lists: group": "A=1\n[ $A = 1 ] && { LR=1e-4; S=7; }\n@TRAIN --lr $LR --seed $S",
    "lists: group or": "A=1\n[ $A = 1 ] || { LR=9; exit 1; }\nLR=1e-4\n@TRAIN --lr $LR",
    "negated list": "! [ 1 = 1 ] && LR=9\n@TRAIN --lr ${LR:-1e-4}",
    "subshells: subshell": "LR=1e-4\n(LR=9)\n@TRAIN --lr $LR",
    "subshells: exit": "LR=1e-4\n(exit 1)\n@TRAIN --lr $LR",
    "subshells: array": 'A=(--lr 1e-4)\n(A+=(--seed 7))\n@TRAIN "${A[@]}"',
    "subshells: shift": "set -- 1e-4 9\n(shift)\n@TRAIN --lr $1",
    "subshells: cond": "LR=1e-4\nif [ 1 = 1 ]; then (LR=9); fi\n@TRAIN --lr $LR",
    "subshells: subst": "LR=1e-4\nX=$(LR=9)\n@TRAIN --lr $LR",
    "subshells: group leaks": "{ LR=1e-4; }\n@TRAIN --lr $LR",
    "subshells: unset sub": "LR=1e-4\n(unset LR)\n@TRAIN --lr $LR",
    "commands: export": "export LR=1e-4 S=7\n@TRAIN --lr $LR --seed $S",
    "commands: export later": "LR=1e-4\nexport LR\nLR=2e-4\n@TRAIN --lr $LR",
    "commands: readonly twice": "readonly LR=1e-4\nreadonly S=7\n@TRAIN --lr $LR --seed $S",
    "commands: readonly arr": 'readonly -a A=(--lr 1e-4)\n@TRAIN "${A[@]}"',
    "commands: assign many": "A=1 B=2 LR=1e-4\n@TRAIN --lr $LR --seed $A$B",
    "commands: assign prev": "A=1 B=$A\n@TRAIN --lr 1e-4 --seed $B",
    "commands: prefix env": "LR=1e-4\nLR=9 @TRAIN --lr $LR",
    "commands: prefix env 2": "LR=1e-4\nLR=9 true\n@TRAIN --lr $LR",
    "commands: append str": "A='--lr 1e-4'\nA+=' --seed 7'\nA=\"$A --pp 1\"\n@TRAIN $A",
    "commands: eval quote": 'A=LR\neval "$A=1e-4"\n@TRAIN --lr $LR',
    "commands: eval indirect": "LR_A=1e-4\nN=A\neval LR=\\$LR_$N\n@TRAIN --lr $LR",
    "commands: exec redirect": "exec 3>&1\nexec > out.log 2>&1\n@TRAIN --lr 1e-4",
    "commands: arith div": "A=7\nB=2\n@TRAIN --lr 1e-4 --seed $((A/B)) --a $(( $A - $B * 3 )) --b $((-A % B))",
    "commands: cmd arr": 'CMD=(torchrun pretrain_gpt.py)\n"${CMD[@]}" --num-layers 2 --lr 1e-4',
    "commands: time": "time @TRAIN --lr 1e-4",
    "commands: nohup": "nohup @TRAIN --lr 1e-4",
    "commands: timeout": "timeout 5 @TRAIN --lr 1e-4",
    "commands: echo cond": "echo @TRAIN --lr 9\n@TRAIN --lr 1e-4",
    "lines: continuation before the closing quote": 'A="--lr 1e-4 \\\n  --seed 7 \\\n"\n@TRAIN $A',
    "lines: continuation in the middle of a quoted word": 'A="--lr 1e\\\n-4 --seed 7"\n@TRAIN $A',
    "lines: continuation between quoted variables": 'A=(--lr 1e-4)\nB=(--seed 7)\nC="@TRAIN ${A[@]} \\\n    ${B[@]}"\neval $C',
    "eval with redirections": 'C="@TRAIN --lr 1e-4 &>> log --seed 7"\neval $C',
    "eval append": "A=(--lr)\neval 'A+=(1e-4)'\n@TRAIN \"${A[@]}\"",
    "eval set func": "eval 'f() { LR=1e-4; }'\nf\n@TRAIN --lr $LR",
    "lines: continuation comment in middle": "@TRAIN --lr 1e-4 \\\n  # --seed 9 \\\n  --seed 7\ntrue",
    "lines: continuation comment end": "@TRAIN --lr 1e-4 \\\n  --seed 7 # \\\n  --pp 9\ntrue",
    "lines: continuation blank": "@TRAIN --lr 1e-4 \\\n\n  --seed 7\ntrue",
    "lines: continuation in string": 'A="--lr 1e-4 \\\n  --seed 7"\n@TRAIN $A',
    "lines: newline in string": 'A="--lr 1e-4\n  --seed 7\n"\n@TRAIN $A',
    "lines: trailing backslash end": "@TRAIN --lr 1e-4 \\",
    "lines: trailing backslash and comment end": "@TRAIN --lr 1e-4 \\\n  # the end",
    "lines: semicolon": "@TRAIN --lr 1e-4; echo --seed 9",
    "lines: comment hash in word": "@TRAIN --lr 1e-4 --save a#b #--seed 9",
    "lines: unicode": "@TRAIN --lr 1e-4 --save 'größe/模型' --x ü",
    "lines: equals": 'A=--seed=7\n@TRAIN --lr=1e-4 $A --save="a b"',
    "comment apostrophe": "# don't\nLR=1e-4 # it's\n@TRAIN --lr $LR # isn't",
    "sourced: source": 'source settings.sh\ntorchrun pretrain_gpt.py "${LAYERS[@]}" --lr $LR',
    "sourced: dot": '. ./settings.sh\nadd 7\ntorchrun pretrain_gpt.py "${LAYERS[@]}" --lr $LR "${MORE[@]}"',
    "sourced: source chain": "source chain.sh\n@TRAIN --lr $LR",
    "sourced: source var": "D=.\nsource $D/settings.sh\n@TRAIN --lr $LR",
    "sourced: source in sub": "LR=9\n(source settings.sh)\n@TRAIN --lr $LR",
    "sourced: source in func": "f() { source settings.sh; }\nf\n@TRAIN --lr $LR",
    "sourced: source beside the script": 'source "$(dirname "$0")/settings.sh"\n@TRAIN --lr $LR',
    "sourced: source beside the script by a variable": 'HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)\n'
    "source $HERE/settings.sh\n@TRAIN --lr $LR",
    "sourced: source in the folder": "source `pwd`/settings.sh\n@TRAIN --lr $LR",
    "sourced: source args none": "set -- 1e-4\nsource args.sh\n@TRAIN --lr $LR",
}
"""Scripts of which every argument is told, and is what bash passes; ``@TRAIN`` is the command that trains."""

TRICKIER = {
    "arrays: append one": 'A=(--lr)\nA+=(1e-4)\nA[2]=--seed\nA[3]=7\n@TRAIN "${A[@]}"',
    "arrays: slice": 'A=(--lr 1e-4 --seed 7 --pp 2)\n@TRAIN "${A[@]:0:2}" "${A[@]:4}"',
    "expansions: cut": "S=/a/b/c.tar.gz\n@TRAIN --lr 1e-4 --save ${S##*/} --a ${S#*/} --b ${S%.*} --c ${S%%.*} --d ${S%/*}",
    "expansions: cut class": "S=ab12\n@TRAIN --lr 1e-4 --save ${S%%[0-9]*} --x ${S%[!a]}",
    "expansions: length": "S=hello\n@TRAIN --lr 1e-4 --seed ${#S} --pp ${#NOPE}",
    "functions: at slice": 'f() { @TRAIN "${@:2}"; }\nf x --lr 1e-4',
    "functions: at slice2": 'f() { @TRAIN "${@:2:2}" --save "${*:1:1}"; }\nf x --lr 1e-4 y',
    "loops: for one": "for LR in 1e-4; do @TRAIN --lr $LR; done",
    "loops: for two same": "for X in 1 2; do @TRAIN --lr 1e-4; done",
    "conditions: count": "A=(1 2)\nif [ ${#A[@]} -gt 1 ]; then LR=1e-4; else LR=9; fi\n@TRAIN --lr $LR",
    "quoting: ansi": "@TRAIN --lr 1e-4 --save $'a\\tb' --split $'x'",
    "quoting: ifs local": 'join() { local IFS=,; echo "$*"; }\n@TRAIN --lr 1e-4 --split "$(join 98 2 0)"',
    "quoting: command": "@TRAIN --lr 1e-4 --split `echo 98,2,0`",
    "quoting: brace": "@TRAIN --lr 1e-4 --data-path /d/{a,b} --seed 7",
    "quoting: brace list": "@TRAIN --lr 1e-4 --data-path {1..3} --seed 7",
    "quoting: glob": "@TRAIN --lr 1e-4 --data-path *.sh --seed 7",
    "quoting: glob var": "P='*.sh'\n@TRAIN --lr 1e-4 --data-path $P --seed 7",
    "quoting: tilde": "@TRAIN --lr 1e-4 --save ~/x",
    "quoting: tilde of an assignment": "D=~/x\n@TRAIN --lr 1e-4 --save $D",
    "quoting: glob in array": "A=(*.sh)\n@TRAIN --lr 1e-4 --data-path ${A[@]}",
    "quoting: ifs": "IFS=,\nA=98,2,0\n@TRAIN --lr 1e-4 --split $A",
    "quoting: ifs star": 'IFS=,\nA=(98 2 0)\n@TRAIN --lr 1e-4 --split "${A[*]}"',
    "quoting: var in word": "N=2\n@TRAIN --lr 1e-4 --save ckpt_${N}_$N.x/$N",
    "quoting: underscore before a variable": "N=2\n@TRAIN --lr 1e-4 --save ck/${N}_$N/x",
    "quoting: dollar alone": "@TRAIN --lr 1e-4 --save a$ --split '$'b",
    "lines: continuation of an unknown in quotes": 'C="@TRAIN --lr $(cat lr) \\\n  --seed 7 \\\n"\neval $C 2>&1 | cat',
    "conditions: what may be appended": 'A=(--lr 1e-4)\nif [ -d /nowhere ]; then A+=(--seed 7); fi\n@TRAIN "${A[@]}"',
    "conditions: what may be appended to a text": 'A="--lr 1e-4"\nif [ -d /nowhere ]; then A="$A --seed 7"; fi\n@TRAIN $A',
    "conditions: what may exit": "LR=1e-4\nif [ -f /nowhere ]; then LR=9; exit 1; fi\n@TRAIN --lr $LR",
    "conditions: alternative of an unknown": "E=$(cat nothing)\n@TRAIN --lr 1e-4 ${E:+--seed 7}",
    "flags: what may follow one of nobody": 'if [ -d /nowhere ]; then A="--seed 7"; else A=; fi\n@TRAIN --lr 1e-4 --of-ours $A',
    "lines: nbsp in var": "A='--lr 1e-4 --seed 7\u00a0x'\n@TRAIN $A",
    "arrays: gaps": 'A[0]=--lr\nA[5]=1e-4\n@TRAIN "${A[@]}"',
    "arrays: gaps in literal": 'A=([0]=--lr [7]=1e-4)\n@TRAIN "${A[@]}"',
    "arrays: count": "A=(a b 'c d')\n@TRAIN --lr 1e-4 --seed ${#A[@]} --pp ${#A[*]} --tp ${#A} --cp ${#A[2]}",
    "arrays: index": "A=(1 2 3)\nI=1\n@TRAIN --lr 1e-4 --seed ${A[1]} --pp ${A[$I]} --tp ${A[-1]} --cp $A --x ${A[I+1]}",
    "arrays: slice neg": 'A=(--lr 1e-4 --seed 7 --pp 2)\n@TRAIN --lr 1e-4 "${A[@]: -2}"',
    "arrays: unset element": "A=(--lr 1e-4 --bf16)\nunset 'A[2]'\n@TRAIN \"${A[@]}\"",
    "arrays: unset element bare": 'A=(--lr 1e-4 --bf16)\nunset A[2]\n@TRAIN "${A[@]}"',
    "arrays: unset middle count": 'A=(a b c)\nunset \'A[0]\'\n@TRAIN --lr 1e-4 --seed "${A[1]}" --pp "${#A[@]}"',
    "arrays: slice with a gap": "A=(a b c)\nunset 'A[1]'\n@TRAIN --lr 1e-4 --save \"${A[@]:1}\"",
    "arrays: slice beyond the end": 'A=(a)\n@TRAIN --lr 1e-4 --seed 7 "${A[@]:5}"',
    "arrays: element appended to": 'A=(--lr 1e)\nA[1]+=-4\n@TRAIN "${A[@]}"',
    "arrays: element at the length": 'A=(--lr)\nA[${#A[@]}]=1e-4\n@TRAIN "${A[@]}"',
    "arrays: last element": 'A=(--lr 9)\nA[-1]=1e-4\n@TRAIN "${A[@]}"',
    "arrays: assigned as a scalar": 'A=(--lr 1e-4)\nA=--bf16\n@TRAIN "${A[@]}"',
    "arrays: at in word": 'A=(98 2)\n@TRAIN --lr 1e-4 --data-path "x${A[@]}y"',
    "arrays: assoc literal": "declare -A A=([lr]=1e-4 [seed]=7)\n@TRAIN --lr ${A[lr]} --seed ${A[seed]}",
    "arrays: suffix all": 'A=(a.bin b.bin)\n@TRAIN --lr 1e-4 --data-path "${A[@]%.bin}"',
    "arrays: prefix all": 'A=(a b)\n@TRAIN --lr 1e-4 --data-path "${A[@]/#/x}"',
    "arrays: default that is an array": 'A=(--lr 1e-4)\n@TRAIN "${Z[@]:-${A[@]}}"',
    "arrays: readarray": "readarray -t A <<< '--lr\n1e-4'\n@TRAIN \"${A[@]}\"",
    "arrays: read -a": 'A=(--lr 9)\nread -r -a A <<< "--lr 1e-4"\n@TRAIN "${A[@]}"',
    "arrays: read": "LR=1e-5\nread LR <<< 1e-4\n@TRAIN --lr $LR",
    "arrays: printf -v": "LR=1e-5\nprintf -v LR '%s' 1e-4\n@TRAIN --lr $LR",
    "arrays: IFS read": "P=1\nIFS=, read -r P Q <<< '2,3'\n@TRAIN --lr 1e-4 --pp $P --tp $Q",
    "loops: while read": "LR=9\nwhile read -r X; do LR=$X; done <<< 1e-4\n@TRAIN --lr $LR",
    "loops: while read file": 'LR=9\nwhile IFS== read -r K V; do [ "$K" = LR ] && LR=$V; done < settings.sh\n@TRAIN --lr $LR',
    "expansions: default quoted": '@TRAIN --lr 1e-4 --data-path ${P:-"a b" c}',
    "expansions: alt quoted": "W='a b'\n@TRAIN --lr 1e-4 ${W:+--save \"$W\"}",
    "alt load2": 'L=/x\n@TRAIN --lr 1e-4 ${L:+--load "$L" --seed 7}',
    "def words quoted var": 'L=/x\n@TRAIN --lr 1e-4 ${Z:---load "$L"}',
    "expansions: replace": "S=98,2,0\n@TRAIN --lr 1e-4 --split ${S/,/:} --x ${S//,/ } --y ${S//,} --z ${S/#98/99} --w ${S/%0/1}",
    "expansions: replace pattern": "S=a.b.c\n@TRAIN --lr 1e-4 --save ${S//[ab]/x} --x ${S/.*/y}",
    "expansions: cut quoted": "S='a*b'\n@TRAIN --lr 1e-4 --save ${S%'*b'} --x ${S%\\*b}",
    "expansions: cut var": "S=abc\nP='?'\n@TRAIN --lr 1e-4 --save ${S%$P} --x ${S%\"$P\"}",
    "expansions: substring": "S=hello\n@TRAIN --lr 1e-4 --save ${S:1:3} --x ${S:2} --y ${S: -2} --z ${S:0:-1}",
    "expansions: case": "S=Hello\n@TRAIN --lr 1e-4 --save ${S,,} --x ${S^^} --y ${S^}",
    "expansions: indirect": "A=7\nB=A\n@TRAIN --lr 1e-4 --seed ${!B}",
    "expansions: default single quote": "@TRAIN --lr 1e-4 --save ${S:-'a b'} --x \"${S:-'a b'}\"",
    "expansions: unset in middle": "@TRAIN --lr 1e-4 $NOPE --seed 7",
    "expansions: arg count": '@TRAIN --lr 1e-4 --seed $# --pp "${#}"',
    "expansions: uid": '[ -z "$UID" ] && LR=9 || LR=1e-4\n@TRAIN --lr $LR',
    "expansions: hostname": "@TRAIN --lr 1e-4 --save ${HOSTNAME:-localhost}",
    "expansions: status cond": 'true\nif [ "$?" = 0 ]; then LR=1e-4; else LR=9; fi\n@TRAIN --lr $LR',
    "expansions: status cond2": "true\nif [[ $? == 0 ]]; then LR=1e-4; else LR=9; fi\n@TRAIN --lr $LR",
    "expansions: status cond3": "false\nif [ $? -ne 0 ]; then LR=1e-4; else LR=9; fi\n@TRAIN --lr $LR",
    "functions: last arg": "f() { @TRAIN --lr ${@: -1}; }\nf x 1e-4",
    "functions: at in word": 'f() { @TRAIN "--lr=$@"; }\nf 1e-4 --seed 7',
    "functions: shift too far": 'f() { shift 5; @TRAIN "$@"; }\nf --lr 1e-4',
    "functions: shift loop": "f() { while [[ $# -gt 0 ]]; do case $1 in --rate) LR=$2; shift 2;; *) shift;; esac; done; }\n"
    "f --x --rate 1e-4\n@TRAIN --lr $LR",
    "functions: local shadows unset": "LR=1e-4\nf() { local LR; @TRAIN --lr ${LR:-1e-5}; }\nf",
    "functions: declare g": "LR=9\nf() { declare -g LR=1e-4; }\nf\n@TRAIN --lr $LR",
    "functions: local before set": "LR=1e-5\nf() { LR=1e-4; local LR=9; }\nf\n@TRAIN --lr $LR",
    "functions: local of a local": "f() { local A=1 B=$A; @TRAIN --lr 1e-4 --seed $B; }\nA=7\nf",
    "functions: return value": "f() { return 1; }\nif f; then LR=9; else LR=1e-4; fi\n@TRAIN --lr $LR",
    "functions: return or": "LR=1e-4\nf() { return 1; }\nf && LR=9\n@TRAIN --lr $LR",
    "functions: return or2": "LR=9\nf() { return 1; }\nf || LR=1e-4\n@TRAIN --lr $LR",
    "functions: last status": "LR=9\nf() { [ 1 = 2 ]; }\nf || LR=1e-4\n@TRAIN --lr $LR",
    "functions: output": "f() { echo 1e-4; }\n@TRAIN --lr $(f)",
    "functions: prefix after": "LR=1e-4\nf() { :; }\nLR=9 f\n@TRAIN --lr $LR",
    "functions: set dash": "set -- 1e-5\nset - 1e-4\n@TRAIN --lr $1",
    "function in else": "if [ -d /tmp ]; then f() { LR=1e-4; }; else f() { LR=9; }; fi\nf\n@TRAIN --lr $LR",
    "case: half quoted no": "S='lx'\ncase $S in l\"*\") LR=9;; *) LR=1e-4;; esac\n@TRAIN --lr $LR",
    "case: fall": "S=a\ncase $S in a) A=1;& b) LR=1e-4;; *) LR=9;; esac\n@TRAIN --lr $LR --seed $A",
    "case: test next": "S=a\ncase $S in a) LR=9;;& [a-c]) LR=1e-4;; *) LR=8;; esac\n@TRAIN --lr $LR",
    "case: extglob": "shopt -s extglob\nS=ab\ncase $S in @(ab|cd)) LR=1e-4;; *) LR=9;; esac\n@TRAIN --lr $LR",
    "case: caret class": "S=b2\ncase $S in [^a]*) LR=1e-4;; *) LR=9;; esac\n@TRAIN --lr $LR",
    "case: posix class": "S=2\ncase $S in [[:digit:]]) LR=1e-4;; *) LR=9;; esac\n@TRAIN --lr $LR",
    "case: nocase": "shopt -s nocasematch\ncase ABC in abc) LR=1e-4;; *) LR=9;; esac\n@TRAIN --lr $LR",
    "loops: for array": 'A=()\nfor X in --lr 1e-4; do A+=("$X"); done\n@TRAIN "${A[@]}"',
    "loops: for array2": 'P=(a b)\nA=()\nfor X in "${P[@]}"; do A+=(0.5 /d/$X); done\n@TRAIN --lr 1e-4 --data-path "${A[@]}"',
    "loops: for empty array": 'LR=1e-4\nE=()\nfor X in "${E[@]}"; do LR=9; done\n@TRAIN --lr $LR',
    "loops: for last": "for LR in 1e-5 1e-4; do :; done\n@TRAIN --lr $LR",
    "loops: for break": "for LR in 1e-4 1e-5; do break; done\n@TRAIN --lr $LR",
    "loops: for one break": "for X in 1; do LR=1e-4; break; LR=9; done\n@TRAIN --lr $LR",
    "loops: for one continue": "for X in 1; do LR=1e-4; continue; LR=9; done\n@TRAIN --lr $LR",
    "loops: for one if break": "for X in 1; do LR=1e-4; [ $X = 1 ] && break; LR=9; done\n@TRAIN --lr $LR",
    "loops: for brace one": "A=()\nfor X in {1..3}; do A+=($X); done\n@TRAIN --lr 1e-4 --data-path ${A[@]}",
    "loops: for glob": "A=()\nfor X in *.sh; do A+=($X); done\n@TRAIN --lr 1e-4 --data-path ${A[@]}",
    "loops: for c": "N=1\nfor ((i=0;i<3;i++)); do N=$((N*2)); done\n@TRAIN --lr 1e-4 --seed $N",
    "loops: while": "i=0\nA=()\nwhile [ $i -lt 3 ]; do A+=(x$i); i=$((i+1)); done\n@TRAIN --lr 1e-4 --seed $i --data-path ${A[@]}",
    "loops: while arith": "i=0\nwhile (( i < 3 )); do (( i++ )); done\n@TRAIN --lr 1e-4 --seed $i",
    "loops: until": "i=0\nuntil [ $i -ge 3 ]; do ((i+=1)); done\n@TRAIN --lr 1e-4 --seed $i",
    "loops: while true break": "while true; do LR=1e-4; break; done\n@TRAIN --lr $LR",
    "loop carried": "N=7\nfor i in 1 2; do S=$N; N=8; done\n@TRAIN --lr 1e-4 --seed $S",
    "conditions: then does not reach else": "LR=1e-4\nif [ -f /nowhere ]; then LR=9; else @TRAIN --lr $LR; fi",
    "conditions: one case does not reach another": "LR=1e-4\ncase $(echo b) in a) LR=9;; b) @TRAIN --lr $LR;; esac",
    "conditions: array of then does not reach else": 'A=(--lr 1e-4)\nif [ -f /nowhere ]; then A+=(--seed 9); else @TRAIN "${A[@]}"; fi',
    "return in unsure": "f() { if [ -d /tmp ]; then LR=9; return; fi; LR=1e-4; }\nf\n@TRAIN --lr $LR",
    "return in unsure and": "f() { LR=9; [ -d /tmp ] && return; LR=1e-4; }\nf\n@TRAIN --lr $LR",
    "here-documents: then and": "LR=9\ncat > x.txt <<EOF && LR=1e-4\nx\nEOF\n@TRAIN --lr $LR",
    "here-documents: stdin of train": "@TRAIN --lr 1e-4 <<EOF --seed 7\nhello\nEOF",
    "here-documents: var": "read -r -d '' A <<EOF\n--lr 1e-4\nEOF\n@TRAIN $A",
    "here-documents: cat": "A=$(cat <<EOF\n--lr 1e-4\nEOF\n)\n@TRAIN $A",
    "here-documents: script run": "cat > run.sh <<'EOF'\n@TRAIN --lr 1e-4\nEOF\nbash run.sh",
    "conditions: default assigned": "if [ -d /nowhere ]; then : ${LR:=9}; fi\n@TRAIN --lr ${LR:-1e-4}",
    "conditions: double regex": "S=llama7\nif [[ $S =~ ^l.*[0-9]$ ]]; then LR=1e-4; else LR=9; fi\n@TRAIN --lr $LR",
    "conditions: double lt": "if [[ 10 < 9 ]]; then LR=1e-4; else LR=9; fi\n@TRAIN --lr $LR",
    "conditions: double gt num": "if [[ 9 > 10 ]]; then LR=1e-4; else LR=9; fi\n@TRAIN --lr $LR",
    "conditions: single -o": "A=1\nif [ $A = 2 -o $A = 1 ]; then LR=1e-4; else LR=9; fi\n@TRAIN --lr $LR",
    "test a": "A=1\nif [ $A = 1 -a $A = 1 ]; then LR=1e-4; else LR=9; fi\n@TRAIN --lr $LR",
    "conditions: not inside": "if [ ! 1 = 2 ]; then LR=1e-4; else LR=9; fi\n@TRAIN --lr $LR",
    "conditions: empty unquoted": "E=\nif [ -n $E ]; then LR=1e-4; else LR=9; fi\n@TRAIN --lr $LR",
    "conditions: empty unquoted ne": "E=\nif [ $E != x ]; then LR=9; else LR=1e-4; fi\n@TRAIN --lr $LR",
    "conditions: octal": "if [ 010 -eq 10 ]; then LR=1e-4; else LR=9; fi\n@TRAIN --lr $LR",
    "conditions: -v": "LR=9\nA=1\nif [[ -v A ]]; then LR=1e-4; fi\n@TRAIN --lr $LR",
    "conditions: test cmd": "A=1\nif test $A = 1; then LR=1e-4; else LR=9; fi\n@TRAIN --lr $LR",
    "conditions: test and": "A=2\nLR=1e-4\ntest $A = 1 && LR=9\n@TRAIN --lr $LR",
    "conditions: arith": "A=3\nif (( A > 2 )); then LR=1e-4; else LR=9; fi\n@TRAIN --lr $LR",
    "conditions: arith zero": "A=0\nLR=1e-4\n((A)) && LR=9\n@TRAIN --lr $LR",
    "conditions: arith and": "A=0\nLR=1e-4\n(( A > 2 )) && LR=9\n@TRAIN --lr $LR",
    "conditions: arith or": "A=0\nLR=9\n(( A > 2 )) || LR=1e-4\n@TRAIN --lr $LR",
    "conditions: if multi": "if A=1; [ $A = 2 ]; then LR=9; else LR=1e-4; fi\n@TRAIN --lr $LR",
    "conditions: var is cmd": "USE=false\nLR=1e-4\nif $USE; then LR=9; fi\n@TRAIN --lr $LR",
    "conditions: var is cmd and": "USE=false\nLR=1e-4\n$USE && LR=9\n@TRAIN --lr $LR",
    "conditions: x trick": "if [ x$MODE = x ]; then LR=1e-4; else LR=9; fi\n@TRAIN --lr $LR",
    "conditions: word beside a variable": 'if [ "$M"x = x ]; then LR=1e-4; else LR=9; fi\n@TRAIN --lr $LR',
    "conditions: word before a braced variable": "if [[ x${M} == x ]]; then LR=1e-4; else LR=9; fi\n@TRAIN --lr $LR",
    "lists: unknown cmd": "LR=1e-4\ngrep -q zzz settings.sh && LR=9\n@TRAIN --lr $LR",
    "lists: command -v": "LR=1e-4\ncommand -v nosuchthing > /dev/null && LR=9\n@TRAIN --lr $LR",
    "assign status": "LR=9\nX=$(false) || LR=1e-4\n@TRAIN --lr $LR",
    "pipe status": "LR=9\ntrue | false || LR=1e-4\n@TRAIN --lr $LR",
    "group status": "LR=9\n{ true; false; } || LR=1e-4\n@TRAIN --lr $LR",
    "false redirect": "LR=9\nfalse 2>/dev/null || LR=1e-4\n@TRAIN --lr $LR",
    "lists: and or effect": "A=1\n[ $A = 1 ] && A=2 && [ $A = 2 ] && LR=1e-4\n@TRAIN --lr $LR",
    "lists: background": "LR=1e-4\nLR=9 &\nwait\n@TRAIN --lr $LR",
    "lists: background group": "LR=1e-4\n{ LR=9; } &\nwait\n@TRAIN --lr $LR",
    "lists: function in bg": "LR=1e-4\nf() { LR=9; }\nf &\nwait\n@TRAIN --lr $LR",
    "subshells: train": "LR=9\n(LR=1e-4; @TRAIN --lr $LR)",
    "subshells: fails": "LR=1e-4\n(exit 1) && LR=9\n@TRAIN --lr $LR",
    "subshells: function": "f() { LR=1e-4; }\n(f() { LR=9; })\nf\n@TRAIN --lr $LR",
    "commands: readonly": "readonly LR=1e-4\nLR=9\n@TRAIN --lr $LR",
    "commands: declare -i": "declare -i N=2+3\n@TRAIN --lr 1e-4 --seed $N",
    "commands: declare -ri": "declare -ri N=2+3\n@TRAIN --lr 1e-4 --seed $N",
    "commands: declare -i late": "declare -i N\nN=2+3\n@TRAIN --lr 1e-4 --seed $N",
    "commands: declare -l": "declare -l S\nS=ABC\n@TRAIN --lr 1e-4 --save $S",
    "commands: declare -n": "A=7\ndeclare -n B=A\n@TRAIN --lr 1e-4 --seed $B",
    "commands: declare -n set": "A=7\ndeclare -n B=A\nB=8\n@TRAIN --lr 1e-4 --seed $A",
    "commands: local -n": "LR=9\nf() { local -n R=$1; R=1e-4; }\nf LR\n@TRAIN --lr $LR",
    "commands: let": "N=1\nlet N+=2\n@TRAIN --lr 1e-4 --seed $N",
    "commands: let ++": "N=1\nlet N++\n@TRAIN --lr 1e-4 --seed $N",
    "commands: arith assign": "N=1\n((N+=2))\n@TRAIN --lr 1e-4 --seed $N",
    "commands: arith in word": "N=1\nM=$((N++))\n@TRAIN --lr 1e-4 --seed $N",
    "commands: arith pow": "@TRAIN --lr 1e-4 --seed $((2**10)) --a $((1<<3)) --b $((5%3)) --d $((7>3?1:0)) --e $((010))",
    "commands: arith str": "A=2+3\n@TRAIN --lr 1e-4 --seed $((A*2)) --b $(($A*2))",
    "commands: alias": "shopt -s expand_aliases\nalias train='@TRAIN'\ntrain --lr 1e-4",
    "commands: redirects": "@TRAIN --lr 1e-4 >out.log 2>&1 --seed 7 2>>err.log </dev/null --pp 1 &>/dev/null",
    "commands: xargs": "echo --lr 1e-4 | xargs @TRAIN ",
    "commands: exec": "LR=1e-4\nexec @TRAIN --lr $LR\nLR=9\n@TRAIN --lr 9",
    "commands: exit": "@TRAIN --lr 1e-4\nexit 0\n@TRAIN --lr 9",
    "commands: exit in func": "f() { exit 0; }\n@TRAIN --lr 1e-4\nf\n@TRAIN --lr 9",
    "lines: continuation spaces": "@TRAIN \\  \n  --lr 1e-4\ntrue",
    "lines: continuation comment": "@TRAIN \\\n  # --lr 9 \\\n  --lr 1e-4\ntrue",
    "lines: continuation in word": "@TRAIN --lr 1e\\\n-4",
    "lines: continuation in name": "@TRAIN --lr 1e-4 --se\\\ned 7",
    "lines: continuation joined": "@TRAIN --lr 1e-4\\\n--seed 7",
    "lines: continuation in string word": 'A="--lr 1e\\\n-4"\n@TRAIN $A',
    "lines: continuation commented out": "@TRAIN --lr 1e-4 `# a comment` --seed 7",
    "sourced: beside the parent": 'LR=9\nsource "$(cd "$(dirname "$0")/.." && pwd)/settings.sh" || true\n@TRAIN --lr $LR',
    "sourced: beside another": 'C=/nowhere/x\nLR=9\nsource "$(dirname "$C")/settings.sh" || true\n@TRAIN --lr $LR',
    "sourced: from another folder": "mkdir -p d && echo LR=1e-4 > d/settings.sh\ncd d\nsource settings.sh\n@TRAIN --lr $LR",
    "quoting: blank beside a variable": 'N=2\n@TRAIN --lr 1e-4 --save "a --seed 7"$N',
    "expansions: default quoted with a flag": '@TRAIN --lr 1e-4 --save ${S:-"a --seed 7"}',
    "commands: unset a function": "f=1e-4\nf() { :; }\nunset -f f\n@TRAIN --lr $f",
    "sourced: source early": "source early.sh\n@TRAIN --lr $LR",
    "sourced: source args": "set -- 9\nsource args.sh 1e-4\n@TRAIN --lr $LR",
    "sourced: source dirname before": 'LR=9\nsource "$(dirname "$0")/settings.sh"\n@TRAIN --lr $LR',
    "sourced: source absent": "LR=1e-4\nsource absent.sh\n@TRAIN --lr $LR",
    "sourced: source if there": "LR=9\n[ -f settings.sh ] && source settings.sh\n@TRAIN --lr $LR",
    "sourced: declare -p eval": 'LR=9\neval "$(echo LR=1e-4)"\n@TRAIN --lr $LR',
    "sourced: getopts": "LR=9\nset -- -l 1e-4\nwhile getopts l: O; do case $O in l) LR=$OPTARG;; esac; done\n@TRAIN --lr $LR",
}
"""Scripts of which every argument is what bash passes, or is said not to be known."""

NO_TRAINING = {
    "exec": "exec true\n@TRAIN --lr 1e-4",
    "exit": "exit\n@TRAIN --lr 1e-4",
    "exit in a function": "f() { exit 0; }\nf\n@TRAIN --lr 1e-4",
    "exit of what is sourced": "source quits.sh\n@TRAIN --lr 1e-4",
    "exit of a list": "[ 1 = 1 ] && exit\n@TRAIN --lr 1e-4",
    "a function that nobody calls": "f() {\n@TRAIN --lr 1e-4\n}",
    "a here-document": "cat <<EOF\n@TRAIN --lr 1e-4\nEOF",
    "an empty loop": "E=()\nfor X in ${E[@]}; do @TRAIN --lr $X; done",
}
"""Scripts that train nothing."""
TWO_TRAININGS = {
    "other values of the loop": "for LR in 1e-4 1e-5; do @TRAIN --lr $LR; done",
    "what the loop changes": "N=7\nfor I in 1 2; do @TRAIN --lr 1e-4 --seed $N; N=8; done",
    "what a while changes": "N=7\nwhile [ $N -lt 9 ]; do @TRAIN --lr 1e-4 --seed $N; N=$((N + 1)); done",
    "one after the other": "@TRAIN --lr 1e-4\n@TRAIN --lr 1e-5",
    "one after the other, by a function": "f() { @TRAIN --lr $1; }\nf 1e-4\nf 1e-5",
}
"""Scripts that train twice, each time otherwise."""
EXPORTED = {
    "export": "export NCCL_ALGO=Ring\n@TRAIN",
    "no export": "NCCL_ALGO=Ring\n@TRAIN",
    "of the command alone": "NCCL_ALGO=Ring @TRAIN",
    "of another command": "NCCL_ALGO=Ring true\n@TRAIN",
    "taken back": "export NCCL_ALGO=Ring\nunset NCCL_ALGO\n@TRAIN",
    "no longer exported": "export NCCL_ALGO=Ring\nexport -n NCCL_ALGO\n@TRAIN",
    "of a subshell before": "(export NCCL_ALGO=Ring)\n@TRAIN",
    "of the training's own subshell": "(export NCCL_ALGO=Ring; @TRAIN)",
    "of a function": "f() { export NCCL_ALGO=Ring; }\nf\n@TRAIN",
    "all of them": "set -a\nNCCL_ALGO=Ring\nset +a\n@TRAIN",
    "by env": "env NCCL_ALGO=Ring @TRAIN",
    "after the training": "@TRAIN\nexport NCCL_ALGO=Ring",
    "changed after the training": "export NCCL_ALGO=Ring\n@TRAIN\nexport NCCL_ALGO=Tree",
}
"""Scripts that set a variable of the environment, or do not."""
WINDOWS = {
    "continued": "torchrun pretrain_gpt.py --num-layers 2 \\\n  --lr 1e-4 \\\n  --seed 7\n",
    "array": 'A=(\n  --lr 1e-4 # the rate\n  --seed 7\n)\n@TRAIN "${A[@]}"\n',
    "condition": "if [ 1 = 1 ]; then\n  LR=1e-4\nfi\n@TRAIN --lr $LR\n",
    "case": "case a in\n  a)\n    LR=1e-4\n    ;;\nesac\n@TRAIN --lr $LR\n",
    "here-document": "cat <<EOF\nLR=9\nEOF\nLR=1e-4\n@TRAIN --lr $LR\n",
    "string": 'A="--lr 1e-4 \\\n  --seed 7"\n@TRAIN $A\n',
}


def written(tmp_path: Path, text: str) -> str:
    """A case with its command, beside the files that cases read."""
    for name, content in SOURCED.items():
        (tmp_path / name).write_text(content)
    return text.replace("@TRAIN", TRAIN)


def reads(tmp_path: Path, text: str) -> Configuration:
    return read_script(text, "train.sh", {"OUT": "/out"}, folder=tmp_path)


def passed(tmp_path: Path, text: str) -> Configuration:
    """What bash passes to the training, word by word."""
    return read_words([Word(word, 1) for word in bash_says(tmp_path, text)], Script("bash"))


def wrong(found: Configuration, right: Configuration) -> dict[str, tuple[object, object]]:
    """What is told, is not so, and is not said to be unknown: by name, what is told and what bash passes."""
    if found.gaps:  # shown first, and never an agreement
        return {}
    told, true = values(found), values(right)
    unknown = {name for name, value in found.values.items() if value.unknown}
    return {name: (told.get(name), true.get(name)) for name in {**told, **true} if name not in unknown and told.get(name) != true.get(name)}


@pytest.mark.parametrize("text", FOLLOWED.values(), ids=FOLLOWED)
def test_it_is_followed_to_the_end(tmp_path: Path, text: str) -> None:
    text = written(tmp_path, text)
    found = reads(tmp_path, text)
    assert values(found) == values(passed(tmp_path, text))
    assert found.gaps == ()


@pytest.mark.parametrize("text", TRICKIER.values(), ids=TRICKIER)
def test_it_is_as_bash_runs_it_or_said_not_to_be_followed(tmp_path: Path, text: str) -> None:
    text = written(tmp_path, text)
    right = passed(tmp_path, text)
    try:
        found = reads(tmp_path, text)
    except ConfigurationError:
        return
    assert wrong(found, right) == {}


def test_what_may_be_appended_to_keeps_what_it_has(tmp_path: Path) -> None:
    for name in ("array", "text"):
        one, more, all_of = (
            ("A=(--lr 1e-4)", "A+=(--seed 7)", '"${A[@]}"') if name == "array" else ('A="--lr 1e-4"', 'A="$A --seed 7"', "$A")
        )
        found = reads(tmp_path, written(tmp_path, f"{one}\nif grep -q x y; then {more}; fi\n@TRAIN {all_of}"))
        assert found.values["lr"].value == 1e-4
        why = message("configuration.decided", line=2, script="train.sh")
        assert [(gap.id, gap.arguments["why"]) for gap in found.gaps] == [("configuration.more_arguments", why)]


def test_each_piece_has_its_own_reason(tmp_path: Path) -> None:
    found = reads(tmp_path, written(tmp_path, 'C="@TRAIN --lr $LR --seed $(cat seed)"\neval $C'))
    whys = {name: value.unknown.id for name, value in found.values.items() if value.unknown}
    assert whys == {"lr": "configuration.unset", "seed": "configuration.output"}


def says_it_does_not_know(tmp_path: Path, text: str) -> bool:
    try:
        found = reads(tmp_path, text)
    except ConfigurationError:
        return True
    return bool(found.gaps) or any(value.unknown for value in found.values.values())


@pytest.mark.parametrize("text", NO_TRAINING.values(), ids=NO_TRAINING)
def test_what_never_trains_is_no_training(tmp_path: Path, text: str) -> None:
    text = written(tmp_path, text)
    with pytest.raises(FileNotFoundError):
        bash_says(tmp_path, text)
    assert says_it_does_not_know(tmp_path, text)


@pytest.mark.parametrize("text", TWO_TRAININGS.values(), ids=TWO_TRAININGS)
def test_two_trainings_are_not_one(tmp_path: Path, text: str) -> None:
    assert says_it_does_not_know(tmp_path, written(tmp_path, text))


@pytest.mark.parametrize("text", EXPORTED.values(), ids=EXPORTED)
def test_the_training_has_this_environment(tmp_path: Path, text: str) -> None:
    text = written(tmp_path, text)
    stub = tmp_path / "torchrun"
    stub.write_text('#!/bin/bash\nprintf "%s" "$NCCL_ALGO" > held\n')
    stub.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", text], env=environment, cwd=tmp_path, check=True, timeout=300)
    held = reads(tmp_path, text).environment.get("NCCL_ALGO")
    assert (held is not None and held.unknown) or (held.value if held else "") == (tmp_path / "held").read_text()


@pytest.mark.parametrize("text", WINDOWS.values(), ids=WINDOWS)
def test_line_ends_of_windows_change_nothing(tmp_path: Path, text: str) -> None:
    """Bash itself keeps the carriage returns; nobody means them, so such a script reads as the one that was written."""
    text = written(tmp_path, text)
    assert values(reads(tmp_path, text.replace("\n", "\r\n"))) == values(passed(tmp_path, text))


def test_an_argument_list_that_may_hold_more_is_no_agreement(tmp_path: Path) -> None:
    one = script(tmp_path / "train.sh")
    one.write_text(one.read_text().rstrip() + " \\\n  $EXTRA\n")
    other = configuration(tmp_path / "llama.yaml")
    done = command(one, other)
    assert (done.returncode, done.stderr) == (UNDECIDED, "")
    assert "$EXTRA may be more arguments: nothing sets $EXTRA" in " ".join(done.stdout.split())
    assert check(str(one), str(other), {"EXTRA": "--bf16"}, mindformers="1.9").exit_code == CLEAN
    assert check(str(one), str(other), {"EXTRA": "--qk-layernorm"}, mindformers="1.9").exit_code == DIFFERS


def test_a_sourced_file_that_is_not_here_is_no_agreement(tmp_path: Path) -> None:
    one = script(tmp_path / "train.sh")
    one.write_text("source cluster/settings.sh\n" + one.read_text())
    done = command(one, configuration(tmp_path / "llama.yaml"))
    assert (done.returncode, done.stderr) == (UNDECIDED, "")
    assert "reads cluster/settings.sh, which is not here" in " ".join(done.stdout.split())
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "settings.sh").write_text("SEED=7\n")
    assert check(str(one), str(tmp_path / "llama.yaml"), {}, mindformers="1.9").exit_code == CLEAN


def test_what_a_missing_file_may_have_set_is_said_where_it_differs(tmp_path: Path) -> None:
    """A value that stands before the file is read may be another after it."""
    one = script(tmp_path / "train.sh", lr="$LR")
    one.write_text("LR=9\nsource absent.sh\n" + one.read_text())
    found = check(str(one), str(configuration(tmp_path / "llama.yaml")), {}, mindformers="1.9")
    assert found.exit_code == DIFFERS
    assert found.gaps == [message("configuration.not_here", place="train.sh:2", text="absent.sh")]


ODD = {
    "lr": "lr_schedule__learning_rate",
    "min_lr": "lr_schedule__lr_end",
    "lr_warmup_iters": "lr_schedule__warmup_steps",
    "weight_decay": "optimizer__weight_decay",
    "adam_eps": "optimizer__eps",
    "clip_grad": "runner_wrapper__max_grad_norm",
    "norm_epsilon": "model__model_config__rms_norm_eps",
    "init_method_std": "model__model_config__init_method_std",
    "rotary_base": "model__model_config__theta",
    "num_layers": "model__model_config__num_layers",
    "seq_length": "model__model_config__seq_length",
    "vocab_size": "model__model_config__vocab_size",
    "global_batch_size": "runner_config__batch_size",
}
"""Arguments that may be given what is no number, and the YAML's key."""


@pytest.mark.parametrize("value", ["nan", "inf"])
@pytest.mark.parametrize("name", ODD)
def test_what_is_no_number_never_agrees(tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str, value: str) -> None:
    cosine: dict[str, Any] = {"lr_decay_style": "cosine"}
    one = str(script(tmp_path / "train.sh", **{**cosine, name: value}))
    changes: dict[str, Any] = {"lr_schedule__type": "CosineWithWarmUpLR", ODD[name]: float(value)}
    other = str(configuration(tmp_path / "llama.yaml", **changes))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        codes = {pair: check(*pair, {}, mindformers="1.9").exit_code for pair in ((one, other), (other, one), (one, one), (other, other))}
    assert [pair for pair, code in codes.items() if code == CLEAN] == []
    assert capfd.readouterr() == ("", "")


def test_numpy_says_nothing_of_what_is_no_number(tmp_path: Path) -> None:
    one = script(tmp_path / "train.sh", lr_decay_style="cosine", lr="nan")
    changes: dict[str, Any] = {"lr_schedule__type": "CosineWithWarmUpLR", "optimizer__weight_decay": float("inf")}
    other = configuration(tmp_path / "llama.yaml", **changes)
    done = command(one, other)
    assert (done.returncode in (DIFFERS, UNDECIDED), done.stderr) == (True, "")


@pytest.mark.parametrize("key", ["lr", "weight_decay", "lr_warmup_iters", "num_layers", "adam_eps"])
def test_a_number_that_no_machine_holds_is_no_internal_error(tmp_path: Path, key: str) -> None:
    changes: dict[str, Any] = {ODD[key]: 10**400}
    other = configuration(tmp_path / "llama.yaml", **changes)
    try:
        assert check(str(script(tmp_path / "train.sh")), str(other), {}, mindformers="1.9").exit_code in (DIFFERS, UNDECIDED)
    except ConfigurationError:
        return


@pytest.mark.parametrize("style", ["linear", "inverse-square-root", "WSD"])
@pytest.mark.parametrize(
    ("name", "value"),
    [("lr", "1e308"), ("min_lr", "1e308"), ("lr_warmup_iters", "-1"), ("train_iters", "0"), ("train_iters", "1e308"), ("lr", "-inf")],
)
def test_schedules_out_of_all_bounds_warn_of_nothing(tmp_path: Path, style: str, name: str, value: str) -> None:
    changes: dict[str, Any] = {"lr_decay_style": style, "lr_warmup_iters": "2", "lr_wsd_decay_iters": "3", name: value}
    one, other = str(script(tmp_path / "train.sh", **changes)), str(configuration(tmp_path / "llama.yaml"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alone = check(one, one, {}, mindformers="1.9")
        check(one, other, {}, mindformers="1.9")
    assert value != "-inf" or alone.exit_code == UNDECIDED


def differing(one: Path, other: Path) -> tuple[set[str], int]:
    found = check(str(one), str(other), {}, mindformers="1.9")
    return set(found.differing), found.exit_code


def test_either_side_may_come_first(tmp_path: Path) -> None:
    one = script(tmp_path / "train.sh", norm_epsilon="1e-6", lr="1e-4", num_layers="4", rotary_base="500000")
    other = configuration(tmp_path / "llama.yaml", optimizer__weight_decay=0.0)
    forward, backward = differing(one, other), differing(other, one)
    assert forward == backward
    assert forward[0] >= {"rms_norm_eps", "num_layers", "rotary_base", "learning_rate", "weight_decay"}
    done = command(other, one)
    assert (done.returncode, done.stderr) == (DIFFERS, "")
    assert "--norm-epsilon 1e-05" in done.stdout


def test_either_side_may_come_first_where_nothing_differs(tmp_path: Path) -> None:
    one, other = script(tmp_path / "train.sh"), configuration(tmp_path / "llama.yaml")
    assert differing(one, other) == differing(other, one) == (set(), CLEAN)


def test_what_no_row_covers_is_listed_where_two_scripts_differ(tmp_path: Path) -> None:
    one = script(tmp_path / "one.sh", quantum_entanglement=3, same_on_both=5)
    done = command(one, script(tmp_path / "other.sh", quantum_entanglement=4, same_on_both=5, only_here=6))
    assert "quantum_entanglement (3 against 4), only_here (– against 6)" in " ".join(done.stdout.split())
    assert "same_on_both (" not in done.stdout


def test_what_no_row_covers_is_listed_where_two_yamls_differ(tmp_path: Path) -> None:
    one, other = (configuration(tmp_path / f"{value}.yaml", flux__capacitor=value) for value in (1.21, 2.42))
    found = check(str(one), str(other), {}, mindformers="1.9")
    assert found.unlike == (("flux.capacitor", "1.21", "2.42"),)


def merged(levels: int) -> str:
    """Mappings that each merge the one before, nine times."""
    rest = "".join(f"a{at}: &a{at}\n  <<: [{', '.join([f'*a{at - 1}'] * 9)}]\n  x{at}: 1\n" for at in range(1, levels))
    return f"a0: &a0 {{x0: 1, y0: 2}}\n{rest}model:\n  <<: *a{levels - 1}\n"


YAML = {
    "merge keys": merged(12),
    "aliases": BOMB,
    "a base without end": "base_config: /dev/zero\nmodel: {a: 1}\n",
    "a base that is itself": "base_config: hostile.yaml\nmodel: {model_config: {num_layers: 2}}\n",
    "nested lists": f"model: {'[' * 3000}{']' * 3000}\n",
    "nested mappings": f"model: {'{a: ' * 3000}1{'}' * 3000}\n",
    "a number of 5000 digits": f"model: {{num_layers: {'9' * 5000}}}\n",
    "a day that is none": "model: {a: 2001-99-14}\n",
    "two megabytes": "# x\n" * 500_000 + "model: {a: 1}\n",
    "two documents": "model: {a: 1}\n---\nmodel: {a: 2}\n",
}
SCRIPTS = {
    "two megabytes": "# x\n" * 500_000 + f"{TRAIN}\n",
    "nested groups": "{ " * 3000 + f"{TRAIN}; " + "} ; " * 3000,
    "nested expansions": f"{TRAIN} --lr {'${A:-' * 3000}1{'}' * 3000}\n",
    "brackets that nobody closes": "(" * 20_000,
    "a string that doubles": "A=xxxxxxxxxx\n" + "A=$A$A\n" * 40 + f"{TRAIN} --save $A\n",
    "an array that doubles": "A=(x x)\n" + 'A=("${A[@]}" "${A[@]}")\n' * 40 + f'{TRAIN} --data-path "${{A[@]}}"\n',
}
"""Files that end in one line of what is wrong with them."""
SLOW = {
    "functions that call themselves": f"f() {{ {'f; ' * 8}}}\nf\n{TRAIN}\n",
    "a script that sources itself": "source hostile.sh\n" * 4 + f"{TRAIN}\n",
    "eval of itself": f"X='{'eval $X; ' * 6}'\neval $X\n{TRAIN}\n",
    "appended to and on": "A=()\n" + "A+=(x y z)\n" * 20_000 + f"{TRAIN} --data-path ${{A[@]}}\n",
    "thousands of conditions": "".join(f"if [ -f x{at} ]; then V{at}=1; fi\n" for at in range(8000)) + f"{TRAIN}\n",
    "thousands of arguments": f"{TRAIN} \\\n" + "".join(f"  --x{at} {at} \\\n" for at in range(20_000)) + "\n",
    "a pattern that looks back": f"S={'a' * 20_000}\n{TRAIN} --save ${{S%%*a*a*a*b}}\n",
}
"""Scripts that cost time; each is less than a megabyte."""


@pytest.mark.parametrize("text", YAML.values(), ids=YAML)
def test_a_yaml_that_nobody_wrote_by_hand_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "hostile.yaml").write_text(text)
    one = script(tmp_path / "train.sh")
    with at_most(ENOUGH), pytest.raises(ConfigurationError) as said:
        check(str(one), str(tmp_path / "hostile.yaml"), {}, mindformers="1.9")
    assert len(str(said.value).splitlines()) == 1


@pytest.mark.parametrize("text", SCRIPTS.values(), ids=SCRIPTS)
def test_a_script_that_nobody_wrote_by_hand_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "hostile.sh").write_text(text)
    other = configuration(tmp_path / "llama.yaml")
    with at_most(ENOUGH), pytest.raises(ConfigurationError) as said:
        check(str(tmp_path / "hostile.sh"), str(other), {}, mindformers="1.9")
    assert len(str(said.value).splitlines()) == 1


@pytest.mark.parametrize("text", SLOW.values(), ids=SLOW)
def test_what_costs_time_ends_soon(tmp_path: Path, text: str) -> None:
    (tmp_path / "hostile.sh").write_text(text)
    with at_most(ENOUGH):
        says_it_does_not_know(tmp_path, text)


def test_lists_that_nobody_closes_end_no_process(tmp_path: Path) -> None:
    """libyaml follows them by recursion in C: in a process of its own, for what it ends it ends without a word."""
    (tmp_path / "hostile.yaml").write_text(f"model: {'[' * 100_000}\n")
    done = command(script(tmp_path / "train.sh"), tmp_path / "hostile.yaml")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)


def test_a_bomb_is_one_line_and_exit_code_two(tmp_path: Path) -> None:
    (tmp_path / "hostile.yaml").write_text(merged(12))
    done = command(script(tmp_path / "train.sh"), tmp_path / "hostile.yaml")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)


def test_a_base_of_a_base_counts(tmp_path: Path) -> None:
    """MindFormers follows base_config all the way down."""
    other = configuration(tmp_path / "first.yaml")
    (tmp_path / "second.yaml").write_text("base_config: first.yaml\noptimizer: {eps: 1.0e-8}\n")
    (tmp_path / "third.yaml").write_text("base_config: second.yaml\nmodel: {model_config: {num_layers: 2}}\n")
    assert differing(other, tmp_path / "third.yaml") == (set(), CLEAN)
