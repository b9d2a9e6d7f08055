"""A script with CUDA graphs that a CPU can follow: ``graphs_emulated.py SCRIPT [ARGUMENT ...]``, of a rehearsal.

A graph keeps the operators of its capture, and its replay runs them again into the same memory. What a capture makes is NaN until then, for
a device computes nothing while it captures. What emulates a graph says how often it was replayed: REPLAYED names a file.
"""

import atexit
import os
import runpy
import sys
from pathlib import Path

import torch
from megatron.core.transformer import cuda_graphs
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from align_hooks.torch_side import refusals

seen = {"replays": 0, "capturing": False}


def tensors(values: object) -> list[torch.Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]


def memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


class Graph:
    """Stands for ``torch.cuda.CUDAGraph``."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        self.operators: list = []

    def replay(self) -> None:
        """Run all operators again, and copy what each makes to where its first result lies."""
        seen["replays"] += 1
        with torch.no_grad():
            for operator, args, kwargs, results in self.operators:
                for new, old in zip(tensors(operator(*args, **kwargs)), results, strict=True):
                    if memory(new) != memory(old):
                        old.data.copy_(new)

    def register_generator_state(self, *args: object) -> None:
        pass

    reset = enable_debug_mode = register_generator_state


class Capture(TorchDispatchMode):
    """Keeps the operators that run, what memory they make, and what other memory held before they changed it."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self.made: dict[int, torch.Tensor] = {}
        self.before: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        given = {memory(tensor): tensor for tensor in tensors((args, kwargs))}
        if operator._schema.is_mutable:
            for place, tensor in given.items():
                if place not in self.made and place not in self.before:
                    whole = tensor.new_empty(0).set_(tensor.untyped_storage())
                    self.before[place] = whole, whole.clone()
        result = operator(*args, **kwargs)
        for tensor in tensors(result):
            if memory(tensor) not in given:
                self.made.setdefault(memory(tensor), tensor)
        self.graph.operators.append((operator, args, kwargs, tensors(result)))
        return result

    def undo(self) -> None:
        """Leave memory as a device does, which computes nothing while it captures."""
        with torch.no_grad():
            for tensor in self.made.values():
                if tensor.dtype.is_floating_point:
                    tensor.data.fill_(float("nan"))  # no change that autograd counts
            for tensor, before in self.before.values():
                tensor.data.copy_(before)


class Capturing:
    """Stands for ``torch.cuda.graph``."""

    def __init__(self, cuda_graph: Graph, pool: object = None, stream: object = None, capture_error_mode: object = None) -> None:
        self.capture = Capture(cuda_graph)

    def __enter__(self) -> None:
        seen["capturing"] = True
        self.capture.__enter__()

    def __exit__(self, *error: object) -> None:
        self.capture.__exit__(*error)
        seen["capturing"] = False
        self.capture.undo()


if __name__ == "__main__":
    torch.cuda.CUDAGraph, torch.cuda.graph, torch.cuda.graph_pool_handle = Graph, Capturing, lambda: (0, 0)
    for name in ("_cuda_beginAllocateCurrentThreadToPool", "_cuda_endAllocateToPool"):
        setattr(torch._C, name, lambda *args: None)
    cuda_graphs._ensure_generator_state_is_cudagraph_safe = lambda generator: generator
    torch.cuda.is_current_stream_capturing = lambda: seen["capturing"]
    refused = refusals.refusals  # by a rehearsal, for a CPU lacks graphs but for this
    refusals.refusals = lambda *given: (line for line in refused(*given) if "only an accelerator can follow" not in line)
    atexit.register(lambda: Path(os.environ["REPLAYED"]).write_text(str(seen["replays"])))
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(Path(sys.argv[0]).parent))
    runpy.run_path(sys.argv[0], run_name="__main__")
