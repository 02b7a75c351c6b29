"""CarRacing drawn by us is CarRacing, repeated at once or step by step."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from gymlab.envs.car_racing import QuickCarRacing

pytest.importorskip("Box2D")
ACTIONS = np.array([[0.0, 0.5, 0.0], [-0.8, 0.3, 0.0], [0.4, 0.0, 0.6]], np.float32)


def test_pictures_and_rewards_are_those_of_single_steps() -> None:
    quick, plain = QuickCarRacing(gym.make("CarRacing-v3", disable_env_checker=True)), gym.make("CarRacing-v3")
    quick.reset(seed=3)
    plain.reset(seed=3)
    for action in ACTIONS:
        seen, total, *_, taken = quick.repeat(action, 4)
        singles = [plain.step(action) for _ in range(4)]
        assert taken == 4
        np.testing.assert_array_equal(seen, singles[-1][0])
        assert total == pytest.approx(sum(step[1] for step in singles))


@pytest.mark.parametrize("kwargs", [{}, {"domain_randomize": True}], ids=["usual", "random colours"])
def test_pictures_are_equal_pixel_for_pixel(kwargs) -> None:
    quick = QuickCarRacing(gym.make("CarRacing-v3", disable_env_checker=True, **kwargs))
    plain = gym.make("CarRacing-v3", **kwargs)
    for seed in (0, 1):
        np.testing.assert_array_equal(quick.reset(seed=seed)[0], plain.reset(seed=seed)[0])
        # The first second draws near; then over visited tiles, into a curve and onto the grass.
        for step in range(90):
            action = np.array([0.5 * np.sin(step / 9), 0.4, 0.0], np.float32)
            ours, theirs = quick.step(action), plain.step(action)
            np.testing.assert_array_equal(ours[0], theirs[0])
            assert ours[1:4] == theirs[1:4]


@pytest.mark.parametrize("place", [(-325.0, 10.0), (0.0, 331.0), (300.0, -300.0)])
def test_beyond_the_field_there_is_nothing(place) -> None:
    quick = QuickCarRacing(gym.make("CarRacing-v3", disable_env_checker=True))
    quick.reset(seed=0)
    race = quick.unwrapped
    race.t = 2.0
    race.car.hull.position = place
    del race._render_road  # the environment's own picture is to be its own
    np.testing.assert_array_equal(quick._render("state_pixels"), type(race)._render(race, "state_pixels"))


def test_films_are_those_of_the_environment() -> None:
    quick = QuickCarRacing(gym.make("CarRacing-v3", disable_env_checker=True, render_mode="rgb_array"))
    plain = gym.make("CarRacing-v3", render_mode="rgb_array")
    for env in (quick, plain):
        env.reset(seed=2)
        env.step(ACTIONS[1])
    np.testing.assert_array_equal(quick.render(), plain.render())


def test_an_end_is_seen_and_counted() -> None:
    quick = QuickCarRacing(gym.make("CarRacing-v3", disable_env_checker=True))
    first, _ = quick.reset(seed=3)
    race = quick.unwrapped
    race.car.hull.position = (400.0, 0.0)  # beyond the playing field
    seen, total, terminated, _, _, taken = quick.repeat(ACTIONS[0], 4)
    assert (terminated, taken, total) == (True, 1, -100)
    assert not np.array_equal(seen, first)
    assert quick.drawn
