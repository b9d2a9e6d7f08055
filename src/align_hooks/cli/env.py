"""``align-hooks env``."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated

from align_hooks.cli.application import Option, app
from align_hooks.cli.files import output
from align_hooks.report.blocks import Paragraph
from align_hooks.report.console import print_blocks
from align_hooks.settings import PREFIX, Settings


@app.command
def env(markdown: Annotated[bool, Option(help="Print the table as Markdown, as docs/reference.md holds it.")] = False) -> None:
    """List the ALIGN_HOOKS_* variables.

    Example: align-hooks env
    """
    rows = [(PREFIX + field.name.upper(), field.metadata["value"], field.metadata["effect"]) for field in fields(Settings)]
    if markdown:
        print("| variable | value | effect |\n| --- | --- | --- |")
        for name, value, effect in rows:
            print(f"| `{name}` | {value} | {effect} |")
        return
    for name, value, effect in rows:
        print_blocks([Paragraph(value, "bold", 0, name, "  "), Paragraph(effect, indent=4)], output())
