"""A comparison as text and as HTML, both as the console prints it: for Python, notebooks and logs."""

from __future__ import annotations

import io

from rich.console import Console

from align_hooks.comparison.verdict import ComparisonResult
from align_hooks.report.comparison import document
from align_hooks.report.console import print_document

WIDTH = 80
"""Columns of a text, as in a pipe."""
PAGE = "<pre style=\"white-space: pre; line-height: normal; font-family: Menlo, 'DejaVu Sans Mono', consolas, monospace\">{code}</pre>"


def as_text(comparison: ComparisonResult) -> str:
    """Return the report without colour, and without spaces at the ends of lines."""
    file = io.StringIO()
    # in a notebook, rich would otherwise show what it prints to a file
    print_document(document(comparison), Console(file=file, width=WIDTH, highlight=False, color_system=None, force_jupyter=False))
    return "\n".join(line.rstrip() for line in file.getvalue().rstrip().splitlines())


def as_html(comparison: ComparisonResult) -> str:
    """Return the report with colour, as one element."""
    console = Console(file=io.StringIO(), width=WIDTH, highlight=False, record=True, force_jupyter=False)
    print_document(document(comparison), console)
    return console.export_html(inline_styles=True, code_format=PAGE)
