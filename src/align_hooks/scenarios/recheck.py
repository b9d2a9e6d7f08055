"""A card checked: against the records that it names, or against new ones that its commands train."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from align_hooks.comparison.pipeline import compare
from align_hooks.comparison.verdict import Judgement
from align_hooks.errors import AlignHooksError, RecordError
from align_hooks.messages import Argument, Side, message
from align_hooks.process import storage
from align_hooks.record.reader import Run, open_run
from align_hooks.record.verify import verify
from align_hooks.scenarios.card import Card, ItemCard, absolute, at_places, card_of, is_sealed, item_of
from align_hooks.scenarios.climb import recorded_at
from align_hooks.scenarios.trial import last_words, ran

OF_A_TRAINING = ("path", "recorded", "digests", "commands", "last_verified", "compared", "of", "step", "error", "limit", "noise")
"""Keys that two trainings of one command do not share."""


class Held(Judgement):
    """How a check ended, and the exit code."""

    HOLDS = ("holds", 0)
    BROKEN = ("no longer holds", 1)


@dataclass(frozen=True)
class Departure:
    """One thing that is no longer as the card says."""

    place: str
    """Dotted key in the card, or the path of a file."""
    was: Argument
    is_: Argument


def against_records(card: Card, text: str) -> Iterator[Departure]:
    """Yield what a card says otherwise than the records that it names, read to the last byte.

    :raises RecordError: a record is not there.
    """
    if not is_sealed(text):
        yield Departure("digest", message("card.sealed"), message("card.edited"))
    items: dict[str, ItemCard] = {}
    runs: list[Run] = []
    for name, item in card.items.items():
        paths = [storage.place_of(each.path) for each in (item.reference, item.candidate, *item.repeats.values())]
        if missing := next((path for path in paths if not path.exists()), None):
            raise RecordError(f"{missing} is not there; go where the card was written, or give --again FOLDER to train it again")
        try:
            read = [open_run(path) for path in paths]
            wrong = [(run.path / problem.place, problem.message) for run in read for problem in verify(run).wrong]
            yield from (Departure(str(file), message("card.sealed"), words) for file, words in wrong)
            items[name] = item_of(compare(*read[:2], noise=read[2:]), read, item.last_verified)
        except AlignHooksError as error:
            yield Departure(f"items.{name}", item.expected_result, str(error))
            continue
        runs += read
    known = {name: item for name, item in card.items.items() if name in items}
    made = card_of(card.title, items, runs)
    yield from departures(flat(msgspec.structs.replace(card, items=known)), flat(made), ("summary", *(() if runs else ("model",))))


def against_trainings(card: Card, folder: Path, seconds: float) -> Iterator[str | Departure]:
    """Yield each line of the card's commands before it is run, its runs recorded in ``folder``, and what is no longer so.

    What ``folder`` holds already is not trained again. Numbers may move within their limits, which the stages judge.

    :raises AlignHooksError: a line fails, or takes more than ``seconds``.
    """
    for name, item in card.items.items():
        cards = {Side.REFERENCE.value: item.reference, Side.CANDIDATE.value: item.candidate}
        cards |= {f"repeat_{number}": repeat for number, repeat in item.repeats.items()}
        places = {absolute(run.path, None): folder / name / role for role, run in cards.items()}
        for place, line in zip(places.values(), item.commands, strict=False):
            if recorded_at(place) is None:
                moved = at_places(line, places)
                yield moved
                log = folder / "logs" / f"{name}_{place.name}.log"
                code = ran(moved, log, seconds, {})
                if recorded_at(place) is None:
                    raise RecordError(f"{place} was not recorded (exit code {code}): {last_words(log)}; its output is in {log}")
        runs = [open_run(place) for place in places.values()]
        try:
            again = item_of(compare(*runs[:2], noise=runs[2:]), runs, item.last_verified)
        except AlignHooksError as error:
            yield Departure(f"items.{name}", item.expected_result, str(error))
            continue
        was, now = (flat(one, f"items.{name}.") for one in (item, again))
        yield from departures(was, now, ("metrics", "acceptance", "notes", "expected_result", *OF_A_TRAINING))
        yield from moved_losses(name, item, again)


def moved_losses(name: str, item: ItemCard, again: ItemCard) -> Iterator[Departure]:
    """Yield the losses at the first step that are further from the card's than the stage of the first loss allows."""
    stage = item.stages.get("step_0_loss")
    for key in ("initial_loss", "reference_initial_loss"):
        was, now = item.metrics.get(key), again.metrics.get(key)
        limit = stage.limit if stage is not None and stage.limit is not None else 0.0
        if was is not None and (now is None or not abs(now - was) <= limit * abs(was)):
            yield Departure(f"items.{name}.metrics.{key}", str(was), str(now))


def departures(was: Mapping[str, object], now: Mapping[str, object], aside: Sequence[str]) -> Iterator[Departure]:
    """Yield the keys whose values differ, but those that have a part of ``aside``."""
    for key in dict.fromkeys((*was, *now)):
        if was.get(key) != now.get(key) and not any(part in aside for part in key.split(".")):
            yield Departure(key, shown(was.get(key)), shown(now.get(key)))


def shown(value: object) -> Argument:
    """Return a value of a card as people read it."""
    return message("card.nothing") if value is None else str(value)


def flat(value: object, prefix: str = "") -> dict[str, object]:
    """Return the values of a card, or of a part of it, by dotted key."""
    table = msgspec.to_builtins(value) if isinstance(value, msgspec.Struct) else value
    if isinstance(table, list):
        table = {str(index): each for index, each in enumerate(table, 1)}
    if not isinstance(table, dict):
        return {prefix.removesuffix("."): table}
    return {key: each for name, inner in table.items() for key, each in flat(inner, f"{prefix}{name}.").items()}
