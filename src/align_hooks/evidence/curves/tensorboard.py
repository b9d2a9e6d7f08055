"""The curves of TensorBoard's event files, read by TensorBoard's own reader, which needs no TensorFlow.

Megatron-LM writes them on one rank. MindFormers writes them on every rank into a folder ``rank_N``, each with that rank's own loss.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from align_hooks.errors import RecordError
from align_hooks.evidence.curves.series import FLOAT32, Found, over_samples

EVENTS = "events.out.tfevents."
"""What the name of an event file has in it."""


def is_tensorboard(source: Path) -> bool:
    """Whether a path is an event file, a directory with some, or one with such directories of ranks."""
    return EVENTS in source.name or bool(_folders(source))


def _folders(source: Path) -> list[Path]:
    """Those of a directory and its ``rank_N`` that hold events."""
    places = [source, *sorted(source.glob("rank_*"))] if source.is_dir() else []
    return [place for place in places if place.is_dir() and any(EVENTS in file.name for file in place.iterdir())]


def read_events(source: Path) -> Found:
    """The curves of an event file, or of all event files of a directory, in the order in which they were written.

    :raises RecordError: TensorBoard is not installed, or the files hold no curve, or those of several ranks.
    """
    folders = _folders(source)
    if len(folders) > 1:
        raise RecordError(f"{source} has events of {len(folders)} ranks, each of its own loss; name one, {folders[0]} or another")
    source = folders[0] if folders else source
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError:
        raise RecordError(f"{source} is of TensorBoard, which is not installed; pip install 'align-hooks[tensorboard]'") from None
    reader = EventAccumulator(str(source), size_guidance={"scalars": 0}, purge_orphaned_data=False)
    reader.Reload()
    points: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for tag in reader.Tags()["scalars"]:
        points[tag] = [(event.step, event.value) for event in reader.Scalars(tag)]
    if not points:
        raise RecordError(f"{source} holds no curve; name the directory of one run")
    curves = {tag: dict(of_tag) for tag, of_tag in points.items()}
    again = sum(len(of_tag) - len(curves[tag]) for tag, of_tag in points.items())
    notes = [f"{again} points were logged again for the same step, by a resumed run: the later ones count"] if again else []
    if samples := over_samples(points):
        curves["consumed_samples"] = {step: float(count) for step, count in samples.items()}
    return Found(curves, str(source), first=1, resolution=FLOAT32, notes=notes)
