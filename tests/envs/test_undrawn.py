"""CarRacing repeated at once is CarRacing repeated step by step."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from gymlab.envs.undrawn import UndrawnCarRacing

pytest.importorskip("Box2D")
ACTIONS = np.array([[0.0, 0.5, 0.0], [-0.8, 0.3, 0.0], [0.4, 0.0, 0.6]], np.float32)


def test_pictures_and_rewards_are_those_of_single_steps() -> None:
    quick, plain = UndrawnCarRacing(gym.make("CarRacing-v3", disable_env_checker=True)), gym.make("CarRacing-v3")
    quick.reset(seed=3)
    plain.reset(seed=3)
    for action in ACTIONS:
        seen, total, *_, taken = quick.repeat(action, 4)
        singles = [plain.step(action) for _ in range(4)]
        assert taken == 4
        np.testing.assert_array_equal(seen, singles[-1][0])
        assert total == pytest.approx(sum(step[1] for step in singles))


def test_an_end_is_seen_and_counted() -> None:
    quick = UndrawnCarRacing(gym.make("CarRacing-v3", disable_env_checker=True))
    first, _ = quick.reset(seed=3)
    race = quick.unwrapped
    race.car.hull.position = (400.0, 0.0)  # beyond the playing field
    seen, total, terminated, _, _, taken = quick.repeat(ACTIONS[0], 4)
    assert (terminated, taken, total) == (True, 1, -100)
    assert not np.array_equal(seen, first)
    assert "_render" not in vars(race)
