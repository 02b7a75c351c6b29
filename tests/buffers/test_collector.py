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
from gymlab.envs.pace import Pace
from gymlab.errors import ConfigError


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


def workers(env_id="CartPole-v1", count=4, **fields):
    config = Config(env_id=env_id, algo_id="ppo", env_workers=2, double_buffer=False, **fields)
    return make_vector(config, count, SeedTree(0), backend="async")


def rollouts(environment, **options):
    """Copies of two rollouts and their episodes."""
    with environment:
        collector = collector_for(environment, steps=20, **options)
        collected = []
        for length in (20, 7):
            # The next collection writes over the rows.
            rollout, episodes = collector.collect(length)
            collected.append((rollout.copy(), episodes))
        return collected


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Taxi-v4"])
def test_halves_by_turns_write_the_rollout_of_all_at_once(env_id):
    """Without rolling statistics an environment is given the same actions either way: masks, cuts and episodes too."""
    fields = {"max_episode_steps": 6}
    turns, at_once = (rollouts(workers(env_id, **fields), double_buffer=choice) for choice in (True, False))
    for (rollout, episodes), (expected, expected_episodes) in zip(turns, at_once, strict=True):
        for name, array in expected.arrays():
            np.testing.assert_allclose(getattr(rollout, name), array, rtol=1e-6, err_msg=name)
        assert episodes == expected_episodes
    assert at_once[0][1]
    assert at_once[0][0].truncated.any()


def test_halves_by_turns_repeat_themselves_with_rolling_statistics():
    first, second = (rollouts(workers(max_episode_steps=6), double_buffer=True, normalize="rolling") for _ in range(2))
    for (rollout, _), (expected, _) in zip(first, second, strict=True):
        for name, array in expected.arrays():
            np.testing.assert_array_equal(getattr(rollout, name), array, err_msg=name)


WAITS_AS_LONG = Pace(0.010, 0.0)
"""Of environments that wait for about as long as `slow_policy` takes for all."""


def slow_policy(collector_class, monkeypatch):
    """A policy that takes 10 ms for four environments and 5 ms for two."""
    monkeypatch.setattr(collector_class, "policy_seconds", lambda self, *counts: [0.0025 * n for n in counts])


@pytest.mark.parametrize(
    ("pace", "choice", "halves"),
    [
        (WAITS_AS_LONG, "auto", 2),
        (Pace(0.2, 0.0), "auto", 0),
        (None, "auto", 0),
        (None, True, 2),
        (WAITS_AS_LONG, False, 0),
    ],
)
def test_halves_are_taken_where_they_pay_or_are_asked_for(pace, choice, halves, monkeypatch):
    slow_policy(RolloutCollector, monkeypatch)
    with workers() as environment:
        environment.pace = pace
        assert len(collector_for(environment, steps=2, double_buffer=choice).halves) == halves


def test_a_policy_is_timed_without_a_trace():
    with workers() as environment:
        environment.pace = WAITS_AS_LONG
        timed, other = (collector_for(environment, steps=2, double_buffer=choice) for choice in ("auto", False))
        # The small network takes as long for two as for four.
        assert timed.halves == ()
        assert 0 < timed.policy_seconds(4)[0] < 0.1
        assert timed.generator.bit_generator.state == other.generator.bit_generator.state


@pytest.mark.parametrize(("choice", "halves"), [("auto", 2), (False, 0)])
def test_a_run_goes_on_by_turns_if_it_began_so(choice, halves):
    with workers() as environment:
        state = collector_for(environment, steps=2, double_buffer=True).get_state()
        resumed = collector_for(environment, steps=2, double_buffer=choice)
        assert resumed.halves == ()
        resumed.set_state(state)
        assert len(resumed.halves) == halves


def test_halves_that_do_not_exist_are_refused():
    with pytest.raises(ConfigError, match=r"double_buffer: true needs environments in workers.*env_workers"):
        collector_for(clocked(4, length=2), steps=2, double_buffer=True)


def test_whole_episodes_are_collected_from_all_at_once():
    with workers() as environment:
        collector = collector_for(environment, steps=10)
        rollout, episodes = collector.collect(10, finish=True)
        assert rollout.valid.sum() == sum(episode.length for episode in episodes)


def test_a_stop_between_two_rows_is_one_for_both_halves():
    """After 5 rows the rollout is saved and goes on in another collector and another set of workers."""
    whole = rollouts(workers(max_episode_steps=6), double_buffer=True, normalize="rolling")[0]
    with workers(max_episode_steps=6) as environment:
        looks = iter([False] * 5 + [True])
        stopped = collector_for(
            environment, steps=20, double_buffer=True, normalize="rolling", stop_requested=lambda: next(looks)
        )
        assert stopped.collect(20) is None
        saved, state = environment.get_state(), stopped.get_state()
    assert state["open"]["t"] == 5
    with workers(max_episode_steps=6) as environment:
        environment.set_state(saved)
        resumed = collector_for(environment, steps=20, double_buffer=True, normalize="rolling")
        resumed.encoder.load_state_dict(stopped.encoder.state_dict())
        resumed.set_state(state)
        rollout, episodes = resumed.collect(20)
        for name, array in whole[0].arrays():
            np.testing.assert_array_equal(getattr(rollout, name), array, err_msg=name)
        assert episodes == whole[1]
