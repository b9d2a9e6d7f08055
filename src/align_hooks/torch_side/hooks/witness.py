"""The witness of a Megatron run below ``align-hooks prove`` (:mod:`align_hooks.job.witness`).

Patch points: ``parse_args``, of which what writes files is unset; ``train_step``, around every other hook, as it is attached last; and what
saves and evaluates, which does nothing. Megatron's own ``exit_interval`` ends training after the last step.
"""

import functools
import inspect
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType

import torch
from megatron.training import get_args
from torch.utils._python_dispatch import TorchDispatchMode

from align_hooks.hooking.attach import installed_version, versions_beside
from align_hooks.hooking.hook import Args, Function, Instance, Kwargs, Result
from align_hooks.hooking.patch_log import Wrapper
from align_hooks.job.witness import JobWitness, WitnessedStep
from align_hooks.record.format.digests import xxh3
from align_hooks.torch_side import state
from align_hooks.torch_side.devices import KINDS
from align_hooks.torch_side.objects import Module, Optimizer, Tensor

WRITES = {"tensorboard_dir": None, "wandb_project": "", "config_logger_dir": "", "profile": False, "use_pytorch_profiler": False}
WRITES |= {"log_progress": False, "record_memory_history": False}
"""Arguments that let Megatron write files, to what stands for nothing; ``save_…_interval`` of its dumps beside them."""
BESIDE = ("mindspeed", "mindspeed_llm", "transformer_engine")
PACKAGE = Path(__file__).parents[2]
NOBODY = (str(Path(torch.__file__).parent), __file__, warnings.__file__, str(PACKAGE / "torch_side" / "rehearsal.py"))
"""Beginnings of files whose lines wait on behalf of others; a rehearsal stands between torch and every call of it."""


