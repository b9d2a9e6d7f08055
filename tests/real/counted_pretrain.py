"""``launch/pretrain_gpt.py`` that counts what torch is asked to do, and writes the counts to the file COUNTED when it ends.

``operators`` are calls of torch's dispatcher, each a kernel launch or several on an accelerator; ``collectives`` those of
torch.distributed among them; ``transfers`` are tensors that were taken to the host.
"""

import atexit
import json
import os
import runpy
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

counts: Counter[str] = Counter()
inside: list[object] = []


class Counting(TorchDispatchMode):
    def __torch_dispatch__(self, called: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        counts["operators"] += 1
        counts["collectives"] += called.namespace in ("c10d", "_c10d_functional")
        counts["transfers"] += called.overloadpacket._qualified_op_name == "aten::_local_scalar_dense"
        return called(*args, **(kwargs or {}))


def counted(method: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        counts["transfers"] += not inside  # one call may go on to another that is counted
        inside.append(method)
        try:
            return method(self, *args, **kwargs)
        finally:
            inside.pop()

    return call


torch.Tensor.cpu = counted(torch.Tensor.cpu)  # type: ignore[method-assign]
torch.Tensor.tolist = counted(torch.Tensor.tolist)  # type: ignore[method-assign]
mode = Counting()
mode.__enter__()
atexit.register(lambda: Path(os.environ["COUNTED"]).write_text(json.dumps(counts)))
runpy.run_path(str(Path(__file__).parents[2] / "launch" / "pretrain_gpt.py"), run_name="__main__")
