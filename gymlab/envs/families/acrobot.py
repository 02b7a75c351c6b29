"""Native Acrobot: Gymnasium's equations and its Runge-Kutta step, operation for operation, for all copies at once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gymlab.envs.native import GymnasiumNative, constant, register_native
from gymlab.envs.vector import EnvironmentSpec, Seeds
from gymlab.errors import EnvironmentFailure

PI, MINUS_PI, TWO_PI, HALF_PI = (constant(factor * math.pi) for factor in (1.0, -1.0, 2.0, 0.5))
HALF, MINUS_HALF, ONE, TWO = constant(0.5), constant(-0.5), constant(1.0), constant(2.0)
# Masses and lengths are 1, centres of mass at 0.5, moments of inertia 1: what Gymnasium's products of them come to.
INERTIA_1, INERTIA_2, DENOMINATOR = constant(1.25), constant(0.25), constant(1.25)
GRAVITY_1, GRAVITY_2 = constant(1.5 * 9.8), constant(0.5 * 9.8)


@register_native("Acrobot-v1")
class AcrobotVector(GymnasiumNative):
    """Acrobot by the book's equations in float64 with float32 observations, as Gymnasium's own."""

    def __init__(self, spec: EnvironmentSpec, num_envs: int, seeds: Seeds, purpose: str, **arguments: Any) -> None:
        super().__init__(spec, num_envs, seeds, purpose, **arguments)
        model = self._model
        self._torque_of = np.array(model.AVAIL_TORQUE, dtype=np.float64)
        fastest = np.array([[model.MAX_VEL_1], [model.MAX_VEL_2]])
        self._speeds = (-fastest, fastest)
        self._time_step, self._half_step = constant(model.dt), constant(model.dt / 2.0)
        self._sixth = constant(model.dt / 6.0)
        # [0 angle of link 1, 1 angle of link 2 to link 1, 2 and 3 their velocities][N]
        self._state, self._point, self._slope, self._sum = np.zeros((4, 4, num_envs))
        # Angles whose cosines a slope needs: link 2, link 1 - pi/2, link 1 + link 2 - pi/2.
        self._angles, self._cosines = np.zeros((2, 3, num_envs))
        self._rows = np.zeros((7, num_envs))
        self._trigonometry = np.zeros((2, 2, num_envs))
        self._beyond = np.zeros((2, num_envs), dtype=np.bool_)
        self._views = [(slot.observation.T[:4].reshape(2, 2, -1), slot.observation.T[4:]) for slot in self._slots]

    def _arrays(self) -> dict[str, np.ndarray]:
        return {"state": self._state}

    def _begin(self, indices: np.ndarray) -> None:
        drawn = self._generator.random((4, len(indices)))
        np.multiply(drawn, 0.2, out=drawn)
        np.subtract(drawn, 0.1, out=drawn)
        # Gymnasium's own begins at values of float32.
        self._state[:, indices] = drawn.astype(np.float32)

    def _advance(self, actions: np.ndarray, reward: np.ndarray, terminated: np.ndarray) -> dict[str, Any]:
        try:
            torque = self._torque_of[actions]
        except IndexError as error:
            raise EnvironmentFailure(f"{self.spec.id} takes actions 0, 1 and 2, not {actions!r}.") from error
        self._integrate(torque)
        angles, velocities = self._state[:2], self._state[2:]
        self._wrap(angles)
        slowest, fastest = self._speeds
        np.maximum(velocities, slowest, out=velocities)
        np.minimum(velocities, fastest, out=velocities)
        # The end is above the line when -cos(link 1) - cos(link 1 + link 2) > 1.
        height, second = self._rows[:2]
        np.cos(angles[0], out=height)
        np.negative(height, out=height)
        np.add(angles[1], angles[0], out=second)
        np.cos(second, out=second)
        np.subtract(height, second, out=height)
        np.greater(height, ONE, out=terminated)
        np.subtract(terminated, ONE, out=reward, casting="same_kind")
        return {}

    def _integrate(self, torque: np.ndarray) -> None:
        """state += dt / 6 (k1 + 2 k2 + 2 k3 + k4), Runge-Kutta of order 4."""
        state, point, slope, total = self._state, self._point, self._slope, self._sum
        self._differentiate(state, torque)
        total[...] = slope
        for reach, weight in ((self._half_step, TWO), (self._half_step, TWO), (self._time_step, None)):
            np.multiply(slope, reach, out=point)
            np.add(state, point, out=point)
            self._differentiate(point, torque)
            if weight is None:
                np.add(total, slope, out=total)
            else:
                np.multiply(slope, weight, out=point)
                np.add(total, point, out=total)
        np.multiply(total, self._sixth, out=total)
        np.add(state, total, out=state)

    def _differentiate(self, point: np.ndarray, torque: np.ndarray) -> None:
        """Write the derivative of all states at `point` to `self._slope`."""
        angle_1, angle_2, velocity_1, velocity_2 = point
        d1, d2, phi1, phi2, sine, temporary, ratio = self._rows
        acceleration_1, acceleration_2 = self._slope[2:]
        bend, lean, reach = self._angles
        bend[...] = angle_2
        np.subtract(angle_1, HALF_PI, out=lean)
        np.add(angle_1, angle_2, out=reach)
        np.subtract(reach, HALF_PI, out=reach)
        np.cos(self._angles, out=self._cosines)
        np.sin(angle_2, out=sine)
        cos_bend, cos_lean, cos_reach = self._cosines
        # d1 = 0.25 + (1.25 + cos) + 1 + 1, d2 = (0.25 + 0.5 cos) + 1
        np.add(cos_bend, INERTIA_1, out=d1)
        np.add(d1, INERTIA_2, out=d1)
        np.add(d1, ONE, out=d1)
        np.add(d1, ONE, out=d1)
        np.multiply(cos_bend, HALF, out=d2)
        np.add(d2, INERTIA_2, out=d2)
        np.add(d2, ONE, out=d2)
        # phi1 = -0.5 velocity_2^2 sin - velocity_2 velocity_1 sin + gravity_1 cos_lean + phi2
        np.multiply(cos_reach, GRAVITY_2, out=phi2)
        np.multiply(velocity_2, velocity_2, out=phi1)
        np.multiply(phi1, MINUS_HALF, out=phi1)
        np.multiply(phi1, sine, out=phi1)
        np.multiply(velocity_2, velocity_1, out=temporary)
        np.multiply(temporary, sine, out=temporary)
        np.subtract(phi1, temporary, out=phi1)
        np.multiply(cos_lean, GRAVITY_1, out=temporary)
        np.add(phi1, temporary, out=phi1)
        np.add(phi1, phi2, out=phi1)
        # acceleration_2 = (torque + d2 / d1 phi1 - 0.5 velocity_1^2 sin - phi2) / (1.25 - d2^2 / d1)
        np.divide(d2, d1, out=ratio)
        np.multiply(ratio, phi1, out=ratio)
        np.add(torque, ratio, out=ratio)
        np.multiply(velocity_1, velocity_1, out=temporary)
        np.multiply(temporary, HALF, out=temporary)
        np.multiply(temporary, sine, out=temporary)
        np.subtract(ratio, temporary, out=ratio)
        np.subtract(ratio, phi2, out=ratio)
        np.multiply(d2, d2, out=temporary)
        np.divide(temporary, d1, out=temporary)
        np.subtract(DENOMINATOR, temporary, out=temporary)
        np.divide(ratio, temporary, out=acceleration_2)
        # acceleration_1 = -(d2 acceleration_2 + phi1) / d1
        np.multiply(d2, acceleration_2, out=temporary)
        np.add(temporary, phi1, out=temporary)
        np.negative(temporary, out=temporary)
        np.divide(temporary, d1, out=acceleration_1)
        self._slope[:2] = point[2:]

    def _wrap(self, angles: np.ndarray) -> None:
        """Bring angles to -pi..pi; a fast link may need more than one turn."""
        beyond = self._beyond
        while 1 in np.greater(angles, PI, out=beyond).tobytes():
            np.subtract(angles, TWO_PI, out=angles, where=beyond)
        while 1 in np.less(angles, MINUS_PI, out=beyond).tobytes():
            np.add(angles, TWO_PI, out=angles, where=beyond)

    def _observe(self, turn: int) -> None:
        circle, speeds = self._views[turn]
        np.cos(self._state[:2], out=self._trigonometry[:, 0])
        np.sin(self._state[:2], out=self._trigonometry[:, 1])
        circle[...] = self._trigonometry
        speeds[...] = self._state[2:]

    def _pose(self, viewer: Any) -> None:
        viewer.state = self._state[:, 0].copy()
