"""All streams of a replay and where their full chunks are: in memory with copies for checkpoints, or in files alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from gymlab.buffers.chunk_files import ChunkFiles, ChunkReference, Field
from gymlab.buffers.room import check_disk, readable
from gymlab.buffers.streams import Chunk, Scratch, Stream
from gymlab.errors import GymlabError

WRITERS = 8
"""Files that a checkpoint writes at a time."""


class Storage:
    """The streams of `num_envs` environments, `capacity` records each, in chunks of `rows`."""

    def __init__(
        self,
        fields: Mapping[str, Field],
        latents: Mapping[str, Field],
        num_envs: int,
        *,
        capacity: int,
        rows: int,
        on_disk: bool,
        expected: int | None = None,
    ) -> None:
        self.fields, self.latents = fields, latents
        self.capacity, self.rows, self.on_disk = capacity, rows, on_disk
        self.expected = capacity if expected is None else min(capacity, -(-expected // num_envs))
        """Records that a stream will hold at most: its capacity, or all that a shorter run brings."""
        self.streams = [
            Stream(fields, latents, rows, capacity, partial(self._seal, env), self._drop) for env in range(num_envs)
        ]
        self._files: ChunkFiles | None = None
        self._name = "replay"

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """[num_envs] the oldest record of each stream, and how many were ever written to it."""
        streams = self.streams
        return np.array([stream.oldest for stream in streams]), np.array([stream.written for stream in streams])

    def attach(self, files: ChunkFiles, name: str) -> None:
        """Where files lie from now on, and what their names begin with; those that were written elsewhere are taken along."""
        before, self._files = self._files, files
        self._name = re.sub(r"[^a-z0-9_-]+", "-", name.lower())[:40]
        check_disk(self.nbytes_files - files.nbytes, files.directory)
        if before is not None:
            self._move(before, files)
        if self.on_disk and self.latents and self.streams[0].scratch is None:
            self._make_scratch(files)

    def _move(self, before: ChunkFiles, files: ChunkFiles) -> None:
        for _, chunk in self._chunks():
            for reference in (chunk.saved, chunk.latents_saved):
                if reference is not None:
                    files.adopt(reference, before.path(reference))
                    before.release(reference)
            if self.on_disk and chunk.saved is not None:
                chunk.records = files.open(chunk.saved, self.fields, self.rows)

    def _make_scratch(self, files: ChunkFiles) -> None:
        scratch = Scratch(files.directory, self.latents, self.rows, len(self.streams) * self.most_chunks)
        for stream in self.streams:
            stream.scratch = scratch
            for chunk in stream.chunks.values():
                before = chunk.latents
                for name, array in stream.hold(chunk).latents.items():
                    array[:] = before[name]

    def _attached(self) -> ChunkFiles:
        if self._files is None:
            raise GymlabError(
                "The replay has no directory for its files yet. In a run it is given one before the first step; elsewhere give `directory`, "
                "or call attach(ChunkFiles(path))."
            )
        return self._files

    def _seal(self, env: int, chunk: Chunk) -> None:
        if self.on_disk:
            chunk.saved = self._write(env, chunk, "", chunk.records)
            chunk.records = self._attached().open(chunk.saved, self.fields, self.rows)

    def _write(self, env: int, chunk: Chunk, kind: str, arrays: Mapping[str, np.ndarray]) -> ChunkReference:
        return self._attached().write(f"{self._name}-{env:04d}-{chunk.number:06d}{kind}", arrays)

    def _drop(self, chunk: Chunk) -> None:
        for reference in (chunk.saved, chunk.latents_saved):
            if reference is not None:
                self._attached().release(reference)

    def _chunks(self, *, full: bool = False) -> Iterator[tuple[int, Chunk]]:
        for env, stream in enumerate(self.streams):
            for chunk in stream.full_chunks if full else stream.chunks.values():
                yield env, chunk

    def save(self) -> None:
        """Write the full chunks that no file holds yet, and latents that have changed since they were written."""
        with ThreadPoolExecutor(WRITERS) as writers:
            # The disk takes several files at a time sooner than one after the other; a failure of any is raised here.
            list(writers.map(lambda place: self._save(*place), self._chunks(full=True)))

    def _save(self, env: int, chunk: Chunk) -> None:
        if chunk.saved is None:
            chunk.saved = self._write(env, chunk, "", chunk.records)
        if chunk.latents_changed:
            before = chunk.latents_saved
            chunk.latents_saved = self._write(env, chunk, "-latents", chunk.latents)
            chunk.latents_changed = False
            if before is not None and before != chunk.latents_saved:
                self._attached().release(before)

    def references(self) -> list[ChunkReference]:
        """The files that the state, as last given, refers to."""
        references = [(chunk.saved, chunk.latents_saved) for _, chunk in self._chunks(full=True)]
        return [reference for pair in references for reference in pair if reference is not None]

    def get_state(self) -> list[dict[str, Any]]:
        """The streams' states, once everything that they refer to is written."""
        self.save()
        return [stream.get_state() for stream in self.streams]

    def set_state(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Take back what `get_state` gave."""
        before, files = self.references(), self._attached()
        for stream, state in zip(self.streams, states, strict=True):
            stream.set_state(state, files, in_memory=not self.on_disk)
        for reference in set(before).difference(self.references()):
            files.release(reference)

    @property
    def most_chunks(self) -> int:
        """Chunks that a stream has at most: its capacity, and one that is half evicted while another is half full."""
        return self._chunks_for(self.capacity)

    def _chunks_for(self, records: int) -> int:
        return -(-records // self.rows) + 1

    def _chunk_bytes(self, fields: Mapping[str, Field]) -> int:
        return self.rows * sum(field.nbytes for field in fields.values())

    @property
    def nbytes(self) -> int:
        """Memory that is taken now."""
        chunks = [chunk for _, chunk in self._chunks()]
        if not self.on_disk:
            return len(chunks) * (self._chunk_bytes(self.fields) + self._chunk_bytes(self.latents))
        return sum(chunk.saved is None for chunk in chunks) * self._chunk_bytes(self.fields)

    @property
    def nbytes_full(self) -> int:
        """Memory that is taken when all streams are full or the run is over, latents included."""
        return len(self.streams) * self._chunk_bytes(self.fields) if self.on_disk else self.nbytes_files

    @property
    def nbytes_files(self) -> int:
        """Bytes of records and latents when all streams are full or the run is over: what their files take on disk."""
        return self._bytes_of(self.expected)

    def _bytes_of(self, records: int) -> int:
        chunk = self._chunk_bytes(self.fields) + self._chunk_bytes(self.latents)
        return len(self.streams) * self._chunks_for(records) * chunk

    def room(self) -> str:
        """What the records take, in words: when full, and in a run that is shorter than that."""
        told = f"{readable(self._bytes_of(self.capacity))} {'on disk' if self.on_disk else 'in memory'} when full"
        if self.expected == self.capacity:
            return told
        return f"{told}, {readable(self.nbytes_files)} for the {self.expected * len(self.streams):,} of this run"
