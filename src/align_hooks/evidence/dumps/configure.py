"""The JSON that switches on MindSpore's dump (``MINDSPORE_DUMP_CONFIG``) for chosen steps and layers.

``name-regex(…)`` chooses operators whose complete name fits: those of the chosen layers, and those in no layer of the model, such as the
embedding, the last norm and the logits.
"""

from __future__ import annotations

import re
from pathlib import Path

from align_hooks.errors import AlignHooksError
from align_hooks.settings import Steps

O2 = "O2"
LEVELS = ("O0", "O1", O2)
"""Values of ``jit_level``; a CPU and a GPU take the file of O0 and O1."""
STATISTICS = ["max", "min", "avg", "count", "l2norm"]
DEVICES = list(range(8))
"""``support_device``: the devices of a node."""
MOST = 4096
"""Most steps or layers that are listed one by one."""
NET = re.compile(r"[A-Za-z0-9_]{1,64}")


def dump_config(
    steps: Steps, layers: Steps, path: Path, *, level: str = "O1", statistics: bool = False, tensors: bool = True, net: str = "model"
) -> dict[str, object]:
    """Return the contents of the file; ``steps`` and ``layers`` count from 0, and ``path`` is the dump's directory."""
    if level not in LEVELS:
        raise AlignHooksError(f"--jit-level {level}: choose one of {', '.join(LEVELS)}")
    if not NET.fullmatch(net):
        raise AlignHooksError("--net-name becomes the name of a directory; give letters, digits and underscores")
    if not tensors and not statistics:
        raise AlignHooksError("nothing is asked for: give --tensors, --statistics or both")
    numbers = "|".join(map(str, sorted({number for part in _counted(layers, "--layers") for number in part})))
    scopes = rf"Default/network.*/layers[^/]*/({numbers})(-[^/]*)?/.*|Default/network((?!/layers[-/]).)*"
    iterations: list[str] = []
    for part in _counted(steps, "--steps"):
        iterations += [f"{part[0]}-{part[-1]}"] if part.step == 1 and len(part) > 1 else map(str, part)
    common: dict[str, object] = {
        "op_debug_mode": 0,
        "dump_mode": 1 if numbers else 0,
        "path": str(path),
        "net_name": net,
        "iteration": "|".join(iterations) or "all",
        "saved_data": "full" if tensors and statistics else "tensor" if tensors else "statistic",
        "input_output": 0,
        "kernels": [f"name-regex({scopes})"] if numbers else [],
        "support_device": DEVICES,
    }
    if statistics:
        common["statistic_category"] = STATISTICS
    if level == O2:
        return {"common_dump_settings": common | {"file_format": "npy"}}
    return {"common_dump_settings": common, "e2e_dump_settings": {"enable": True, "trans_flag": True}}


def _counted(chosen: Steps, option: str) -> list[range]:
    """Return the ranges of a choice, none for all; raises AlignHooksError for no number, and for more than :data:`MOST` single numbers."""
    parts = [part for part in chosen.ranges or () if part]
    if not parts and chosen.ranges is not None:
        raise AlignHooksError(f"{option} {chosen.text} chooses nothing; give numbers such as 0 or 0-3, or all")
    if sum(len(part) for part in parts if option == "--layers" or part.step > 1) > MOST:
        raise AlignHooksError(f"{option} names more than {MOST} one by one; give fewer, or all")
    return parts
