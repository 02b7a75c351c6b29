"""Native MountainCar and MountainCarContinuous: Gymnasium's dynamics, operation for operation, for all copies at once."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from gymlab.envs.native import ActionColumn, GymnasiumNative, constant, register_native
from gymlab.envs.vector import EnvironmentSpec, Seeds
from gymlab.errors import EnvironmentFailure

THREE = constant(3.0)
SLOPE, ACTION_COST, GOAL_REWARD = constant(0.0025), constant(0.1), constant(100.0)


class Hill(GymnasiumNative):
    """What both cars share: the valley with its wall on the left, the goal on the right, and where episodes begin."""

    options: ClassVar[frozenset[str]] = frozenset({"goal_velocity"})
    precision: ClassVar[type]
    """Type in which Gymnasium's own car keeps its state."""

    def __init__(
        self,
        spec: EnvironmentSpec,
        num_envs: int,
        seeds: Seeds,
        purpose: str,
        *,
        goal_velocity: float = 0.0,
        **arguments: Any,
    ) -> None:
        super().__init__(spec, num_envs, seeds, purpose, goal_velocity=goal_velocity, **arguments)
        model = self._model
        limits = (model.min_position, model.max_position, -model.max_speed, model.max_speed)
        self._limits = tuple(constant(limit, self.precision) for limit in limits)
        self._goal = (constant(model.goal_position, self.precision), constant(goal_velocity, self.precision))
        self._zero = constant(0.0, self.precision)
        # [0 position, 1 velocity][N]
        self._state: np.ndarray = np.zeros((2, num_envs), dtype=self.precision)
        self._flag = np.zeros(num_envs, dtype=np.bool_)
        self._views = [slot.observation.T for slot in self._slots]

    def _arrays(self) -> dict[str, np.ndarray]:
        return {"state": self._state}

    def _begin(self, indices: np.ndarray) -> None:
        drawn = self._generator.random(len(indices))
        np.multiply(drawn, 0.2, out=drawn)
        np.subtract(drawn, 0.6, out=drawn)
        self._state[0, indices] = drawn
        self._state[1, indices] = 0.0

    def _drive(self, change: np.ndarray, terminated: np.ndarray) -> None:
        """Add a change of velocity, move, and see who is at the goal."""
        position, velocity = self._state
        leftmost, rightmost, slowest, fastest = self._limits
        np.add(velocity, change, out=velocity)
        np.maximum(velocity, slowest, out=velocity)
        np.minimum(velocity, fastest, out=velocity)
        np.add(position, velocity, out=position)
        np.maximum(position, leftmost, out=position)
        np.minimum(position, rightmost, out=position)
        # The left wall swallows the velocity.
        np.equal(position, leftmost, out=self._flag)
        if 1 in self._flag.tobytes():
            np.maximum(velocity, self._zero, out=velocity, where=self._flag)
        goal_position, goal_velocity = self._goal
        np.greater_equal(position, goal_position, out=terminated)
        if 1 in terminated.tobytes():
            np.greater_equal(velocity, goal_velocity, out=self._flag)
            np.logical_and(terminated, self._flag, out=terminated)

    def _observe(self, turn: int) -> None:
        self._views[turn][...] = self._state

    def _pose(self, viewer: Any) -> None:
        viewer.state = self._state[:, 0].copy()


@register_native("MountainCar-v0")
class MountainCarVector(Hill):
    """MountainCar in float64 with float32 observations, as Gymnasium's own."""

    precision: ClassVar[type] = np.float64

    def __init__(self, spec: EnvironmentSpec, num_envs: int, seeds: Seeds, purpose: str, **arguments: Any) -> None:
        super().__init__(spec, num_envs, seeds, purpose, **arguments)
        self._push_of = np.array([(action - 1) * self._model.force for action in range(3)])
        self._downhill = constant(-self._model.gravity)
        self._change = np.zeros(num_envs)

    def _advance(self, actions: np.ndarray, reward: np.ndarray, terminated: np.ndarray) -> dict[str, Any]:
        try:
            push = self._push_of[actions]
        except IndexError as error:
            raise EnvironmentFailure(f"{self.spec.id} takes actions 0, 1 and 2, not {actions!r}.") from error
        change = self._change
        # change = push - gravity cos(3 position)
        np.multiply(self._state[0], THREE, out=change)
        np.cos(change, out=change)
        np.multiply(change, self._downhill, out=change)
        np.add(push, change, out=change)
        self._drive(change, terminated)
        reward.fill(-1.0)
        return {}


@register_native("MountainCarContinuous-v0")
class MountainCarContinuousVector(Hill):
    """MountainCarContinuous in float32, the type in which Gymnasium's own keeps its state between steps.

    Only the first step of an episode differs: there Gymnasium still has the drawn position in float64.
    """

    precision: ClassVar[type] = np.float32

    def __init__(self, spec: EnvironmentSpec, num_envs: int, seeds: Seeds, purpose: str, **arguments: Any) -> None:
        super().__init__(spec, num_envs, seeds, purpose, **arguments)
        model = self._model
        self._bounds = (constant(model.min_action, np.float32), constant(model.max_action, np.float32))
        self._power = constant(model.power, np.float32)
        self._three = constant(3.0, np.float32)
        self._column = ActionColumn(spec.id, num_envs)
        self._force, self._pull = np.zeros((2, num_envs), dtype=np.float32)
        self._cosine, self._cost = np.zeros((2, num_envs))

    def _advance(self, actions: np.ndarray, reward: np.ndarray, terminated: np.ndarray) -> dict[str, Any]:
        action = self._column.take(actions)
        force, pull, cosine, cost = self._force, self._pull, self._cosine, self._cost
        least, most = self._bounds
        np.maximum(action, least, out=force)
        np.minimum(force, most, out=force)
        np.multiply(force, self._power, out=force)
        # Gymnasium takes the cosine of a float32 in double, and rounds the product with the slope.
        np.multiply(self._state[0], self._three, out=pull)
        cosine[...] = pull
        np.cos(cosine, out=cosine)
        np.multiply(cosine, SLOPE, out=cosine)
        pull[...] = cosine
        np.subtract(force, pull, out=force)
        self._drive(force, terminated)
        # reward = 100 at the goal - 0.1 action^2, of the action as it was given
        cost[...] = action
        np.multiply(cost, cost, out=cost)
        np.multiply(cost, ACTION_COST, out=cost)
        np.multiply(terminated, GOAL_REWARD, out=cosine)
        np.subtract(cosine, cost, out=reward, casting="same_kind")
        return {}
