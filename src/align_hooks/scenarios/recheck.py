"""A card checked: against the records that it names, or against new ones that its commands train."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from align_hooks._version import __version__
from align_hooks.comparison.pipeline import compare
from align_hooks.comparison.verdict import Judgement
from align_hooks.errors import AlignHooksError, RecordError
from align_hooks.messages import Argument, Message, Side, message
from align_hooks.process import storage
from align_hooks.record.reader import Run, open_run
from align_hooks.record.verify import verify
from align_hooks.scenarios.card import ATTACHED, Card, ItemCard, absolute, at_places, card_of, is_sealed, item_of, model_of
from align_hooks.scenarios.climb import recorded_at
from align_hooks.scenarios.trial import last_words, ran


class Held(Judgement):
    """How a check ended, and the exit code."""

    HOLDS = ("holds", 0)
    BROKEN = ("no longer holds", 1)


class Departure(Struct, frozen=True):
    """One thing that is no longer as the card says."""

    place: str
    """Dotted key in the card, or the path of a file."""
    was: Argument
    now: Argument


def against_records(card: Card, text: str) -> Iterator[Departure]:
    """Yield what a card says otherwise than the records that it names, read to the last byte."""
    yield from seal(text)
    items: dict[str, ItemCard] = {}
    known: dict[str, Run] = {}
    model = card.model
    for name, item in card.items.items():
        paths = [each.path for each in (item.reference, item.candidate, *item.repeats.values())]
        try:
            for path in (path for path in paths if path not in known):  # items may share a reference, which is read once
                known[path] = run = open_run(storage.place_of(path))
                wrong = [(run.path / problem.place, problem.message) for problem in verify(run).wrong]
                yield from (Departure(str(file), message("card.sealed"), words) for file, words in wrong)
            runs = [known[path] for path in paths]
            items[name] = item_of(compare(*runs[:2], noise=runs[2:]), runs, item.last_verified)
            model = model_of(runs)
        except (AlignHooksError, ValueError) as error:
            yield Departure(f"items.{name}", item.expected_result, str(error))
    was, now = flat(card), flat(card_of(card.title, {**card.items, **items}, model))
    if card.align_hooks != __version__:  # whose words and limits may be others
        was, now = ({key: value for key, value in each.items() if not OF_A_VERSION.search(key)} for each in (was, now))
    yield from departures(was, now)


OF_A_VERSION = re.compile(r"(^|\.)(align_hooks|summary|compared|expected_result|limit)\Z|\.(notes|acceptance)")
"""Keys of what another version of align_hooks may say otherwise of the same records; notes and acceptance are lists of words."""


def seal(text: str) -> Iterator[Departure]:
    """Yield that a card was edited."""
    if not is_sealed(text):
        yield Departure("digest", message("card.sealed"), message("card.edited"))


def against_trainings(card: Card, text: str, folder: Path, seconds: float) -> Iterator[str | Message | Departure]:
    """Yield each line of the card's commands before it is run, its runs recorded in ``folder``, and what is no longer so.

    What ``folder`` holds already is not trained again, which is said. Numbers may move within their limits, which the stages judge.

    :raises RecordError: a line fails, or takes more than ``seconds``.
    """
    yield from seal(text)
    for name, item in card.items.items():
        cards = {Side.REFERENCE.value: item.reference, Side.CANDIDATE.value: item.candidate}
        cards |= {f"repeat_{number}": repeat for number, repeat in item.repeats.items()}
        places = {absolute(run.path, None): folder / name / role for role, run in cards.items()}
        if len(item.commands) <= len(places):
            raise RecordError(f"items.{name} lacks commands")
        lines = {place: at_places(line, place, places) for place, line in zip(places.values(), item.commands, strict=False)}
        for place, line in lines.items():
            if recorded_at(place) is not None:
                yield message("card.kept", place=str(place))
                continue
            yield line
            log = folder / "logs" / f"{name}_{place.name}.log"
            code = ran(line, log, seconds, {})
            if code != 0 or recorded_at(place) is None:
                ended = f"took more than {seconds / 60:.3g} minutes" if code is None else f"ended with exit code {code}"
                raise RecordError(f"{place} was not recorded: the line {ended}: {last_words(log)}; its output is in {log}")
        runs = [open_run(place) for place in places.values()]
        try:
            made = item_of(compare(*runs[:2], noise=runs[2:]), runs, item.last_verified)
        except AlignHooksError as error:
            yield Departure(f"items.{name}", item.expected_result, str(error))
            continue
        # the settings, which the caller's environment, or a record that was there, may change
        asked, found = ([line.partition(ATTACHED)[0] for line in each] for each in (lines.values(), made.commands[: len(places)]))
        yield from departures(flat(asked, f"items.{name}.commands."), flat(found, f"items.{name}.commands."))
        yield from departures(repeatable(item, card.model, name), repeatable(made, model_of(runs), name))
        yield from moved_losses(name, item, made)


def repeatable(item: ItemCard, model: Mapping[str, object], name: str) -> dict[str, object]:
    """Return what two trainings of one command share, by key: what trained, and how each stage came out."""
    sides = {"reference": item.reference, "candidate": item.candidate, **{f"repeats.{key}": run for key, run in item.repeats.items()}}
    facts = flat(model, "model.")
    facts |= {f"items.{name}.precision": item.precision}
    facts |= {f"items.{name}.stages.{stage}.status": each.status for stage, each in item.stages.items()}
    for side, run in sides.items():
        own = {key: getattr(run, key) for key in run.__struct_fields__ if key not in ("path", "recorded", "digests")}
        facts |= flat(own, f"items.{name}.{side}.")
    return {key: value for key, value in facts.items() if not key.endswith(".versions.align_hooks")}


def moved_losses(name: str, item: ItemCard, again: ItemCard) -> Iterator[Departure]:
    """Yield the losses at the first step that are further from the card's than the stage of the first loss allows."""
    stage = again.stages.get("step_0_loss")
    limit = stage.limit if stage is not None and stage.limit is not None else 0.0
    for key in ("initial_loss", "reference_initial_loss"):
        was, now = item.metrics.get(key), again.metrics.get(key)
        if was is None or now is None or not abs(now - was) <= limit * abs(now):
            yield Departure(f"items.{name}.metrics.{key}", shown(was), shown(now))


def departures(was: Mapping[str, object], now: Mapping[str, object]) -> Iterator[Departure]:
    """Yield the keys whose values differ."""
    for key in dict.fromkeys((*was, *now)):
        if was.get(key) != now.get(key):
            yield Departure(key, shown(was.get(key)), shown(now.get(key)))


def shown(value: object) -> Argument:
    """Return a value of a card as people read it."""
    return message("card.nothing") if value is None else str(value)


def flat(value: object, prefix: str = "") -> dict[str, object]:
    """Return the values of a card, or of a part of it, by dotted key."""
    table = msgspec.to_builtins(value) if isinstance(value, msgspec.Struct) else value
    if isinstance(table, list | tuple):
        table = {str(index): each for index, each in enumerate(table, 1)}
    if not isinstance(table, Mapping):
        return {prefix.removesuffix("."): table}
    return {key: each for name, inner in table.items() for key, each in flat(inner, f"{prefix}{name}.").items()}
