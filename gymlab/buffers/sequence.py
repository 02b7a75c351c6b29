"""Sequence replay: windows of what environments lived through, for models that learn from sequences.

One record belongs to one observation:

    observation x_t, `action` chosen at x_t, `reward` received on arriving at x_t, `is_first`, `is_last`, `is_terminal`

so that an episode of n actions is n + 1 records. Each environment has a stream of records; a window is a start position in a stream. It may cross
from one episode into the next: `is_first` says where.

    index    0        1 .............. context + length - 1
             context  what is trained on
             is_first is forced here: nothing before it is known but the latents that are stored with it
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gymlab.buffers.batches import Choice, Piece, Records, SequenceBatch, copied, copy_into, mark_borders
from gymlab.buffers.chunk_files import Field
from gymlab.buffers.record_replay import RecordReplay
from gymlab.buffers.streams import Arrays
from gymlab.buffers.windows import Windows
from gymlab.config.targets import COMPONENTS
from gymlab.errors import CheckpointError, ConfigError

__all__ = ["Field", "Records", "SequenceBatch", "SequenceReplay"]


@COMPONENTS.register("sequence_replay")
class SequenceReplay(RecordReplay):
    """Windows of `context + length` records, uniform over all start positions of all streams, the newest ones first.

    The windows of the next batch are chosen when a batch is served, and copied by a thread in the meantime (`prefetch`). Records cannot change;
    latents are read when the batch is served. What is sampled therefore depends on the calls alone, never on timing. Methods may be called from
    several threads.
    """

    def __init__(
        self,
        fields: Mapping[str, Field],
        num_envs: int,
        generator: np.random.Generator,
        *,
        capacity: int,
        batch_size: int,
        length: int,
        context: int = 1,
        latents: Mapping[str, Field] | None = None,
        online: bool = True,
        least: int | None = None,
        held_out: float = 0.0,
        chunk: int = 1024,
        on_disk: bool = False,
        directory: Path | None = None,
        prefetch: bool = True,
        expected: int | None = None,
    ) -> None:
        """Make an empty replay; one that cannot fit this machine when it is full is refused.

        capacity: records over all streams, each of which has an equal share; the oldest go first.
        context: records at the start of a window that are there to start from, not to be trained on.
        latents: fields that updates write back with `write_back`; zeros until then.
        online: serve every window of newly written records once, before others are drawn.
        least: start positions from which on it is `ready`; as many as a batch has trained records unless given.
        held_out: share of the records that no window overlaps; `held_out_batch` gives them (the rule: `Windows`).
        chunk: records of a stream that are one file.
        on_disk: keep full chunks in files of the run, in memory only the newest of each stream.
        directory: keep them in files there; for use outside of a run.
        prefetch: copy the next batch in a thread; what is sampled is the same without.
        expected: records that a run of this length brings, where that is fewer: it need only have room for those.
        """
        self.batch_size, self.generator = batch_size, generator
        self.windows = Windows.holding_out(context + length, held_out)
        most = self.windows.least_starts(capacity // num_envs) * num_envs
        if most < 1:
            raise ConfigError(
                f"replay_size: {capacity:,} records are {capacity // num_envs} for each of {num_envs} environments, and no window of "
                f"{context} + {length} records{' beside those held out' if held_out else ''} fits. Set a larger one, or shorter sequences."
            )
        self.least = min(batch_size * length if least is None else least, most)
        self._online: deque[tuple[int, int]] | None = deque() if online else None
        self._pending: Choice | None = None
        self._copy: Callable[[], Arrays] | None = None
        """Gives the records of the pending windows; waits for the thread where there is one."""
        self._thread = ThreadPoolExecutor(1, "replay") if prefetch else None
        super().__init__(
            fields,
            num_envs,
            capacity=capacity,
            latents=latents,
            chunk=chunk,
            on_disk=on_disk,
            directory=directory,
            expected=expected,
        )

    def _append(self, env: int, values: Mapping[str, np.ndarray]) -> None:
        stream, size = self._streams[env], self.windows.size
        before = stream.written // size
        super()._append(env, values)
        if self._online is None:
            return
        for block in range(before, stream.written // size):
            if not self.windows.is_held_out(block):
                self._online.append((env, block * size))
        while self._online and self._online[0][1] < self._streams[self._online[0][0]].oldest:
            self._online.popleft()

    def _starts(self) -> tuple[np.ndarray, np.ndarray]:
        """[num_envs] start positions before the oldest record of each stream, and those from there on."""
        oldest, written = self._storage.bounds()
        low = self.windows.rank(oldest)
        return low, self.windows.rank(np.maximum(oldest, written - self.windows.size + 1)) - low

    def ready(self) -> bool:
        """Whether there are enough start positions to draw from."""
        with self._lock:
            return int(self._starts()[1].sum()) >= self.least

    def lacks(self) -> str:
        """What it has and what it needs to be `ready`, with the settings that say so."""
        with self._lock:
            have = int(self._starts()[1].sum())
        return (
            f", which has {have:,} records to begin a sequence at and needs {self.least:,} (batch_size, and the length of sequences): "
            f"collect {self.least - have:,} env steps more before, e.g. by duration_steps of an earlier phase"
        )

    def sample(self) -> SequenceBatch:
        """The next batch."""
        with self._lock:
            if self._pending is None:
                self._choose_next()
            choice, copy = self._pending, self._copy
            assert choice is not None
            self._copy = None
            values = (copy or self._copying(choice))()
            self._renew(choice, values)
            batch = self._finish(choice, values)
            self._choose_next()
            return batch

    def _choose_next(self) -> None:
        """Choose the windows of the next batch and have them copied."""
        fresh = self._pop_online()
        env, start = self._draw(self.batch_size - len(fresh))
        chosen = np.array(fresh, np.int64).reshape(-1, 2)
        online = np.arange(self.batch_size) < len(fresh)
        self._pending = Choice(np.concatenate([chosen[:, 0], env]), np.concatenate([chosen[:, 1], start]), online)
        self._begin_copy(self._pending)

    def _pop_online(self) -> list[tuple[int, int]]:
        fresh: list[tuple[int, int]] = []
        while self._online and len(fresh) < self.batch_size:
            env, start = self._online.popleft()
            if start >= self._streams[env].oldest:
                fresh.append((env, start))
        return fresh

    def _draw(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Windows, uniform over all start positions: a rank among them is drawn and turned into a place."""
        positions = int(self._starts()[1].sum())
        if positions == 0:
            raise IndexError("The replay holds no whole window yet: collect more before learning.")
        return self._place(self.generator.integers(positions, size=count))

    def _place(self, ranks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Streams and start positions by their rank among all."""
        low, counts = self._starts()
        ends = np.cumsum(counts)
        env = np.searchsorted(ends, ranks, side="right")
        return env, self.windows.start(low[env] + ranks - (ends - counts)[env])

    def _begin_copy(self, choice: Choice) -> None:
        work = self._copying(choice)
        self._copy = work if self._thread is None else self._thread.submit(work).result

    def _copying(self, choice: Choice) -> Callable[[], Arrays]:
        """The work of copying the records of these windows; it needs no lock, as they cannot change."""
        size = self.windows.size
        pieces = self._pieces(choice, range(self.batch_size), size)
        return partial(copied, self.fields, pieces, (self.batch_size, size))

    def _pieces(self, choice: Choice, rows: Iterable[int], size: int) -> list[Piece]:
        """What to copy for these rows of a batch; windows that were evicted since they were chosen are left out."""
        pieces = []
        for row in rows:
            stream, start = self._streams[choice.env[row]], int(choice.start[row])
            if start >= stream.oldest:
                for chunk, low, high, at in stream.pieces(start, start + size):
                    pieces.append((row, at, chunk.records, low, high))
        return pieces

    def _renew(self, choice: Choice, values: Arrays) -> None:
        """Draw others for windows that were evicted since they were chosen."""
        oldest, _ = self._storage.bounds()
        gone = np.flatnonzero(choice.start < oldest[choice.env])
        if len(gone):
            choice.env[gone], choice.start[gone] = self._draw(len(gone))
            choice.online[gone] = False
            copy_into(values, self._pieces(choice, gone.tolist(), self.windows.size))

    def _finish(self, choice: Choice, values: Arrays) -> SequenceBatch:
        """Add the latents as they are now, the flags at the borders, and which records these are."""
        count, size = next(iter(values.values())).shape[:2]
        for name, field in self.latents.items():
            values[name] = np.empty((count, size, *field.shape), field.dtype)
        written = np.empty(count, np.int64)
        for row, (env, start) in enumerate(zip(choice.env.tolist(), choice.start.tolist(), strict=True)):
            stream = self._streams[env]
            written[row] = stream.written
            if self.latents:
                for chunk, low, high, at in stream.pieces(start, start + size):
                    for name in self.latents:
                        values[name][row, at : at + high - low] = chunk.latents[name][low:high]
        mark_borders(values)
        index = choice.start[:, None] + np.arange(size)
        age = written - choice.start - size
        return SequenceBatch(values, index * self.num_envs + choice.env[:, None], age, choice.online)

    def held_out_batch(self, size: int, length: int | None = None) -> SequenceBatch | None:
        """Up to `size` windows that were never trained on, spread evenly over those there are; None as long as there is none.

        `length` is how many records of each are wanted, the context included; at most a whole window.
        """
        span = self.windows.size if length is None else length
        if not 0 < span <= self.windows.size:
            raise ConfigError(f"held_out_batch: length must be 1 to {self.windows.size}, got {span}.")
        with self._lock:
            found = [
                (env, start)
                for env, stream in enumerate(self._streams)
                for start in self.windows.held_out(stream.oldest, stream.written)
            ]
            if not found:
                return None
            picked = np.array(found)[np.linspace(0, len(found) - 1, min(size, len(found))).round().astype(int)]
            choice = Choice(picked[:, 0], picked[:, 1], np.zeros(len(picked), bool))
            values = copied(self.fields, self._pieces(choice, range(len(picked)), span), (len(picked), span))
            return self._finish(choice, values)

    def get_state(self) -> dict[str, Any]:
        """Everything that the next batches depend on. Full chunks that no file holds yet, and latents that have changed, are written first."""
        with self._lock:
            chosen = self._pending
            return {
                **super().get_state(),
                "generator": self.generator.bit_generator.state,
                "online": None if self._online is None else np.array(self._online, np.int64).reshape(-1, 2),
                "pending": chosen and {name: getattr(chosen, name).copy() for name in ("env", "start", "online")},
            }

    def _layout(self) -> dict[str, Any]:
        return {
            **super()._layout(),
            "batch_size": self.batch_size,
            "window": self.windows.size,
            "online": self._online is not None,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on where `get_state` was, bit for bit; the files must be where `attach` says."""
        with self._lock:
            super().set_state(state)
            self.generator.bit_generator.state = state["generator"]
            if self._online is not None:
                self._online = deque((env, start) for env, start in self._whole(state["online"]).tolist())
            pending = state["pending"]
            self._pending = self._copy = None
            if pending is not None:
                self._whole(np.stack([pending["env"], pending["start"]], axis=1))
                self._pending = Choice(*(np.array(pending[key]) for key in ("env", "start", "online")))
                self._begin_copy(self._pending)

    def _whole(self, windows: np.ndarray) -> np.ndarray:
        """Saved windows, if they are such of the streams."""
        _, written = self._storage.bounds()
        env, start = windows.T
        if ((env < 0) | (env >= self.num_envs) | (start < 0)).any() or (start + self.windows.size > written[env]).any():
            raise CheckpointError("The checkpoint's replay is damaged: it names windows that its streams do not have.")
        return windows

    def describe(self) -> dict[str, Any]:
        """What to say before training: records, windows, and what they take."""
        return self._described(f"records in windows of {self.windows.size}")

    def close(self) -> None:
        """End the thread."""
        with self._lock:
            if self._thread is not None:
                self._thread.shutdown(wait=True, cancel_futures=True)
                self._thread = self._copy = None
