"""Batches of whole episodes for a recurrent model: windows that follow one another, so that a state can be carried from batch to batch.

    row 0   | episode 7 ...... 7 7 | 7 7 7 7  4 4 4 ... | 4 4 4 ...       each row reads shuffled episodes, one behind the other
    row 1   | episode 2 ... 2  9 9 | 9 9 9 9 9 9 9 ...  | 9 9  1 1 ...    `is_first` where an episode begins, and nowhere else
              batch 0                batch 1              batch 2         the state after a window is the state before the next

This is how World Models' authors train M on Doom, in windows of 500. Where all episodes are as long as a window, each window is one episode: how they
do it for CarRacing, in windows of 999. Some episodes are held out; single records are drawn from the others, too, for models without a memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gymlab.buffers.batches import SequenceBatch
from gymlab.buffers.record_replay import RecordReplay
from gymlab.errors import CheckpointError

NOTHING = "The replay holds no episode from its start yet: collect more before learning."


@dataclass(frozen=True, slots=True)
class WholeEpisodes:
    """The episodes that a replay holds from their first record on; an episode goes by the id of that record."""

    lengths: Mapping[int, int]
    """Records of each."""
    trained: np.ndarray
    """[E] episodes to learn from."""
    ends: np.ndarray
    """[E] records of these, added up."""
    held_out: np.ndarray
    """[F] episodes that are kept apart."""


class EpisodeTable:
    """Finds the episodes of a replay, and holds a share of them out.

    Whether an episode is held out follows from its id alone, so that it is the same after a resume and when others come. Of two or more there is always
    one: the one whose number is smallest.
    """

    def __init__(self, replay: RecordReplay, held_out: float) -> None:
        self.replay, self.share = replay, held_out
        self._written: list[int] = []
        self._episodes = WholeEpisodes({}, *(np.empty(0, np.int64) for _ in range(3)))

    def now(self) -> WholeEpisodes:
        """What there is; looked for anew when records have come."""
        oldest, written = self.replay.bounds()
        if written.tolist() == self._written:
            return self._episodes
        ids, counts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for env in range(self.replay.num_envs):
            first = oldest[env] + np.flatnonzero(self.replay.column("is_first", env))
            ids.append(first * self.replay.num_envs + env)
            counts.append(np.diff(np.append(first, written[env])))
        found, lengths = np.concatenate(ids), np.concatenate(counts)
        # A single observation leads nowhere.
        found, lengths = found[lengths > 1], lengths[lengths > 1]
        numbers = scattered(found)
        apart = numbers < self.share
        if self.share and len(found) > 1:
            apart[numbers.argmin()] = True
        by_id = dict(zip(found.tolist(), lengths.tolist(), strict=True))
        self._episodes = WholeEpisodes(by_id, found[~apart], np.cumsum(lengths[~apart]), found[apart])
        self._written = written.tolist()
        return self._episodes

    def records(self, episode: int, start: int, stop: int) -> np.ndarray:
        """Ids of an episode's records from number `start` to `stop`."""
        return episode + self.replay.num_envs * np.arange(start, stop)

    def batch(self, ids: np.ndarray, names: Sequence[str]) -> SequenceBatch:
        """The records [B, T] with these ids; flags are as they were recorded."""
        index, env = np.divmod(ids[:, -1], self.replay.num_envs)
        age = self.replay.bounds()[1][env] - 1 - index
        return SequenceBatch(self.replay.gather(ids, names), ids, age, np.zeros(len(ids), np.bool_))


def scattered(ids: np.ndarray) -> np.ndarray:
    """A number from 0 to 1 for each id that looks random and is always the same (the finaliser of SplitMix64)."""
    x = ids.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    numbers: np.ndarray = (x ^ (x >> np.uint64(31))) / 2.0**64
    return numbers


