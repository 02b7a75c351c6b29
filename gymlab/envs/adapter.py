"""Any Gymnasium vector environment, in any of the three autoreset modes, behind the one step format.

What happens around the end of an episode (obs 13 is its last, 20 the first of the next):

    mode        the ending step                        the following step
    NEXT_STEP   observation 13, final 13               dead row (valid False, action ignored): observation 20
    SAME_STEP   observation 20, final 13               real
    DISABLED    observation 20 (we reset), final 13    real
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from gymlab.envs.contract import ObservationCheck, WrongAnswer, contained, reset_answer, rows
from gymlab.envs.crash import describe_crash
from gymlab.envs.spaces import Flattener, stored_space
from gymlab.envs.step import Episode, Step
from gymlab.envs.vector import EnvironmentSpec, FiniteCheck, Seeds, Slot, VectorEnv
from gymlab.errors import EnvironmentFailure, GymlabError

NOT_INFO = ("final_obs", "final_info", "action_mask")


class GymnasiumVector(VectorEnv):
    """Adapter over a Gymnasium vector environment; ale-py's variant of SAME_STEP is understood too."""

    backend = "native"

    def __init__(
        self, vector: gym.vector.VectorEnv, spec: EnvironmentSpec, seeds: Seeds, purpose: str = "train"
    ) -> None:
        raw_space = vector.single_observation_space
        super().__init__(
            spec=spec,
            num_envs=vector.num_envs,
            observation_space=stored_space(raw_space),
            action_space=vector.single_action_space,
            raw_observation_space=raw_space,
        )
        self.resumable = False
        self.resume_note = f"{type(vector.unwrapped).__name__} resets by itself and gives no state to save."
        self.render_fps = float(vector.metadata.get("render_fps") or 30.0)
        self._vector = vector
        self._mode = _autoreset_mode(vector, spec.id)
        self._flattener = Flattener(raw_space)
        self._seeds = seeds.child(purpose)
        self._purpose = purpose
        self._resets = 0
        self._steps = 0
        """Since the last reset of all."""
        count = self.num_envs
        self._slots = (Slot(count, self.observation_space), Slot(count, self.observation_space))
        self._turn = 0
        self._check = FiniteCheck(spec.id, self._slots[0])
        flat = self._flattener.is_identity
        self._one: Callable[[Any], Any] = ObservationCheck(raw_space).taken if flat else self._flattener
        self._batch: Callable[[Any], np.ndarray] = (
            ObservationCheck(raw_space, self._slots[0].observation.shape).taken
            if flat
            else lambda observations: self._flattener.batch(observations, count)
        )
        self._dead = np.zeros(count, dtype=np.bool_)
        self._lengths = np.zeros(count, dtype=np.int64)
        self._returns = np.zeros(count, dtype=np.float64)
        self._episode_indices = np.full(count, -1, dtype=np.int64)

    @property
    def observation(self) -> np.ndarray:
        """[N, ...] the newest observation."""
        return self._slots[self._turn].observation

    def reset(self, seeds: Seeds | None = None) -> np.ndarray:
        """Begin a new episode everywhere; with `seeds`, with numbering anew from that tree."""
        if seeds is not None:
            self._reseed(seeds)
        everywhere = np.ones(self.num_envs, dtype=np.bool_)
        self._begin(everywhere)
        self._dead.fill(False)
        with self._held("reset"):
            observations, infos = reset_answer(self._vector.reset(seed=self._reset_seed(everywhere)))
            batch = self._batch(observations)
        self._resets += 1
        self._steps = 0
        self._turn ^= 1
        self.observation[...] = batch
        self.action_mask = None
        self._take_mask(infos)
        self._check.first(self.observation)
        return self.observation

    def _reseed(self, seeds: Seeds) -> None:
        self._seeds = seeds.child(self._purpose)
        self._resets = 0
        self._episode_indices.fill(-1)
        self.episode_counts.fill(0)

    def _begin(self, rows: np.ndarray) -> None:
        self._episode_indices[rows] += 1
        self._lengths[rows] = 0
        self._returns[rows] = 0.0

    def _reset_seed(self, rows: np.ndarray) -> Any:
        # An int would seed environment i with seed + i, so that neighbours in the tree share episodes.
        if isinstance(self._vector.unwrapped, gym.vector.SyncVectorEnv | gym.vector.AsyncVectorEnv):
            return [
                self._seeds.child(index, int(episode)).integer() if rows[index] else None
                for index, episode in enumerate(self._episode_indices)
            ]
        # Some keep seeds in 32 bits, of which the last environment still needs one.
        return self._seeds.child("vector", self._resets).integer() % (2**31 - self.num_envs)

    def step(self, actions: np.ndarray) -> Step:
        """Take one action in each environment; rows that only reset come back with `valid` False."""
        self._turn ^= 1
        self._steps += 1
        slot = self._slots[self._turn]
        with self._held(f"step {self._steps}"):
            observations, reward, terminated, truncated, infos = self._vector.step(actions)
            slot.observation[...] = batch = self._batch(observations)
            slot.reward[...] = rows("reward", reward, self.num_envs)
            slot.terminated[...] = rows("terminated", terminated, self.num_envs, "biu")
            np.logical_and(rows("truncated", truncated, self.num_envs, "biu"), ~slot.terminated, out=slot.truncated)
        valid = None
        if self._mode is AutoresetMode.NEXT_STEP:
            valid = ~self._dead
            for array in (slot.reward, slot.terminated, slot.truncated):
                array[self._dead] = 0
            self._begin(self._dead)
        ended = slot.terminated | slot.truncated
        self._lengths += 1 if valid is None else valid
        self._returns += slot.reward
        if self.action_mask is not None:
            self.action_mask = self.action_mask.copy()
        self._take_mask(infos)
        step = Step(slot.observation, slot.reward, slot.terminated, slot.truncated, valid=valid)
        if ended.any():
            self._end(slot, step, ended, batch, infos)
        if self._mode is AutoresetMode.NEXT_STEP:
            self._dead = ended
        step.info = _transition_info(infos)
        step.action_mask = self.action_mask
        self._check(step, lambda index: self._position(index, step.episodes))
        return step

    @contextmanager
    def _held(self, moment: str) -> Iterator[None]:
        """Whatever the vector version does wrong ends the run: it has no environments that could be replaced one by one."""
        try:
            with contained():
                yield
        except WrongAnswer as error:
            raise error.at(f"{self.spec.id}: the vector version, {moment}: ") from None
        except GymlabError:
            raise
        except Exception as error:  # An environment may raise anything.
            raise EnvironmentFailure(
                f"{describe_crash(error)}\n{self.spec.id}: the vector version failed. "
                "It cannot be replaced; environments of vectorization_mode: sync or async can."
            ) from error

    def _end(self, slot: Slot, step: Step, ended: np.ndarray, batch: np.ndarray, infos: dict[str, Any]) -> None:
        with self._held(f"step {self._steps}"):
            slot.final_observation[ended] = self._final_rows(batch, ended, infos)
        step.final_observation = slot.final_observation
        step.episodes = self._finished(ended, slot.terminated)
        self.episode_counts[ended] += 1
        if self._mode is AutoresetMode.NEXT_STEP:
            return
        self._begin(ended)
        if self._mode is AutoresetMode.DISABLED:
            options = {"reset_mask": ended.copy()}
            with self._held("reset"):
                answer = self._vector.reset(seed=self._reset_seed(ended), options=options)
                observations, reset_infos = reset_answer(answer)
                slot.observation[ended] = self._batch(observations)[ended]
            self._resets += 1
            self._take_mask(reset_infos)

    def _final_rows(self, batch: np.ndarray, ended: np.ndarray, infos: dict[str, Any]) -> np.ndarray:
        if self._mode is not AutoresetMode.SAME_STEP:
            return batch[ended]
        final = infos.get("final_obs")
        if final is None:
            raise EnvironmentFailure(
                f"{self.spec.id} resets in the same step but gives no info['final_obs'], so the last observation of an "
                "episode is lost. Use vectorization_mode: sync or async."
            )
        if isinstance(final, np.ndarray) and final.dtype == object:
            return np.stack([self._one(final[index]) for index in np.flatnonzero(ended)])
        # ale-py gives one array for all environments, without a mask.
        return self._batch(final)[ended]

    def _finished(self, ended: np.ndarray, terminated: np.ndarray) -> list[Episode]:
        return [
            Episode(
                int(index),
                int(self._episode_indices[index]),
                float(self._returns[index]),
                float(self._returns[index]),
                int(self._lengths[index]),
                bool(terminated[index]),
            )
            for index in np.flatnonzero(ended)
        ]

    def _take_mask(self, infos: dict[str, Any]) -> None:
        mask = infos.get("action_mask")
        if mask is None:
            return
        present = infos.get("_action_mask", np.ones(self.num_envs, dtype=np.bool_))
        if self.action_mask is None:
            self.action_mask = np.ones(np.shape(mask), dtype=np.bool_)
        self.action_mask[present] = np.asarray(mask)[present].astype(np.bool_)

    def _position(self, index: int, episodes: list[Episode]) -> tuple[int, int]:
        for episode in episodes:
            if episode.env_index == index:
                return episode.episode_index, episode.length
        return int(self._episode_indices[index]), int(self._lengths[index])

    def get_state(self) -> dict[str, Any]:
        """How many episodes there were: all that can be kept of an environment without a state of its own."""
        return {
            "episode_indices": self._episode_indices.copy(),
            "episode_counts": self.episode_counts.copy(),
            "resets": self._resets,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue the numbering, with a fresh episode everywhere."""
        self._episode_indices[:] = state["episode_indices"]
        self.episode_counts[:] = state["episode_counts"]
        self._resets = int(state["resets"])
        if self._resets:
            self.reset()

    def render(self) -> np.ndarray | None:
        """Environment 0, or None when it was made without rendering."""
        if self._vector.render_mode is None:
            return None
        frames: Any = self._vector.render()
        return None if frames is None else np.asarray(frames[0])

    def close(self) -> None:
        """Close the wrapped environment."""
        self._vector.close()


def _autoreset_mode(vector: gym.vector.VectorEnv, env_id: str) -> AutoresetMode:
    mode = vector.metadata.get("autoreset_mode")
    if not isinstance(mode, AutoresetMode):
        raise EnvironmentFailure(
            f"The vector version of {env_id} does not say how it resets (metadata['autoreset_mode'] is {mode!r}). "
            "Use vectorization_mode: sync or async."
        )
    return mode


def _transition_info(infos: dict[str, Any]) -> dict[str, Any]:
    """Infos of the transition: what the ending step told wins over what the reset after it told."""
    merged = {key: value for key, value in infos.items() if not key.startswith("_") and key not in NOT_INFO}
    final = infos.get("final_info")
    if not isinstance(final, dict):
        return merged
    for key, value in final.items():
        if key.startswith("_") or key in NOT_INFO:
            continue
        if isinstance(value, np.ndarray) and isinstance(merged.get(key), np.ndarray):
            value = np.where(final[f"_{key}"].reshape(-1, *[1] * (value.ndim - 1)), value, merged[key])
        merged[key] = value
    return merged
