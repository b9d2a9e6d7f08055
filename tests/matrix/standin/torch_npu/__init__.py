"""Stands for torch_npu on a CPU: ``torch.npu`` is what a rehearsal makes of ``torch.cuda``, and operators are plain torch.

An operator does what its documentation says, differentiably; one that is not here, or an option, raises NotImplementedError.
"""

import importlib.machinery
import os
import sys
import types
from pathlib import Path

import torch
import torch.utils.cpp_extension

__version__ = "2.7.1"
HERE = sys.modules[__name__]
HIDDEN = {"npu_fusion_attention": float("-inf"), "npu_scaled_masked_softmax": -10000.0}
"""What a masked score becomes."""
CAUSAL = {2: False, 3: True}
"""Sparse mode to whether its triangle ends in the lower right corner."""


class OnTheHost(torch.overrides.TorchFunctionMode):
    """Lets ``npu`` devices mean the CPU."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*map(on_the_host, args), **{name: on_the_host(value) for name, value in (kwargs or {}).items()})


def on_the_host(value):
    is_npu = (isinstance(value, torch.device) and value.type == "npu") or (isinstance(value, str) and value.split(":")[0] == "npu")
    return "cpu" if is_npu else value


class Npu(types.ModuleType):
    """``torch.npu``: each name is looked up in ``torch.cuda`` when it is called."""

    __path__: list[str] = []
    FloatTensor = torch.FloatTensor
    matmul, conv = types.SimpleNamespace(allow_hf32=False), types.SimpleNamespace(allow_hf32=False)

    def set_option(self, options):
        pass

    set_compile_mode = set_option

    def __getattr__(self, name):
        return getattr(torch.cuda, name)


def submodule(name, **members):
    """Add a module below this one."""
    module = types.ModuleType(f"{__name__}.{name}")
    module.__path__, module.__spec__ = [], importlib.machinery.ModuleSpec(f"{__name__}.{name}", None, is_package=True)
    vars(module).update(members)
    sys.modules[module.__name__] = module
    parent, _, last = name.rpartition(".")
    setattr(sys.modules[f"{__name__}.{parent}"] if parent else HERE, last, module)


npu = torch.npu = sys.modules["torch.npu"] = sys.modules["torch_npu.npu"] = Npu("torch.npu")
OnTheHost().__enter__()
torch.Tensor.npu = lambda self, *args, **kwargs: self
torch.Tensor.is_npu = property(lambda self: False)
submodule("contrib")
submodule("contrib.transfer_to_npu")
submodule("utils", reset_thread_affinity=lambda: None, register_asd_hook=lambda *args, **kwargs: None)
submodule("utils.collect_env", get_cann_version=lambda: "8.3.RC1")
submodule("utils.flops_count", FlopsCounter=type("FlopsCounter", (), {}))
submodule("profiler")
submodule("_C")
submodule("_C._distributed_c10d", ProcessGroupHCCL=types.SimpleNamespace(Options=type("Options", (), {})))


def npu_rms_norm(x, gamma, epsilon=1e-6):
    """Compute in fp32, and round to the type of the input, as the device does."""
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)
    return (wide * scale * gamma.float()).to(x.dtype), scale


def npu_swiglu(x, dim=-1):
    gate, up = x.chunk(2, dim)
    return torch.nn.functional.silu(gate) * up


def npu_rotary_mul(x, cos, sin, rotary_mode="half"):
    if rotary_mode == "interleave":
        turned = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    else:
        first, second = x.chunk(2, -1)
        turned = torch.cat((-second, first), -1)
    return x * cos + turned * sin


def npu_rotary_position_embedding(x, cos, sin, mode=0):
    return npu_rotary_mul(x, cos, sin, "interleave" if mode == 1 else "half")


def npu_scaled_masked_softmax(x, mask, scale=1.0, fixed_triu_mask=False):
    mask = triangle(x, lower_right=False) if fixed_triu_mask else mask.bool()
    return torch.softmax((x.float() * scale).masked_fill(mask, HIDDEN["npu_scaled_masked_softmax"]), -1).to(x.dtype)


def triangle(scores, *, lower_right):
    """Return what a causal mask hides of scores, its diagonal ending in a corner."""
    rows, columns = scores.shape[-2:]
    return torch.ones(rows, columns, dtype=torch.bool, device=scores.device).triu(1 + (columns - rows if lower_right else 0))


def npu_fusion_attention(query, key, value, head_num, input_layout, atten_mask=None, scale=1.0, keep_prob=1.0, sparse_mode=0, **options):
    """Compute attention; True in a mask hides. Sparse modes 0 and 1 take the mask as it is, 2 and 3 are causal."""
    if odd := [name for name in ("pse", "padding_mask", "prefix") if options.get(name) is not None] + ["dropout"] * (keep_prob != 1.0):
        raise NotImplementedError(f"npu_fusion_attention: {odd[0]}")
    if input_layout == "TND":  # sequences behind each other, without a batch
        ends = zip(options["actual_seq_qlen"], options["actual_seq_kvlen"], strict=True)
        parts, begins, mode = [], (0, 0), 3 if sparse_mode in CAUSAL else sparse_mode
        for end in ends:
            own = (query[begins[0] : end[0]], key[begins[1] : end[1]], value[begins[1] : end[1]])
            parts.append(attended(*(part.transpose(0, 1)[None] for part in own), atten_mask, scale, mode)[0].transpose(0, 1))
            begins = end
        result = torch.cat(parts)
    else:
        size = query.shape[-1] // (head_num if input_layout in ("SBH", "BSH") else 1)
        result = laid_out(
            attended(*(by_heads(each, size, input_layout) for each in (query, key, value)), atten_mask, scale, sparse_mode), input_layout
        )
    return result, None, None, None, 0, 0, 0


def by_heads(x, size, layout):
    """Return ``[batch, heads, sequence, size]``."""
    if layout in ("SBH", "BSH"):
        x = x.unflatten(-1, (-1, size))
    return x.permute({"SBH": (1, 2, 0, 3), "BNSD": (0, 1, 2, 3)}.get(layout, (0, 2, 1, 3)))


def laid_out(x, layout):
    """Return attention's result in the layout of its inputs."""
    turned = x.permute({"SBH": (2, 0, 1, 3), "BNSD": (0, 1, 2, 3)}.get(layout, (0, 2, 1, 3)))
    return turned.flatten(2) if layout in ("SBH", "BSH") else turned


