"""The one step format: what every vector backend returns, whatever its autoreset mode."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Episode:
    """One finished episode, on the environment's own reward."""

    env_index: int
    episode_index: int
    env_return: float
    """Sum of the environment's own reward, before shaping, clipping and normalisation."""
    shaped_return: float
    """Sum of the reward after the wrappers, before normalisation."""
    length: int
    terminated: bool


@dataclass(slots=True)
class Step:
    """One vector step of N environments.

        obs[t] --action[t]--> reward[t], terminated[t], truncated[t], final_observation[t] (where ended), observation = obs[t+1]

    Arrays are the environment's own: copy what must outlive the next step.
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
