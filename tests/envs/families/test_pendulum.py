"""Native Pendulum equals Gymnasium's step by step."""

import numpy as np
import pytest
from twins import Sticky, assert_continues, assert_drawn_by_gymnasium, compare, native, own

from gymlab.errors import NonFiniteError


def pose(env, arrays, index):
    env.state = arrays["state"][:, index].copy()
    env.last_u = arrays["torque"][index]


@pytest.mark.parametrize("env_kwargs", [{}, {"g": 9.81}])
def test_equal_to_gymnasium_on_thousands_of_steps(config, env_kwargs):
    """Gymnasium squares by pow, which is not always rounded as a product is: one unit in the last place may differ."""
    vector = native(config, "Pendulum-v1", env_kwargs=env_kwargs)
    env = own("Pendulum-v1", **env_kwargs)
    assert compare(vector, env, pose, 1000, Sticky(vector), ulps=1) == (0, 20)
    assert vector.observation_space == env.observation_space
    assert vector.action_space == env.action_space


def test_the_state_moves_as_gymnasiums_in_double_precision(config):
    """Only the cost is squared, so angle and velocity are equal to the last bit."""
    vector = native(config, "Pendulum-v1", count=8)
    env = own("Pendulum-v1")
    vector.reset()
    choose = Sticky(vector)
    for _ in range(150):
        before, actions = vector.get_state()["arrays"], choose()
        vector.step(actions)
        after = vector.get_state()["arrays"]["state"]
        for index in range(8):
            pose(env.unwrapped, before, index)
            env.step(actions[index])
            np.testing.assert_array_equal(after[:, index], env.unwrapped.state)


def test_torque_is_cut_to_its_bounds(config):
    vector, twin = native(config, "Pendulum-v1"), native(config, "Pendulum-v1")
    vector.reset()
    twin.reset()
    beyond = vector.step(np.array([[5.0], [-9.0], [1.0], [2.0]], dtype=np.float32))
    within = twin.step(np.array([[2.0], [-2.0], [1.0], [2.0]], dtype=np.float32))
    np.testing.assert_array_equal(beyond.observation, within.observation)
    np.testing.assert_array_equal(beyond.reward, within.reward)


def test_time_limit_of_200_and_the_sum_of_rewards(config):
    vector = native(config, "Pendulum-v1")
    vector.reset()
    choose, total = Sticky(vector), np.zeros(4)
    for count in range(1, 201):
        step = vector.step(choose())
        total += step.reward
        assert step.truncated.all() == (count == 200)
        assert not step.terminated.any()
    assert [episode.length for episode in step.episodes] == [200] * 4
    assert [episode.env_return for episode in step.episodes] == total.tolist()


def test_first_states_are_uniform(config):
    vector = native(config, "Pendulum-v1", count=4000)
    vector.reset()
    angle, velocity = vector.get_state()["arrays"]["state"]
    for values, high in ((angle, np.pi), (velocity, 1.0)):
        assert np.abs(values).max() <= high
        assert values.max() > 0.998 * high
        assert values.min() < -0.998 * high
        # Four standard errors of the mean and of quarters of the range.
        assert abs(values.mean()) < 4 * 2 * high / 12**0.5 / 4000**0.5
        shares = np.histogram(values, bins=4, range=(-high, high))[0] / 4000
        np.testing.assert_allclose(shares, 0.25, atol=4 * (0.25 * 0.75 / 4000) ** 0.5)


def test_state_continues_bit_for_bit_and_seeds_repeat(config):
    assert_continues(config, "Pendulum-v1", max_episode_steps=40)


def test_drawn_by_gymnasium_with_the_arrow_of_the_torque(config):
    assert_drawn_by_gymnasium(config, "Pendulum-v1", pose)


def test_an_action_that_is_not_finite_is_refused(config):
    vector = native(config, "Pendulum-v1", count=2)
    vector.reset()
    with pytest.raises(NonFiniteError, match="action inf in environment 0"):
        vector.step(np.array([[np.inf], [0.0]], dtype=np.float32))
