"""The curves of TensorBoard's event files, read by TensorBoard's own reader, which needs no TensorFlow.

Megatron-LM writes them on one rank. MindFormers writes them on every rank into a folder ``rank_N``, each with that rank's own loss.
"""

from __future__ import annotations

import os
from pathlib import Path

from align_hooks.errors import RecordError, shown
from align_hooks.evidence.curves.series import FLOAT32, Found, over_samples
from align_hooks.record.format.files import in_words, is_folder_in, list_folder
from align_hooks.regular import ReadLimits, open_regular

EVENTS = "events.out.tfevents."
"""Part of the name of an event file."""


def is_tensorboard(source: Path) -> bool:
    """Return whether a path is an event file, or a directory with event files, its own or of ranks."""
    return EVENTS in source.name or bool(_folders(source))


def _folders(source: Path) -> list[Path]:
    """Return the directories with events: a directory and its ``rank_N``."""
    inside = list_folder(source) if source.is_dir() else []
    ranks = (place for place in inside if place.name.startswith("rank_") and is_folder_in(place, source))
    return [place for place in (source, *ranks) if inside and any(EVENTS in file.name for file in list_folder(place))]


def read_events(source: Path) -> Found:
    """Return the curves of an event file, or of a directory's files in the order of their writing; raises RecordError for several ranks."""
    folders = _folders(source)
    if len(folders) > 1:
        raise RecordError(f"{source} has events of {len(folders)} ranks, each of its own loss; name one, {folders[0]} or another")
    source = folders[0] if folders else source
    try:
        _refuse_unread(source)
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError:
        raise RecordError(f"{source} is of TensorBoard, which is not installed; pip install 'align-hooks[tensorboard]'") from None
    except (OSError, ValueError) as error:
        way = "name a directory that holds the events of one run, as files of its own"
        raise RecordError(f"{source} cannot be read as TensorBoard's events: {shown(in_words(error))}; {way}") from None
    try:
        reader = EventAccumulator(str(source), size_guidance={"scalars": 0}, purge_orphaned_data=False)
        reader.Reload()
        tags = reader.Tags()["scalars"]
        points = {tag: [(event.step, event.value) for event in reader.Scalars(tag)] for tag in tags}
    except Exception as error:  # TensorBoard and protobuf have many kinds for bytes that are no events
        raise RecordError(f"{source} cannot be read as TensorBoard's events: {shown(in_words(error))}; copy it again") from None
    if not points:
        raise RecordError(f"{source} holds no curve; name the directory of one run")
    curves = {tag: dict(of_tag) for tag, of_tag in points.items()}
    again = sum(len(of_tag) - len(curves[tag]) for tag, of_tag in points.items())
    notes = [f"{again} points were logged again for the same step, by a resumed run: the later ones count"] if again else []
    if samples := over_samples(points):
        curves["consumed_samples"] = samples
    return Found(curves, str(source), first=1, resolution=FLOAT32, notes=notes)


def _refuse_unread(source: Path) -> None:
    """Raise ValueError or OSError for irregular or too large event files: TensorBoard opens any file of the name, and reads all of it."""
    folder, size = source if source.is_dir() else None, 0
    for file in list_folder(source) if folder else [source]:
        if EVENTS in file.name or not folder:
            with open_regular(file, folder) as events:
                size += os.fstat(events.fileno()).st_size
    if size > ReadLimits.FILE:
        raise ValueError(f"its events are larger than {ReadLimits.FILE} bytes")
