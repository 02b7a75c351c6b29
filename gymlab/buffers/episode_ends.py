"""Replay of sequences that sees ends of episodes more often (`prioritize_ends` of DreamerV2), where rewards and terminations lie."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from gymlab.buffers.sequence import SequenceReplay
from gymlab.config.targets import COMPONENTS


@COMPONENTS.register("ends_replay")
class EndsReplay(SequenceReplay):
    """As `SequenceReplay`; a window whose last record ends an episode has `length` chances more than the one of any other.

    The authors draw a start from a range that goes `length` beyond an episode's last one, and take that for all of them.
    """

    def __init__(self, *arguments: Any, length: int, **options: Any) -> None:
        """As `SequenceReplay`."""
        super().__init__(*arguments, length=length, **options)
        self.chances = length
        self._ends: list[deque[int]] = [deque() for _ in range(self.num_envs)]
        """Starts of the windows that end an episode, by stream."""
        self._places: tuple[np.ndarray, np.ndarray] | None = None
        """The same in two arrays, as long as none is added or evicted."""

    def _append(self, env: int, values: Mapping[str, np.ndarray]) -> None:
        before = self._streams[env].written
        super()._append(env, values)
        self._note(env, before + np.flatnonzero(values["is_last"]))

    def _note(self, env: int, last: np.ndarray) -> None:
        """Keep the windows that end with these records, where they may be drawn."""
        starts = last - (self.windows.size - 1)
        starts = starts[starts >= self._streams[env].oldest]
        starts = starts[self.windows.start(self.windows.rank(starts)) == starts]
        if len(starts):
            self._ends[env].extend(starts.tolist())
            self._places = None

    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Stream and start of every window that ends an episode and may be drawn."""
        for stream, ends in zip(self._streams, self._ends, strict=True):
            while ends and ends[0] < stream.oldest:
                ends.popleft()
                self._places = None
        if self._places is None:
            counts = [len(ends) for ends in self._ends]
            starts = np.concatenate([np.array(ends, np.int64) for ends in self._ends])
            self._places = np.repeat(np.arange(self.num_envs), counts), starts
        return self._places

    def _draw(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Windows: ranks below the number of start positions mean those, ranks above it the ends."""
        positions = int(self._starts()[1].sum())
        ends_env, ends_start = self.ends()
        if len(ends_env) == 0:
            return super()._draw(count)
        drawn = self.generator.integers(positions + self.chances * len(ends_env), size=count)
        env, start = self._place(np.minimum(drawn, positions - 1))
        further = drawn >= positions
        which = (drawn[further] - positions) // self.chances
        env[further], start[further] = ends_env[which], ends_start[which]
        return env, start

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on where `get_state` was; where episodes end is read off the records."""
        super().set_state(state)
        with self._lock:
            self._ends, self._places = [deque() for _ in self._streams], None
            for env, stream in enumerate(self._streams):
                for chunk, low, high, at in stream.pieces(stream.oldest, stream.written):
                    self._note(env, stream.oldest + at + np.flatnonzero(chunk.records["is_last"][low:high]))
