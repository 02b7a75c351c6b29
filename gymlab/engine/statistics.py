"""Statistics of training episodes, on the environment's own reward."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np

from gymlab.envs.step import Episode
from gymlab.metrics.recorder import numbers_only
from gymlab.metrics.statistics import achievement_score

WINDOW = 100
SUCCESS_WINDOW = 1000
ACHIEVEMENT = "achievement/"
"""What an environment tells under such a name is 1 or 0: unlocked in the episode or not."""


class EpisodeStatistics:
    """Returns and lengths of the newest episodes, for `train/roll/...`."""

    def __init__(self, window: int = WINDOW) -> None:
        self.window = window
        self.returns: deque[float] = deque(maxlen=window)
        self.shaped_returns: deque[float] = deque(maxlen=window)
        self.lengths: deque[int] = deque(maxlen=window)
        self.successes: deque[bool] = deque(maxlen=SUCCESS_WINDOW)
        self.told: dict[str, deque[float]] = {}
        self.unlocked: dict[str, float] = {}
        self.told_episodes = 0
        self.best: float | None = None
        self.collected: list[float] = []
        """Returns of the episodes that ended in this epoch."""

    def update(self, episodes: Iterable[Episode]) -> None:
        """Take in finished episodes; the return of a broken one says nothing about the agent."""
        for episode in episodes:
            if episode.broken:
                continue
            self.returns.append(episode.env_return)
            self.collected.append(episode.env_return)
            self.shaped_returns.append(episode.shaped_return)
            self.lengths.append(episode.length)
            if episode.success is not None:
                self.successes.append(episode.success)
            if self.best is None or episode.env_return > self.best:
                self.best = episode.env_return
            if episode.told:
                self._take_told(episode.told)

    def _take_told(self, told: dict[str, float]) -> None:
        self.told_episodes += 1
        for name, value in told.items():
            self.told.setdefault(name, deque(maxlen=self.window)).append(value)
            if name.startswith(ACHIEVEMENT):
                self.unlocked[name] = self.unlocked.get(name, 0.0) + value

    @property
    def window_full(self) -> bool:
        """Whether the mean is over a whole window."""
        return len(self.returns) == self.window

    def metrics(self) -> dict[str, float]:
        """Mean, last and best return, mean length; success rate where the task has a goal; the shaped return where it differs.

        Numbers that the environment told are means over the window. The score of achievements is over all episodes of
        the run, as Crafter defines it.
        """
        if not self.returns:
            return {}
        count = len(self.returns)
        mean, shaped = sum(self.returns) / count, sum(self.shaped_returns) / count
        found = {"ep_rew/mean": mean, "ep_rew/last": self.returns[-1], "ep_len/mean": sum(self.lengths) / count}
        if self.best is not None:
            found["ep_rew/best"] = self.best
        if self.successes:
            found["success/mean"] = sum(self.successes) / len(self.successes)
        if shaped != mean:
            found["ep_shaped_rew/mean"] = shaped
        for name, values in self.told.items():
            found[f"{name}/mean"] = sum(values) / len(values)
        if self.unlocked:
            found["achievement_score"] = achievement_score(
                [100.0 * count / self.told_episodes for count in self.unlocked.values()]
            )
        return found

    def of_epoch(self) -> dict[str, float]:
        """How many episodes ended in this epoch, and mean, deviation, least and largest of their returns."""
        returns = np.array(self.collected)
        found = {"episodes": float(len(returns))}
        if len(returns):
            found |= {f"ep_rew/{name}": float(getattr(returns, name)()) for name in ("mean", "std", "min", "max")}
        return found

    def end_epoch(self) -> None:
        """What ends from here on belongs to the next one."""
        self.collected = []

    def get_state(self) -> dict[str, Any]:
        """The window's content."""
        return {
            "collected": list(self.collected),
            "returns": list(self.returns),
            "shaped_returns": list(self.shaped_returns),
            "lengths": list(self.lengths),
            "successes": list(self.successes),
            "best": self.best,
            "told": {name: list(values) for name, values in self.told.items()},
            "unlocked": self.unlocked,
            "told_episodes": self.told_episodes,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Take back what `get_state` gave; checkpoints of earlier releases do not have all of it."""
        state = numbers_only(state)
        self.returns.extend(state["returns"])
        self.shaped_returns.extend(state["shaped_returns"])
        self.lengths.extend(state["lengths"])
        self.successes.extend(state["successes"])
        self.best = state["best"]
        self.collected = list(state.get("collected", []))
        for name, values in state.get("told", {}).items():
            self.told[name] = deque(values, maxlen=self.window)
        self.unlocked = dict(state.get("unlocked", {}))
        self.told_episodes = state.get("told_episodes", 0)
