"""Browsing saved episodes as if they were played: forwards, back, and from one to the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from gymlab.engine.dream_game import Canvas
from gymlab.engine.playing import Decision, PlayedEpisode, Playing
from gymlab.engine.saved_episodes import EpisodeEntry, SavedEpisode
from gymlab.engine.trace import play_environment
from gymlab.envs.painting import SHOWN_STEPS
from gymlab.errors import GymlabError

if TYPE_CHECKING:
    from gymlab.config.schema import Config


class RecordedGame(Playing):
    """Saved episodes, one after the other. What is to be done next is what was done then."""

    browses = True

    def __init__(
        self, config: Config, entries: Sequence[EpisodeEntry], *, enlarge: bool = True, one_size: bool = False
    ) -> None:
        """Browse `entries`; with `one_size` all pictures are as large as the first, so that they make a film."""
        if not entries:
            raise GymlabError(
                f"This run of {config.env_id} has saved no episodes. Algorithms that learn from replayed sequences keep those of "
                "training, and videos of test episodes are in videos/: gymlab play REF --save makes one."
            )
        self.entries = list(entries)
        self._real = play_environment(config)
        self._canvas = Canvas(config, self._real, enlarge=enlarge)
        super().__init__(config, self._real, self._real)
        self._open: SavedEpisode | None = None
        self._one_size = one_size
        self._size: tuple[int, int] | None = None

    @property
    def by_hand(self) -> bool:
        """Nobody has to do anything."""
        return False

    @property
    def entry(self) -> EpisodeEntry:
        """The episode that is open."""
        return self.entries[max(0, self.episode - 1)]

    @property
    def place(self) -> str:
        """Which episode of how many."""
        splits = [entry.split for entry in self.entries]
        number = splits[: self.episode].count(self.entry.split)
        return f"{self.entry.split} {number} of {splits.count(self.entry.split)}: {self.entry.name}"

    @property
    def length(self) -> int:
        """Steps of the episode that is open."""
        return 0 if self._open is None else self._open.steps

    def begin(self) -> None:
        """The next episode of the list; after the last comes the first."""
        self.choose(self.episode % len(self.entries))

    def choose(self, index: int) -> None:
        """Open an episode of the list at its first step."""
        self._close()
        self.episode = index % len(self.entries) + 1
        self._open = self.entry.load()
        self.go(0)

    def choose_split(self) -> None:
        """The newest episode of the other split, where there is one."""
        split = self.entry.split
        other = next((index for index, entry in enumerate(self.entries) if entry.split != split), None)
        if other is not None:
            self.choose(other)

    def step(self, action: Any = None) -> None:
        """One step on."""
        self.go(self.steps + 1)

    def go(self, step: int) -> None:
        """What was there after so many steps."""
        episode = self._open
        assert episode is not None
        self._clear()
        self.steps = step = min(max(0, step), episode.steps)
        if episode.rewards is not None:
            self._earned = float(episode.rewards[:step].sum())
            self.reward = float(episode.rewards[step - 1]) if step else None
        if episode.actions is not None:
            self.action = episode.actions[step - 1] if step else None
            self.decision = Decision(episode.actions[step]) if step < episode.steps else None
        if step == episode.steps:
            self.ending = self.entry.ending or "over"
            self.finished.append(PlayedEpisode(self.episode, self._earned, step, self.ending))

    def leave(self) -> None:
        """A recording is as it was: nothing is left unfinished."""

    def frame(self) -> np.ndarray:
        """What was to be seen."""
        drawn = self._drawn()
        height, width = drawn.shape[:2]
        self._size = self._size or (width, height)
        if not self._one_size or self._size == (width, height):
            return drawn
        return np.asarray(Image.fromarray(drawn).resize(self._size, Image.Resampling.NEAREST))

    def _drawn(self) -> np.ndarray:
        assert self._open is not None
        if self._open.observations is not None:
            seen = self._open.observations[max(0, self.steps + 1 - SHOWN_STEPS) : self.steps + 1]
            return self._canvas.paint(list(seen))
        assert self._open.frames is not None
        return self._open.frames[self.steps]

    def _close(self) -> None:
        if self._open is not None and self._open.frames is not None:
            self._open.frames.close()

    def close(self) -> None:
        """Free the environments that draw, and the video that is open."""
        self._close()
        self._canvas.close()
        self._real.close()
