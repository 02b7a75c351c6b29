"""Fills sequence replay: an agent with a memory acts in a vector environment, and every observation becomes a record.

    record of x[t]:  x[t], action chosen at x[t], reward and endings of arriving at x[t], latents with which it was chosen

An episode of n actions is n + 1 records: its true last observation is one, with no action. The first observation of the next
episode follows it in the same stream.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gymlab.buffers.sequence import Field, Records
from gymlab.envs.step import Episode, Step

Act = Callable[[Mapping[str, np.ndarray], np.ndarray, np.ndarray | None], tuple[np.ndarray, dict[str, np.ndarray]]]
"""Observations [N, ...] by key, which of them begin an episode, and the action mask -> action vectors [N, A] and latents to store."""


def record_fields(observations: Mapping[str, tuple[int, ...]], action_size: int) -> dict[str, Field]:
    """What replay stores of each record, beside latents: vectors in float32, images in bytes."""
    fields = {
        f"observation/{key}": Field(shape, np.dtype(np.uint8 if len(shape) == 3 else np.float32))
        for key, shape in observations.items()
    }
    fields |= {"action": Field((action_size,), np.dtype(np.float32)), "reward": Field((), np.dtype(np.float32))}
    return fields | {name: Field((), np.dtype(np.bool_)) for name in ("is_first", "is_last", "is_terminal")}


class SequenceCollector:
    """Steps one vector environment on and on."""

    def __init__(
        self,
        environment: Any,
        split: Callable[[np.ndarray], dict[str, np.ndarray]],
        to_environment: Callable[[np.ndarray], np.ndarray],
        action_size: int,
        latents: Mapping[str, tuple[tuple[int, ...], Any]],
    ) -> None:
        self.environment = environment
        self.split = split
        self.to_environment = to_environment
        self.action_size = action_size
        self.latents = latents
        count = environment.num_envs
        self.started = False
        self.reward = np.zeros(count, np.float32)
        """Reward of arriving at the newest observations."""
        self.is_first = np.ones(count, np.bool_)
        self.dead = np.zeros(count, np.bool_)
        """Environments whose next step only resets them: what they show now was recorded as an episode's last."""
        self.seconds = {"env": 0.0, "act": 0.0}
        """Time spent since the run began, by what it was spent on."""

    def restart(self) -> None:
        """Begin with new episodes: others have stepped the environment since."""
        self.started = False
        self.reward, self.dead = np.zeros_like(self.reward), np.zeros_like(self.dead)
        self.is_first = np.ones_like(self.is_first)

    def collect(self, act: Act, steps: int) -> tuple[list[Records], list[Episode], int]:
        """`steps` in each environment: records, episodes that ended, and transitions that were real."""
        environment = self.environment
        if not self.started:
            environment.reset()
            self.started = True
        records: list[Records] = []
        episodes: list[Episode] = []
        transitions = 0
        for _ in range(steps):
            began = time.perf_counter()
            parts = self.split(environment.observation)
            actions, latents = act(parts, self.is_first, environment.action_mask)
            records.append(self._records(parts, actions, latents))
            acted = time.perf_counter()
            step = environment.step(self.to_environment(actions))
            transitions += environment.num_envs if step.valid is None else int(np.count_nonzero(step.valid))
            episodes += step.episodes
            last = self._last_records(step)
            if last is not None:
                records.append(last)
            self._move_on(step)
            self.seconds["act"] += acted - began
            self.seconds["env"] += time.perf_counter() - acted
        return records, episodes, transitions

    def _records(
        self, parts: Mapping[str, np.ndarray], actions: np.ndarray, latents: Mapping[str, np.ndarray]
    ) -> Records:
        """What is acted on now; environments that are only being reset are left out."""
        rows = np.flatnonzero(~self.dead)
        false = np.zeros(len(rows), np.bool_)
        values = {f"observation/{key}": part[rows] for key, part in parts.items()}
        values |= {"action": actions[rows], "reward": self.reward[rows]}
        values |= {"is_first": self.is_first[rows], "is_last": false, "is_terminal": false}
        values |= {name: latent[rows] for name, latent in latents.items()}
        return Records(rows, values)

    def _last_records(self, step: Step) -> Records | None:
        """The true last observations of episodes that ended in this step; a state after them is never asked for."""
        rows = np.flatnonzero(step.ended)
        if not len(rows):
            return None
        source = step.observation if step.final_observation is None else step.final_observation
        count = len(rows)
        values = {f"observation/{key}": part for key, part in self.split(source[rows]).items()}
        values |= {"action": np.zeros((count, self.action_size), np.float32), "reward": step.reward[rows]}
        values |= {"is_first": np.zeros(count, np.bool_), "is_last": np.ones(count, np.bool_)}
        values["is_terminal"] = step.terminated[rows]
        for name, (shape, dtype) in self.latents.items():
            values[name] = np.zeros((count, *shape), dtype)
        return Records(rows, values)

    def _move_on(self, step: Step) -> None:
        self.is_first = step.is_first.copy()
        self.reward = np.where(step.ended | self.is_first, 0, step.reward).astype(np.float32)
        # With next-step autoreset the observation after an ending is the old episode's last: it is recorded already.
        self.dead = np.zeros_like(self.is_first) if step.valid is None else step.ended.copy()

    def time_shares(self, updating: float) -> dict[str, float]:
        """Shares of the time in the environment, in acting and, given its seconds, in updates."""
        spent = {**self.seconds, "update": updating}
        return {f"sys/time_share/{name}": seconds / sum(spent.values()) for name, seconds in spent.items()}

    def get_state(self) -> dict[str, Any]:
        """What a resumed run needs beside the environment itself."""
        return {"started": self.started, "reward": self.reward, "is_first": self.is_first, "dead": self.dead}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take back what `get_state` gave."""
        self.started = bool(state["started"])
        for name in ("reward", "is_first", "dead"):
            found, own = np.array(state[name]), getattr(self, name)
            if found.shape != own.shape or found.dtype != own.dtype:
                raise ValueError(f"{name} is {found.shape} {found.dtype}, not {own.shape} {own.dtype}")
            setattr(self, name, found)
