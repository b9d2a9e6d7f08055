"""Files to run and files that a configuration names: a script's framework, missing files, a checkpoint to go on from."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from align_hooks.checklist.canonical_values import plain
from align_hooks.checklist.lookup import known
from align_hooks.checklist.resolvers.data import PATHS
from align_hooks.configuration.files import LARGEST
from align_hooks.configuration.megatron import LATEST
from align_hooks.configuration.values import Configuration
from align_hooks.messages import rendered
from align_hooks.regular import read_regular
from align_hooks.settings import Settings

TOKENIZER = ("tokenizer_model", "vocab_file", "merge_file")
HUB = "HuggingFaceTokenizer"
"""The tokenizer whose model may be a name at a hub instead of a file."""
IMPORTS = {"torch": ("torch", "megatron", "mindspeed"), "ms": ("mindspore", "mindformers")}
"""The packages whose import shows a script's side."""
DATA = ("data_path", *PATHS)
OPENED = ("context.ascend_config.parallel_speed_up_json_path",)
"""Other files that MindFormers opens before it trains."""


def imported_side(script: Path) -> str | None:
    """Return the side whose framework a training script imports; None where it imports neither or both, or is no Python."""
    try:
        tree = ast.parse(read_regular(script, LARGEST))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level]
    sides = {side for name in names for side, packages in IMPORTS.items() if name.partition(".")[0] in packages}
    return sides.pop() if len(sides) == 1 else None


def missing(configuration: Configuration, settings: Settings, *, from_here: bool) -> Iterator[str]:
    """Yield a line for each missing file that a run would open: data unless batches are replayed, relative paths if ``from_here``."""
    names = TOKENIZER if known(configuration, "tokenizer_type") != HUB else ()
    for name in (*names, *OPENED, *(DATA if settings.replay_batches is None else ())):
        value = known(configuration, name)
        of_megatron = name.endswith("data_path")  # data sets with or without their weights
        parts = value if isinstance(value, list) else str(value or "").split() if of_megatron else [value]
        given = [part for part in parts if isinstance(part, str) and part and not (of_megatron and isinstance(plain(part), float))]
        paths = [f"{part}{end}" for part in given for end in ((".bin", ".idx") if of_megatron else ("",))]
        lost = next((path for path in paths if (from_here or Path(path).is_absolute()) and not Path(path).exists()), None)
        if lost is not None:
            yield f"{configuration.values[name].where}: {lost} does not lie here"


def unlocated(configuration: Configuration) -> Iterator[str]:
    """Yield a line for each file of a launch script whose place is not known, or is not where its framework looks."""
    if configuration.lost is not None:
        yield (
            f"which {Path(configuration.program).name} {configuration.source} starts cannot be told, so the packages here may be others: "
            f"{rendered(configuration.lost)}; or name the Python script itself"
        )
    yield from map(rendered, configuration.misplaced)


def resumes(configuration: Configuration) -> str:
    """Return a note that a run would go on from a checkpoint; empty where it would not."""
    load = known(configuration, "load")
    latest = Path(str(load)) / LATEST
    if not isinstance(load, str | int) or not latest.is_file():
        return ""
    try:
        iteration = read_regular(latest, 40).decode("ascii", "replace").strip()
    except (OSError, ValueError):
        return ""
    return f"{configuration.values['load'].where} finds a checkpoint of iteration {iteration}: the run goes on from there"
