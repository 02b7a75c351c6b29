"""Where episodes are: those that grow in memory, those that have ended in memory with copies for checkpoints, or in packed files alone."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from gymlab.buffers.chunk_files import ChunkFiles, ChunkReference, Field
from gymlab.buffers.streams import Arrays
from gymlab.errors import CheckpointError, GymlabError

SMALLEST = 64
"""Records that memory is taken for when an episode begins; it is doubled when they are full."""
THREADS = 4
"""Files that are written or read at a time."""


@dataclass(slots=True)
class Held:
    """One episode."""

    env: int
    length: int = 0
    """Records."""
    ended: bool = False
    """Whether nothing will be added."""
    records: Arrays | None = None
    """[length, ...] by field, more while it grows; None where it is in a file alone."""
    saved: ChunkReference | None = None
    """The file that holds it."""


class EpisodeStore:
    """Episodes by their number, in the order in which they began."""

    def __init__(self, fields: Mapping[str, Field], longest: int, *, on_disk: bool, memory: int) -> None:
        self.fields, self.longest, self.on_disk, self.memory = fields, longest, on_disk, memory
        self.held: dict[int, Held] = {}
        self._read: OrderedDict[int, Arrays] = OrderedDict()
        """Episodes in files that are in memory too, the one that was needed last at the end."""
        self._read_bytes = 0
        self._growing: set[int] = set()
        self._files: ChunkFiles | None = None
        self._name = "episodes"

    def begin(self, number: int, env: int) -> None:
        """Hold another episode, which has no record yet."""
        self.held[number] = Held(env)
        self._growing.add(number)

    def extend(self, number: int, values: Mapping[str, np.ndarray]) -> None:
        """Add records [K, ...] to an episode that grows."""
        held = self.held[number]
        length = held.length + len(next(iter(values.values())))
        before, room = held.records or {}, 0 if held.records is None else len(next(iter(held.records.values())))
        if length > room:
            room = max(length, min(self.longest, max(2 * room, SMALLEST)))
            held.records = {name: np.empty((room, *field.shape), field.dtype) for name, field in self.fields.items()}
            for name, array in before.items():
                held.records[name][: held.length] = array[: held.length]
        assert held.records is not None
        for name, array in held.records.items():
            array[held.length : length] = values[name]
        held.length = length

    def end(self, number: int) -> None:
        """Nothing will be added to an episode: its last record is marked as such, and there is no action at it."""
        held = self.held[number]
        assert held.records is not None
        held.records = {name: array[: held.length].copy() for name, array in held.records.items()}
        held.records["is_last"][-1] = True
        held.records["action"][-1] = 0
        held.ended = True
        self._growing.discard(number)
        if self.on_disk:
            held.saved = self._write(number)
            records, held.records = held.records, None
            self._keep(number, records)

    def forget(self, number: int) -> None:
        """Give up an episode and its file."""
        held = self.held.pop(number)
        self._growing.discard(number)
        self._read_bytes -= _nbytes(self._read.pop(number, None))
        if held.saved is not None:
            self._attached().release(held.saved)

    def each(self, numbers: Sequence[int]) -> Iterator[tuple[int, Arrays]]:
        """The records of episodes: first of those in memory, then of those in files, a few at a time."""
        missing = []
        for number in numbers:
            records = self.held[number].records
            if records is None and number in self._read:
                self._read.move_to_end(number)
                records = self._read[number]
            if records is None:
                missing.append(number)
            else:
                yield number, records
        for number, records in self._from_files(missing):
            self._keep(number, records)
            yield number, records

    def _from_files(self, numbers: Sequence[int]) -> Iterator[tuple[int, Arrays]]:
        if not numbers:
            return
        with ThreadPoolExecutor(THREADS) as readers:
            for at in range(0, len(numbers), THREADS):
                group = numbers[at : at + THREADS]
                yield from zip(group, readers.map(self._from_file, group), strict=True)

    def _from_file(self, number: int) -> Arrays:
        held = self.held[number]
        assert held.saved is not None
        return self._attached().read(held.saved, self.fields, held.length)

    def _keep(self, number: int, records: Arrays) -> None:
        """Hold an episode that is in a file as long as there is memory for it."""
        self._read[number] = records
        self._read_bytes += _nbytes(records)
        room = self.memory - sum(_nbytes(self.held[other].records) for other in self._growing)
        while self._read and self._read_bytes > room:
            self._read_bytes -= _nbytes(self._read.popitem(last=False)[1])

    @property
    def nbytes(self) -> int:
        """Memory that is taken now."""
        return self._read_bytes + sum(_nbytes(held.records) for held in self.held.values())

    def attach(self, files: ChunkFiles, name: str) -> None:
        """Where files lie from now on, and what their names begin with; those that were written elsewhere are taken along."""
        before, self._files = self._files, files
        self._name = re.sub(r"[^a-z0-9_-]+", "-", name.lower())[:40]
        if before is not None:
            for reference in self.references():
                files.adopt(reference, before.path(reference))
                before.release(reference)

    def _attached(self) -> ChunkFiles:
        if self._files is None:
            raise GymlabError(
                "The episodes have no directory for their files yet. In a run they are given one before the first step; elsewhere give "
                "`directory`, or call attach(ChunkFiles(path))."
            )
        return self._files

    def _write(self, number: int) -> ChunkReference:
        records = self.held[number].records
        assert records is not None
        return self._attached().write(f"{self._name}-{number:08d}", records, packed=True)

    def references(self) -> list[ChunkReference]:
        """The files that the state, as last given, refers to."""
        return [held.saved for held in self.held.values() if held.saved is not None]

    def save(self) -> None:
        """Write the episodes that have ended and that no file holds yet."""
        new = [number for number, held in self.held.items() if held.ended and held.saved is None]
        with ThreadPoolExecutor(THREADS) as writers:
            for number, reference in zip(new, writers.map(self._write, new), strict=True):
                self.held[number].saved = reference

    def get_state(self) -> dict[str, Any]:
        """What is held, once everything that it refers to is written: numbers by episode, files by name, and those that grow themselves."""
        self.save()
        held, references = list(self.held.values()), self.references()
        digests = b"".join(bytes.fromhex(reference.sha256) for reference in references)
        return {
            "ids": np.fromiter(self.held, np.int64, len(held)),
            "envs": np.array([item.env for item in held], np.int64),
            "lengths": np.array([item.length for item in held], np.int64),
            "ended": np.array([item.ended for item in held], np.bool_),
            "names": [reference.name for reference in references],
            "sizes": np.array([reference.size for reference in references], np.int64),
            "sha256": np.frombuffer(digests, np.uint8).reshape(-1, 32),
            "growing": [
                {name: array[: item.length].copy() for name, array in (item.records or {}).items()}
                for item in held
                if not item.ended
            ],
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave; in memory, all files are read."""
        before, files = self.references(), self._attached()
        self.held, self._growing = {}, set()
        self._read, self._read_bytes = OrderedDict(), 0
        references, growing = _references(state), state["growing"]
        columns = [np.array(state[key]).tolist() for key in ("ids", "envs", "lengths", "ended")]
        if len({len(column) for column in columns}) != 1 or columns[3].count(True) != len(references):
            raise CheckpointError("The checkpoint's episodes are damaged: it does not say of each where it is.")
        if columns[3].count(False) != len(growing) or (np.diff(columns[0]) <= 0).any():
            raise CheckpointError("The checkpoint's episodes are damaged: their numbers make no sense.")
        files_left, growing_left = iter(references), iter(growing)
        for number, env, length, ended in zip(*columns, strict=True):
            if ended:
                self.held[number] = Held(env, length, True, saved=next(files_left))
            else:
                self.begin(number, env)
                self.extend(number, self._checked(next(growing_left), length))
        for reference in self.references():
            files.hold(reference)
        if not self.on_disk:
            for number, records in self._from_files([n for n, held in self.held.items() if held.ended]):
                self.held[number].records = records
        for reference in set(before).difference(self.references()):
            files.release(reference)

    def _checked(self, records: Mapping[str, np.ndarray], length: int) -> dict[str, np.ndarray]:
        expected = {name: (length, *field.shape) for name, field in self.fields.items()}
        if {name: array.shape for name, array in records.items()} != expected or length < 1:
            raise CheckpointError("The checkpoint's episodes are damaged: one that grows does not hold what is stored.")
        return dict(records)


def _nbytes(records: Arrays | None) -> int:
    return sum(array.nbytes for array in (records or {}).values())


def _references(state: Mapping[str, Any]) -> list[ChunkReference]:
    """The files that a state names; names that could lead out of the directory are refused."""
    digests, sizes = np.array(state["sha256"], np.uint8), np.array(state["sizes"]).tolist()
    named = zip(state["names"], sizes, digests, strict=True)
    return [ChunkReference.from_json({"name": n, "size": s, "sha256": d.tobytes().hex()}) for n, s, d in named]
