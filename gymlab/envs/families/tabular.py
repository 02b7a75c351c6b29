"""Native FrozenLake, Taxi and CliffWalking: all copies step by one look into Gymnasium's own transition table."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from gymlab.envs.native import GymnasiumNative, register_native
from gymlab.envs.vector import EnvironmentSpec, Seeds
from gymlab.errors import EnvironmentFailure

Outcomes = list[tuple[float, int, float, bool]]
NEVER = 2.0
"""A bound that no draw from [0, 1) reaches."""


class TransitionTable:
    """Gymnasium's `P[state][action]`, a list of (probability, next state, reward, terminated), as flat arrays.

    The outcomes of a pair of state and action stand at `(state * actions + action) * width` and after; the pair with
    the most outcomes gives the width.
    """

    def __init__(self, transitions: dict[int, dict[int, Outcomes]]) -> None:
        pairs = [outcomes for by_action in transitions.values() for outcomes in by_action.values()]
        lengths = np.array([len(outcomes) for outcomes in pairs])
        self.actions = len(transitions[0])
        self.width = int(lengths.max())
        nothing = (0.0, 0, 0.0, False)
        padded = [outcome for outcomes in pairs for outcome in [*outcomes, *[nothing] * (self.width - len(outcomes))]]
        probability, next_state, reward, terminated = zip(*padded, strict=True)
        self.probability = np.array(probability, dtype=np.float64)
        self.next_state = np.array(next_state, dtype=np.intp)
        self.reward = np.array(reward, dtype=np.float32)
        self.terminated = np.array(terminated, dtype=np.bool_)
        self.bounds = self.probability.reshape(-1, self.width).cumsum(axis=1).T[:-1].copy()
        """[width - 1, pairs]: a draw at or above bound k is past outcome k. The last outcome takes what is left."""
        self.bounds[np.arange(self.width - 1)[:, None] >= lengths - 1] = NEVER


class TabularVector(GymnasiumNative):
    """An environment that is nothing but a transition table and a distribution of first states."""

    def __init__(self, spec: EnvironmentSpec, num_envs: int, seeds: Seeds, purpose: str, **arguments: Any) -> None:
        super().__init__(spec, num_envs, seeds, purpose, **arguments)
        self._table = TransitionTable(self._model.P)
        self._row_of = np.arange(self._table.actions) * self._table.width
        self._stride = np.array(self._table.actions * self._table.width)
        self._starts = np.flatnonzero(self._model.initial_state_distrib)
        self._start_bounds = self._model.initial_state_distrib[self._starts].cumsum()[:-1]
        self._masks: np.ndarray | None = None
        """[states, actions] allowed actions, where the environment gives them."""
        self._state, self._action, self._entry, self._pair = np.zeros((4, num_envs), dtype=np.intp)
        self._draw, self._bound = np.zeros((2, num_envs))
        self._past = np.zeros(num_envs, dtype=np.bool_)

    def _arrays(self) -> dict[str, np.ndarray]:
        return {"state": self._state, "action": self._action}

    def _begin(self, indices: np.ndarray) -> None:
        if len(self._starts) == 1:
            self._state[indices] = self._starts[0]
        else:
            drawn = self._generator.random(len(indices))
            self._state[indices] = self._starts[self._start_bounds.searchsorted(drawn, side="right")]

    def _advance(self, actions: np.ndarray, reward: np.ndarray, terminated: np.ndarray) -> dict[str, Any]:
        try:
            offset = self._row_of[actions]
        except IndexError as error:
            last = self._table.actions - 1
            raise EnvironmentFailure(f"{self.spec.id} takes actions 0 to {last}, not {actions!r}.") from error
        table, entry = self._table, self._entry
        self._action[...] = actions
        np.multiply(self._state, self._stride, out=entry)
        np.add(entry, offset, out=entry)
        if table.width > 1:
            self._choose(entry)
        # Every entry is inside, and "clip" writes without a copy.
        table.next_state.take(entry, out=self._state, mode="clip")
        table.reward.take(entry, out=reward, mode="clip")
        table.terminated.take(entry, out=terminated, mode="clip")
        return {"prob": table.probability.take(entry)}

    def _choose(self, entry: np.ndarray) -> None:
        """Move each entry on to the outcome that a draw falls on."""
        np.floor_divide(entry, self._table.width, out=self._pair)
        self._generator.random(out=self._draw)
        for bounds in self._table.bounds:
            bounds.take(self._pair, out=self._bound, mode="clip")
            np.greater_equal(self._draw, self._bound, out=self._past)
            np.add(entry, self._past, out=entry)

    def _observe(self, turn: int) -> None:
        self._slots[turn].observation[...] = self._state
        if self._masks is not None:
            self.action_mask = self._masks.take(self._state, axis=0)

    def _pose(self, viewer: Any) -> None:
        viewer.s = int(self._state[0])
        viewer.lastaction = None if self._fresh(0) else int(self._action[0])


@register_native("FrozenLake-v1", "FrozenLake8x8-v1")
class FrozenLakeVector(TabularVector):
    """FrozenLake on one map for all copies."""

    options: ClassVar[frozenset[str]] = frozenset(
        {"desc", "map_name", "is_slippery", "success_rate", "reward_schedule"}
    )

    @classmethod
    def obstacle(cls, env_kwargs: dict[str, Any]) -> str:
        """Maps drawn at random are one for each sub-environment."""
        if env_kwargs.get("map_name", "4x4") is None and env_kwargs.get("desc") is None:
            return "without map_name and desc each environment draws a map of its own."
        return super().obstacle(env_kwargs)


@register_native("CliffWalking-v1", "CliffWalkingSlippery-v1")
class CliffWalkingVector(TabularVector):
    """CliffWalking, slippery or not."""

    options: ClassVar[frozenset[str]] = frozenset({"is_slippery"})


@register_native("Taxi-v4")
class TaxiVector(TabularVector):
    """Taxi, dry or rainy, with masks. A fickle passenger is not in the table, so that needs sub-environments."""

    options: ClassVar[frozenset[str]] = frozenset({"is_rainy", "rainy_probability"})

    def __init__(self, spec: EnvironmentSpec, num_envs: int, seeds: Seeds, purpose: str, **arguments: Any) -> None:
        super().__init__(spec, num_envs, seeds, purpose, **arguments)
        states = range(len(self._model.P))
        self._masks = np.array([self._model.action_mask(state) for state in states], dtype=np.bool_)

    def _pose(self, viewer: Any) -> None:
        super()._pose(viewer)
        if self._fresh(0):
            viewer.taxi_orientation = 0
