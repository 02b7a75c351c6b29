"""Prioritised replay of sequences (Schaul et al. 2016): what surprised most is seen most, and weighs less each time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from gymlab.buffers.batches import Choice, SequenceBatch
from gymlab.buffers.sequence import SequenceReplay
from gymlab.buffers.streams import Arrays
from gymlab.config.targets import COMPONENTS
from gymlab.errors import ConfigError


@COMPONENTS.register("prioritised_replay")
class PrioritisedReplay(SequenceReplay):
    """Windows drawn by priority^alpha, each with the weight (count p)^-beta in the batch, the largest of which is 1.

    A new window has the priority of the most surprising one so far; `write_back` sets others. A window that crosses from one episode into
    the next is never drawn. The next batch is drawn before the priorities of the last one are known.
    """

    def __init__(self, *arguments: Any, alpha: float = 0.6, beta: float = 0.4, **options: Any) -> None:
        """As `SequenceReplay`, without the newest first.

        alpha: 0 draws all windows alike.
        beta: 1 makes up for it in full.
        """
        super().__init__(*arguments, **{**options, "online": False})
        self.alpha, self.beta = alpha, beta
        self.shares = np.zeros((self.num_envs, self.capacity_per_env))
        """[env, number of the first record modulo the capacity] priority^alpha of windows; 0: not to be drawn."""
        self.largest = 1.0
        """The largest of them so far."""

    def _append(self, env: int, values: Mapping[str, np.ndarray]) -> None:
        stream, size = self._streams[env], self.windows.size
        before = stream.written
        super()._append(env, values)
        written = np.arange(before, stream.written)
        self.shares[env, written % self.capacity_per_env] = 0.0
        whole = written[written >= stream.oldest + size - 1] - (size - 1)
        if len(whole) == 0:
            return
        # Windows that are whole now; they may begin long before these records.
        is_first = self._read(env, "is_first", int(whole[0]), int(written[-1]) + 1)
        crossings = np.concatenate([[0], np.cumsum(is_first)])
        first = whole - whole[0]
        crosses = crossings[first + size] - crossings[first + 1] > 0
        drawable = (self.windows.start(self.windows.rank(whole)) == whole) & ~crosses
        self.shares[env, whole[drawable] % self.capacity_per_env] = self.largest

    def _read(self, env: int, name: str, low: int, high: int) -> np.ndarray:
        """A field of records `low` to `high` of a stream."""
        parts = [chunk.records[name][first:last] for chunk, first, last, _ in self._streams[env].pieces(low, high)]
        return np.concatenate(parts)

    def _starts(self) -> tuple[np.ndarray, np.ndarray]:
        """[num_envs] twice: nothing, and how many windows may be drawn."""
        return np.zeros(self.num_envs, np.int64), np.count_nonzero(self.shares, axis=1)

    def _draw(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Windows by their priority."""
        ends = np.cumsum(self.shares)
        if ends[-1] == 0:
            raise IndexError("The replay holds no whole window yet: collect more before learning.")
        drawn = self.generator.random(count) * ends[-1]
        env, place = np.divmod(np.searchsorted(ends, drawn, side="right"), self.capacity_per_env)
        return env, self._number(env, place)

    def _number(self, env: np.ndarray, place: np.ndarray) -> np.ndarray:
        """The number of the newest record that lies at a place."""
        _, written = self._storage.bounds()
        newest = written[env] - 1
        number: np.ndarray = newest - (newest - place) % self.capacity_per_env
        return number

    def _finish(self, choice: Choice, values: Arrays) -> SequenceBatch:
        """A batch with weights."""
        batch = super()._finish(choice, values)
        share = self.shares[choice.env, choice.start % self.capacity_per_env]
        # Held-out windows have none, and count as they are.
        share = np.where(share > 0, share, 1.0)
        return replace(batch, weight=((share / share.min()) ** -self.beta).astype(np.float32))

    def write_back(self, update: tuple[np.ndarray, Mapping[str, np.ndarray]]) -> None:
        """Set priorities: ids [B] of the first records of windows, and `priority` [B], above 0; evicted windows are passed over."""
        ids, priority = update[0], update[1]["priority"]
        if ids.shape != priority.shape or not (np.isfinite(priority) & (priority > 0)).all():
            raise ConfigError("write_back: priorities are finite numbers above 0, one for each window.")
        index, env = np.divmod(ids, self.num_envs)
        with self._lock:
            oldest, _ = self._storage.bounds()
            kept = np.flatnonzero(index >= oldest[env])
            shares = priority.astype(np.float64) ** self.alpha
            self.shares[env[kept], index[kept] % self.capacity_per_env] = shares[kept]
            self.largest = max(self.largest, float(shares.max()))

    @property
    def nbytes_full(self) -> int:
        """Memory that is taken when the replay is full, priorities included."""
        return super().nbytes_full + 8 * self.num_envs * self.capacity_per_env

    def get_state(self) -> dict[str, Any]:
        """Everything that the next batches depend on."""
        with self._lock:
            return {**super().get_state(), "shares": self.shares.copy(), "largest": self.largest}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on where `get_state` was."""
        with self._lock:
            super().set_state(state)
            self.shares[:] = state["shares"]
            self.largest = float(state["largest"])
