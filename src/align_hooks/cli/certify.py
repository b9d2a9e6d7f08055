"""``align-hooks certify``."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated

from align_hooks._version import __version__
from align_hooks.cli.application import Option, Positional, app
from align_hooks.cli.files import output, place_of, progress, report_file, report_files, run_of, written
from align_hooks.comparison.pipeline import compare
from align_hooks.configuration.files import read_text
from align_hooks.errors import AlignHooksError
from align_hooks.messages.catalogue import ENGLISH, speaking
from align_hooks.report import card as report
from align_hooks.report.blocks import Code
from align_hooks.report.console import print_blocks, print_document
from align_hooks.report.json import encoded
from align_hooks.scenarios.card import NAME, Card, card_of, item_of, read_card, text_of
from align_hooks.scenarios.recheck import Departure, Held, against_records, against_trainings


@app.command
def certify(
    reference: Annotated[str | None, Positional(help="the run that is trusted, a record")] = None,
    candidate: Annotated[str | None, Positional(help="the run that agrees with it, a record")] = None,
    card: Annotated[Path | None, Option(help="the file to write, llama.yaml with its page llama.md; a card gains an item")] = None,
    item: Annotated[str | None, Option(help="what the item is called; by default as the candidate's directory")] = None,
    title: Annotated[str | None, Option(help="what the card is called; by default as its file")] = None,
    noise: Annotated[list[str] | None, Option(help="the reference again, on which limits are measured")] = None,
    verify: Annotated[Path | None, Option(help="check this card, against the records that it names")] = None,
    again: Annotated[Path | None, Option(help="check it against runs that its commands train now, recorded in this folder")] = None,
    minutes: Annotated[float, Option(min=0, help="the longest that such a training may take")] = 240.0,
    json: Annotated[Path | None, Option(help="write what a check found to this file, as JSON")] = None,
) -> None:
    """Write a card of what two runs agree on, or check one.

    A card holds versions, commits, devices, layouts, each stage's number beside its limit, digests of the records, and the commands that
    make them. Called again with the same --card, it adds an item: another layout, a resumed run. Runs that do not agree get no card.

    Exit codes: 0 written, or it holds, 1 it no longer holds, 2 usage or runs that do not agree, 3 unreadable, or a training failed.

    Example: align-hooks certify runs/megatron runs/mindformers --card llama.yaml
    """
    _, json = report_files(None, json)
    if verify is not None:
        check(verify, again, minutes * 60, json)
    if reference is None or candidate is None or card is None:
        raise AlignHooksError("certify needs two runs and --card FILE, or --verify CARD")
    if again is not None or json is not None:
        raise AlignHooksError("--again and --json are of a check; give --verify CARD")
    file = report_file("--card", card)
    assert file is not None
    with progress() as say:
        runs = [run_of(reference), run_of(candidate), *(run_of(path, "--noise ") for path in noise or ())]
        result = compare(*runs[:2], noise=runs[2:], progress=say)
    earlier = card_in(file) if file.exists() else None
    with speaking(ENGLISH):
        made = item_of(result, runs, f"{datetime.now(timezone.utc):%Y-%m-%d}")
        items = {**(earlier.items if earlier is not None else {}), NAME.sub("_", item or runs[1].path.name): made}
        whole = card_of(title or (earlier.title if earlier is not None else file.stem), items, runs)
    print_document(report.document(whole), output())
    written("--card", file, lambda: text_of(whole))
    written("--card", file.with_suffix(".md"), lambda: report.hub_page(whole))


def card_in(file: Path) -> Card:
    """Return the card that a file holds; raises RecordError for any other file."""
    return read_card(read_text(file), str(file))


def check(file: Path, folder: Path | None, seconds: float, json: Path | None) -> None:
    """Check a card and end the command with what was found."""
    text = read_text(file)
    card, found, console = read_card(text, str(file)), list[Departure](), output()
    for event in against_records(card, text) if folder is None else against_trainings(card, place_of(folder), seconds):
        if isinstance(event, str):
            print_blocks([Code([event])], console)
        else:
            found.append(event)
    made = report.checked(card.title, len(card.items), found)
    print_document(made, console)
    outcome = Held.BROKEN if found else Held.HOLDS
    about = {"format": 1, "align_hooks": __version__, "card": str(file), "outcome": outcome.text, "exit_code": outcome.exit_code}
    written("--json", json, lambda: {**about, "departures": encoded(found, report.JSON)})
    raise SystemExit(outcome.exit_code)
