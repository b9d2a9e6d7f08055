"""``align-hooks check``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from align_hooks._version import __version__
from align_hooks.checklist.batches import tokenizer as open_tokenizer
from align_hooks.checklist.fix import is_yaml
from align_hooks.checklist.sides import check as check_sides
from align_hooks.checklist.sides import fix as fix_sides
from align_hooks.cli.application import Option, Positional, app
from align_hooks.cli.files import output, page_of, progress, report_file, report_files, written
from align_hooks.messages import message
from align_hooks.report.check import FORMAT, JSON, document
from align_hooks.report.console import paragraph, print_blocks, print_document
from align_hooks.report.json import as_json
from align_hooks.report.to_change import mended as mended_lines


@app.command
def check(
    reference: Annotated[str, Positional(help="a recorded run, a launch script, a YAML file, a list of arguments, or a quoted command")],
    candidate: Annotated[str, Positional(help="the same of the side that is questioned")],
    tokenizer: Annotated[str | None, Option(help="a tokenizer.json, or its directory: decode samples of recorded batches")] = None,
    mindformers: Annotated[str | None, Option(help="the version that reads a YAML: the one installed, else 1.9")] = None,
    megatron: Annotated[str | None, Option(help="the version of megatron-core that reads a script: the one installed")] = None,
    everything: Annotated[bool, Option("--all", help="list every row, also those that are the same")] = False,
    fix: Annotated[Path | None, Option(help="write the candidate's YAML to this file, mended as told")] = None,
    html: Annotated[Path | None, Option(help="write it to this file, as a page that needs no network")] = None,
    json: Annotated[Path | None, Option(help="write everything of it to this file, as JSON")] = None,
) -> None:
    """Check two configurations, or runs, by the guide's CheckList.

    Nothing is trained, and nothing that is read is executed.

    Exit codes: 0 clean, 1 something differs that changes the result, 2 usage, 3 unreadable, 4 something that matters is not told.

    Example: align-hooks check pretrain_llama.sh llama.yaml
    """
    html, json = report_files(html, json)
    fix = report_file("--fix", fix)
    decode = open_tokenizer(tokenizer) if tokenizer is not None else None
    with progress() as say:
        versions = {"mindformers": mindformers, "megatron": megatron}
        checked = check_sides(reference, candidate, os.environ, decode=decode, progress=say, **versions)
    print_document(document(checked, everything=everything), output())
    if fix is None and checked.block and is_yaml(candidate):
        paragraph(output(), message("check.can_be_fixed", name=candidate), 0)
    if fix is not None:
        mended, again = fix_sides(reference, candidate, os.environ, checked, **versions)
        print_blocks(mended_lines(mended.before, mended.after, again, (candidate, str(fix))), output())
        written("--fix", fix, lambda: mended.after)
    about = {"align_hooks": __version__, "reference": reference, "candidate": candidate}
    written("--json", json, lambda: as_json(checked, JSON, FORMAT, **about))
    written("--html", html, lambda: page_of(document(checked, everything=True)))
    raise SystemExit(checked.exit_code)
