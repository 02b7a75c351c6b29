"""ale-py's vector environment behind the one step format.

It offers next-step autoreset, but an environment that is reset by name right after its end has no dead step. So each
episode gets the seed of its place in the tree, is replayed from its actions on resume, and no row is wasted.
"""

from __future__ import annotations

import logging
from typing import Any

import gymnasium as gym
import numpy as np

from gymlab.envs.families.atari_game import CLOCK, AtariSettings
from gymlab.envs.step import LIFE_LOST, Episode, Step
from gymlab.envs.vector import EnvironmentSpec, Seeds, Slot, VectorEnv
from gymlab.errors import ConfigError

logger = logging.getLogger(__name__)

LARGEST_SEED = 2**31 - 1


class AtariVector(VectorEnv):
    """N games stepped by threads in C++. Clipping and lost lives are done here, so that the score stays whole."""

    backend = "native"

    def __init__(
        self,
        settings: AtariSettings,
        spec: EnvironmentSpec,
        num_envs: int,
        seeds: Seeds,
        purpose: str,
        *,
        size: tuple[int, int],
        stack: int,
    ) -> None:
        from ale_py.vector_env import AtariVectorEnv

        self._games = AtariVectorEnv(
            settings.rom,
            num_envs,
            repeat_action_probability=settings.repeat_action_probability,
            full_action_space=settings.full_action_space,
            max_num_frames_per_episode=settings.max_num_frames_per_episode,
            img_height=size[0],
            img_width=size[1],
            grayscale=settings.grayscale,
            stack_num=stack,
            frameskip=settings.frame_skip,
            maxpool=settings.max_pool,
            noop_max=settings.noop_max,
            use_fire_reset=settings.use_fire_reset,
            episodic_life=False,
            life_loss_info=False,
            reward_clipping=False,
        )
        channels = stack if settings.grayscale else 3
        super().__init__(
            spec=spec,
            num_envs=num_envs,
            observation_space=gym.spaces.Box(0, 255, (channels, *size), np.uint8),
            action_space=self._games.single_action_space,
        )
        self.render_fps = CLOCK / settings.frame_skip
        self._settings, self._stack = settings, stack
        self._seeds, self._purpose = seeds, purpose
        self._slots = (Slot(num_envs, self.observation_space), Slot(num_envs, self.observation_space))
        self._turn = 0
        self._episode_indices = np.full(num_envs, -1, dtype=np.int64)
        self._lengths = np.zeros(num_envs, dtype=np.int64)
        self._returns = np.zeros(num_envs, dtype=np.float64)
        self._shaped_returns = np.zeros(num_envs, dtype=np.float64)
        self._lives = np.zeros(num_envs, dtype=np.int64)
        self._actions: list[list[int]] = [[] for _ in range(num_envs)]

    @property
    def observation(self) -> np.ndarray:
        """[N, C, H, W] the newest pictures."""
        return self._slots[self._turn].observation

    def reset(self, seeds: Seeds | None = None) -> np.ndarray:
        """Begin a new episode everywhere; with `seeds`, with numbering anew from that tree."""
        if seeds is not None:
            self._seeds = seeds
            self._episode_indices.fill(-1)
            self.episode_counts.fill(0)
        self._turn ^= 1
        self._episode_indices += 1
        self._begin(np.ones(self.num_envs, dtype=np.bool_))
        return self.observation

    def _begin(self, rows: np.ndarray) -> None:
        """Reset the games of `rows`, each with the seed of its episode."""
        indices = np.flatnonzero(rows)
        seeds = np.array([self._seed(index) for index in indices.tolist()], dtype=np.int64)
        pictures, infos = self._games.reset(seed=seeds, options={"reset_mask": rows.copy()})
        for totals in (self._lengths, self._returns, self._shaped_returns):
            totals[rows] = 0
        for index in indices:
            self._actions[index].clear()
        self._lives[rows] = infos["lives"][rows]
        self._place(pictures, rows)

    def _seed(self, index: int) -> int:
        return self._seeds.child(self._purpose, index, int(self._episode_indices[index])).integer() % LARGEST_SEED

    def _place(self, pictures: np.ndarray, rows: np.ndarray | None = None) -> None:
        """Copy pictures to the newest observation, channels first, with the first frame of an episode before it."""
        target = self.observation
        if not self._settings.grayscale:
            pictures = pictures[:, 0].transpose(0, 3, 1, 2)
        if rows is None:
            target[...] = pictures
        else:
            target[rows] = pictures[rows]
        # ale-py stacks black frames before an episode's first; the other backends repeat the first one.
        last = self._stack - 1
        if self._settings.grayscale and last > 0:
            for index in np.flatnonzero(self._lengths < last):
                first = last - int(self._lengths[index])
                target[index, :first] = target[index, first]

    def step(self, actions: np.ndarray) -> Step:
        """Take one action in each game; one that ends begins its next episode in the same step."""
        actions = np.asarray(actions, dtype=np.int64).reshape(-1)
        pictures, score, terminated, truncated, infos = self._games.step(actions)
        self._turn ^= 1
        slot, settings = self._slots[self._turn], self._settings
        for history, action in zip(self._actions, actions.tolist(), strict=True):
            history.append(action)
        self._lengths += 1
        self._returns += score
        slot.reward[...] = score
        if settings.reward_clipping:
            np.clip(slot.reward, -1.0, 1.0, out=slot.reward)
        self._shaped_returns += slot.reward
        slot.terminated[...] = terminated
        limit = self.spec.max_episode_steps
        np.logical_or(truncated, False if limit is None else self._lengths >= limit, out=slot.truncated)
        slot.truncated &= ~slot.terminated
        self._place(pictures)
        step = Step(slot.observation, slot.reward, slot.terminated, slot.truncated, info={"lives": infos["lives"]})
        ended = slot.terminated | slot.truncated
        if settings.episodic_life:
            self._lose_lives(step, slot, ended, infos["lives"])
        self._lives[...] = infos["lives"]
        if ended.any():
            self._end(step, slot, ended)
        return step

    def _lose_lives(self, step: Step, slot: Slot, ended: np.ndarray, lives: np.ndarray) -> None:
        """A life lost is a termination to the agent while the game, and the statistics, go on."""
        lost = (lives > 0) & (lives < self._lives) & ~ended
        if lost.any():
            slot.terminated |= lost
            slot.final_observation[lost] = slot.observation[lost]
            step.final_observation = slot.final_observation
            step.info[LIFE_LOST] = lost

    def _end(self, step: Step, slot: Slot, ended: np.ndarray) -> None:
        slot.final_observation[ended] = slot.observation[ended]
        step.final_observation = slot.final_observation
        step.episodes = [
            Episode(
                int(index),
                int(self._episode_indices[index]),
                float(self._returns[index]),
                float(self._shaped_returns[index]),
                int(self._lengths[index]),
                bool(slot.terminated[index]),
            )
            for index in np.flatnonzero(ended)
        ]
        self.episode_counts[ended] += 1
        self._episode_indices[ended] += 1
        self._begin(ended)

    def get_state(self) -> dict[str, Any]:
        """Number and actions of the open episodes, and the observation that their replay must reach."""
        return {
            "episode_indices": self._episode_indices.copy(),
            "episode_counts": self.episode_counts.copy(),
            "shaped_returns": self._shaped_returns.copy(),
            "actions": {str(index): np.array(taken, dtype=np.int64) for index, taken in enumerate(self._actions)},
            "observation": self.observation.copy(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Replay the open episodes, all at once; one that does not reach its saved picture is left for a fresh one."""
        if len(state["episode_indices"]) != self.num_envs:
            raise ConfigError(
                f"The saved state of {self.spec.id} has {len(state['episode_indices'])} environments, "
                f"this one {self.num_envs}."
            )
        self._episode_indices[:] = state["episode_indices"]
        self.episode_counts[:] = state["episode_counts"]
        if self._episode_indices[0] < 0:
            return
        self._replay([np.asarray(state["actions"][str(index)]).tolist() for index in range(self.num_envs)])
        self._shaped_returns[:] = state["shaped_returns"]
        expected = np.asarray(state["observation"])
        wrong = np.array([not np.array_equal(*pair) for pair in zip(self.observation, expected, strict=True)])
        if wrong.any():
            logger.warning(
                "%s: the replay of %s open episodes gave other pictures than before. Continuing them from fresh episodes.",
                self.spec.id,
                np.count_nonzero(wrong),
            )
            self._episode_indices[wrong] += 1
            self._begin(wrong)

    def _replay(self, histories: list[list[int]]) -> None:
        """Play all histories so that they end together: the longest begins first, the others wait for their turn."""
        lengths = np.array([len(history) for history in histories])
        longest = int(lengths.max())
        self._begin(np.ones(self.num_envs, dtype=np.bool_))
        clipping = self._settings.reward_clipping
        for time in range(longest):
            starting = (lengths == longest - time) & (time > 0)
            if starting.any():
                self._begin(starting)
            since = time - (longest - lengths)
            actions = np.array(
                [history[at] if at >= 0 else 0 for history, at in zip(histories, since, strict=True)], dtype=np.int64
            )
            pictures, score, _, _, infos = self._games.step(actions)
            playing = since >= 0
            self._lengths += playing
            self._returns += np.where(playing, score, 0)
            self._shaped_returns += np.where(playing, np.clip(score, -1, 1) if clipping else score, 0)
            self._lives[...] = infos["lives"]
            self._place(pictures)
        starting = lengths == 0
        if longest and starting.any():
            self._begin(starting)
        self._actions = histories

    def render(self) -> np.ndarray | None:
        """Nothing: the games draw for the agent only."""
        return None

    def close(self) -> None:
        """Stop the threads."""
        self._games.close()
