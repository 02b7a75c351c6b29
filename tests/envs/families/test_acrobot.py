"""Native Acrobot equals Gymnasium's step by step."""

import numpy as np
import pytest
from twins import Sticky, assert_continues, assert_drawn_by_gymnasium, compare, native, own

from gymlab.errors import EnvironmentFailure


def pose(env, arrays, index):
    env.state = arrays["state"][:, index].copy()


class Pump:
    """Push the way the first link swings, with random pushes between: gets the end above the line."""

    def __init__(self, vector, seed=0):
        self.vector = vector
        self.generator = np.random.default_rng(seed)

    def __call__(self):
        backward = self.vector.observation[:, 4] < 0
        noise = self.generator.random(len(backward)) < 0.2
        return np.where(noise, self.generator.integers(0, 3, len(backward)), 2 * backward)


@pytest.mark.parametrize("policy", [Pump, Sticky])
def test_equal_to_gymnasium_on_thousands_of_steps(config, policy):
    """Gymnasium squares by pow, which is not always rounded as a product is: one unit in the last place may differ."""
    vector = native(config, "Acrobot-v1", max_episode_steps=150)
    env = own("Acrobot-v1")
    ended_itself, cut = compare(vector, env, pose, 600, policy(vector), ulps=1)
    assert ended_itself + cut > 8
    assert policy is Sticky or ended_itself > 8
    assert vector.observation_space == env.observation_space
    assert vector.action_space == env.action_space


def test_fast_links_wrap_more_than_once_and_are_slowed_to_their_limits(config):
    """States of any speed, in double precision: a difference is at most what a unit in the last place grows to."""
    vector = native(config, "Acrobot-v1", count=1500)
    env = own("Acrobot-v1")
    vector.reset()
    generator = np.random.default_rng(1)
    state = vector.get_state()
    high = np.array([np.pi, np.pi, 4 * np.pi, 9 * np.pi])[:, None]
    before = generator.uniform(-high, high, (4, 1500))
    state["arrays"]["state"][:] = before
    vector.set_state(state)
    actions = generator.integers(0, 3, 1500)
    step = vector.step(actions)
    after = vector.get_state()["arrays"]["state"]
    equal = wrapped_twice = 0
    for index in np.flatnonzero(~step.terminated):
        env.unwrapped.state = before[:, index].copy()
        env.step(int(actions[index]))
        np.testing.assert_allclose(after[:, index], env.unwrapped.state, rtol=1e-11, atol=1e-11)
        equal += np.array_equal(after[:, index], env.unwrapped.state)
        wrapped_twice += abs(before[1, index] + 0.2 * before[3, index]) > 2 * np.pi
    assert equal > 1000
    assert wrapped_twice > 10
    assert (np.abs(after) <= high).all()


def test_time_limit_of_500_and_the_reward_of_the_last_step(config):
    vector = native(config, "Acrobot-v1")
    vector.reset()
    for count in range(1, 501):
        step = vector.step(np.ones(4, dtype=int))
        assert step.truncated.all() == (count == 500)
    assert [(episode.length, episode.env_return) for episode in step.episodes] == [(500, -500.0)] * 4
    pump = Pump(vector)
    ended = []
    while not ended:
        step = vector.step(pump())
        ended = step.episodes
    assert step.reward[ended[0].env_index] == 0.0
    assert ended[0].env_return == 1 - ended[0].length
    assert vector.get_return_threshold() == -100.0


def test_first_states_are_uniform_values_of_float32(config):
    vector = native(config, "Acrobot-v1", count=2000)
    env = own("Acrobot-v1")
    first = vector.reset()
    state = vector.get_state()["arrays"]["state"]
    np.testing.assert_array_equal(state, state.astype(np.float32))
    assert np.abs(state).max() <= np.float32(0.1)
    for values in state:
        # Four standard errors of the mean and of quarters of the range.
        assert abs(values.mean()) < 4 * 0.2 / 12**0.5 / 2000**0.5
        shares = np.histogram(values, bins=4, range=(-0.1, 0.1))[0] / 2000
        np.testing.assert_allclose(shares, 0.25, atol=4 * (0.25 * 0.75 / 2000) ** 0.5)
    # Gymnasium shows its first state through cosines in float32, ours are rounded from double.
    for index in range(50):
        env.unwrapped.state = state[:, index].astype(np.float32)
        np.testing.assert_array_max_ulp(first[index], env.unwrapped._get_ob(), maxulp=1)


def test_state_continues_bit_for_bit_and_seeds_repeat(config):
    assert_continues(config, "Acrobot-v1", max_episode_steps=40)


def test_drawn_by_gymnasium(config):
    assert_drawn_by_gymnasium(config, "Acrobot-v1", pose)


def test_wrong_actions_are_named(config):
    vector = native(config, "Acrobot-v1", count=2)
    vector.reset()
    with pytest.raises(EnvironmentFailure, match="actions 0, 1 and 2"):
        vector.step(np.array([0, 3]))
