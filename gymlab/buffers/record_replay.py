"""Records of what environments lived through, kept by stream; samplers draw from them by number.

One record belongs to one observation:

    observation x_t, `action` chosen at x_t, `reward` received on arriving at x_t, `is_first`, `is_last`, `is_terminal`

so that an episode of n actions is n + 1 records. Each environment has a stream of records. Record k of environment e has the id k num_envs + e.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gymlab.buffers.batches import Records, check_records
from gymlab.buffers.chunk_files import ChunkFiles, ChunkReference, Field
from gymlab.buffers.room import check_memory
from gymlab.buffers.storage import Storage
from gymlab.buffers.streams import Arrays, Chunk
from gymlab.config.targets import COMPONENTS
from gymlab.errors import CheckpointError, ConfigError, did_you_mean


@COMPONENTS.register("record_replay")
class RecordReplay:
    """Takes in records, the oldest of which make room, and gives out those that it is asked for. Methods may be called from several threads."""

    def __init__(
        self,
        fields: Mapping[str, Field],
        num_envs: int,
        *,
        capacity: int,
        latents: Mapping[str, Field] | None = None,
        chunk: int = 1024,
        on_disk: bool = False,
        directory: Path | None = None,
        expected: int | None = None,
    ) -> None:
        """Make an empty replay; one that cannot fit this machine when it is full is refused.

        capacity: records over all streams, each of which has an equal share; the oldest go first.
        latents: fields that updates write back with `write_back`; zeros until then.
        chunk: records of a stream that are one file.
        on_disk: keep full chunks in files of the run, in memory only the newest of each stream.
        directory: keep them in files there; for use outside of a run.
        expected: records that a run of this length brings, where that is fewer: it need only have room for those.
        """
        self.fields, self.latents = dict(fields), dict(latents or {})
        self.num_envs, self.capacity_per_env = num_envs, capacity // num_envs
        if self.capacity_per_env < 1:
            raise ConfigError(f"replay_size: {capacity:,} records leave none for each of {num_envs} environments.")
        self._storage = Storage(
            self.fields,
            self.latents,
            num_envs,
            capacity=self.capacity_per_env,
            rows=min(chunk, self.capacity_per_env),
            on_disk=on_disk or directory is not None,
            expected=expected,
        )
        self._streams = self._storage.streams
        self._lock = threading.RLock()
        check_memory(self.nbytes_full)
        if directory is not None:
            self.attach(ChunkFiles(directory))

    def add(self, trajectory: Sequence[Records]) -> None:
        """Take in records in the order given; the oldest make room."""
        parts = [records for records in trajectory if len(records.env)]
        if not parts:
            return
        env = np.concatenate([records.env for records in parts])
        for records in parts:
            check_records(records, self.fields, self.num_envs, self.latents)
        names = parts[0].values
        values = {name: np.concatenate([records.values[name] for records in parts]) for name in names}
        with self._lock:
            for index in np.unique(env).tolist():
                rows = np.flatnonzero(env == index)
                self._append(index, values if len(rows) == len(env) else {n: v[rows] for n, v in values.items()})

    def _append(self, env: int, values: Mapping[str, np.ndarray]) -> None:
        self._streams[env].append(values)

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """[num_envs] number of the oldest record of each stream, and how many were ever written to it."""
        with self._lock:
            return self._storage.bounds()

    def column(self, name: str, env: int) -> np.ndarray:
        """[K] one field of all records that the stream of an environment holds, from the oldest on."""
        with self._lock:
            stream = self._streams[env]
            pieces = stream.pieces(stream.oldest, stream.written)
            parts = [chunk.records[name][low:high] for chunk, low, high, _ in pieces]
            return np.concatenate(parts) if parts else np.empty((0, *self.fields[name].shape), self.fields[name].dtype)

    def gather(self, ids: np.ndarray, names: Sequence[str]) -> Arrays:
        """[*ids.shape, ...] by name of a field or latent, as they were recorded; all of these records must be held."""
        flat = ids.reshape(-1)
        known = {**self.fields, **self.latents}
        values = {name: np.empty((len(flat), *known[name].shape), known[name].dtype) for name in names}
        with self._lock:
            index, env = np.divmod(flat, self.num_envs)
            oldest, written = self._storage.bounds()
            if ((index < oldest[env]) | (index >= written[env])).any():
                raise IndexError("The replay does not hold all of these records.")
            for chunk, rows, places in self._by_chunk(env, index):
                for name, array in values.items():
                    array[places] = (chunk.records if name in self.fields else chunk.latents)[name][rows]
        return {name: array.reshape(*ids.shape, *array.shape[1:]) for name, array in values.items()}

    def _by_chunk(self, env: np.ndarray, index: np.ndarray) -> Iterator[tuple[Chunk, np.ndarray, np.ndarray]]:
        """Chunks that hold these records [K], with rows in each and places among the K; records keep their order within a chunk."""
        number, row = np.divmod(index, self._storage.rows)
        order = np.lexsort((number, env))
        keys = np.stack([env, number])[:, order]
        borders = np.flatnonzero((np.diff(keys) != 0).any(axis=0)) + 1
        for places in np.split(order, borders) if len(order) else []:
            yield self._streams[env[places[0]]].chunks[int(number[places[0]])], row[places], places

    def write_back(self, update: tuple[np.ndarray, Mapping[str, np.ndarray]]) -> None:
        """Overwrite latents: ids [B, L] as a batch gave them, and [B, L, ...] by latent; evicted records are passed over."""
        ids, latents = update[0].reshape(-1), update[1]
        for name, array in latents.items():
            if name not in self.latents or array.shape != (*update[0].shape, *self.latents[name].shape):
                raise ConfigError(
                    f"write_back: {name!r} {array.shape} does not fit. {did_you_mean(name, self.latents)} Latents: "
                    f"{', '.join(f'{key} {(*update[0].shape, *item.shape)}' for key, item in self.latents.items())}."
                )
        flat = {name: array.reshape(len(ids), *self.latents[name].shape) for name, array in latents.items()}
        index, env = np.divmod(ids, self.num_envs)
        with self._lock:
            oldest, written = self._storage.bounds()
            kept = np.flatnonzero((index >= oldest[env]) & (index < written[env]))
            # Where windows overlap the later one wins: order is kept, and so is assignment by index.
            for chunk, rows, places in self._by_chunk(env[kept], index[kept]):
                chunk.latents_changed = True
                for name, array in flat.items():
                    chunk.latents[name][rows] = array[kept[places]]

    def stretch(self, position: int, size: int) -> tuple[np.ndarray, Arrays] | None:
        """Up to `size` records of one stream, from the one on that `position` records before it are held: ids [K] and values by field.

        Stretch after stretch, stream after stream, this goes through everything; None behind the end. Flags are as they were recorded.
        """
        with self._lock:
            oldest, written = self._storage.bounds()
            ends = np.cumsum(written - oldest)
            if position >= ends[-1]:
                return None
            env = int(np.searchsorted(ends, position, side="right"))
            start = int(written[env] - (ends[env] - position))
            stop = min(start + size, int(written[env]))
            ids = np.arange(start, stop) * self.num_envs + env
            return ids, self.gather(ids, tuple(self.fields))

    def attach(self, files: ChunkFiles, name: str = "replay") -> None:
        """Where the files of full chunks lie from now on; those that were written elsewhere are taken along."""
        with self._lock:
            self._storage.attach(files, name)

    def references(self) -> list[ChunkReference]:
        """The files that the state, as last given, refers to."""
        return self._storage.references()

    def get_state(self) -> dict[str, Any]:
        """All records. Full chunks that no file holds yet, and latents that have changed, are written first."""
        with self._lock:
            return {"layout": self._layout(), "streams": self._storage.get_state()}

    def _layout(self) -> dict[str, Any]:
        kinds = {"fields": self.fields, "latents": self.latents}
        return {
            "num_envs": self.num_envs,
            "chunk": self._storage.rows,
            "capacity_per_env": self.capacity_per_env,
            **{kind: {n: [list(f.shape), f.dtype.name] for n, f in sorted(of.items())} for kind, of in kinds.items()},
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave; the files must be where `attach` says."""
        layout = self._layout()
        differing = [key for key in layout if state["layout"].get(key) != layout[key]]
        if differing:
            told = "; ".join(f"{key} {state['layout'].get(key)}, here {layout[key]}" for key in differing[:3])
            raise CheckpointError(f"The checkpoint's replay does not fit this one: {told}.")
        with self._lock:
            self._storage.set_state(state["streams"])

    def __len__(self) -> int:
        """Records that are held."""
        return sum(stream.written - stream.oldest for stream in self._streams)

    @property
    def on_disk(self) -> bool:
        """Whether full chunks are in files alone."""
        return self._storage.on_disk

    @property
    def nbytes(self) -> int:
        """Memory that is taken now."""
        return self._storage.nbytes

    @property
    def nbytes_full(self) -> int:
        """Memory that is taken when the replay is full or the run is over, latents included."""
        return self._storage.nbytes_full

    def describe(self) -> dict[str, Any]:
        """What to say before training: records, and what they take."""
        return self._described("records")

    def _described(self, kept: str) -> dict[str, Any]:
        return {
            "replay": f"{self.capacity_per_env * self.num_envs:,} {kept}, {self._storage.room()}",
            "replay_memory_bytes": self.nbytes_full,
        }
