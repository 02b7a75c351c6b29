"""The loop over sub-environments: seeds, statistics on the environment's own reward, masks, replay, errors by name."""

import gymnasium as gym
import numpy as np
import pytest
from counting_env import LENGTHS, Counting, step_often

from gymlab.engine.seeding import SeedTree
from gymlab.envs import make_vector
from gymlab.envs.sync import SyncVector
from gymlab.errors import ConfigError, NonFiniteError


def sync(config, env_id="Counting-v0", count=3, seed=7, **fields) -> SyncVector:
    vector = make_vector(config(env_id, **fields), count, SeedTree(seed), backend="sync")
    assert isinstance(vector, SyncVector)
    assert vector.backend == "sync"
    return vector


def base(vector, index):
    return vector.envs[index].unwrapped


def test_d2_each_episode_has_a_seed_of_its_own_from_the_tree(config, seeds):
    vector = sync(config)
    vector.reset()
    step_often(vector, 40)
    used = [seed for index in range(3) for seed in base(vector, index).seeds]
    assert len(used) > 30
    assert len(set(used)) == len(used)
    for index in range(3):
        expected = [seeds.child("train", index, episode).integer() for episode in range(3)]
        assert base(vector, index).seeds[:3] == expected


def test_reset_in_the_middle_of_an_episode_takes_the_next_seed(config, seeds):
    vector = sync(config, count=1)
    vector.reset()
    vector.reset()
    assert base(vector, 0).seeds == [seeds.child("train", 0, episode).integer() for episode in (0, 1)]
    vector.reset(seeds)
    assert base(vector, 0).seeds[-1] == seeds.child("train", 0, 0).integer()


def test_observations_are_float32_where_the_environment_gives_float64(config):
    vector = sync(config)
    assert vector.reset().dtype == np.float32
    assert vector.observation_space.dtype == np.float32
    assert vector.raw_observation_space.dtype == np.float64


def test_time_limit_of_the_config_truncates_with_the_true_last_observation(config):
    vector = sync(config, count=1, max_episode_steps=2)
    vector.reset()
    vector.step(np.array([0]))
    step = vector.step(np.array([0]))
    assert step.truncated[0]
    assert not step.terminated[0]
    assert step.final_observation[0, 0] == 2
    assert step.observation[0, 0] == 100


def test_termination_wins_over_truncation(config):
    # Episode 2 of Counting ends by both at once.
    vector = sync(config, count=1)
    vector.reset()
    step_often(vector, LENGTHS[0] + LENGTHS[1] + LENGTHS[2] - 1)
    step = vector.step(np.array([0]))
    assert step.terminated[0]
    assert not step.truncated[0]
    assert step.episodes[0].terminated


def test_returns_are_the_environments_own_under_shaping_and_frame_skip(config):
    vector = sync(
        config,
        count=1,
        frame_skip=2,
        env_wrappers=({"id": "ActionRewardShaper", "rewards": [10.0, 0.0, 0.0]},),
    )
    vector.reset()
    step = vector.step(np.array([0]))
    assert step.reward[0] == 1 + 2 + 10
    step = vector.step(np.array([0]))
    # Three frames: the second repeat ends after one.
    assert step.reward[0] == 3 + 10
    episode = step.episodes[0]
    assert episode.env_return == 6.0
    assert episode.shaped_return == 26.0
    assert episode.length == 2


def test_action_masks_are_those_of_the_newest_observation(config):
    vector = sync(config, "Taxi-v4", count=2, max_episode_steps=5)
    vector.reset()
    generator = np.random.default_rng(0)
    for _ in range(12):
        actions = np.array([generator.choice(np.flatnonzero(mask)) for mask in vector.action_mask])
        step = vector.step(actions)
        assert step.action_mask.dtype == bool
        for index in range(2):
            taxi = base(vector, index)
            np.testing.assert_array_equal(step.action_mask[index], taxi.action_mask(taxi.s).astype(bool))
    assert step.action_mask is vector.action_mask


def test_an_old_action_mask_survives_the_next_step(config):
    vector = sync(config, "Taxi-v4", count=1)
    vector.reset()
    old = vector.action_mask
    kept = old.copy()
    for action in (0, 1, 2, 3):
        vector.step(np.array([action]))
    np.testing.assert_array_equal(old, kept)


@pytest.mark.parametrize(
    "env_id", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "LunarLander-v3", "Blackjack-v1", "Taxi-v4"]
)
def test_replay_continues_bit_for_bit(config, env_id):
    def act(vector, steps, seed):
        space = gym.vector.utils.batch_space(vector.action_space, vector.num_envs)
        space.seed(seed)
        rows = []
        for _ in range(steps):
            step = vector.step(space.sample())
            rows.append((step.observation.copy(), step.reward.copy(), step.ended, tuple(step.episodes)))
        return rows

    whole = sync(config, env_id, max_episode_steps=60)
    whole.reset()
    act(whole, 50, seed=1)
    state = whole.get_state()
    expected = act(whole, 50, seed=2)
    resumed = sync(config, env_id, max_episode_steps=60)
    resumed.set_state(state)
    np.testing.assert_array_equal(resumed.observation, state["observation"])
    for seen, wanted in zip(act(resumed, 50, seed=2), expected, strict=True):
        for one, other in zip(seen[:3], wanted[:3], strict=True):
            np.testing.assert_array_equal(one, other)
        assert seen[3] == wanted[3]
    np.testing.assert_array_equal(resumed.episode_counts, whole.episode_counts)
    if env_id == "Taxi-v4":
        np.testing.assert_array_equal(resumed.action_mask, whole.action_mask)


