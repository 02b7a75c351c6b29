"""A world model as an environment that Gymnasium takes for one."""

from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from gymlab.envs.world_model_env import WorldModelEnv


class Walk:
    """The state is a place that the action moves; what is drawn adds to it. Beyond 3 the episode is over."""

    def dream_start(self, recording):
        return float(recording.observations[-1][0])

    def dream_step(self, state, action, generator=None):
        place = state + 2.0 * float(action[0]) - 1.0 + (0.0 if generator is None else 0.01 * generator.normal())
        observation = np.array([[np.clip(place, -5, 5)]], np.float32)
        return place, SimpleNamespace(observation=observation, reward=np.array([place]), ended=np.array([place > 3]))


def made(**options):
    spaces = (gym.spaces.Box(-5, 5, (1,), np.float32), gym.spaces.Discrete(2))

    def starts(generator):
        return SimpleNamespace(observations=generator.uniform(-1, 1, (3, 1)).astype(np.float32))

    return WorldModelEnv(Walk(), *spaces, starts, **options)


@pytest.mark.filterwarnings("error:.*:UserWarning:gymnasium")
@pytest.mark.parametrize("likeliest", [False, True])
def test_gymnasium_finds_nothing_wrong(likeliest):
    env = made(max_steps=20, likeliest=likeliest)
    env.spec = gym.envs.registration.EnvSpec("Dream-v0", entry_point=lambda render_mode=None: made(max_steps=20))
    check_env(env, skip_render_check=False)


def test_a_dream_begins_at_the_last_thing_seen_and_ends_where_the_model_says():
    env = made(likeliest=True)
    with pytest.raises(gym.error.ResetNeeded):
        env.step(1)
    observation, _ = env.reset(seed=3)
    np.testing.assert_array_equal(observation, env.start.observations[-1])
    place, steps, terminated = float(observation[0]), 0, False
    while not terminated:
        observation, reward, terminated, truncated, _ = env.step(1)
        place, steps = place + 1, steps + 1
        assert reward == pytest.approx(place)
        assert not truncated
    assert place > 3
    assert env.steps == steps
    assert env.render().shape[2] == 3


def test_a_dream_is_cut_off_at_the_limit_and_drawn_from_the_seed():
    def way(seed, **options):
        env = made(max_steps=3, **options)
        rows = [env.reset(seed=seed)[0]]
        for _ in range(3):
            observation, _, terminated, truncated, _ = env.step(0)
            rows.append(observation)
        assert (terminated, truncated) == (False, True)
        return np.concatenate(rows)

    np.testing.assert_array_equal(way(1), way(1))
    assert not np.array_equal(way(1), way(2))
    likeliest = way(1, likeliest=True)
    np.testing.assert_allclose(likeliest, likeliest[0] - np.arange(4), rtol=1e-6)
