"""What one environment lived through, as a stream of records in chunks: memory is taken and freed a chunk at a time.

    record   0 ............ | 1024 ......... | 2048 ... written
    chunk    0: file or RAM | 1: file or RAM | 2: RAM, being filled
             evicted, then freed             `oldest` moves record by record

Records never change once they are written. Latents, which updates write back, are kept beside them.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gymlab.buffers.chunk_files import ChunkFiles, ChunkReference, Field
from gymlab.errors import CheckpointError

Arrays = dict[str, np.ndarray]
_ALIGNMENT = 64


def checked_rows(arrays: Mapping[str, Any], fields: Mapping[str, Field], count: int) -> Arrays:
    """Saved rows of a chunk that is not full: arrays of just this shape and type, as any other would be spread over the rows, or rounded."""
    for name, item in fields.items():
        array = arrays[name]
        found = (array.shape, array.dtype) if isinstance(array, np.ndarray) else type(array).__name__
        if found != ((count, *item.shape), item.dtype):
            raise CheckpointError(
                f"The checkpoint's replay is damaged: {name[:80]!r} of its newest records is {found}, expected "
                f"{(count, *item.shape)} {item.dtype}."
            )
    return {name: arrays[name] for name in fields}


@dataclass(slots=True)
class Chunk:
    """Records of one stream from `number` times `rows` on."""

    number: int
    records: Arrays
    """[rows, ...] by field; views of a file where the replay is on disk."""
    latents: Arrays
    """[rows, ...] by field; zeros until they are written."""
    slot: int = -1
    """Where in the scratch file the latents are."""
    saved: ChunkReference | None = None
    """The file that holds the records."""
    latents_saved: ChunkReference | None = None
    """The file that holds the latents as they were at the last checkpoint; None while they are zeros."""
    latents_changed: bool = False


class Scratch:
    """Latents of chunks that are on disk: one file without a name, which is gone with the process, in slots of a chunk each."""

    def __init__(self, directory: Path, latents: Mapping[str, Field], rows: int, slots: int) -> None:
        self._latents, self._rows = latents, rows
        sizes = [-(-rows * item.nbytes // _ALIGNMENT) * _ALIGNMENT for item in latents.values()]
        self._places = dict(zip(latents, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True))
        self._slot_bytes = sum(sizes)
        self._free = list(range(slots - 1, -1, -1))
        directory.mkdir(exist_ok=True)
        with tempfile.TemporaryFile(dir=directory) as file:
            file.truncate(slots * self._slot_bytes)
            self._memory = mmap.mmap(file.fileno(), slots * self._slot_bytes)

    def take(self) -> tuple[int, Arrays]:
        """A free slot and its arrays, all zeros."""
        slot = self._free.pop()
        arrays = {
            name: np.ndarray(
                (self._rows, *item.shape), item.dtype, self._memory, slot * self._slot_bytes + self._places[name]
            )
            for name, item in self._latents.items()
        }
        for array in arrays.values():
            array.fill(0)
        return slot, arrays

    def give_back(self, slot: int) -> None:
        """The slot may be taken again."""
        self._free.append(slot)


@dataclass(slots=True)
class Stream:
    """The records of one environment that are still held."""

    fields: Mapping[str, Field]
    latents: Mapping[str, Field]
    rows: int
    """Records of a chunk."""
    capacity: int
    """Records that are held at most."""
    seal: Callable[[Chunk], None]
    """Called with a chunk that has just become full."""
    drop: Callable[[Chunk], None]
    """Called with a chunk that has been evicted."""
    scratch: Scratch | None = None
    oldest: int = 0
    """Number of the oldest record that is held."""
    written: int = 0
    """Records ever written; the next one gets this number."""
    chunks: dict[int, Chunk] = field(default_factory=dict)

    def append(self, values: Mapping[str, np.ndarray]) -> None:
        """Write records [K, ...] behind the newest; latents that are not given are zeros."""
        count, done = len(next(iter(values.values()))), 0
        while done < count:
            number, row = divmod(self.written, self.rows)
            chunk = self.chunks.get(number) or self.new_chunk(number)
            step = min(self.rows - row, count - done)
            for name in self.fields:
                chunk.records[name][row : row + step] = values[name][done : done + step]
            for name in self.latents:
                if name in values:
                    chunk.latents[name][row : row + step] = values[name][done : done + step]
                    chunk.latents_changed = True
            done += step
            self.written += step
            self._evict()
            if row + step == self.rows:
                self.seal(chunk)

    def new_chunk(self, number: int) -> Chunk:
        """An empty chunk in memory, as one of this stream."""
        records = {name: np.empty((self.rows, *item.shape), item.dtype) for name, item in self.fields.items()}
        self.chunks[number] = chunk = self.hold(Chunk(number, records, {}))
        return chunk

    def hold(self, chunk: Chunk) -> Chunk:
        """The chunk with memory for its latents."""
        if self.scratch is not None:
            chunk.slot, chunk.latents = self.scratch.take()
        else:
            chunk.latents = {
                name: np.zeros((self.rows, *item.shape), item.dtype) for name, item in self.latents.items()
            }
        return chunk

    def _evict(self) -> None:
        self.oldest = max(self.oldest, self.written - self.capacity)
        while self.chunks and (first := next(iter(self.chunks))) < self.oldest // self.rows:
            chunk = self.chunks.pop(first)
            self._give_back(chunk)
            self.drop(chunk)

    def _give_back(self, chunk: Chunk) -> None:
        if self.scratch is not None:
            self.scratch.give_back(chunk.slot)

    def pieces(self, start: int, stop: int) -> Iterator[tuple[Chunk, int, int, int]]:
        """Chunks that hold the records from start to stop: chunk, first and last row in it, and how far from start they are."""
        at = start
        while at < stop:
            number, row = divmod(at, self.rows)
            step = min(self.rows - row, stop - at)
            yield self.chunks[number], row, row + step, at - start
            at += step

    @property
    def full_chunks(self) -> list[Chunk]:
        """Chunks to which nothing will be added."""
        return [chunk for number, chunk in self.chunks.items() if (number + 1) * self.rows <= self.written]

    def get_state(self) -> dict[str, Any]:
        """Counters, references to the files of full chunks, and what there is of the newest chunk itself."""
        number, filled = divmod(self.written, self.rows)
        newest = self.chunks[number] if filled else None
        return {
            "oldest": self.oldest,
            "written": self.written,
            "records": [chunk.saved.to_json() for chunk in self.full_chunks if chunk.saved is not None],
            "latents": [
                None if chunk.latents_saved is None else chunk.latents_saved.to_json() for chunk in self.full_chunks
            ],
            "newest": None
            if newest is None
            else {
                "records": {name: array[:filled].copy() for name, array in newest.records.items()},
                "latents": {name: array[:filled].copy() for name, array in newest.latents.items()},
            },
        }

    def set_state(self, state: Mapping[str, Any], files: ChunkFiles, *, in_memory: bool) -> None:
        """Take back what `get_state` gave; files are read into memory, or looked at where they are."""
        for chunk in self.chunks.values():
            self._give_back(chunk)
        self.chunks = {}
        self.oldest, self.written = state["oldest"], state["written"]
        first, (last, filled) = self.oldest // self.rows, divmod(self.written, self.rows)
        numbers = range(first, last)
        held = len(state["records"]) == len(state["latents"]) == len(numbers)
        if not held or not 0 <= self.oldest <= self.written or (state["newest"] is None) != (filled == 0):
            raise CheckpointError(f"The checkpoint's replay is damaged: records {self.oldest} to {self.written}.")
        for number, records, latents in zip(numbers, state["records"], state["latents"], strict=True):
            saved = ChunkReference.from_json(records)
            arrays = files.open(saved, self.fields, self.rows)
            if in_memory:
                arrays = {name: np.array(array) for name, array in arrays.items()}
            self.chunks[number] = chunk = self.hold(Chunk(number, arrays, {}, saved=saved))
            if latents is not None:
                chunk.latents_saved = ChunkReference.from_json(latents)
                for name, array in files.open(chunk.latents_saved, self.latents, self.rows).items():
                    chunk.latents[name][:] = array
        if filled:
            newest = self.new_chunk(last)
            newest.latents_changed = True
            for kind, target in (("records", newest.records), ("latents", newest.latents)):
                expected = self.fields if kind == "records" else self.latents
                rows = checked_rows(state["newest"][kind], expected, filled)
                for name, array in target.items():
                    array[:filled] = rows[name]
