"""What the ranks of a run say of themselves: their manifests, put side by side, and refused where they are not of one job.

Parameter tables are most of a manifest, and data-parallel ranks have the same: equal shards are kept once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from align_hooks.errors import RecordError
from align_hooks.record import layout
from align_hooks.record.checks import check_facts, check_manifest
from align_hooks.record.files import QUOTED, in_words, read_sealed
from align_hooks.record.folder import inside
from align_hooks.record.shard import Shard

Manifests = dict[int, dict[str, Any]]
MIXED = (
    "one was replaced and the other not yet, or they were copied together; start the job again with ALIGN_HOOKS_RUN_EXISTS=replace, or "
    "copy all files of one run"
)
Tables = dict[int, tuple[Shard, ...]]


def read_manifests(run: Path, ranks: Sequence[int]) -> tuple[Manifests, Tables, list[dict[str, Any]]]:
    """Of every rank its manifest, without the parameter table, and that table; and the optimizer's parameter groups of all ranks.

    Raises RecordError for another format, a manifest that cannot be read, and ranks of different jobs.
    """
    manifests: Manifests = {}
    tables: Tables = {}
    groups: dict[str, dict[str, Any]] = {}
    known: dict[Shard, Shard] = {}
    for rank in ranks:
        path = layout.manifest(run, rank)
        manifest = read_sealed(inside(run, path), older=True)
        check_manifest(manifest, path)
        _refuse_format(manifest, path)
        if manifest.get("rank", rank) != rank:
            raise RecordError(f"{path} is of rank {str(manifest['rank'])[:20]}; copy it again, or record the run again")
        _refuse_strangers(run, rank, manifest, ranks[0], manifests.get(ranks[0], manifest))
        tables[rank] = _table(manifest.pop("parameters", ()), path, known)
        _add(groups, manifest.pop("groups", ()))
        manifests[rank] = manifest
    return manifests, tables, _listed(groups)


def read_facts(run: Path, manifests: Manifests, groups: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """``run.json``, empty where there is none, with the parameter groups of all ranks: rank 0 knows those of its own stage only.

    Raises RecordError where it is not of the run that the ``manifests`` are of.
    """
    path = layout.run_file(run)
    facts = read_sealed(inside(run, path), older=True) if path.exists() else {}
    if facts:
        _refuse_format(facts, path)
    check_facts(facts, path)
    others = {one["run_id"] for one in manifests.values() if one.get("run_id")} - {facts.get("run_id")}
    if facts and others:
        raise RecordError(f"{path} is of run {facts.get('run_id')} and the manifests of run {min(others)}: {MIXED}")
    if facts.get("optimizer"):
        merged: dict[str, dict[str, Any]] = {}
        for held in (facts["optimizer"].get("groups", ()), groups):
            _add(merged, held)
        facts["optimizer"] = {**facts["optimizer"], "groups": _listed(merged)}
    return facts


def _refuse_format(content: Mapping[str, Any], path: Path) -> None:
    if content.get("format") not in layout.READ:
        raise RecordError(
            f"{path} has format {str(content.get('format'))[:20]!r}, this version reads {', '.join(map(str, layout.READ))}; "
            "use the version that wrote it"
        )


def _refuse_strangers(run: Path, rank: int, manifest: Mapping[str, Any], first: int, other: Mapping[str, Any]) -> None:
    """Raise RecordError where a rank's manifest is not of the first one's run, or, where it does not say of which, not of its job."""
    known = [one.get("run_id") for one in (manifest, other)]
    mine, its = (one["launch"] | {"rank": 0, "host": ""} for one in (manifest, other))
    if None not in known and known[0] != known[1]:
        raise RecordError(f"{run}: rank {rank} holds run {known[0]} and rank {first} run {known[1]}: {MIXED}")
    if (None in known and mine != its) or mine["world_size"] != its["world_size"]:
        raise RecordError(
            f"{run}: rank {rank} belongs to another job than rank {first} ({str(mine)[:QUOTED]} against {str(its)[:QUOTED]}); "
            "record into an empty directory"
        )


def _table(rows: Any, path: Path, known: dict[Shard, Shard]) -> tuple[Shard, ...]:
    try:
        table = tuple(known.setdefault(shard, shard) for shard in map(Shard.from_facts, rows))
        if len({shard.name for shard in table}) < len(table):
            raise ValueError("it lists a name twice")
        return table
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise RecordError(
            f"{path}: its parameter table cannot be read ({in_words(error)}); copy it again, or record the run again"
        ) from None


def _add(found: dict[str, dict[str, Any]], groups: Iterable[Mapping[str, Any]]) -> None:
    """The groups of one rank more: one of equal hyper-parameters, the n-th of these, is that of the other ranks.

    Two groups of one rank stay two, although they may begin alike: warm-ups all start from a rate of 0.
    """
    seen: Counter[str] = Counter()
    for group in groups:
        alike = repr(sorted((name, value) for name, value in group.items() if name != "parameters"))
        seen[alike] += 1
        one = found.setdefault(f"{alike} {seen[alike]}", {**group, "parameters": {}})
        one["parameters"].update(dict.fromkeys(group["parameters"]))


def _listed(found: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**group, "parameters": list(group["parameters"])} for group in found.values()]
