"""Check that the canonical tensors of a source are those of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from align_hooks.errors import RefusedRun
from align_hooks.families.registry import embeddings, outputs
from align_hooks.names.blocks import PADDING

ROWS_ARE_SET = "vocab_size: {rows} in MindFormers' YAML, --make-vocab-size-divisible-by in Megatron's arguments"
"""The setting of each side for the rows of its embedding."""


def refuse_unfit(
    wanted: Mapping[str, tuple[int, ...]],
    given: Mapping[str, tuple[int, ...]],
    source: object,
    *,
    elsewhere: Callable[[str], bool] = lambda name: False,
) -> None:
    """Raise RefusedRun unless ``source`` has exactly the tensors of a model, each by canonical name and global shape.

    ``given`` are the source's, ``wanted`` this rank's; ``elsewhere`` says whether another rank holds a tensor.
    """
    problems = [f"{name} {list(wanted[name])} is missing" for name in sorted(wanted.keys() - given.keys())]
    problems += [f"{name} {list(given[name])} is not of this model" for name in sorted(given.keys() - wanted.keys()) if not elsewhere(name)]
    problems += [
        f"{name} is {list(given[name])}, this model has {list(wanted[name])}"
        for name in sorted(wanted.keys() & given.keys())
        if wanted[name] != given[name]
    ]
    if problems:
        few = "; ".join(problems[:3]) + (f"; and {len(problems) - 3} more" if problems[3:] else "")
        raise RefusedRun(f"{source} do not fit this model: {few}; {_way_out(wanted, given)}")


def _way_out(wanted: Mapping[str, tuple[int, ...]], given: Mapping[str, tuple[int, ...]]) -> str:
    """Return what to change: only the vocabulary's size, where nothing else differs."""
    differing = {name.removesuffix(PADDING) for name in wanted.keys() | given.keys() if wanted.get(name) != given.get(name)}
    ends = embeddings() | outputs()
    if not all(name in ends and name in wanted and name in given and wanted[name][1:] == given[name][1:] for name in differing):
        return "make the two models the same shape"
    rows = max(given[name][0] + given.get(name + PADDING, (0,))[0] for name in differing)
    return f"give this model their {rows} rows, padding and all: {ROWS_ARE_SET.format(rows=rows)}"
