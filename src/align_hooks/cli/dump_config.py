"""``align-hooks dump-config``."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

from align_hooks.cli.application import Option, app
from align_hooks.cli.files import report_file, steps_of, written
from align_hooks.errors import AlignHooksError
from align_hooks.evidence.dumps.configure import LEVELS, O2
from align_hooks.evidence.dumps.configure import dump_config as made
from align_hooks.process.paths import path_of
from align_hooks.report.console import plain


@app.command
def dump_config(
    out: Annotated[Path, Option(help="the JSON file to write")],
    to: Annotated[Path, Option(help="where MindSpore is to dump; an empty or a new directory")],
    steps: Annotated[str, Option(help="steps from 0: N, A-B, A-B/S, several with commas, or all")] = "0",
    layers: Annotated[str, Option(help="layers from 0, in the same way; what stands in no layer is dumped with them")] = "all",
    tensors: Annotated[bool, Option(help="the numbers, a file each")] = True,
    statistics: Annotated[bool, Option(help="statistic.csv, which the CPU cannot make")] = False,
    jit_level: Annotated[str, Option(help=f"of the run: {', '.join(LEVELS)}; a CPU or a GPU counts as O0")] = "O1",
    net_name: Annotated[str, Option(help="the directory of the network within the dump")] = "model",
) -> None:
    """Write the JSON by which MindSpore dumps steps and layers.

    It is for a run in graph mode. What it dumps then is converted like any other: align-hooks convert.

    Exit codes: 0 written, 2 usage.

    Example: align-hooks dump-config --steps 0,1 --layers 0-3 --to /data/dump --out dump.json
    """
    file = report_file("--out", out)
    try:
        where = path_of(to)
    except ValueError as error:
        raise AlignHooksError(f"--to {error}") from None
    chosen = steps_of(steps, "--steps"), steps_of(layers, "--layers")
    content = made(*chosen, where, level=jit_level, statistics=statistics, tensors=tensors, net=net_name)
    written("--out", file, lambda: json.dumps(content, indent=2) + "\n")
    print("set before the training script starts:")
    for name in ("MINDSPORE_DUMP_CONFIG", *(["MS_ACL_DUMP_CFG_PATH"] if jit_level == O2 else [])):
        print(f"  export {name}={plain(shlex.quote(str(file)))}")
