"""Fills rollouts: the policy acts in a vector environment, and what happens is written to preallocated storage."""

from __future__ import annotations

import sys
from typing import Any, Protocol

import numpy as np

from gymlab.buffers.rollout import Rollout, RolloutStorage
from gymlab.components.distributions import Distribution
from gymlab.components.observation import ObservationEncoder, RewardNormalizer
from gymlab.envs.step import Episode
from gymlab.errors import NonFiniteError


class Policy(Protocol):
    """What acts: encoded observations [B, ...] in, distribution parameters [B, P] and values [B] out."""

    collects_values: bool
    """Whether values come with the parameters at no extra cost; else they are computed for the whole rollout at once."""

    def __call__(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Parameters and values."""

    def actor(self, x: np.ndarray) -> np.ndarray:
        """Parameters alone."""

    def critic(self, x: np.ndarray) -> np.ndarray:
        """Values alone."""


class RolloutCollector:
    """Steps one vector environment on and on; a rollout begins where the last one ended."""

    def __init__(
        self,
        environment: Any,
        encoder: ObservationEncoder,
        distribution: Distribution,
        policy: Policy,
        generator: np.random.Generator,
        *,
        steps: int,
        reward_normalizer: RewardNormalizer | None = None,
    ) -> None:
        self.environment = environment
        self.encoder = encoder
        self.distribution = distribution
        self.policy = policy
        self.generator = generator
        self.reward_normalizer = reward_normalizer
        self.storage = RolloutStorage(
            steps,
            environment.num_envs,
            observation=(encoder.output_shape, np.dtype(np.uint8 if encoder.is_image else np.float32)),
            action=(distribution.action_shape, distribution.action_dtype),
            parameter_size=distribution.parameter_size,
        )
        self.started = False
        self.transitions = 0
        """Steps that environments really took in the newest collection, rows that were given up included."""
        self._acted_on: np.ndarray | None = None

    def collect(self, length: int, *, finish: bool = False, limit: int | None = None) -> tuple[Rollout, list[Episode]]:
        """`length` steps in each environment, and the episodes that ended meanwhile; the next call writes over them.

        With `finish` the rollout holds whole episodes: all environments begin anew, and one that is in the middle of an
        episode after `length` steps plays it to its end, of at most `limit` steps in all. Rows of episodes that begin
        later, or have no end by then, are not valid.
        """
        environment, distribution, storage = self.environment, self.distribution, self.storage
        policy, encode, num_envs = self.policy, self.encoder.encode, self.environment.num_envs
        if finish or not self.started:
            environment.reset()
            self.started = True
            self._acted_on = None
        noise = distribution.noise(self.generator, (length, num_envs))
        cut_rows: list[np.ndarray] = []
        cut_observations: list[np.ndarray] = []
        episodes: list[Episode] = []
        has_dead_rows = has_masks = False
        dead_rows = 0
        playing = np.ones(num_envs, np.bool_)
        observation, action_mask, acted_on = environment.observation, environment.action_mask, self._acted_on
        for t in range((limit or sys.maxsize) if finish else length):
            if t == storage.steps:
                storage.grow()
            storage.observations[t] = x = encode(observation, update=True, valid=acted_on)
            if policy.collects_values:
                parameters, storage.values[t] = policy(x)
            else:
                parameters = policy.actor(x)
            if action_mask is not None:
                has_masks = True
                storage.masks(action_mask)[t] = action_mask
                parameters = distribution.mask(parameters, action_mask)
            storage.parameters[t] = parameters
            storage.actions[t] = actions = distribution.sample(
                parameters, noise[t] if t < length else distribution.noise(self.generator, (num_envs,))
            )
            try:
                step = environment.step(distribution.to_environment(actions))
            except NonFiniteError as error:
                error.data |= {"acted_on": observation, "actions": actions}
                raise
            storage.rewards[t] = step.reward
            storage.terminated[t] = step.terminated
            storage.truncated[t] = step.truncated
            storage.valid[t] = True if step.valid is None else step.valid
            if step.valid is not None:
                has_dead_rows = True
                dead_rows += num_envs - int(np.count_nonzero(step.valid))
            if step.final_observation is not None and step.truncated.any():
                ended = np.flatnonzero(step.truncated)
                cut_rows.append(t * num_envs + ended)
                cut_observations.append(encode(step.final_observation[ended], update=False))
            if step.episodes:
                episodes += [episode for episode in step.episodes if playing[episode.env_index]]
            observation, action_mask = step.observation, step.action_mask
            # With next-step autoreset the row after an ending is dead: its observation is the old episode's last.
            acted_on = None if step.valid is None else ~step.ended
            if finish:
                storage.valid[t] &= playing
                if t >= length - 1:
                    playing &= storage.valid[t] & ~step.ended
                    if not playing.any():
                        break
        length = t + 1
        self.transitions = length * num_envs - dead_rows
        if finish:
            has_dead_rows = True
            endings = storage.terminated[:length] | storage.truncated[:length]
            # A row belongs to a whole episode when an ending comes at it or after it.
            storage.valid[:length] &= np.logical_or.accumulate(endings[::-1])[::-1]
        self._acted_on = acted_on
        # Behind the last row of an unfinished episode stands the observation that the next rollout begins with.
        unfinished = np.flatnonzero(~storage.truncated[length - 1])
        cut_rows.append((length - 1) * num_envs + unfinished)
        cut_observations.append(encode(observation, update=False)[unfinished])
        rollout = self._close(length, np.concatenate(cut_rows), np.concatenate(cut_observations))
        rollout.valid = storage.valid[:length] if has_dead_rows else None
        rollout.action_masks = storage.action_masks[:length] if has_masks and storage.action_masks is not None else None
        return rollout, episodes

    def _close(self, length: int, cut_rows: np.ndarray, cut_observations: np.ndarray) -> Rollout:
        """What needs no step of the environment, for all rows at once: values, log-probs, normalised rewards."""
        storage, policy = self.storage, self.policy
        shape = (length, self.environment.num_envs)
        observations, actions, parameters = (
            array[:length].reshape(-1, *array.shape[2:])
            for array in (storage.observations, storage.actions, storage.parameters)
        )
        if not policy.collects_values:
            storage.values[:length] = policy.critic(observations).reshape(shape)
        if self.reward_normalizer is not None:
            self._normalize_rewards(length)
        return Rollout(
            observations=storage.observations[:length],
            actions=storage.actions[:length],
            log_probs=self.distribution.log_prob(parameters, actions).reshape(shape),
            values=storage.values[:length],
            bootstrap_values=policy.critic(cut_observations),
            rewards=storage.rewards[:length],
            terminated=storage.terminated[:length],
            truncated=storage.truncated[:length],
            bootstrap_observations=cut_observations,
            bootstrap_rows=cut_rows,
        )

    def _normalize_rewards(self, length: int) -> None:
        assert self.reward_normalizer is not None
        storage = self.storage
        for t in range(length):
            ended = storage.terminated[t] | storage.truncated[t]
            storage.rewards[t] = self.reward_normalizer(storage.rewards[t], ended, storage.valid[t])

    def get_state(self) -> dict[str, Any]:
        """What a resumed run needs: the environment gives back its own newest observation."""
        normalizer = self.reward_normalizer
        return {
            "started": self.started,
            "acted_on": self._acted_on,
            "reward_normalizer": None if normalizer is None else normalizer.get_state(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Take back what `get_state` gave."""
        self.started = state["started"]
        self._acted_on = state["acted_on"]
        if self.reward_normalizer is not None and state["reward_normalizer"] is not None:
            self.reward_normalizer.set_state(state["reward_normalizer"])
