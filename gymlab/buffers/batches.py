"""What goes into a sequence replay, what comes out of it, and the copying in between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gymlab.buffers.chunk_files import Field
from gymlab.buffers.streams import Arrays
from gymlab.errors import ConfigError, did_you_mean


@dataclass(frozen=True, slots=True)
class Records:
    """K records, each for the stream of one environment; those of one environment stand in the order in which they happened."""

    env: np.ndarray
    """[K] int; whose stream each goes to."""
    values: dict[str, np.ndarray]
    """[K, ...] by field; latents may be left out."""


def check_records(
    records: Records, fields: Mapping[str, Field], num_envs: int, optional: Mapping[str, Field] | None = None
) -> None:
    """An error for records that are not what a buffer stores; those in `optional` may be left out."""
    known = {**fields, **(optional or {})}
    for name in (*records.values, *fields):
        if name not in known or name not in records.values:
            wrong = "is no field of the replay" if name not in known else "is missing"
            raise ConfigError(f"Records: {name!r} {wrong}. {did_you_mean(name, known)} Fields: {', '.join(known)}.")
    if records.env.min() < 0 or records.env.max() >= num_envs:
        raise ConfigError(f"Records: env must be 0 to {num_envs - 1}, got {records.env.tolist()}.")
    for name, array in records.values.items():
        field, shape = known[name], (len(records.env), *known[name].shape)
        if array.shape != shape or not np.can_cast(array.dtype, field.dtype, "same_kind"):
            raise ConfigError(
                f"Records: {name!r} is {array.dtype} {array.shape}; the replay stores {field.dtype} {shape}."
            )


def last_records(trajectory: Sequence[Records], length: int) -> dict[str, np.ndarray] | None:
    """[B, length, ...] by field: the newest records of every environment that has so many; None where none has."""
    steps: dict[int, list[dict[str, np.ndarray]]] = {}
    for records in trajectory:
        for row, env in enumerate(records.env.tolist()):
            steps.setdefault(env, []).append({name: values[row] for name, values in records.values.items()})
    rows = [row[-length:] for row in steps.values() if len(row) >= length]
    if not rows:
        return None
    return {name: np.stack([[step[name] for step in row] for row in rows]) for name in rows[0][0]}


@dataclass(frozen=True, slots=True)
class SequenceBatch:
    """B windows of T = context + length records."""

    values: dict[str, np.ndarray]
    """[B, T, ...] by field, latents included; on memory of its own."""
    ids: np.ndarray
    """[B, T] int; which record each is, for `write_back`."""
    age: np.ndarray
    """[B] int; records that the stream took in after the window's last."""
    online: np.ndarray
    """[B] bool; windows that were served because they were new, not drawn."""
    weight: np.ndarray | None = None
    """[B] what each counts, at most 1, where not all are drawn alike."""

    def metrics(self) -> dict[str, float]:
        """How old the windows are on average, in records, and which share of them was new."""
        return {"replay/age": float(self.age.mean()), "replay/online": float(self.online.mean())}


@dataclass(slots=True)
class Choice:
    """Which windows a batch is made of."""

    env: np.ndarray
    """[B] int."""
    start: np.ndarray
    """[B] int; number of the window's first record in its stream."""
    online: np.ndarray
    """[B] bool."""


@dataclass(frozen=True, slots=True)
class SegmentBatch:
    """B segments of L records, each of one episode."""

    values: dict[str, np.ndarray]
    """[B, L, ...] by field, zeros in padding; on memory of its own."""
    mask: np.ndarray
    """[B, L] bool; True where a record is real, False in padding."""
    ids: np.ndarray
    """[B] int; which episode each is from."""
    start: np.ndarray
    """[B] int; number in its episode of each segment's first record, below 0 where it begins with padding."""
    age: np.ndarray
    """[B] int; episodes that began after its own."""
    count: np.ndarray
    """[B] int; how often its episode had been drawn before."""
    count_spread: float
    """Standard deviation of the counts of all episodes."""
    name: str
    """Who drew it."""

    def metrics(self) -> dict[str, float]:
        """How old the episodes are on average, which share is padding, and how unevenly all episodes have been drawn."""
        place = f"replay/{self.name}"
        return {
            f"{place}/age": float(self.age.mean()),
            f"{place}/padding": 1.0 - float(self.mask.mean()),
            f"{place}/count_spread": self.count_spread,
        }


Piece = tuple[int, int, Arrays, int, int]
"""Row of the batch, place in the window, records of a chunk, first and last row in it."""


def copied(fields: Mapping[str, Field], pieces: Sequence[Piece], shape: tuple[int, int]) -> Arrays:
    """Arrays [*shape, ...] by field, filled from the pieces."""
    values = {name: np.empty((*shape, *field.shape), field.dtype) for name, field in fields.items()}
    copy_into(values, pieces)
    return values


def copy_into(values: Arrays, pieces: Sequence[Piece]) -> None:
    """Fill [B, T, ...] arrays from the pieces."""
    for name, array in values.items():
        for row, at, records, low, high in pieces:
            array[row, at : at + high - low] = records[name][low:high]


def mark_borders(values: Arrays) -> None:
    """A window begins like an episode; where one was abandoned within it, the record before the next one's first was its last."""
    if "is_first" in values:
        if "is_last" in values:
            values["is_last"][:, :-1][values["is_first"][:, 1:].astype(bool)] = True
        values["is_first"][:, 0] = True
