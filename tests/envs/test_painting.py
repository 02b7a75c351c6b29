"""Observations as pictures."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from gymlab.envs.painting import painter_of
from gymlab.envs.spaces import flatten_observation, stored_space


def test_the_newest_image_of_a_stack_is_enlarged():
    space = spaces.Box(0, 255, (4, 64, 48), np.uint8)
    stacked = np.zeros(space.shape, np.uint8)
    stacked[-1, 0, 0] = 200
    picture = painter_of(space, frame_stack=4)([stacked])
    assert picture.shape == (6 * 64, 6 * 48, 3)
    assert (picture[:6, :6] == 200).all()
    assert picture.sum() == 200 * 36 * 3


def test_colours_keep_their_order():
    space = spaces.Box(0, 255, (6, 8, 8), np.uint8)
    stacked = np.zeros(space.shape, np.uint8)
    stacked[3:] = np.array([1, 2, 3], np.uint8)[:, None, None]
    assert painter_of(space, frame_stack=2)([stacked])[5, 5].tolist() == [1, 2, 3]


def test_the_image_of_a_dict_is_drawn():
    nested = spaces.Dict(
        {"arm": spaces.Box(-1, 1, (2,), np.float32), "camera": spaces.Box(0, 255, (5, 4, 3), np.uint8)}
    )
    camera = np.random.default_rng(0).integers(0, 256, (5, 4, 3), dtype=np.uint8)
    flat = flatten_observation(nested, {"arm": np.zeros(2, np.float32), "camera": camera})
    picture = painter_of(stored_space(nested), nested=nested)([flat])
    factor = 384 // 5
    np.testing.assert_array_equal(picture[::factor, ::factor], camera)


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0", "FrozenLake-v1"])
def test_an_environment_draws_what_it_is_told(name):
    """The picture of an observation is the one that the environment draws when it is there."""
    env, viewer = (gym.make(name, render_mode="rgb_array") for _ in range(2))
    viewer.reset(seed=9)
    observation, _ = env.reset(seed=1)
    if name == "FrozenLake-v1":
        observation = np.int64(0)
    drawn = painter_of(env.observation_space, viewer=viewer)([observation])
    np.testing.assert_array_equal(drawn, env.render())
    env.close()
    viewer.close()


def test_other_vectors_are_lines_over_time():
    space = spaces.Box(-1, 1, (3,), np.float32)
    paint = painter_of(space, names=["height", "a name that is much too long to be shown in full"])
    seen = [np.array([0.1 * step, -step, 0], np.float32) for step in range(5)]
    first, last = paint(seen[:1]), paint(seen)
    assert first.shape == last.shape == (2 * 12 + 3 * 48, 480, 3)
    assert first.dtype == np.uint8
    assert not np.array_equal(first, last)
    # An observation that its environment does not have is drawn as lines, too.
    viewer = gym.make("CartPole-v1", render_mode="rgb_array")
    assert painter_of(space, viewer=viewer)([seen[0]]).shape == (168, 480, 3)
    viewer.close()
