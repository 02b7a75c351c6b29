"""Native CartPole: Gymnasium's dynamics, operation for operation, for all copies at once."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from gymlab.envs.native import GymnasiumNative, constant, register_native
from gymlab.envs.vector import EnvironmentSpec, Seeds
from gymlab.errors import EnvironmentFailure

POSITION_LIMIT = 2.4
ANGLE_LIMIT = 12 * 2 * math.pi / 360
GRAVITY, POLE_MASS, TOTAL_MASS, HALF_LENGTH = constant(9.8), constant(0.1), constant(0.1 + 1.0), constant(0.5)
POLE_MASS_LENGTH, FOUR_THIRDS, TIME_STEP = constant(0.1 * 0.5), constant(4.0 / 3.0), constant(0.02)


@register_native("CartPole-v0", "CartPole-v1")
class CartPoleVector(GymnasiumNative):
    """CartPole in float64 with float32 observations, as Gymnasium's own; `sutton_barto_reward` gives 0 and -1."""

    options: ClassVar[frozenset[str]] = frozenset({"sutton_barto_reward"})

    def __init__(
        self,
        spec: EnvironmentSpec,
        num_envs: int,
        seeds: Seeds,
        purpose: str,
        *,
        sutton_barto_reward: bool = False,
        **arguments: Any,
    ) -> None:
        super().__init__(spec, num_envs, seeds, purpose, sutton_barto_reward=sutton_barto_reward, **arguments)
        self._sutton_barto_reward = sutton_barto_reward
        self._force_of = np.array([-10.0, 10.0])
        # [0 position, 1 velocity][0 cart, 1 pole][N]: one product with the time step moves everything.
        self._state = np.zeros((2, 2, num_envs))
        self._change = np.zeros((2, 2, num_envs))
        self._limits = np.array([[POSITION_LIMIT], [ANGLE_LIMIT]])
        self._distance = np.zeros((2, num_envs))
        self._outside = np.zeros((2, num_envs), dtype=np.bool_)
        self._rows = (*np.zeros((5, num_envs)), self._state[0, 1], self._state[1, 1], *self._change[1])
        self._parts = (self._change[0], self._state[1], self._state[0], self._distance, *self._outside)
        self._views = [slot.observation.reshape(-1, 2, 2).T for slot in self._slots]

    def _arrays(self) -> dict[str, np.ndarray]:
        return {"state": self._state}

    def _begin(self, indices: np.ndarray) -> None:
        drawn = self._generator.random((len(indices), 4))
        np.subtract(drawn, 0.5, out=drawn)
        np.multiply(drawn, 0.1, out=drawn)
        self._state[:, :, indices] = drawn.reshape(-1, 2, 2).T

    def _advance(self, actions: np.ndarray, reward: np.ndarray, terminated: np.ndarray) -> dict[str, Any]:
        try:
            force = self._force_of[actions]
        except IndexError as error:
            raise EnvironmentFailure(f"{self.spec.id} takes actions 0 and 1, not {actions!r}.") from error
        state, change = self._state, self._change
        cosine, sine, temporary, numerator, denominator, angle, angular_velocity, *accelerations = self._rows
        cart_acceleration, angular_acceleration = accelerations
        np.cos(angle, out=cosine)
        np.sin(angle, out=sine)
        # temporary = (force + pole_mass_length * angular_velocity^2 * sin) / total_mass
        np.multiply(angular_velocity, angular_velocity, out=temporary)
        np.multiply(temporary, POLE_MASS_LENGTH, out=temporary)
        np.multiply(temporary, sine, out=temporary)
        np.add(temporary, force, out=temporary)
        np.divide(temporary, TOTAL_MASS, out=temporary)
        # angular_acceleration = (g sin - cos temporary) / (half_length (4/3 - pole_mass cos^2 / total_mass))
        np.multiply(cosine, cosine, out=denominator)
        np.multiply(denominator, POLE_MASS, out=denominator)
        np.divide(denominator, TOTAL_MASS, out=denominator)
        np.subtract(FOUR_THIRDS, denominator, out=denominator)
        np.multiply(denominator, HALF_LENGTH, out=denominator)
        np.multiply(sine, GRAVITY, out=numerator)
        np.multiply(cosine, temporary, out=sine)
        np.subtract(numerator, sine, out=numerator)
        np.divide(numerator, denominator, out=angular_acceleration)
        # cart_acceleration = temporary - pole_mass_length * angular_acceleration * cos / total_mass
        np.multiply(angular_acceleration, POLE_MASS_LENGTH, out=numerator)
        np.multiply(numerator, cosine, out=numerator)
        np.divide(numerator, TOTAL_MASS, out=numerator)
        np.subtract(temporary, numerator, out=cart_acceleration)
        # Explicit Euler: positions move by the velocities before the step.
        position_change, velocity, position, distance, cart_outside, pole_outside = self._parts
        position_change[...] = velocity
        np.multiply(change, TIME_STEP, out=change)
        np.add(state, change, out=state)

        np.absolute(position, out=distance)
        np.greater(distance, self._limits, out=self._outside)
        np.logical_or(cart_outside, pole_outside, out=terminated)
        if self._sutton_barto_reward:
            np.negative(terminated.view(np.int8), out=reward, casting="unsafe")
        else:
            reward.fill(1.0)
        return {}

    def _observe(self, turn: int) -> None:
        self._views[turn][...] = self._state

    def _pose(self, viewer: Any) -> None:
        # Gymnasium's order is cart position, cart velocity, pole angle, pole velocity.
        viewer.state = self._state[:, :, 0].T.ravel()
