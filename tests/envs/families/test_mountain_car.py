"""Native MountainCar, discrete and continuous, equals Gymnasium's step by step."""

import gymnasium as gym
import numpy as np
import pytest
from twins import assert_continues, assert_drawn_by_gymnasium, compare, native, own

from gymlab.errors import EnvironmentFailure, NonFiniteError

IDS = ["MountainCar-v0", "MountainCarContinuous-v0"]


def pose(env, arrays, index):
    env.state = arrays["state"][:, index].copy()


class Swing:
    """Push the way the car rolls, with random pushes between: reaches the goal and, on the way, the wall."""

    def __init__(self, vector, seed=0):
        self.vector = vector
        self.generator = np.random.default_rng(seed)

    def __call__(self):
        forward = self.vector.observation[:, 1] >= 0
        noise = self.generator.random(len(forward)) < 0.3
        if isinstance(self.vector.action_space, gym.spaces.Discrete):
            return np.where(noise, self.generator.integers(0, 3, len(forward)), 2 * forward)
        push = np.where(noise, self.generator.uniform(-1, 1, len(forward)), np.where(forward, 1.0, -1.0))
        return push.astype(np.float32)[:, None]


@pytest.mark.parametrize("goal_velocity", [0, 0.03])
@pytest.mark.parametrize(("env_id", "limit"), [(IDS[0], 150), (IDS[1], 95)])
def test_bit_for_bit_equal_to_gymnasium_on_thousands_of_steps(config, env_id, limit, goal_velocity):
    """Cosines of numpy and of math agree to the last bit, and the continuous car's state is float32 on both sides."""
    vector = native(config, env_id, env_kwargs={"goal_velocity": goal_velocity}, max_episode_steps=limit)
    env = own(env_id, goal_velocity=goal_velocity)
    ended_itself, cut = compare(vector, env, pose, 1000, Swing(vector))
    assert ended_itself > 3
    assert cut > 3
    assert vector.observation_space == env.observation_space
    assert vector.action_space == env.action_space


@pytest.mark.parametrize("env_id", IDS)
def test_the_wall_on_the_left_stops_the_car(config, env_id):
    vector = native(config, env_id, count=2)
    vector.reset()
    state = vector.get_state()
    state["arrays"]["state"][:] = [[-1.19, -1.19], [-0.05, 0.05]]
    vector.set_state(state)
    left = np.zeros(2, dtype=int) if env_id == "MountainCar-v0" else np.full((2, 1), -1.0, dtype=np.float32)
    observation = vector.step(left).observation
    np.testing.assert_array_equal(observation[0], np.array([-1.2, 0.0], dtype=np.float32))
    assert observation[1, 0] > -1.15
    assert observation[1, 1] > 0.04


def test_the_first_step_of_a_continuous_episode_differs_in_the_last_bits_only(config):
    """Gymnasium computes it with the position drawn in float64; the force is added in float32 on both sides."""
    vector = native(config, "MountainCarContinuous-v0", count=200)
    env = own("MountainCarContinuous-v0")
    vector.reset()
    positions = vector.get_state()["arrays"]["state"][0].astype(np.float64)
    actions = np.random.default_rng(0).uniform(-1, 1, (200, 1)).astype(np.float32)
    step = vector.step(actions)
    for index, position in enumerate(positions):
        env.unwrapped.state = np.array([position, 0.0])
        observation, reward, _, _, _ = env.step(actions[index])
        np.testing.assert_allclose(step.observation[index], observation, rtol=0, atol=1e-7)
        assert step.reward[index] == np.float32(reward)


def test_a_push_beyond_the_bounds_is_cut_but_paid_for(config):
    vector = native(config, "MountainCarContinuous-v0", count=3)
    env = own("MountainCarContinuous-v0")
    vector.reset()
    arrays = vector.get_state()["arrays"]
    actions = np.array([[3.0], [-2.5], [0.5]], dtype=np.float32)
    step = vector.step(actions)
    np.testing.assert_array_equal(step.reward, np.array([-0.9, -0.625, -0.025], dtype=np.float32))
    for index in range(3):
        pose(env.unwrapped, arrays, index)
        np.testing.assert_allclose(step.observation[index], env.step(actions[index])[0], rtol=0, atol=1e-7)


def test_reaching_the_goal_pays_100_in_the_continuous_one(config):
    vector = native(config, "MountainCarContinuous-v0", count=2)
    vector.reset()
    state = vector.get_state()
    state["arrays"]["state"][:] = [[0.44, 0.0], [0.06, 0.0]]
    vector.set_state(state)
    step = vector.step(np.array([[1.0], [1.0]], dtype=np.float32))
    np.testing.assert_array_equal(step.reward, np.array([99.9, -0.1], dtype=np.float32))
    np.testing.assert_array_equal(step.terminated, [True, False])
    assert [episode.env_return for episode in step.episodes] == [pytest.approx(99.9)]


@pytest.mark.parametrize(("env_id", "limit", "threshold"), [(IDS[0], 200, -110.0), (IDS[1], 999, 90.0)])
def test_registered_time_limit(config, env_id, limit, threshold):
    vector = native(config, env_id)
    vector.reset()
    still = np.ones(4, dtype=int) if env_id == "MountainCar-v0" else np.zeros((4, 1), dtype=np.float32)
    for count in range(1, limit + 1):
        step = vector.step(still)
        assert step.truncated.all() == (count == limit)
    assert [(episode.length, episode.terminated) for episode in step.episodes] == [(limit, False)] * 4
    assert step.episodes[0].env_return == (-200.0 if env_id == "MountainCar-v0" else 0.0)
    assert vector.get_return_threshold() == threshold


@pytest.mark.parametrize("env_id", IDS)
def test_first_positions_are_uniform_and_at_rest(config, env_id):
    first = native(config, env_id, count=4000).reset()
    assert (first[:, 1] == 0).all()
    assert first[:, 0].min() == pytest.approx(-0.6, abs=2e-4)
    assert first[:, 0].max() == pytest.approx(-0.4, abs=2e-4)
    # Four standard errors of the mean and of quarters of the range.
    assert first[:, 0].mean() == pytest.approx(-0.5, abs=4 * 0.2 / 12**0.5 / 4000**0.5)
    shares = np.histogram(first[:, 0], bins=4, range=(-0.6, -0.4))[0] / 4000
    np.testing.assert_allclose(shares, 0.25, atol=4 * (0.25 * 0.75 / 4000) ** 0.5)


@pytest.mark.parametrize("env_id", IDS)
def test_state_continues_bit_for_bit_and_seeds_repeat(config, env_id):
    assert_continues(config, env_id, max_episode_steps=40)


@pytest.mark.parametrize("env_id", IDS)
def test_drawn_by_gymnasium(config, env_id):
    assert_drawn_by_gymnasium(config, env_id, pose)


def test_wrong_actions_are_named(config):
    vector = native(config, "MountainCar-v0", count=2)
    vector.reset()
    with pytest.raises(EnvironmentFailure, match="actions 0, 1 and 2"):
        vector.step(np.array([0, 3]))
    vector = native(config, "MountainCarContinuous-v0", count=2)
    vector.reset()
    with pytest.raises(NonFiniteError, match="action nan in environment 1"):
        vector.step(np.array([[0.0], [np.nan]], dtype=np.float32))
