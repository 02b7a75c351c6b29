"""What the loop in this process and the workers have in common: sub-environments of ours, each with its own episode."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from gymlab.envs.restarts import Restarts
from gymlab.envs.step import LIFE_LOST, Episode, Step
from gymlab.envs.subenv import NotRepeated, SubEnv
from gymlab.envs.vector import EnvironmentSpec, FiniteCheck, Slot, VectorEnv
from gymlab.errors import ConfigError, EnvironmentFailure

logger = logging.getLogger(__name__)


class SubEnvVector(VectorEnv):
    """N sub-environments that reset in the same step. One that fails is replaced, and its episode counts as truncated.

    The row of such a step: reward 0, truncated, the last observation seen as the final one, and the first observation of
    the successor's first episode as the next.
    """

    def __init__(self, spec: EnvironmentSpec, names: list[str], example: SubEnv, restarts: Restarts) -> None:
        num_envs = len(names)
        super().__init__(
            spec=spec,
            num_envs=num_envs,
            observation_space=example.observation_space,
            action_space=example.action_space,
            raw_observation_space=example.raw_observation_space,
        )
        self.restarts = restarts
        self.render_fps = float(example.metadata.get("render_fps") or 30.0)
        self._names = names
        self._slots = (Slot(num_envs, self.observation_space), Slot(num_envs, self.observation_space))
        self._turn = 0
        self._check = FiniteCheck(spec.id, self._slots[0])

    @property
    def observation(self) -> np.ndarray:
        """[N, ...] the newest observation."""
        return self._slots[self._turn].observation

    def _allow_all(self, rows: slice | int) -> None:
        """Forget masks of these environments: where the next info gives none, every action is allowed."""
        if self.action_mask is not None:
            self.action_mask = self.action_mask.copy()
            self.action_mask[rows] = True

    def _take_mask(self, index: int, mask: Any) -> None:
        if self.action_mask is None:
            self.action_mask = np.ones((self.num_envs, len(mask)), dtype=np.bool_)
        self.action_mask[index] = mask

    def _take_first(self, index: int, info: dict[str, Any]) -> None:
        """The mask of an episode's first observation."""
        if "action_mask" in info:
            self._take_mask(index, info["action_mask"])
        elif self.action_mask is not None:
            self.action_mask[index] = True

    def _merge(self, infos: dict[str, Any], index: int, info: dict[str, Any]) -> None:
        for key, value in info.items():
            if key == "action_mask":
                self._take_mask(index, value)
                continue
            if key not in infos:
                infos[key] = [None] * self.num_envs
            infos[key][index] = value

    def _lose_lives(self, step: Step) -> None:
        """Rows in which a life was lost are terminations, though their episodes go on."""
        slot = self._slots[self._turn]
        for index, lost in enumerate(step.info.get(LIFE_LOST, ())):
            if lost and not slot.truncated[index]:
                slot.terminated[index] = True
                slot.final_observation[index] = slot.observation[index]
                step.final_observation = slot.final_observation

    def _cut_off(self, step: Step, index: int, episode: Episode) -> None:
        """The row of a step in which an environment failed."""
        step.reward[index] = 0.0
        step.terminated[index] = False
        step.truncated[index] = True
        slot = self._slots[self._turn]
        slot.final_observation[index] = self._slots[self._turn ^ 1].observation[index]
        step.final_observation = slot.final_observation
        step.episodes.append(episode)
        self.episode_counts[index] += 1

    def _refuse_wrong_action(self, index: int, action: Any, cause: str) -> None:
        """An environment that fails on an action outside of its space is not to blame."""
        if not self.action_space.contains(action):
            raise EnvironmentFailure(
                f"{self._names[index]} was given the action {action}, which is not in {self.action_space}:\n{cause}"
            )

    def _cannot_be_drawn(self, cause: str) -> EnvironmentFailure:
        return EnvironmentFailure(f"{self._names[0]} cannot be drawn:\n{cause}")

    def _saved_environments(self, state: dict[str, Any]) -> list[dict[str, Any]]:
        """The states of the sub-environments; none when nothing had begun."""
        expected = state["observation"]
        if len(expected) != self.num_envs:
            raise ConfigError(
                f"The saved state of {self.spec.id} has {len(expected)} environments, this one {self.num_envs}."
            )
        saved = [state["environments"][str(index)] for index in range(self.num_envs)]
        if saved[0]["episode_index"] < 0:
            return []
        # Before it was saved it worked: what fails from here on may be an accident.
        self.restarts.finished = True
        return saved


def names_of(spec: EnvironmentSpec, purpose: str, count: int) -> list[str]:
    """What the environments are called in messages."""
    return [f"{spec.id}: {purpose} environment {index}" for index in range(count)]


def replay(
    env: SubEnv, state: dict[str, Any], expected: np.ndarray, after_step: Callable[[], None] = lambda: None
) -> tuple[Any, dict[str, Any], str]:
    """Bring an environment back to a saved state; where it cannot repeat itself, begin its next episode.

    Returns observation, info and what is to be complained of, which is empty when all is well.
    """
    try:
        observation, info = env.replay(state, after_step)
        complaint = ""
    except NotRepeated as error:
        complaint = str(error)
    else:
        if not np.array_equal(np.asarray(observation, dtype=expected.dtype), expected):
            complaint = (
                f"The replay of episode {env.episode_index} of environment {env.env_index} gave another observation than "
                "before, so the environment does not repeat itself from the same seed."
            )
    if complaint:
        observation, info = env.reset()
    return observation, info, complaint


def action_splitter(space: gym.Space) -> Callable[[np.ndarray], Sequence[Any]]:
    """How a batch of actions is handed out: Python ints for Discrete, rows of a private copy otherwise."""
    if isinstance(space, gym.spaces.Discrete):
        return lambda actions: np.asarray(actions).reshape(-1).tolist()
    dtype = space.dtype
    # The copy lets an environment and the replay log keep the rows.
    return lambda actions: np.array(actions, dtype=dtype)  # type: ignore[return-value]


def close_quietly(env: SubEnv) -> None:
    """Free what an environment holds, as far as it lets itself: nobody needs it any more."""
    try:
        env.close()
    except Exception as error:  # An environment may raise anything.
        logger.info("Closing an environment: %s", error)
