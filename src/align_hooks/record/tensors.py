"""Tensors of a step, put together from the ranks that hold their shards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from align_hooks.errors import RecordError
from align_hooks.record.files import Array, TensorFile
from align_hooks.record.shard import Shard


class Tensors(Mapping[str, Array]):
    """Canonical name to whole fp32 array, each read when asked for and not kept."""

    def __init__(self, files: Mapping[int, tuple[Path, ...]], tables: Mapping[int, Sequence[Shard]]) -> None:
        """``files`` are a rank's safetensors files, ``tables`` the shards that they must hold; raises RecordError where one lacks."""
        self._files = {rank: [TensorFile(path) for path in paths] for rank, paths in files.items()}
        self._parts: dict[str, list[tuple[int, Shard]]] = {}
        for rank, shards in tables.items():
            for shard in shards:
                if not any(shard.name in file for file in self._files[rank]):
                    raise RecordError(f"{files[rank][0]} lacks {shard.name}, which the manifest lists; record the step again")
                self._parts.setdefault(shard.name, []).append((rank, shard))

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a whole tensor, without reading it."""
        return self._parts[name][0][1].shape

    def __getitem__(self, name: str) -> Array:
        parts = self._parts[name]
        rank, first = parts[0]
        if len(parts) == 1 and first.local_shape == first.shape:
            return self._local(rank, first)
        whole = np.zeros(first.shape, np.float32)
        times = np.zeros(first.shape, np.uint8)
        for rank, shard in parts:
            place = tuple(slice(*bounds) for bounds in shard.box)
            data = self._local(rank, shard)
            if shard.flat:
                whole[place].flat[slice(*shard.flat)] = data
                times[place].flat[slice(*shard.flat)] += np.uint8(1)
            else:
                whole[place] = data
                times[place] += np.uint8(1)
        if not (times == 1).all():
            raise RecordError(
                f"{self._home(parts[0][0], name).path}: {name} is not whole: {int((times == 0).sum())} of its elements are on no rank, "
                f"{int((times > 1).sum())} on several; record with every rank"
            )
        return whole

    def _home(self, rank: int, name: str) -> TensorFile:
        return next(file for file in self._files[rank] if name in file)

    def _local(self, rank: int, shard: Shard) -> Array:
        home = self._home(rank, shard.name)
        data = home.read(shard.name)
        if data.shape != shard.local_shape:
            raise RecordError(
                f"{home.path}: {shard.name} is {list(data.shape)}, the manifest says {list(shard.local_shape)}; record the run again"
            )
        return data
