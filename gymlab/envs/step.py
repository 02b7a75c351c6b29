"""The one step format: what every vector backend returns, whatever its autoreset mode."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

LIFE_LOST = "life_lost"
"""Key of an info: a life is gone and the game goes on. To the agent that is a termination, to the statistics nothing."""
FRESH_START = "fresh_start"
"""Key of an info: the environment has taken actions of its own to begin play anew, so that a stack of frames begins anew too."""


class Episode(NamedTuple):
    """One finished episode, on the environment's own reward. A tuple, because thousands may end in one step."""

    env_index: int
    episode_index: int
    env_return: float
    """Sum of the environment's own reward, before shaping, clipping and normalisation."""
    shaped_return: float
    """Sum of the reward after the wrappers, before normalisation."""
    length: int
    """Agent steps: a skipped frame does not count."""
    terminated: bool
    """Whether the task itself ended (True) or a time limit did (False)."""
    success: bool | None = None
    """Whether the goal was met, where the environment says so in `info["is_success"]`."""
    broken: bool = False
    """Whether the environment failed in the middle: its return says nothing about the agent."""
    told: dict[str, float] | None = None
    """Numbers that the environment told about the episode, where it has a method `episode_metrics()`."""
    frames: int | None = None
    """Steps of the environment itself under the agent's actions; None where nobody counts them: as many a step as are skipped."""


@dataclass(slots=True)
class Step:
    """One vector step of N environments.

        obs[t] --action[t]--> reward[t], terminated[t], truncated[t],
                              final_observation[t] (where an episode ended), observation = obs[t+1]

    Arrays are the environment's own and live until the step after next: what must outlive that is copied.
    """

    observation: np.ndarray
    """[N, ...] what to act on next: the first observation of the next episode where one ended."""
    reward: np.ndarray
    """[N] float32, as the agent is shown it (shaped, not normalised)."""
    terminated: np.ndarray
    """[N] bool; wins over truncated where both hold."""
    truncated: np.ndarray
    """[N] bool; false wherever terminated is true."""
    final_observation: np.ndarray | None = None
    """[N, ...] true last observations; rows hold where an episode ended; None when none did."""
    valid: np.ndarray | None = None
    """[N] bool; False on dead rows of next-step autoreset (action ignored); None: all rows are real."""
    action_mask: np.ndarray | None = None
    """[N, n_actions] bool for `observation`; None when the environment gives none."""
    episodes: list[Episode] = field(default_factory=list)
    """Episodes that ended in this step."""
    info: dict[str, Any] = field(default_factory=dict)
    """What the environments told beside: key -> sequence of N values, None where an environment gave none."""

    @property
    def ended(self) -> np.ndarray:
        """[N] bool; the transition was the last of its episode, for whatever reason."""
        return self.terminated | self.truncated

    @property
    def is_first(self) -> np.ndarray:
        """[N] bool; `observation` is an episode's first. With next-step autoreset that is so after the dead row."""
        return self.ended if self.valid is None else ~self.valid

    def part(self, rows: slice) -> Step:
        """What some of the environments did, without a copy."""
        final, mask, valid = self.final_observation, self.action_mask, self.valid
        return Step(
            self.observation[rows],
            self.reward[rows],
            self.terminated[rows],
            self.truncated[rows],
            None if final is None else final[rows],
            None if valid is None else valid[rows],
            None if mask is None else mask[rows],
            self.episodes,
            {key: values[rows] for key, values in self.info.items()},
        )