def arguments(witness: JobWitness, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Call ``parse_args``, and unset what writes files beside checkpoints."""
    parsed = wrapped(*args, **kwargs)
    dumps = {name: None for name in vars(parsed) if name.startswith("save_") and name.endswith("s_interval")}
    for name, nothing in {**WRITES, **dumps}.items():
        if getattr(parsed, name, None):
            setattr(parsed, name, nothing)
            witness.left_out[f"--{name.replace('_', '-')}"] = 1  # a script may read its arguments several times
    return parsed


def checkpoint(witness: JobWitness, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> None:
    """Save nothing."""
    witness.left_out["checkpoints"] += 1


def evaluation(witness: JobWitness, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> None:
    """Evaluate nothing."""
    witness.left_out["evaluations"] += 1


def step(witness: JobWitness, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Make a step and keep what must not change."""
    call = inspect.signature(wrapped).bind(*args, **kwargs)
    chunks, optimizer = call.arguments["model"], call.arguments["optimizer"]
    current = get_args().curr_iteration
    if witness.is_over:
        witness.seen.ignored_limit = True
        witness.write()
        sys.exit(0)
    if not witness.seen.steps:
        begin(witness, chunks, optimizer)
        get_args().exit_interval = None
    if witness.is_last:  # not earlier: iterations that Megatron skips come to no train_step
        get_args().exit_interval = current + 1
    around = functools.partial(forward_step, witness)
    call.arguments["forward_step_func"] = Wrapper(call.arguments["forward_step_func"], around)
    witness.losses = []
    counts, counting = Counter[str](), witness.counts
    synchronize()
    started = time.perf_counter()
    with counted_waits(counts) if counting else ExitStack():
        result = wrapped(*call.args, **call.kwargs)
    synchronize()
    seconds = None if counting else time.perf_counter() - started
    if counting:
        witness.seen.waits = dict(counts)
    if (library := accelerator()) is not None:
        witness.seen.device_memory = library.max_memory_allocated()
    losses = [float(loss).hex() for loss in witness.losses]  # type: ignore[arg-type]
    witness.end_step(WitnessedStep(current, losses, state.generators(), seconds), functools.partial(digests, chunks, optimizer))
    return result


def begin(witness: JobWitness, chunks: Sequence[Module], optimizer: Optimizer) -> None:
    """Keep what the run starts from."""
    seen, library = witness.seen, accelerator()
    seen.device = library.get_device_name() if library is not None else "CPU"
    seen.versions = {name: installed_version(name) for name in ("torch", "megatron-core")} | versions_beside(BESIDE)
    seen.initial = digests(chunks, optimizer)
    seen.elements = sum(parameter.numel() for chunk in chunks for parameter in chunk.parameters())
    witness.write()


def forward_step(witness: JobWitness, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Call the script's ``forward_step``, and listen to the loss function that it returns."""
    output, loss_function = wrapped(*args, **kwargs)
    if loss_function is None:
        return output, loss_function

    @functools.wraps(loss_function, assigned=("args", "keywords", "func"))  # those of a functools.partial, which other hooks read
    def listening(*loss_args: object, **loss_kwargs: object) -> Result:
        result = loss_function(*loss_args, **loss_kwargs)
        witness.losses.append(result[0].detach().clone())
        if witness.counts:
            witness.seen.nodes = dict(Counter(witness.seen.nodes) + graph(result[0]))
        return result

    return output, listening


def graph(loss: Tensor) -> Counter[str]:
    """Return kind to number of the nodes of a loss's graph."""
    kinds, waiting = Counter[str](), [loss.grad_fn]
    known = set[object]()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in known:
            known.add(node)
            kinds[node.name()] += 1
            waiting += [before for before, _ in node.next_functions]
    return kinds


def digests(chunks: Sequence[Module], optimizer: Optimizer) -> dict[str, str]:
    """Map parameters, buffers and the optimizer's main parameters to the digests of their bytes."""
    tensors = {
        f"{number}.{name}": tensor
        for number, chunk in enumerate(chunks)
        for name, tensor in (*chunk.named_parameters(), *chunk.named_buffers())
    }
    for number, group in enumerate(getattr(optimizer, "param_groups", ())):
        tensors |= {f"optimizer.{number}.{index}": tensor for index, tensor in enumerate(group["params"])}
    return {name: digest(tensor) for name, tensor in tensors.items()}


def digest(tensor: Tensor) -> str:
    """Return the digest of a tensor's bytes, of its shard where it is one of several."""
    tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    if tensor.is_meta:
        return "no storage"
    return xxh3(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())


def accelerator() -> ModuleType | None:
    """Return torch's library of the device that trains; None on a CPU."""
    return next((library for library in libraries() if library.is_initialized()), None)


def libraries() -> list[ModuleType]:
    """Return torch's libraries of accelerators that it has."""
    return [getattr(torch, kind) for kind in KINDS if hasattr(torch, kind)]


def synchronize() -> None:
    """Wait for the device, so that a step's seconds are its own."""
    if (library := accelerator()) is not None:
        library.synchronize()


@contextmanager
def counted_waits(counts: Counter[str]) -> Iterator[None]:
    """Count by line of code how often the host waits for the device: by its own word, or on a CPU by reads of single numbers."""
    with ExitStack() as stack:
        for library in libraries():
            replace(stack, library, "synchronize", counting(library.synchronize, counts))
        device = accelerator()
        if device is not None and hasattr(device, "set_sync_debug_mode"):
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("always")
            replace(stack, warnings, "showwarning", functools.partial(shown, counts))
            stack.callback(device.set_sync_debug_mode, device.get_sync_debug_mode())
            device.set_sync_debug_mode("warn")
        else:
            stack.enter_context(Reads(counts))
        yield


def counting(function: Function, counts: Counter[str]) -> Function:
    """Return a function that counts its callers."""

    def counted(*args: object, **kwargs: object) -> Result:
        counts[caller()] += 1
        return function(*args, **kwargs)

    return counted


def shown(counts: Counter[str], text: object, *about: object, **more: object) -> None:
    """Count a device's warning of a wait, in the place of printing it."""
    if "synchroniz" in str(text):
        counts[caller()] += 1


class Reads(TorchDispatchMode):
    """Counts reads of a single number, for which the host would wait for a device."""

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self.counts = counts

    def __torch_dispatch__(
        self, function: Function, types: object, args: Sequence[object] = (), kwargs: Mapping[str, object] | None = None
    ) -> object:
        """Count and call an operator."""
        if function is torch.ops.aten._local_scalar_dense.default:
            self.counts[caller()] += 1
        return function(*args, **(kwargs or {}))


def caller() -> str:
    """Return the innermost line of code that is neither torch's nor the witness's, from the package on where it is ours."""
    frame = next(each for each in reversed(traceback.extract_stack()) if not each.filename.startswith(NOBODY))
    return f"{frame.filename.removeprefix(f'{PACKAGE.parent}/')}:{frame.lineno}"


def replace(stack: ExitStack, owner: ModuleType, name: str, value: object) -> None:
    """Replace an attribute until a stack is left."""
    stack.callback(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, value)
