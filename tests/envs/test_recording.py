"""Filming: a frame for each reset and step, of environment 0, and nothing afterwards."""

import numpy as np
import pytest

from gymlab.engine.seeding import SeedTree
from gymlab.envs import make_env, make_vector
from gymlab.errors import EnvironmentFailure
from gymlab.metrics.video import VideoWriter, frame_count


class Pictures:
    def __init__(self):
        self.frames = []

    def add(self, frame):
        self.frames.append(frame)
        return True


@pytest.mark.parametrize("backend", ["native", "sync", "async"])
def test_a_vector_is_filmed_while_it_is_stepped(config, backend):
    film = Pictures()
    with make_vector(config(), 2, SeedTree(0), backend=backend, render_mode="rgb_array") as vector:
        vector.reset()
        with vector.recorder(film):
            vector.reset()
            for _ in range(3):
                vector.step(np.array([1, 0]))
            np.testing.assert_array_equal(film.frames[-1], vector.render())
        vector.step(np.array([1, 0]))
    assert len(film.frames) == 4
    assert all(frame.shape == (400, 600, 3) for frame in film.frames)
    assert (film.frames[0] != film.frames[-1]).any()


def test_one_environment_into_a_file(config, tmp_path):
    env = make_env(config(), render_mode="rgb_array")
    with VideoWriter(tmp_path / "cart.mp4", 30) as film, env.recorder(film):
        env.reset(seed=0)
        for _ in range(5):
            env.step(0)
    env.step(0)
    assert frame_count(tmp_path / "cart.mp4") == 6


def test_one_environment_knows_what_a_vector_knows(config):
    cart, pixels = make_env(config()), make_env(config(obs_type="rgb", max_episode_steps=30))
    assert (cart.get_return_threshold(), cart.get_max_episode_steps(), cart.is_rgb_env()) == (475.0, 500, False)
    assert (pixels.get_max_episode_steps(), pixels.is_rgb_env()) == (30, True)


def test_two_films_at_once_end_in_any_case(config):
    env = make_env(config(), render_mode="rgb_array")
    long, short = Pictures(), Pictures()
    with env.recorder(long):
        env.reset(seed=0)
        with env.recorder(short):
            env.step(0)
        with pytest.raises(TypeError), env.recorder(short):
            env.step()
        env.step(0)
    env.step(0)
    assert (len(long.frames), len(short.frames)) == (3, 1)


def test_without_rendering_there_is_nothing_to_film(config):
    with (
        make_vector(config(), 1, SeedTree(0)) as vector,
        vector.recorder(Pictures()),
        pytest.raises(EnvironmentFailure, match="render_mode: rgb_array"),
    ):
        vector.reset()
