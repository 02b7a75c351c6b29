"""The best and the last episodes of a run, kept as files to be watched again."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from gymlab.engine.callbacks.base import Callback
from gymlab.engine.episodes import DIRECTORY, SPLITS, Episode, list_split, write_episode
from gymlab.envs.episode_tap import EpisodeTap, Lived
from gymlab.envs.step import Episode as EndedEpisode

if TYPE_CHECKING:
    from gymlab.engine.orchestrator import Orchestrator


class KeptEpisodes(Callback):
    """Looks on while environments are stepped; files are written at the end of an epoch, and `test` is every evaluation."""

    def __init__(self, run_dir: Path, count: int) -> None:
        self.shelves = {split: Shelf(run_dir / DIRECTORY / split, split, count) for split in SPLITS}

    def on_start(self, loop: Orchestrator) -> None:
        """Begin to look on; what a run that went back has given up is deleted."""
        for shelf in self.shelves.values():
            shelf.open(loop.counters.epoch)
        EpisodeTap(loop.session.environment, self.shelves["train"].take)
        loop.session.watch = lambda environment: EpisodeTap(environment, self.shelves["test"].take)

    def on_epoch_end(self, loop: Orchestrator) -> None:
        """Write what the epoch brought."""
        for shelf in self.shelves.values():
            shelf.write(loop.counters.epoch)

    def on_stop(self, loop: Orchestrator) -> None:
        """Write what came after the last epoch: the final evaluation."""
        self.on_epoch_end(loop)


class Shelf:
    """The best `count` episodes of a split by return, of equals the newest, and the last `count`."""

    def __init__(self, directory: Path, split: Literal["train", "test"], count: int) -> None:
        self.directory, self.split, self.count = directory, split, count
        self._number = 0
        self._best: list[tuple[float, int]] = []
        """Return and number, the worst first."""
        self._last: deque[int] = deque(maxlen=count)
        self._new: dict[int, tuple[Lived, EndedEpisode]] = {}
        """Episodes that are no files yet, by number."""

    def open(self, epoch: int) -> None:
        """Go on with the files of a run that is at this epoch; later ones are deleted."""
        found = sorted(list_split(self.directory, self.split), key=lambda episode: episode.number)
        for episode in found:
            if episode.epoch > epoch:
                episode.path.unlink()
        kept = [episode for episode in found if episode.epoch <= epoch]
        self._number = max((episode.number + 1 for episode in found), default=0)
        self._best = sorted((e.env_return, e.number) for e in kept if e.kind == "best")[-self.count :]
        self._last = deque((e.number for e in kept if e.kind == "last"), maxlen=self.count)

    def take(self, lived: Lived, ended: EndedEpisode) -> None:
        """Another episode is over."""
        number, self._number = self._number, self._number + 1
        self._new[number] = (lived, ended)
        self._last.append(number)
        if np.isfinite(ended.env_return):
            self._best = sorted([*self._best, (ended.env_return, number)])[-self.count :]
        if len(self._new) > 2 * self.count:
            wanted = set.union(*self._wanted().values())
            self._new = {number: episode for number, episode in self._new.items() if number in wanted}

    def _wanted(self) -> dict[str, set[int]]:
        return {"best": {number for _, number in self._best}, "last": set(self._last)}

    def write(self, epoch: int) -> None:
        """Write the new ones that are still among the best or the last, and delete files that no longer are."""
        wanted = self._wanted()
        for number, (lived, ended) in self._new.items():
            for kind, numbers in wanted.items():
                if number in numbers and np.isfinite(ended.env_return):
                    write_episode(self._path(kind, number), _episode(lived, ended, epoch))
        self._new.clear()
        for episode in list_split(self.directory, self.split):
            if episode.number not in wanted[episode.kind]:
                episode.path.unlink()

    def _path(self, kind: str, number: int) -> Path:
        return self.directory / f"{kind}-{number:06d}.safetensors.z"


def _episode(lived: Lived, ended: EndedEpisode, epoch: int) -> Episode:
    return Episode(
        observations=np.stack(lived.observations),
        actions=np.stack(lived.actions),
        rewards=np.array(lived.rewards, np.float32),
        terminated=ended.terminated,
        env_return=ended.env_return,
        epoch=epoch,
    )
