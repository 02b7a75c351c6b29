"""Native CartPole equals Gymnasium's, step by step, and resets and resumes as it promises."""

import gymnasium as gym
import numpy as np
import pytest

from gymlab.engine.seeding import SeedTree
from gymlab.envs import make_vector
from gymlab.envs.families.cartpole import CartPoleVector
from gymlab.errors import EnvironmentFailure


def native(config, count=4, seed=3, **fields) -> CartPoleVector:
    vector = make_vector(config("CartPole-v1", **fields), count, SeedTree(seed))
    assert isinstance(vector, CartPoleVector)
    return vector


@pytest.mark.parametrize("sutton_barto_reward", [False, True])
def test_equal_to_gymnasium_on_thousands_of_random_steps(config, sutton_barto_reward):
    vector = native(config, env_kwargs={"sutton_barto_reward": sutton_barto_reward})
    references = [
        gym.make("CartPole-v1", sutton_barto_reward=sutton_barto_reward, disable_env_checker=True) for _ in range(4)
    ]
    generator = np.random.default_rng(0)
    observation = vector.reset().copy()
    states = vector.get_state()["arrays"]["state"]
    for index, reference in enumerate(references):
        reference.reset(seed=0)
        reference.unwrapped.state = states[:, :, index].T.ravel().copy()
    ends = 0
    for _ in range(1000):
        actions = generator.integers(0, 2, 4)
        step = vector.step(actions)
        for index, reference in enumerate(references):
            expected, reward, terminated, truncated, _ = reference.step(int(actions[index]))
            assert step.reward[index] == reward
            assert step.terminated[index] == terminated
            assert step.truncated[index] == (truncated and not terminated)
            if terminated or truncated:
                ends += 1
                np.testing.assert_array_equal(step.final_observation[index], expected)
                reference.reset(seed=0)
                states = vector.get_state()["arrays"]["state"]
                reference.unwrapped.state = states[:, :, index].T.ravel().copy()
            else:
                np.testing.assert_array_equal(step.observation[index], expected)
        observation = step.observation
    assert ends > 100
    assert observation.dtype == np.float32
    assert vector.observation_space == references[0].observation_space


def balance(observation: np.ndarray) -> np.ndarray:
    """A controller that holds the pole up for 500 steps."""
    return (observation @ np.array([0.05, 0.3, 1.0, 0.8]) > 0).astype(np.int64)


def test_time_limit_truncates_and_the_episode_has_500_steps(config):
    vector = native(config)
    observation = vector.reset()
    for count in range(1, 501):
        step = vector.step(balance(observation))
        observation = step.observation
        assert not step.terminated.any()
        assert step.truncated.all() == (count == 500)
    assert [episode.length for episode in step.episodes] == [500] * 4
    assert [episode.env_return for episode in step.episodes] == [500.0] * 4
    assert not any(episode.terminated for episode in step.episodes)
    assert (np.abs(observation) <= 0.05).all()
    assert np.abs(step.final_observation).max() > 0.05


def test_own_time_limit_and_episodes_of_different_age(config):
    vector = native(config, max_episode_steps=7)
    vector.reset()
    ended = []
    for _ in range(40):
        step = vector.step(np.ones(4, dtype=int))
        ended += step.episodes
    assert {episode.length for episode in ended} == {7}
    assert vector.get_max_episode_steps() == 7
    assert vector.get_return_threshold() == 475.0


def test_resets_in_the_same_step_leave_other_rows_alone(config):
    vector = native(config, count=64)
    vector.reset()
    generator = np.random.default_rng(1)
    for _ in range(200):
        step = vector.step(generator.integers(0, 2, 64))
        assert step.valid is None
        fresh = (np.abs(step.observation) <= 0.05).all(axis=1)
        assert fresh[step.ended].all()
        for episode in step.episodes:
            assert step.terminated[episode.env_index]
            assert episode.env_return == episode.length


def test_initial_states_fill_the_range_and_differ(config):
    vector = native(config, count=2000)
    first = vector.reset().copy()
    assert first.min() < -0.049
    assert first.max() > 0.049
    assert len(np.unique(first[:, 0])) == 2000
    assert not np.array_equal(first, vector.reset())


def test_same_seed_same_run_and_purposes_have_streams_of_their_own(config, seeds):
    def first(purpose):
        return make_vector(config(), 3, seeds, purpose=purpose).reset().copy()

    np.testing.assert_array_equal(first("train"), first("train"))
    assert not np.array_equal(first("train"), first("val"))


def test_d3_seed_zero_is_a_seed(config):
    twice = [native(config, seed=0).reset().copy() for _ in range(2)]
    np.testing.assert_array_equal(*twice)
    assert not np.array_equal(twice[0], native(config, seed=1).reset())


def test_reset_with_seeds_repeats_the_same_episodes(config, seeds):
    vector = native(config)
    first = vector.reset(seeds.child("evaluation")).copy()
    vector.step(np.ones(4, dtype=int))
    np.testing.assert_array_equal(vector.reset(seeds.child("evaluation")), first)
    assert (vector.episode_counts == 0).all()


def run(vector, generator, steps):
    rows = []
    for _ in range(steps):
        step = vector.step(generator.integers(0, 2, vector.num_envs))
        rows.append((step.observation.copy(), step.terminated.copy(), tuple(step.episodes)))
    return rows


def test_continues_bit_for_bit_from_its_state(config):
    whole = native(config, max_episode_steps=20)
    whole.reset()
    run(whole, np.random.default_rng(0), 33)
    state = whole.get_state()
    expected = run(whole, np.random.default_rng(5), 100)
    resumed = native(config, seed=99, max_episode_steps=20)
    resumed.set_state(state)
    assert np.array_equal(resumed.get_state()["arrays"]["state"], state["arrays"]["state"])
    for (seen, ended, episodes), (observation, terminated, finished) in zip(
        run(resumed, np.random.default_rng(5), 100), expected, strict=True
    ):
        np.testing.assert_array_equal(seen, observation)
        np.testing.assert_array_equal(ended, terminated)
        assert episodes == finished


def test_last_arrays_survive_one_more_step_and_changing_them_harms_nothing(config):
    vector, twin = native(config), native(config)
    before, _ = vector.reset(), twin.reset()
    kept = before.copy()
    step = vector.step(np.ones(4, dtype=int))
    np.testing.assert_array_equal(before, kept)
    for array in (step.observation, step.reward, step.terminated, step.truncated):
        array[...] = 1
    twin.step(np.ones(4, dtype=int))
    np.testing.assert_array_equal(
        vector.step(np.zeros(4, dtype=int)).observation, twin.step(np.zeros(4, dtype=int)).observation
    )


def test_wrong_actions_are_named(config):
    vector = native(config)
    vector.reset()
    with pytest.raises(EnvironmentFailure, match="actions 0 and 1"):
        vector.step(np.array([0, 1, 2, 0]))


def test_renders_environment_0_as_gymnasium_does(config):
    vector = make_vector(config(), 2, SeedTree(0), render_mode="rgb_array")
    vector.reset()
    frame = vector.render()
    reference = gym.make("CartPole-v1", render_mode="rgb_array", disable_env_checker=True)
    reference.reset(seed=0)
    reference.unwrapped.state = vector.get_state()["arrays"]["state"][:, :, 0].T.ravel()
    np.testing.assert_array_equal(frame, reference.render())
    assert vector.render_fps == 50
    vector.close()
    assert native(config).render() is None