class ConsecutiveWindows:
    """`batch_size` rows of `length` steps, as a buffer of the engine. A step is a record and its successor, so that a window has length + 1 records."""

    def __init__(
        self,
        table: EpisodeTable,
        generator: np.random.Generator,
        *,
        batch_size: int,
        length: int,
        names: Sequence[str],
    ) -> None:
        """Begin at the start of an episode in each row; `names` are the fields and latents of a batch."""
        self.table, self.generator, self.names = table, generator, tuple(names)
        self.batch_size, self.length = batch_size, length
        self._waiting: list[int] = []
        """Episodes of this pass that no row has begun yet; the next one is the last."""
        self._episode = np.full(batch_size, -1, np.int64)
        """[B] what each row reads, by the id of its first record; -1: nothing yet."""
        self._at = np.zeros(batch_size, np.int64)
        """[B] number in the episode of the record that the next window begins with."""

    def restart(self) -> None:
        """All rows begin another episode: what they have read means something else now."""
        self._episode[:] = -1

    def ready(self) -> bool:
        """Whether there is an episode to learn from."""
        return len(self.table.now().trained) > 0

    def sample(self) -> SequenceBatch:
        """The next window of each row."""
        episodes = self.table.now()
        return self.table.batch(np.stack([self._window(row, episodes) for row in range(self.batch_size)]), self.names)

    def _window(self, row: int, episodes: WholeEpisodes) -> np.ndarray:
        """[length + 1] ids."""
        episode, at, missing, parts = int(self._episode[row]), int(self._at[row]), self.length + 1, []
        while missing:
            taken = min(episodes.lengths.get(episode, 0) - at, missing)
            if taken <= 0:
                episode, at = self._next_episode(episodes), 0
                continue
            parts.append(self.table.records(episode, at, at + taken))
            at, missing = at + taken, missing - taken
        # The last record was only expected: the next window begins with it, unless nothing comes after it.
        self._episode[row], self._at[row] = episode, at - (at < episodes.lengths[episode])
        return np.concatenate(parts)

    def _next_episode(self, episodes: WholeEpisodes) -> int:
        """In each pass over the episodes every one has its turn."""
        while True:
            if not self._waiting:
                if not len(episodes.trained):
                    raise IndexError(NOTHING)
                self._waiting = self.generator.permutation(episodes.trained).tolist()
            episode = self._waiting.pop()
            if episode in episodes.lengths:
                return episode

    def held_out_batch(self, size: int) -> SequenceBatch | None:
        """Up to `size` windows, each from the start of an episode that is held out on through the ones after it; None as long as there is none."""
        episodes = self.table.now()
        apart = episodes.held_out.tolist()
        if not apart:
            return None
        windows = []
        for place in np.linspace(0, len(apart) - 1, min(size, len(apart))).round().astype(int).tolist():
            parts, missing = [], self.length + 1
            while missing:
                episode = apart[place % len(apart)]
                parts.append(self.table.records(episode, 0, min(episodes.lengths[episode], missing)))
                missing, place = missing - len(parts[-1]), place + 1
            windows.append(np.concatenate(parts))
        return self.table.batch(np.stack(windows), self.names)

    def get_state(self) -> dict[str, Any]:
        """Where each row is, what waits, and the generator; the records themselves are saved by the replay."""
        return {
            "layout": self._layout(),
            "generator": self.generator.bit_generator.state,
            "episode": self._episode.copy(),
            "at": self._at.copy(),
            "waiting": np.array(self._waiting, np.int64),
        }

    def _layout(self) -> dict[str, Any]:
        return {"batch_size": self.batch_size, "length": self.length}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on where `get_state` was."""
        layout = self._layout()
        differing = [key for key in layout if state["layout"].get(key) != layout[key]]
        if differing:
            told = "; ".join(f"{key} {state['layout'].get(key)}, here {layout[key]}" for key in differing)
            raise CheckpointError(f"The checkpoint's sequences do not fit these: {told}.")
        episode, at, waiting = (np.array(state[key], np.int64) for key in ("episode", "at", "waiting"))
        if episode.shape != (self.batch_size,) or at.shape != episode.shape or waiting.ndim != 1 or (at < 0).any():
            raise CheckpointError("The checkpoint's sequences are damaged: their places make no sense.")
        self._episode, self._at, self._waiting = episode, at, waiting.tolist()
        self.generator.bit_generator.state = state["generator"]


class SingleRecords:
    """Records of the episodes to learn from, each as likely as the others, as a buffer of the engine."""

    def __init__(
        self, table: EpisodeTable, generator: np.random.Generator, *, batch_size: int, names: Sequence[str]
    ) -> None:
        self.table, self.generator, self.batch_size, self.names = table, generator, batch_size, tuple(names)

    def ready(self) -> bool:
        """Whether there is an episode to learn from."""
        return len(self.table.now().trained) > 0

    def sample(self) -> SequenceBatch:
        """[B, 1, ...] by name."""
        episodes = self.table.now()
        if not len(episodes.trained):
            raise IndexError(NOTHING)
        drawn = self.generator.integers(episodes.ends[-1], size=self.batch_size)
        place = np.searchsorted(episodes.ends, drawn, side="right")
        before = np.concatenate([[0], episodes.ends])[place]
        ids = episodes.trained[place] + self.table.replay.num_envs * (drawn - before)
        return self.table.batch(ids[:, None], self.names)

    def get_state(self) -> dict[str, Any]:
        """The generator."""
        return {"generator": self.generator.bit_generator.state}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on where `get_state` was."""
        self.generator.bit_generator.state = state["generator"]