def test_replay_with_wrappers_that_have_state(config):
    fields = {
        "frame_stack": 3,
        "env_wrappers": ({"id": "FrameSkipWrapper", "skip": [1, 3]}, {"id": "MountainCarV0_StateCountBonus"}),
    }
    whole = sync(config, "MountainCar-v0", **fields)
    whole.reset()
    generator = np.random.default_rng(0)
    plan = generator.integers(0, 3, (40, 3))
    for actions in plan[:20]:
        whole.step(actions)
    state = whole.get_state()
    resumed = sync(config, "MountainCar-v0", **fields)
    resumed.set_state(state)
    for actions in plan[20:]:
        expected, seen = whole.step(actions), resumed.step(actions)
        np.testing.assert_array_equal(seen.observation, expected.observation)
        np.testing.assert_array_equal(seen.reward, expected.reward)
    for one, other in zip(resumed.envs, whole.envs, strict=True):
        assert one.shaped_return == other.shaped_return


def test_an_environment_that_does_not_repeat_itself_goes_on_with_a_fresh_episode(config, caplog):
    class Moody(Counting):
        mood = 0.0

        def _observation(self):
            return super()._observation() + Moody.mood

    gym.register("Moody-v0", entry_point=Moody)
    vector = sync(config, "Moody-v0", count=1)
    vector.reset()
    vector.step(np.array([0]))
    state = vector.get_state()
    Moody.mood = 0.5
    resumed = sync(config, "Moody-v0", count=1)
    resumed.set_state(state)
    assert "does not repeat itself" in caplog.text
    assert resumed.envs[0].episode_index == 1
    assert resumed.envs[0].length == 0
    gym.registry.pop("Moody-v0")


def test_state_of_another_number_of_environments_is_refused(config):
    vector = sync(config, count=2)
    vector.reset()
    with pytest.raises(ConfigError, match="has 2 environments, this one 3"):
        sync(config, count=3).set_state(vector.get_state())


class Broken(Counting):
    """NaN or Inf in one place of episode 1 of environment 1."""

    field = "reward"
    value = np.nan

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        if self.episode == 1 and self.count == 1 and self.shift == 0:
            if Broken.field == "reward":
                reward = Broken.value
            else:
                observation = observation + Broken.value
            if Broken.field == "final observation":
                terminated = True
            else:
                terminated = truncated = False
        return observation, reward, terminated, truncated, info


@pytest.mark.parametrize("field", ["reward", "observation", "final observation"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_non_finite_values_are_named(config, field, value):
    Broken.field, Broken.value = field, value
    gym.register("Broken-v0", entry_point=Broken)
    vector = sync(config, "Broken-v0", count=2)
    base(vector, 0).shift = 1
    vector.reset()
    step_often(vector, 3)
    with pytest.raises(NonFiniteError, match=rf"Broken-v0 returned an? {field} .*environment 1, episode 1, step 1\."):
        vector.step(np.zeros(2, dtype=int))
    gym.registry.pop("Broken-v0")


def test_a_non_finite_first_observation_is_named(config):
    class Bad(Counting):
        def _observation(self):
            return np.array([np.inf])

    gym.register("Bad-v0", entry_point=Bad)
    with pytest.raises(NonFiniteError, match="first observation"):
        sync(config, "Bad-v0", count=1).reset()
    gym.registry.pop("Bad-v0")


def test_large_but_finite_values_pass(config):
    class Large(Counting):
        def _observation(self):
            return np.array([3e38])

    gym.register("Large-v0", entry_point=Large)
    vector = sync(config, "Large-v0", count=8)
    vector.reset()
    step_often(vector, 2)
    gym.registry.pop("Large-v0")


def test_continuous_actions_reach_the_environment_as_they_are_and_are_not_kept_by_reference(config):
    class Echo(Counting):
        def __init__(self, **kwargs):
            super().__init__()
            self.action_space = gym.spaces.Box(-1, 1, (2,), np.float32)
            self.taken = []

        def step(self, action):
            self.taken.append(action)
            self.count += 1
            return self._observation(), 0.0, False, False, {}

    gym.register("Echo-v0", entry_point=Echo)
    vector = sync(config, "Echo-v0", count=2)
    vector.reset()
    actions = np.array([[5.0, -5.0], [0.25, 0.5]])
    vector.step(actions)
    actions[:] = 0
    np.testing.assert_array_equal(base(vector, 0).taken[0], [5.0, -5.0])
    assert base(vector, 1).taken[0].dtype == np.float32
    gym.registry.pop("Echo-v0")


def test_renders_environment_0_only_when_asked(config):
    assert sync(config).render() is None
    vector = make_vector(config("Counting-v0"), 2, SeedTree(0), backend="sync", render_mode="rgb_array")
    vector.reset()
    assert vector.render().shape == (4, 4, 3)
    assert vector.render_fps == 7
