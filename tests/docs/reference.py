"""docs/reference.md, made from the code: ``python tests/docs/reference.py``. What is a table of facts there is one here."""

import inspect
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from align_hooks.cli import app
from align_hooks.comparison.data.batch_differences import Made
from align_hooks.comparison.diagnosis.hypotheses.registry import HYPOTHESES
from align_hooks.comparison.diagnosis.hypothesis import Hypothesis
from align_hooks.comparison.stage_result import FaultLocation
from align_hooks.hooking.hook import Hook
from align_hooks.messages import message, rendered
from align_hooks.ms_side.catalogue import HOOKS as MS_HOOKS
from align_hooks.torch_side.catalogue import HOOKS as TORCH_HOOKS
from invoked import invoke

PAGE = Path(__file__).parents[2] / "docs" / "reference.md"
SIDES = {"Megatron-LM": TORCH_HOOKS, "MindFormers": MS_HOOKS}
HEAD = """# Reference

Made from the code by `python tests/docs/reference.py`; a test holds it current. The CheckList's rows are in [checklist.md](checklist.md),
the versions that were tried in [compatibility.md](compatibility.md#version-by-version), the limits that a comparison uses in every page's
*Methods*.
"""
VARIABLES = """On both sides unless said. `align-hooks env` prints this table, with `--markdown` as it stands here.

*steps* is `all`, `none`, or a comma list of `N`, `A-B`, `A-B/S`. Step N is the iteration that the frameworks print as N+1.
"""
LIKELY = "What a comparison says after *likely*, by place; `comparison/diagnosis/hypothesis.py` says which comes first of several.\n"
ATTACHED = "A hook is attached when a variable asks for it. Of a hook that must fire, a run that never comes to it exits with 3.\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '&#124;').replace(chr(10), ' ') for cell in line)} |\n" for line in lines)


def variables() -> str:
    """The table of all variables, as ``align-hooks env --markdown`` prints it."""
    return invoke(app, ["env", "--markdown"]).stdout


def hooks(all_of: Sequence[Hook]) -> Iterator[Sequence[str]]:
    """Every hook of a side, in the order of a run."""
    for hook in all_of:
        patch_point = ", ".join(f"`{hook.trigger}.{target}`" for target in hook.targets) or f"`{hook.trigger}`, once it is imported"
        yield hook.name, patch_point, hook.why, f"{hook.package} {hook.supports}", "yes" if hook.must_fire else "no"


def causes() -> Iterator[Sequence[str]]:
    """Every cause that a comparison knows, by place in the order of training."""
    found = [(location, one) for location in FaultLocation for one in HYPOTHESES if location in one.locations]
    for location, one in found:
        cause, look = (rendered(message(f"{kind}.{one.cause}")) for kind in ("cause", "look"))
        yield rendered(location), cause, when(one), look, one.source


def when(one: Hypothesis) -> str:
    """By what a cause is known: its names, and the first line of its test."""
    patterns = [
        f"`batch_difference.{pattern.name.lower()}`" if isinstance(pattern, Made) else str(pattern.value) for pattern in one.patterns
    ]
    names = (
        ("what is named first is", one.settings),
        ("the error arises at", one.points),
        ("differs most:", (*one.part, *one.kind, *one.block)),
    )
    known = [f"a stage finds: {' or '.join(patterns)}"] * bool(patterns)
    known += [f"{how} {' or '.join(f'`{name!s}`' for name in named)}" for how, named in names if named]
    return "; or ".join([*known, *([inspect.cleandoc(one.test.__doc__ or "").rstrip(".")] if one.test is not None else [])])


def commands() -> Iterator[Sequence[str]]:
    """Every command, with its exit codes."""
    for name, command in sorted(app.commands.items()):
        paragraphs = [" ".join(part.replace("\b", " ").split()) for part in inspect.cleandoc(command.help or "").split("\n\n")]
        told = {head: text for head, found, text in (one.partition(": ") for one in paragraphs) if found}
        yield f"`{name}`", paragraphs[0], told.get("Exit codes", "0; 2 usage").rstrip("."), f"`{told.get('Example', '')}`"


def page() -> str:
    """The whole page."""
    parts = [HEAD, "## Commands\n", table(("command", "what it does", "exit codes", "example"), commands())]
    parts += ["## Variables\n", VARIABLES, variables(), "## Hooks\n", ATTACHED]
    for side, all_of in SIDES.items():
        parts += [f"### {side}\n", table(("hook", "patch point", "what for", "proven on", "must fire"), hooks(all_of))]
    parts += ["## Causes\n", LIKELY, table(("where it is blamed", "likely", "when", "look at", "source"), causes())]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
