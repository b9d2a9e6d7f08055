"""The hyper-parameters of Megatron's Muon, as the built optimizer holds them; what cannot be read is None.

Momentum stands in the parameter groups, Nesterov's and the method of the decay in attributes, and the scale among the variables of the
function that orthogonalises. The coefficients stand nowhere: a table of Emerging-Optimizers' and a mode of iteration make them.
"""

import inspect
import sys
from collections.abc import Mapping

import torch

from align_hooks.names.fused import Piece
from align_hooks.torch_side.model import Parameter
from align_hooks.torch_side.objects import Optimizer

ITERATION = "emerging_optimizers.orthogonalized_optimizers.muon_utils"
"""The module of the Newton-Schulz iteration."""


def is_muon(inner: Optimizer) -> bool:
    """Return whether an optimizer is Megatron's Muon itself: a derived class may update in another way."""
    return type(inner).__name__ == "TensorParallelMuon"


def hyper_parameters(inner: Optimizer, group: Mapping[str, object], held: Mapping[int, Parameter]) -> dict[str, object]:
    """Return the members of a parameter group that Muon alone has; ``held`` are parameters by the id of ``in_optimizer``."""
    if not is_muon(inner):
        return {}
    orthogonalises = getattr(inner, "scaled_orthogonalize_fn", None)
    enclosed = inspect.getclosurevars(orthogonalises).nonlocals if inspect.isfunction(orthogonalises) else {}
    momentum = group.get("momentum")
    mains = [main for main in group["params"] if id(main) in held]  # type: ignore[attr-defined]
    return {
        "momentum": momentum,
        "dampening": momentum,  # the class interpolates between its momentum and the gradient
        "nesterov": getattr(inner, "nesterov", None),
        "coefficients": coefficients(inner),
        "scale_mode": enclosed.get("scale_mode"),
        "extra_scale_factor": enclosed.get("extra_scale_factor"),
        "products": products(getattr(inner, "fp32_matmul_prec", None), mains[0].device) if mains else None,
        "weight_decay_method": getattr(inner, "weight_decay_method", None),
        "matrices": [matrix for main in mains for matrix in matrices(inner, held[id(main)], main)],
    }


def coefficients(inner: Optimizer) -> list[tuple[float, float, float]] | None:
    """Return the coefficients of each step, as the iteration of a small matrix hands them to its steps."""
    iteration = sys.modules.get(ITERATION)
    step = getattr(iteration, "newton_schulz_step", None)
    used: list[tuple[float, float, float]] = []

    def noted(matrix: torch.Tensor, a: float, b: float, c: float, **others: object) -> torch.Tensor:
        used.append((a, b, c))
        return matrix

    if step is None:
        return None
    iteration.newton_schulz_step = noted  # type: ignore[union-attr]
    try:
        inner.scaled_orthogonalize_fn(torch.eye(2), None)  # no tensor-parallel dimension: no rank is asked
    except (TypeError, AttributeError, ValueError):  # another version's
        return None
    finally:
        iteration.newton_schulz_step = step  # type: ignore[union-attr]
    return used or None


def products(precision: str | None, device: torch.device) -> str | None:
    """Return the type in which matrices are multiplied under a precision of torch, as a product on the device shows."""
    if precision is None:
        return None
    if precision == "medium":  # the iteration itself goes to bf16
        return "bfloat16"
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        factor = torch.full((64, 64), 1 + 2.0**-12, device=device)
        exact = bool((factor @ torch.eye(64, device=device) == factor).all())
    finally:
        torch.set_float32_matmul_precision(before)
    return "float32" if exact else "tfloat32"


def matrices(inner: Optimizer, parameter: Parameter, main: torch.Tensor) -> list[dict[str, object]]:
    """Return the matrices as which a parameter is orthogonalised; none where its pieces are no rows of it.

    The order of rows does not matter: rows that change places in a matrix change places in its update."""
    pieces = [piece for piece, _ in parameter.whole.ranges()]
    shapes = [[stop - start for start, stop in piece.box] for piece in pieces]
    if any(len(shape) != 2 or shape[1] != main.shape[-1] for shape in shapes) or sum(shape[0] for shape in shapes) != main.shape[0]:
        return []
    units = [pieces]
    if getattr(inner, "split_qkv", False) and inner.is_qkv_fn(main):
        if len(getattr(main, "qkv_split_shapes", None) or inner.qkv_split_shapes) != len(pieces):
            return []
        units = [[piece] for piece in pieces]
    cuts = {cut_of(piece) for piece in pieces}
    cut = cuts.pop()
    if cut is None and not cuts:
        return [{"parameters": [piece.name for piece in unit]} for unit in units]
    mode, gathered = getattr(inner, "tp_mode", None), getattr(main, "partition_dim", -1)
    if cut is None or cuts:  # tensor-parallel ranks share keys and values
        return []
    axis, count, regular = cut
    if not regular or (mode != "blockwise" and (mode not in ("duplicated", "distributed") or gathered != axis)):
        return []
    blocks = count if mode == "blockwise" else 1
    return [{"parameters": [piece.name for piece in unit], "blocks": blocks, "axis": axis} for unit in units]


def cut_of(piece: Piece) -> tuple[int, int, bool] | None:
    """Return the axis along which tensor-parallel ranks cut a piece, the number of parts, and whether these are equal; None without."""
    for axis, ((start, stop), size) in enumerate(zip(piece.box, piece.shape, strict=True)):
        if (start, stop) != (0, size):
            held = stop - start
            return axis, size // held, size % held == 0 == start % held
    return None
