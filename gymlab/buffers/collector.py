"""Fills rollouts: the policy acts in a vector environment, and what happens is written to preallocated storage."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, Literal, Protocol

import numpy as np

from gymlab.buffers.rollout import Rollout, RolloutStorage
from gymlab.components.distributions import Distribution
from gymlab.components.observation import ObservationEncoder, RewardNormalizer
from gymlab.components.turns import seconds_by_turns
from gymlab.envs.pace import cores, halves_pay
from gymlab.envs.step import Episode, Step
from gymlab.errors import ConfigError, NonFiniteError

POLICY_CALLS, POLICY_SECONDS = 4, 0.25
"""How often at least, and how long, the policy is tried to know what it takes."""


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


@dataclass(slots=True)
class OpenRollout:
    """A collection that is under way: what the rows in storage do not tell."""

    noise: np.ndarray
    """[length, N, ...] drawn ahead for the whole rollout."""
    playing: np.ndarray
    """[N] environments whose rows still count, when whole episodes are collected."""
    t: int = 0
    """Rows written."""
    dead_rows: int = 0
    has_dead_rows: bool = False
    has_masks: bool = False
    cut_rows: list[np.ndarray] = field(default_factory=list)
    cut_observations: list[np.ndarray] = field(default_factory=list)
    episodes: list[Episode] = field(default_factory=list)


@dataclass(slots=True)
class Part:
    """Environments that take their steps together: all of them, or one half."""

    rows: slice
    """Their places among all."""
    observation: np.ndarray
    """What to act on next."""
    action_mask: np.ndarray | None
    acted_on: np.ndarray | None = None
    """Rows of `observation` that are real; None: all of them."""
    actions: np.ndarray | None = None
    """The newest that were taken."""


class RolloutCollector:
    """Steps one vector environment on and on; a rollout begins where the last one ended.

    Where the environment's halves can be stepped apart, workers step one while the policy acts on the other
    (`double_buffer`). Noise is drawn for all at once, so an environment is given the same either way.
    """

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
        double_buffer: bool | Literal["auto"] = "auto",
        stop_requested: Callable[[], bool] = lambda: False,
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
        self.halves = self._choose_halves(double_buffer)
        """Environments acted on by turns; empty when all are at once."""
        environment.by_turns = bool(self.halves)
        self._chosen_here = double_buffer == "auto"
        self.started = False
        self.transitions = 0
        """Steps that environments really took in the newest collection, rows that were given up included."""
        self._acted_on: np.ndarray | None = None
        self._stop_requested = stop_requested
        self._open: OpenRollout | None = None

    def _choose_halves(self, double_buffer: bool | Literal["auto"]) -> tuple[slice, ...]:
        halves: tuple[slice, ...] = getattr(self.environment, "halves", ())
        if double_buffer is True and not halves:
            raise ConfigError(
                "double_buffer: true needs environments in workers (vectorization_mode: async), with an even number of "
                "environments and of workers (n_envs, env_workers). Use auto, or change these."
            )
        if double_buffer == "auto" and halves and self.environment.pace is not None:
            num_envs, workers = self.environment.num_envs, self.environment.num_workers
            times = self.policy_seconds(num_envs, num_envs // 2)
            return halves if halves_pay(self.environment.pace, num_envs, workers, cores(), *times) else ()
        return halves if double_buffer is True else ()

    def policy_seconds(self, *counts: int) -> list[float]:
        """What the policy takes for so many environments, when nothing holds it up."""
        act = self.policy if self.policy.collects_values else self.policy.actor
        rows = [np.zeros_like(self.storage.observations[0, :1]).repeat(count, axis=0) for count in counts]
        return seconds_by_turns([partial(act, x) for x in rows], POLICY_CALLS, POLICY_SECONDS)

    def collect(
        self, length: int, *, finish: bool = False, limit: int | None = None
    ) -> tuple[Rollout, list[Episode]] | None:
        """`length` steps in each environment, and the episodes that ended meanwhile; the next call writes over them.

        None when a stop was requested before the end: what there is so far is part of the state, and the next call goes on.

        With `finish` the rollout holds whole episodes: all environments begin anew, and one that is in the middle of an
        episode after `length` steps plays it to its end, of at most `limit` steps in all. Rows of episodes that begin
        later, or have no end by then, are not valid.
        """
        rollout = self._open or self._begin(length, anew=finish)
        if self.halves and not finish:
            return self._collect_halves(rollout, length)
        (whole,) = self._parts(slice(None))
        storage, playing = self.storage, rollout.playing
        for t in range(rollout.t, (limit or sys.maxsize) if finish else length):
            if self._stop_requested():
                self._suspend(rollout, t, whole.acted_on)
                return None
            if t == storage.steps:
                storage.grow()
            try:
                step = self.environment.step(self._act(rollout, t, t, whole))
            except NonFiniteError as error:
                raise _with_cause(error, whole) from None
            self._take(rollout, t, t, whole, step)
            if finish:
                storage.valid[t] &= playing
                if t >= length - 1:
                    playing &= storage.valid[t] & ~step.ended
                    if not playing.any():
                        break
        self._open, self._acted_on = None, whole.acted_on
        return self._close(rollout, t + 1, whole.observation, whole_episodes=finish), rollout.episodes

    def _collect_halves(self, rollout: OpenRollout, length: int) -> tuple[Rollout, list[Episode]] | None:
        """Both halves by turns: each acts as soon as its step is back, while the other is on its way.

        half 0:  act t | workers step t        | act t+1 | workers step t+1
        half 1:          act t | workers step t          | act t+1 | ...
        """
        environment, first = self.environment, rollout.t
        parts = self._parts(*self.halves)
        for t in range(first, length + 1):
            stopping = t < length and self._stop_requested()
            for half, part in enumerate(parts):
                if t > first:
                    try:
                        step = environment.step_wait(half)
                    except NonFiniteError as error:
                        raise _with_cause(error, part) from None
                    self._take(rollout, t - 1, (t - 1, part.rows), part, step)
                if t < length and not stopping:
                    environment.step_async(self._act(rollout, t, (t, part.rows), part), half)
            if stopping:
                self._suspend(rollout, t, None)
                return None
        self._open = self._acted_on = None
        return self._close(rollout, length, environment.observation, whole_episodes=False), rollout.episodes

    def _parts(self, *rows: slice) -> list[Part]:
        observation, mask = self.environment.observation, self.environment.action_mask
        return [Part(part, observation[part], None if mask is None else mask[part], self._acted_on) for part in rows]

    def _suspend(self, rollout: OpenRollout, t: int, acted_on: np.ndarray | None) -> None:
        """Keep a rollout of `t` rows open for the next call."""
        rollout.t, self._open, self._acted_on = t, rollout, acted_on

    def _act(self, rollout: OpenRollout, t: int, row: Any, part: Part) -> np.ndarray:
        """Actions of a part, as the environment takes them. `row` is where the part is written in storage."""
        distribution, storage, policy = self.distribution, self.storage, self.policy
        storage.observations[row] = x = self.encoder.encode(part.observation, update=True, valid=part.acted_on)
        if policy.collects_values:
            parameters, storage.values[row] = policy(x)
        else:
            parameters = policy.actor(x)
        if part.action_mask is not None:
            rollout.has_masks = True
            storage.masks(self.environment.num_envs, part.action_mask.shape[1])[row] = part.action_mask
            parameters = distribution.mask(parameters, part.action_mask)
        storage.parameters[row] = parameters
        # Whole episodes may go on behind the noise that was drawn ahead.
        noise = (
            rollout.noise[row]
            if t < len(rollout.noise)
            else distribution.noise(self.generator, (self.environment.num_envs,))
        )
        storage.actions[row] = part.actions = distribution.sample(parameters, noise)
        return distribution.to_environment(part.actions)

    def _take(self, rollout: OpenRollout, t: int, row: Any, part: Part, step: Step) -> None:
        """Write what a part's step brought."""
        storage, num_envs = self.storage, self.environment.num_envs
        storage.rewards[row] = step.reward
        storage.terminated[row] = step.terminated
        storage.truncated[row] = step.truncated
        storage.valid[row] = True if step.valid is None else step.valid
        if step.valid is not None:
            rollout.has_dead_rows = True
            rollout.dead_rows += num_envs - int(np.count_nonzero(step.valid))
        if step.final_observation is not None and step.truncated.any():
            ended = np.flatnonzero(step.truncated)
            rollout.cut_rows.append(t * num_envs + (part.rows.start or 0) + ended)
            rollout.cut_observations.append(self.encoder.encode(step.final_observation[ended], update=False))
        if step.episodes:
            rollout.episodes += [episode for episode in step.episodes if rollout.playing[episode.env_index]]
        part.observation, part.action_mask = step.observation, step.action_mask
        # With next-step autoreset the row after an ending is dead: its observation is the old episode's last.
        part.acted_on = None if step.valid is None else ~step.ended

    def _begin(self, length: int, *, anew: bool) -> OpenRollout:
        """An empty rollout; with `anew` in fresh episodes."""
        environment = self.environment
        if anew or not self.started:
            environment.reset()
            self.started = True
            self._acted_on = None
        noise = self.distribution.noise(self.generator, (length, environment.num_envs))
        return OpenRollout(noise, playing=np.ones(environment.num_envs, np.bool_))

    def _close(self, rollout: OpenRollout, length: int, observation: np.ndarray, *, whole_episodes: bool) -> Rollout:
        """What needs no step of the environment, for all rows at once: values, log-probs, normalised rewards."""
        storage, policy, num_envs = self.storage, self.policy, self.environment.num_envs
        self.transitions = length * num_envs - rollout.dead_rows
        if whole_episodes:
            rollout.has_dead_rows = True
            endings = storage.terminated[:length] | storage.truncated[:length]
            # A row belongs to a whole episode when an ending comes at it or after it.
            storage.valid[:length] &= np.logical_or.accumulate(endings[::-1])[::-1]
        # Behind the last row of an unfinished episode stands the observation that the next rollout begins with.
        unfinished = np.flatnonzero(~storage.truncated[length - 1])
        cut_rows = np.concatenate([*rollout.cut_rows, (length - 1) * num_envs + unfinished])
        last = self.encoder.encode(observation, update=False)[unfinished]
        cut_observations = np.concatenate([*rollout.cut_observations, last])
        masks = storage.action_masks[:length] if rollout.has_masks and storage.action_masks is not None else None
        shape = (length, num_envs)
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
            valid=storage.valid[:length] if rollout.has_dead_rows else None,
            action_masks=masks,
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
            "by_turns": bool(self.halves),
            "reward_normalizer": None if normalizer is None else normalizer.get_state(),
            "open": None if self._open is None else self._open_state(self._open),
        }

    def _open_state(self, rollout: OpenRollout) -> dict[str, Any]:
        state = {item.name: getattr(rollout, item.name) for item in fields(rollout)}
        rows = {name: array[: rollout.t] for name, array in vars(self.storage).items() if array is not None}
        return {**state, "episodes": [list(episode) for episode in rollout.episodes], "rows": rows}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take back what `get_state` gave."""
        self.started = state["started"]
        self._acted_on = state["acted_on"]
        if self._chosen_here and "by_turns" in state:
            # Times differ from sitting to sitting, and a run goes on as it began.
            self.halves = self.environment.halves if state["by_turns"] else ()
            self.environment.by_turns = bool(self.halves)
        if self.reward_normalizer is not None and state["reward_normalizer"] is not None:
            self.reward_normalizer.set_state(state["reward_normalizer"])
        saved = state.get("open")
        if saved is not None:
            rows = saved.pop("rows")
            self._open = OpenRollout(**{**saved, "episodes": [Episode(*episode) for episode in saved["episodes"]]})
            while self.storage.steps < self._open.t:
                self.storage.grow()
            for name, array in rows.items() if self._open.t else ():
                memory = self.storage.masks(*array.shape[1:]) if name == "action_masks" else getattr(self.storage, name)
                memory[: self._open.t] = array


def _with_cause(error: NonFiniteError, part: Part) -> NonFiniteError:
    error.data |= {"acted_on": part.observation, "actions": part.actions}
    return error
