"""Episode replay: whole episodes as they were lived through, and samplers that draw segments of them.

A record belongs to one observation, as in sequence replay: observation x_t, `action` chosen at x_t (zeros at the last), `reward` received on arriving
at x_t, `is_first`, `is_last`, `is_terminal`. An episode of n actions is n + 1 records and never reaches into another. One that has not ended yet is
an episode like the others with what it has so far, and goes on where the next collection does.

    episode  17 ended: file or RAM | 19 ended: file or RAM | 20 of environment 1: RAM, growing | 21 of environment 0: RAM, growing
             the oldest that has ended goes first
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from gymlab.buffers.batches import Records, SegmentBatch, check_records
from gymlab.buffers.chunk_files import ChunkFiles, ChunkReference, Field
from gymlab.buffers.episode_sampler import EpisodeSampler
from gymlab.buffers.episode_store import EpisodeStore
from gymlab.buffers.room import check_memory, readable
from gymlab.buffers.streams import Arrays
from gymlab.buffers.tensor_files import HEADER_LIMIT_BYTES, PACKED_LIMIT_BYTES
from gymlab.config.targets import COMPONENTS
from gymlab.errors import CheckpointError, ConfigError

__all__ = ["EpisodeSampler", "Episodes", "Field", "Records", "SegmentBatch"]

NEEDED = ("action", "reward", "is_first", "is_last", "is_terminal")


@COMPONENTS.register("episodes")
class Episodes:
    """All episodes of a training. `add` takes in records, what `sampler` makes draws segments; it is saved once for all samplers."""

    def __init__(
        self,
        fields: Mapping[str, Field],
        num_envs: int,
        *,
        capacity: int,
        on_disk: bool = False,
        memory: int = 2 << 30,
        directory: Path | None = None,
    ) -> None:
        """Make it empty; one that cannot fit this machine when it is full is refused.

        capacity: records over all episodes; the oldest episodes go first. One that is longer than an environment's share is kept in parts.
        on_disk: keep episodes that have ended in files of the run.
        memory: bytes that episodes on disk may take in memory, those that grow and those that were needed last.
        directory: keep them in files there; for use outside of a run.
        """
        missing = [name for name in NEEDED if name not in fields]
        if missing:
            raise ConfigError(f"Episodes: the fields {', '.join(missing)} are missing; there is {', '.join(fields)}.")
        self.fields, self.num_envs, self.capacity = dict(fields), num_envs, capacity
        self.on_disk, self.memory = on_disk or directory is not None, memory
        self.record_bytes = sum(field.nbytes for field in self.fields.values())
        self.longest = self._longest()
        if self.longest < 2:
            raise ConfigError(
                f"replay_size: {capacity:,} records leave {self.longest} for an episode of each of {num_envs} environments. Set a larger one."
            )
        self.ids = np.empty(0, np.int64)
        """[E] numbers of the episodes that are held, in the order in which they began."""
        self.lengths = np.empty(0, np.int64)
        """[E] their records."""
        self.ended = np.empty(0, np.bool_)
        """[E] whether nothing will be added to them."""
        self.begun = 0
        """Episodes that ever began; the next one gets this number."""
        self.records = 0
        """Records that are held."""
        self._store = EpisodeStore(self.fields, self.longest, on_disk=self.on_disk, memory=memory)
        self._open: dict[int, int] = {}
        """By environment, the number of the episode that goes on there."""
        self._changed: set[int] = set()
        """Episodes that have come, grown, ended or gone since `ids` was made."""
        check_memory(self.nbytes_full)
        if directory is not None:
            self.attach(ChunkFiles(directory))

    def _longest(self) -> int:
        """Records of an episode at most, so that those that grow keep within the limits and every file can be read again."""
        room = self.capacity * self.record_bytes
        if self.on_disk:
            room = min(room, self.memory)
        return min(room // self.num_envs, PACKED_LIMIT_BYTES - HEADER_LIMIT_BYTES) // self.record_bytes

    def sampler(
        self,
        name: str,
        generator: np.random.Generator,
        *,
        batch_size: int,
        length: int,
        alpha: float,
        past_end: bool,
    ) -> EpisodeSampler:
        """What draws for one component and counts by itself; its arguments are told at `EpisodeSampler`."""
        return EpisodeSampler(
            self, name, generator, batch_size=batch_size, length=length, alpha=alpha, past_end=past_end
        )

    # Taking in

    def add(self, trajectory: Sequence[Records]) -> None:
        """Take in records in the order given; the oldest episodes make room."""
        parts = [records for records in trajectory if len(records.env)]
        if not parts:
            return
        for records in parts:
            check_records(records, self.fields, self.num_envs)
        env = np.concatenate([records.env for records in parts])
        values = {name: np.concatenate([records.values[name] for records in parts]) for name in self.fields}
        for index in np.unique(env).tolist():
            rows = np.flatnonzero(env == index)
            self._append(index, values if len(rows) == len(env) else {n: v[rows] for n, v in values.items()})
        while self.records > self.capacity:
            self._forget(next(number for number, held in self._store.held.items() if held.ended))
        self._tabulate()

    def _append(self, env: int, values: Mapping[str, np.ndarray]) -> None:
        """Records [K, ...] of one environment, cut where episodes begin and end."""
        is_first, is_last = values["is_first"].astype(bool), values["is_last"].astype(bool)
        borders = is_first.copy()
        borders[1:] |= is_last[:-1]
        for low, high in pairwise(np.unique([0, *np.flatnonzero(borders), len(borders)]).tolist()):
            if is_first[low]:
                # What goes on there was cut off, and nobody told.
                self._finish(env)
            self._extend(env, {name: array[low:high] for name, array in values.items()})
            if is_last[high - 1]:
                self._finish(env)

    def _extend(self, env: int, values: Mapping[str, np.ndarray]) -> None:
        """Records of one episode."""
        count, done = len(values["reward"]), 0
        while done < count:
            number = self._open.get(env)
            if number is None:
                number = self._open[env] = self.begun
                self._store.begin(number, env)
                self.begun += 1
            step = min(self.longest - self._store.held[number].length, count - done)
            if step <= 0:
                self._finish(env)
                continue
            self._store.extend(number, {name: array[done : done + step] for name, array in values.items()})
            self._changed.add(number)
            self.records += step
            done += step

    def _finish(self, env: int) -> None:
        """The episode that goes on in an environment is over, if there is one."""
        number = self._open.pop(env, None)
        if number is None:
            return
        self._changed.add(number)
        if self._store.held[number].length < 2:
            # Nothing came of its only action.
            self._forget(number)
        else:
            self._store.end(number)

    def _forget(self, number: int) -> None:
        self.records -= self._store.held[number].length
        self._changed.add(number)
        self._store.forget(number)

    def _tabulate(self) -> None:
        """Tell samplers what there is now, at the cost of what has changed."""
        held = self._store.held
        changed = np.array(sorted(self._changed), np.int64)
        here = [number for number in changed.tolist() if number in held]
        same = ~np.isin(self.ids, changed, assume_unique=True)
        ids = np.concatenate([self.ids[same], np.array(here, np.int64)])
        lengths = np.concatenate([self.lengths[same], np.array([held[n].length for n in here], np.int64)])
        ended = np.concatenate([self.ended[same], np.array([held[n].ended for n in here], np.bool_)])
        order = np.argsort(ids)
        self.ids, self.lengths, self.ended = ids[order], lengths[order], ended[order]
        self._changed.clear()

    # Giving out

    def gather(self, ids: np.ndarray, start: np.ndarray, length: int) -> Arrays:
        """[B, length, ...] by field: records of episodes `ids` [B] from number `start` [B] on; zeros before their first and behind their last."""
        values = {name: np.zeros((len(ids), length, *field.shape), field.dtype) for name, field in self.fields.items()}
        for number, records in self._store.each(np.unique(ids).tolist()):
            stored = self._store.held[number].length
            for row in np.flatnonzero(ids == number).tolist():
                at = int(start[row])
                low, high = max(at, 0), min(at + length, stored)
                for name, array in values.items():
                    array[row, low - at : high - at] = records[name][low:high]
        return values

    # Files and state

    def attach(self, files: ChunkFiles, name: str = "episodes") -> None:
        """Where the files of episodes lie from now on; those that were written elsewhere are taken along."""
        self._store.attach(files, name)

    def references(self) -> list[ChunkReference]:
        """The files that the state, as last given, refers to."""
        return self._store.references()

    def get_state(self) -> dict[str, Any]:
        """Everything but what samplers save. Episodes that have ended and that no file holds yet are written first."""
        return {"layout": self._layout(), "begun": self.begun, **self._store.get_state()}

    def _layout(self) -> dict[str, Any]:
        return {
            "num_envs": self.num_envs,
            "capacity": self.capacity,
            "fields": {name: [list(field.shape), field.dtype.name] for name, field in sorted(self.fields.items())},
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on where `get_state` was, bit for bit; the files must be where `attach` says."""
        layout = self._layout()
        differing = [key for key in layout if state["layout"].get(key) != layout[key]]
        if differing:
            told = "; ".join(f"{key} {state['layout'].get(key)}, here {layout[key]}" for key in differing)
            raise CheckpointError(f"The checkpoint's episodes do not fit these: {told}.")
        self._store.set_state(state)
        held = self._store.held
        self._open = {item.env: number for number, item in held.items() if not item.ended}
        self.begun = int(state["begun"])
        self.ids, self.lengths, self.ended = (np.array(state[key]) for key in ("ids", "lengths", "ended"))
        self.records = int(self.lengths.sum())
        self._changed.clear()
        growing, envs = len(held) - int(self.ended.sum()), range(self.num_envs)
        if len(self._open) != growing or not set(self._open) <= set(envs) or max(held, default=-1) >= self.begun:
            raise CheckpointError("The checkpoint's episodes are damaged: more than one goes on in an environment.")

    def __len__(self) -> int:
        """Episodes that are held, those that grow included."""
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        """Memory that is taken now."""
        return self._store.nbytes

    @property
    def nbytes_full(self) -> int:
        """Memory that is taken when it is full."""
        everything = self.capacity * self.record_bytes
        return min(everything, self.memory) if self.on_disk else everything

    def describe(self) -> dict[str, Any]:
        """What to say before training: records, and what they take."""
        size = readable(self.capacity * self.record_bytes)
        place = f"{size} on disk before compression" if self.on_disk else f"{size} in memory"
        return {
            "replay": f"{self.capacity:,} records in episodes, {place} when full",
            "replay_memory_bytes": self.nbytes_full,
        }
