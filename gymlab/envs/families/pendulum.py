"""Native Pendulum: Gymnasium's dynamics, operation for operation, for all copies at once."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from gymlab.envs.native import ActionColumn, GymnasiumNative, constant, register_native
from gymlab.envs.vector import EnvironmentSpec, Seeds

PI, TWO_PI = constant(math.pi), constant(2 * math.pi)
SPEED_COST, TORQUE_COST = constant(0.1), constant(0.001, np.float32)


@register_native("Pendulum-v1")
class PendulumVector(GymnasiumNative):
    """Pendulum in float64 with float32 observations and torques, as Gymnasium's own; it never terminates."""

    options: ClassVar[frozenset[str]] = frozenset({"g"})

    def __init__(self, spec: EnvironmentSpec, num_envs: int, seeds: Seeds, purpose: str, **arguments: Any) -> None:
        super().__init__(spec, num_envs, seeds, purpose, **arguments)
        model = self._model
        self._bounds = (constant(-model.max_torque, np.float32), constant(model.max_torque, np.float32))
        self._speeds = (constant(-model.max_speed), constant(model.max_speed))
        self._gravity = constant(3 * model.g / (2 * model.l))
        self._leverage = constant(3.0 / (model.m * model.l**2), np.float32)
        self._time_step = constant(model.dt)
        self._column = ActionColumn(spec.id, num_envs)
        # [0 angle, 1 angular velocity][N]
        self._state = np.zeros((2, num_envs))
        self._torque, self._part = np.zeros((2, num_envs), dtype=np.float32)
        self._cost, self._sum = np.zeros((2, num_envs))
        self._views = [slot.observation.T for slot in self._slots]

    def _arrays(self) -> dict[str, np.ndarray]:
        return {"state": self._state, "torque": self._torque}

    def _begin(self, indices: np.ndarray) -> None:
        drawn = self._generator.random((len(indices), 2))
        np.multiply(drawn, 2.0, out=drawn)
        np.subtract(drawn, 1.0, out=drawn)
        self._state[0, indices] = drawn[:, 0] * math.pi
        self._state[1, indices] = drawn[:, 1]

    def _advance(self, actions: np.ndarray, reward: np.ndarray, terminated: np.ndarray) -> dict[str, Any]:
        angle, velocity = self._state
        torque, part, cost, total = self._torque, self._part, self._cost, self._sum
        least, most = self._bounds
        np.maximum(self._column.take(actions), least, out=torque)
        np.minimum(torque, most, out=torque)
        # cost = normalised angle^2 + 0.1 velocity^2 + 0.001 torque^2, the last term in float32
        np.add(angle, PI, out=cost)
        np.remainder(cost, TWO_PI, out=cost)
        np.subtract(cost, PI, out=cost)
        np.multiply(cost, cost, out=cost)
        np.multiply(velocity, velocity, out=total)
        np.multiply(total, SPEED_COST, out=total)
        np.add(cost, total, out=cost)
        np.multiply(torque, torque, out=part)
        np.multiply(part, TORQUE_COST, out=part)
        np.add(cost, part, out=cost)
        np.negative(cost, out=reward, casting="same_kind")
        # velocity += (3 g / (2 l) sin(angle) + 3 / (m l^2) torque) dt
        np.sin(angle, out=total)
        np.multiply(total, self._gravity, out=total)
        np.multiply(torque, self._leverage, out=part)
        np.add(total, part, out=total)
        np.multiply(total, self._time_step, out=total)
        np.add(velocity, total, out=velocity)
        slowest, fastest = self._speeds
        np.maximum(velocity, slowest, out=velocity)
        np.minimum(velocity, fastest, out=velocity)
        np.multiply(velocity, self._time_step, out=total)
        np.add(angle, total, out=angle)
        terminated.fill(False)
        return {}

    def _observe(self, turn: int) -> None:
        angle, velocity = self._state
        cosine, sine, speed = self._views[turn]
        np.cos(angle, out=self._cost)
        np.sin(angle, out=self._sum)
        cosine[...] = self._cost
        sine[...] = self._sum
        speed[...] = velocity

    def _pose(self, viewer: Any) -> None:
        viewer.state = self._state[:, 0].copy()
        viewer.last_u = None if self._fresh(0) else self._torque[0]
