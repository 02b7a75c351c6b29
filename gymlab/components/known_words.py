"""Words that a tokenizer found for steps of episodes, kept for as long as it does not learn.

A world model reads the same steps many times before its tokenizer changes; to find their words again would be nearly half of its work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

UNKNOWN = -1

Find = Callable[[np.ndarray], np.ndarray]
"""Which steps of a batch, [B, L] bool -> their words [steps, K]."""


class KnownWords:
    """Words [K] of the steps from one record of an episode to the next, by episode and place."""

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self._episodes: dict[int, np.ndarray] = {}

    def forget(self) -> None:
        """The tokenizer has learned: all words mean something else."""
        self._episodes.clear()

    def of(self, episodes: np.ndarray, starts: np.ndarray, real: np.ndarray, find: Find) -> np.ndarray:
        """Words [B, L, K] of the steps that begin at `starts` + 0 ... L - 1; what is unknown is found, and 0 where `real` [B, L] is False."""
        places = starts[:, None] + np.arange(real.shape[1])
        words = np.full((*real.shape, self.tokens), UNKNOWN, np.int64)
        rows = list(zip(episodes.tolist(), places, real, words, strict=True))
        for episode, place, steps, found in rows:
            if (known := self._episodes.get(episode)) is not None:
                there = steps & (place < len(known))
                found[there] = known[place[there]]
        missing = real & (words[..., 0] == UNKNOWN)
        if missing.any():
            words[missing] = find(missing)
            for (episode, place, _, found), new in zip(rows, missing, strict=True):
                if new.any():
                    self._room(episode, int(place[new].max()) + 1)[place[new]] = found[new]
        words[~real] = 0
        return words

    def _room(self, episode: int, length: int) -> np.ndarray:
        """The episode's words, for at least so many steps."""
        known = self._episodes.get(episode, np.empty((0, self.tokens), np.int32))
        if length > len(known):
            more = np.full((max(length, 2 * len(known)) - len(known), self.tokens), UNKNOWN, np.int32)
            self._episodes[episode] = known = np.concatenate([known, more])
        return known

    def get_state(self) -> dict[str, Any]:
        """Episodes, how many steps of each there is room for, and all words one after the other."""
        words = list(self._episodes.values())
        return {
            "episodes": np.array(list(self._episodes), np.int64),
            "lengths": np.array([len(rows) for rows in words], np.int64),
            "words": np.concatenate(words) if words else np.empty((0, self.tokens), np.int32),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Take back what `get_state` gave: the same words, even where two were as good."""
        ends = np.cumsum(state["lengths"])[:-1]
        words = np.split(np.array(state["words"], np.int32), ends) if len(state["lengths"]) else []
        self._episodes = dict(zip(state["episodes"].tolist(), words, strict=True))
