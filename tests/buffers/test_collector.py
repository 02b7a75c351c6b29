import numpy as np
import pytest
from fake_environment import FakeEnvironment, clocked
from fake_policies import LinearPolicy
from gymnasium import spaces

from gymlab.buffers.collector import RolloutCollector
from gymlab.components.distributions import distribution_for
from gymlab.components.observation import ObservationEncoder, RewardNormalizer
from gymlab.config.schema import Config
from gymlab.engine.seeding import SeedTree
from gymlab.envs import make_vector


def collector_for(environment, *, steps, collects_values=False, normalize="off", **options):
    distribution = distribution_for(environment.action_space)
    return RolloutCollector(
        environment,
        ObservationEncoder(environment.observation_space, normalize),
        distribution,
        LinearPolicy(distribution.parameter_size, collects_values=collects_values),
        np.random.default_rng(0),
        steps=steps,
        **options,
    )


@pytest.mark.parametrize("collects_values", [True, False])
def test_rows_and_true_next_values(collects_values):
    """Episodes of 2 steps, rollout of 5: the observation is the clock / 2, V = 10 x it, and V(final) = 10."""
    collector = collector_for(clocked(2, length=2), steps=5, collects_values=collects_values)
    rollout, episodes = collector.collect(5)
    np.testing.assert_array_equal(rollout.observations[:, 0, 0], [0, 0.5, 0, 0.5, 0])
    np.testing.assert_array_equal(rollout.truncated[:, 0], [False, True, False, True, False])
    np.testing.assert_array_equal(rollout.values[:, 1], [0, 5, 0, 5, 0])
    next_values = rollout.next_values(rollout.values, rollout.bootstrap_values)
    np.testing.assert_array_equal(next_values[:, 0], [5, 10, 5, 10, 5])
    np.testing.assert_allclose(rollout.log_probs, np.log(0.5), rtol=1e-6)
    assert len(episodes) == 4
    assert rollout.valid is None


def test_an_episode_that_ends_on_the_last_row_bootstraps_like_any_other():
    rollout, _ = collector_for(clocked(3, length=2), steps=2).collect(2)
    next_values = rollout.next_values(rollout.values, rollout.bootstrap_values)
    np.testing.assert_array_equal(next_values[-1], [10, 10, 10])


def test_the_next_rollout_goes_on_where_the_last_ended():
    environment = clocked(1, length=4)
    collector = collector_for(environment, steps=3)
    collector.collect(3)
    rollout, _ = collector.collect(2)
    np.testing.assert_array_equal(rollout.observations[:, 0, 0], [0.75, 0])
    assert environment.resets == 1


def test_dead_rows_are_marked():
    collector = collector_for(clocked(1, length=2, next_step_reset=True), steps=6)
    rollout, episodes = collector.collect(6)
    np.testing.assert_array_equal(rollout.valid[:, 0], [True, True, False, True, True, False])
    np.testing.assert_array_equal(rollout.truncated[:, 0], [False, True, False, False, True, False])
    next_values = rollout.next_values(rollout.values, rollout.bootstrap_values)
    np.testing.assert_array_equal(next_values[rollout.valid], [5, 10, 5, 10])
    assert len(episodes) == 2


@pytest.mark.parametrize("next_step_reset", [False, True])
def test_the_last_observation_of_an_episode_never_enters_the_statistics(next_step_reset):
    """The clock of episodes of 2 steps: 0 and 0.5 are acted on, 1 is not."""
    collector = collector_for(clocked(1, length=2, next_step_reset=next_step_reset), steps=6, normalize="rolling")
    collector.collect(6)
    assert float(collector.encoder.state_dict()["mean"][0]) == pytest.approx(0.25)


def test_the_raw_sample_is_stored_and_the_clipped_one_is_played():
    environment = FakeEnvironment(4, spaces.Box(-0.1, 0.1, (2,), np.float32))
    rollout, _ = collector_for(environment, steps=8).collect(8)
    played = np.stack(environment.actions)
    assert np.abs(rollout.actions).max() > 0.1
    assert np.abs(played).max() <= np.float32(0.1)
    np.testing.assert_array_equal(np.clip(rollout.actions, -0.1, 0.1).astype(np.float32), played)


def test_masks_are_stored_and_obeyed():
    mask = np.array([[True, False, True]] * 2)
    environment = FakeEnvironment(2, spaces.Discrete(3), action_mask=mask)
    rollout, _ = collector_for(environment, steps=50).collect(50)
    assert set(np.unique(rollout.actions)) == {0, 2}
    assert rollout.action_masks.shape == (50, 2, 3)
    np.testing.assert_allclose(rollout.log_probs, np.log(0.5), rtol=1e-6)


def test_rewards_are_normalised_for_the_agent_and_not_for_the_statistics():
    environment = clocked(4, length=5)
    collector = collector_for(environment, steps=20, reward_normalizer=RewardNormalizer(0.99, 4))
    rollout, episodes = collector.collect(20)
    assert np.all(rollout.rewards[-1] != 1)
    assert all(episode.env_return == 5 for episode in episodes)


def test_state_round_trip():
    environment = clocked(2, length=5)
    collector = collector_for(environment, steps=4, reward_normalizer=RewardNormalizer(0.9, 2))
    collector.collect(4)
    other = collector_for(environment, steps=4, reward_normalizer=RewardNormalizer(0.9, 2))
    other.set_state(collector.get_state())
    assert other.started
    ended = np.zeros(2, bool)
    ours, theirs = (c.reward_normalizer(np.ones(2, np.float32), ended) for c in (collector, other))
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("next_step_reset", [False, True])
def test_finish_plays_the_last_episode_to_its_end_and_begins_anew(next_step_reset):
    """Episodes of 3 steps and a rollout of 5: the second episode is whole, and nothing of a third is kept."""
    environment = clocked(2, length=3, next_step_reset=next_step_reset)
    collector = collector_for(environment, steps=5)
    for _ in range(2):
        rollout, episodes = collector.collect(5, finish=True)
        dead = 2 * next_step_reset
        assert rollout.valid.sum() == 12
        assert (rollout.size, len(episodes), collector.transitions) == (12 + dead, 4, 12)
        np.testing.assert_allclose(rollout.observations[rollout.valid[:, 0], 0, 0], [0, 1 / 3, 2 / 3] * 2)
    assert environment.resets == 2


def test_finish_keeps_whole_episodes_of_any_length_and_gives_up_what_begins_later():
    environment = make_vector(Config(env_id="CartPole-v1", algo_id="ppo"), 4, SeedTree(0))
    collector = collector_for(environment, steps=10)
    rollout, episodes = collector.collect(10, finish=True)
    ended = rollout.terminated | rollout.truncated
    assert rollout.valid.sum() == sum(episode.length for episode in episodes)
    assert (ended & rollout.valid).sum() == len(episodes) >= 4
    assert rollout.valid[:10].all()
    assert not rollout.valid.all(), "lengths differ"
    assert collector.transitions == rollout.size


def test_finish_gives_up_what_has_no_end_within_the_limit():
    collector = collector_for(clocked(1, length=3), steps=5)
    rollout, episodes = collector.collect(5, finish=True, limit=5)
    np.testing.assert_array_equal(rollout.valid[:, 0], [True, True, True, False, False])
    assert (len(episodes), collector.transitions) == (1, 5)


def test_rows_written_before_the_storage_grew_stay():
    rollout, _ = collector_for(clocked(1, length=9), steps=2).collect(2, finish=True)
    np.testing.assert_allclose(rollout.observations[:, 0, 0], np.arange(9) / 9, rtol=1e-6)
