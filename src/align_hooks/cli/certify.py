"""``align-hooks certify``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated

from align_hooks._version import __version__
from align_hooks.cli.application import Option, Positional, app
from align_hooks.cli.files import output, place_of, progress, report_file, report_files, written
from align_hooks.cli.runs import run_of
from align_hooks.comparison.pipeline import compare
from align_hooks.errors import AlignHooksError, RecordError
from align_hooks.messages import rendered
from align_hooks.messages.catalogue import ENGLISH, speaking
from align_hooks.record.format.files import in_words
from align_hooks.record.reader import Run
from align_hooks.record.verify import verify as verified
from align_hooks.regular import read_regular
from align_hooks.report import card as report
from align_hooks.report.blocks import Code, Paragraph
from align_hooks.report.console import print_blocks, print_document
from align_hooks.report.json import encoded
from align_hooks.scenarios.card import FRONT, NOT_IN_A_NAME, Card, ItemCard, card_of, is_sealed, item_of, model_of, read_card, text_of
from align_hooks.scenarios.recheck import Departure, Held, against_records, against_trainings

MOST = 1 << 24
"""Bytes of a card."""


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
        if (reference, card, item, title, noise) != (None,) * 5:
            raise AlignHooksError("--verify takes a card alone, with --again or without; leave the runs and --card out")
        check(verify, again, minutes * 60, json)
    if reference is None or candidate is None or card is None:
        raise AlignHooksError("certify needs two runs and --card FILE, or --verify CARD")
    if again is not None or json is not None:
        raise AlignHooksError("--again and --json are of a check; give --verify CARD")
    if card.suffix not in (".yaml", ".yml"):
        raise AlignHooksError(f"--card {card}: name a file that ends in .yaml, beside which its page ends in .md")
    file, page = report_file("--card", card), report_file("--card", card.with_suffix(".md"))
    assert file is not None
    assert page is not None
    if page.exists() and not read_own(page).startswith(FRONT):
        raise AlignHooksError(f"{page} is no page of a card; name another --card, or move it")
    with progress() as say, speaking(ENGLISH):
        runs = [run_of(reference), run_of(candidate), *(run_of(path, "--noise ") for path in noise or ())]
        if wrong := [problem for run in runs for problem in verified(run, say).wrong]:
            raise RecordError(f"{rendered(wrong[0].message)}; record it again")
        made = item_of(compare(*runs[:2], noise=runs[2:], progress=say), runs, f"{datetime.now(timezone.utc):%Y-%m-%d}")
        whole = with_item(file, NOT_IN_A_NAME.sub("_", item or runs[1].path.name), made, title, runs)
    text = text_of(whole)
    read_card(text, str(file))  # what is written can be read
    print_document(report.document(whole), output())
    written("--card", file, lambda: text)
    written("--card", page, lambda: report.hub_page(whole))


def with_item(file: Path, name: str, made: ItemCard, title: str | None, runs: Sequence[Run]) -> Card:
    """Return the card of a file with one more item, or a new one; raises AlignHooksError where the file holds anything else."""
    if not file.exists():
        return card_of(title or file.stem, {name: made}, model_of(runs))
    text = read_own(file)
    earlier = read_card(text, str(file))
    if not is_sealed(text):
        raise AlignHooksError(f"{file} was edited since it was written; check it with --verify, and write a new one")
    known = earlier.items.get(name)
    if known is not None and (known.reference.path, known.candidate.path) != (made.reference.path, made.candidate.path):
        raise AlignHooksError(f"{file} has an item {name} of other runs; give this one a name with --item")
    if earlier.model != (model := model_of(runs)):
        raise AlignHooksError(f"{file} is of another model ({earlier.model}); name another --card")
    return card_of(title or earlier.title, {**earlier.items, name: made}, model)


def read_own(file: Path) -> str:
    """Return the text of a card or a page; raises RecordError for a file that cannot be read."""
    try:
        return read_regular(file, MOST).decode()
    except (OSError, ValueError) as error:
        raise RecordError(f"{file} cannot be read: {in_words(error)}") from None


def check(file: Path, folder: Path | None, seconds: float, json: Path | None) -> None:
    """Check a card and end the command with what was found."""
    text = read_own(file)
    card, found, console = read_card(text, str(file)), list[Departure](), output()
    with speaking(ENGLISH):
        events = against_records(card, text) if folder is None else against_trainings(card, text, place_of(folder), seconds)
        try:
            for event in events:
                if isinstance(event, Departure):
                    found.append(event)
                else:
                    print_blocks([Code([event]) if isinstance(event, str) else Paragraph(event)], console)
        except RecordError:
            if found:  # which hold whatever fails behind them
                print_document(report.checked(card.title, len(card.items), found), console)
            raise
    print_document(report.checked(card.title, len(card.items), found), console)
    outcome = Held.BROKEN if found else Held.HOLDS
    about = {"format": 1, "align_hooks": __version__, "card": str(file), "outcome": outcome.text, "exit_code": outcome.exit_code}
    written("--json", json, lambda: {**about, "departures": encoded(found, report.JSON)})
    raise SystemExit(outcome.exit_code)
