"""Tensors of a step, put together from the ranks that hold their shards."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from align_hooks.errors import RecordError
from align_hooks.record.files import TensorFile
from align_hooks.record.layout import Array
from align_hooks.record.shard import Shard


class Tensors(Mapping[str, Array]):
    """Canonical name to whole fp32 array, each read when asked for and not kept."""

    def __init__(self, files: Mapping[int, Sequence[tuple[Path, str | None]]], tables: Mapping[int, Sequence[Shard]]) -> None:
        """``files`` are a rank's safetensors files, each with the digest of its header, ``tables`` the shards that they must hold; raises
        RecordError where a shard is missing."""
        self._files = {rank: [TensorFile(path, digest) for path, digest in paths] for rank, paths in files.items()}
        self._parts: dict[str, list[tuple[int, Shard]]] = {}
        for rank, shards in tables.items():
            for shard in shards:
                if not any(shard.name in file for file in self._files[rank]):
                    raise RecordError(f"{files[rank][0][0]} lacks {shard.name}, which the manifest lists; record the step again")
                self._parts.setdefault(shard.name, []).append((rank, shard))

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a whole tensor, without reading it."""
        return self._parts[name][0][1].shape

    def __repr__(self) -> str:
        return f"Tensors({len(self)} names, first {next(iter(self), 'none')})"

    def __getitem__(self, name: str) -> Array:
        if name not in self._parts:
            near = difflib.get_close_matches(name, self._parts, n=1, cutoff=0.5)
            raise KeyError(f"no tensor {name}" + (f"; did you mean {near[0]}?" if near else ""))
        parts = self._parts[name]
        rank, first = parts[0]
        if len(parts) == 1 and first.local_shape == first.shape:
            return self._local(rank, first)
        if math.prod(first.shape) > sum(shard.elements for _, shard in parts):  # before memory is taken for it
            raise self._not_whole(name, "some of its elements are on no rank")
        whole = np.zeros(first.shape, np.float32)
        filled = np.zeros(first.shape, bool)
        for rank, shard in parts:
            if shard.shape != first.shape:
                raise self._not_whole(name, f"rank {rank} says that it is {list(shard.shape)}, rank {parts[0][0]} {list(first.shape)}")
            place = tuple(slice(*bounds) for bounds in shard.box)
            data = self._local(rank, shard)
            range_ = slice(None) if shard.flat is None else slice(*shard.flat)
            if filled[place].reshape(-1)[range_].any():
                raise self._not_whole(name, f"elements of rank {rank} are on an earlier rank too")
            if shard.flat:
                whole[place].flat[range_], filled[place].flat[range_] = data, True
            else:
                whole[place], filled[place] = data, True
        if not filled.all():
            raise self._not_whole(name, f"{int((~filled).sum())} of its elements are on no rank")
        return whole

    def _not_whole(self, name: str, why: str) -> RecordError:
        path = self._file(self._parts[name][0][0], name).path
        return RecordError(f"{path}: {name} is not whole: {why}; record with every rank")

    def _file(self, rank: int, name: str) -> TensorFile:
        return next(file for file in self._files[rank] if name in file)

    def _local(self, rank: int, shard: Shard) -> Array:
        file = self._file(rank, shard.name)
        data = file.read(shard.name)
        if data.shape != shard.local_shape:
            raise RecordError(
                f"{file.path}: {shard.name} is {list(data.shape)}, the manifest says {list(shard.local_shape)}; record the run again"
            )
        return data
