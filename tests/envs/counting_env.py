"""An environment whose every number is known in advance."""

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

LENGTHS = (3, 1, 4, 2, 5)
"""Length of episode k of every environment is LENGTHS[(k + shift) % 5]."""


KINDS = (0, 1, 2)
"""How episodes end, in turn: 0 by termination, 1 by truncation, 2 by both at once."""


class Counting(gym.Env):
    """Observation [100 * episode + step], reward 1, 2, 3 ... within the episode.

    Episodes end in turn by termination, by truncation and by both at once.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 7}

    def __init__(
        self,
        shift: int = 0,
        render_mode: str | None = None,
        lengths: Sequence[int] = LENGTHS,
        kinds: Sequence[int] = KINDS,
    ) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float64)
        self.action_space = gym.spaces.Discrete(3)
        self.render_mode = render_mode
        self.shift = shift
        self.lengths = lengths
        self.kinds = kinds
        self.episode = -1
        self.count = 0
        self.seeds: list[int | None] = []

    def _observation(self) -> np.ndarray:
        return np.array([100.0 * self.episode + self.count])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.episode += 1
        self.count = 0
        return self._observation(), {"episode": self.episode}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.count += 1
        ended = self.count == self.lengths[(self.episode + self.shift) % len(self.lengths)]
        kind = self.kinds[self.episode % len(self.kinds)]
        return (
            self._observation(),
            float(self.count),
            ended and kind != 1,
            ended and kind != 0,
            {"action": int(action)},
        )

    def render(self) -> np.ndarray:
        return np.zeros((4, 4, 3), dtype=np.uint8)


def expected_transitions(
    shift: int, steps: int, lengths: Sequence[int] = LENGTHS, kinds: Sequence[int] = KINDS
) -> list[tuple[float, float, bool, bool, float | None]]:
    """(observation acted on, reward, terminated, truncated, final observation) of the first `steps` real transitions."""
    rows: list[tuple[float, float, bool, bool, float | None]] = []
    episode = 0
    while len(rows) < steps:
        length = lengths[(episode + shift) % len(lengths)]
        cut = kinds[episode % len(kinds)] == 1
        for count in range(1, length + 1):
            last = count == length
            rows.append(
                (
                    100.0 * episode + count - 1,
                    float(count),
                    last and not cut,
                    last and cut,
                    100.0 * episode + count if last else None,
                )
            )
        episode += 1
    return rows[:steps]


def step_often(vector: Any, times: int) -> None:
    """Take action 0 everywhere, `times` times."""
    for _ in range(times):
        vector.step(np.zeros(vector.num_envs, dtype=int))