def attended(query, key, value, mask, scale, sparse_mode):
    groups = query.shape[1] // key.shape[1]
    scores = torch.matmul(query, key.repeat_interleave(groups, 1).transpose(-1, -2)).float() * scale
    if sparse_mode in CAUSAL:
        mask = triangle(scores, lower_right=CAUSAL[sparse_mode])
    elif sparse_mode not in (0, 1):
        raise NotImplementedError(f"npu_fusion_attention: sparse_mode {sparse_mode}")
    if mask is not None:
        scores = scores.masked_fill(mask.bool(), HIDDEN["npu_fusion_attention"])
    return torch.matmul(torch.softmax(scores, -1).to(value.dtype), value.repeat_interleave(groups, 1))


def npu_apply_adam_w(beta1_power, beta2_power, lr, weight_decay, beta1, beta2, eps, grad, max_grad_norm, amsgrad, maximize, out):
    weight, first, second = out
    weight.mul_(1 - lr * weight_decay)
    first.mul_(beta1).add_(grad, alpha=1 - beta1)
    second.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    update = (first / (1 - beta1_power)) / ((second / (1 - beta2_power)).sqrt() + eps)
    return weight.add_(update, alpha=-lr), first, second


def __getattr__(name):
    if not name.startswith(("npu_", "_npu_")):
        raise AttributeError(name)

    def missing(*args, **kwargs):
        raise NotImplementedError(f"no stand-in for {name}")

    return missing


class Compiled(types.ModuleType):
    """What MindSpeed compiles when it is first called: the operators above, by their names."""

    def __getattr__(self, name):
        return getattr(HERE, name)


os.environ.setdefault("ASCEND_HOME_PATH", str(Path(__file__).parent))
torch.utils.cpp_extension.load = lambda name, **options: Compiled(name)
