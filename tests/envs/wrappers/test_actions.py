import gymnasium as gym
import numpy as np
import pytest
from counting_env import Counting

from gymlab.envs.wrappers import (
    ActionRewardShaper,
    DiscreteActionSpaceRemapperWrapper,
    FrameSkipWrapper,
    StickyActionsWrapper,
)
from gymlab.errors import ConfigError


def test_frame_skip_sums_rewards_and_stops_at_the_end():
    env = FrameSkipWrapper(Counting(shift=2), skip=3)  # The first episode has 4 steps.
    env.reset(seed=0)
    observation, reward, terminated, _, _ = env.step(0)
    assert (observation[0], reward, terminated) == (3.0, 1 + 2 + 3, False)
    observation, reward, terminated, _, _ = env.step(0)
    assert (observation[0], reward, terminated) == (4.0, 4.0, True)


def test_random_frame_skip_is_in_range_and_repeats_with_the_seed():
    class Endless(Counting):
        def step(self, action):
            self.count += 1
            return self._observation(), 1.0, False, False, {}

    def skips(seed):
        env = FrameSkipWrapper(Endless(), skip=[2, 5])
        env.reset(seed=seed)
        return [env.step(0)[1] for _ in range(200)]

    assert set(skips(0)) == {2.0, 3.0, 4.0, 5.0}
    assert skips(0) == skips(0)
    assert skips(0) != skips(1)


@pytest.mark.parametrize("skip", [0, [0, 2], [3, 2]])
def test_impossible_skips_are_refused(skip):
    with pytest.raises(ConfigError, match="skip"):
        FrameSkipWrapper(Counting(), skip=skip)


def test_remapped_actions_and_masks():
    class Masked(Counting):
        def step(self, action):
            *rest, info = super().step(action)
            return (*rest, {**info, "action_mask": np.array([1, 0, 1], dtype=np.int8)})

    env = DiscreteActionSpaceRemapperWrapper(Masked(shift=2), mapping=[2, 1])
    assert env.action_space == gym.spaces.Discrete(2)
    env.reset(seed=0)
    *_, info = env.step(0)
    assert info["action"] == 2
    np.testing.assert_array_equal(info["action_mask"], [1, 0])
    *_, info = env.step(np.int64(1))
    assert info["action"] == 1


@pytest.mark.parametrize("mapping", [[3], []])
def test_mapping_to_actions_that_do_not_exist_is_refused(mapping):
    with pytest.raises(ConfigError, match="mapping"):
        DiscreteActionSpaceRemapperWrapper(Counting(), mapping=mapping)


def test_bonus_for_each_action():
    env = ActionRewardShaper(Counting(shift=2), rewards=[0.5, 0.0, -1.0])
    env.reset(seed=0)
    _, reward, _, _, info = env.step(0)
    assert (reward, info["action_reward_bonus"]) == (1.5, 0.5)
    _, reward, _, _, info = env.step(2)
    assert (reward, info["action_reward_bonus"]) == (1.0, -1.0)


def test_bonuses_must_fit_the_actions():
    with pytest.raises(ConfigError, match="2 rewards for 3 actions"):
        ActionRewardShaper(Counting(), rewards=[1, 2])
    with pytest.raises(ConfigError, match="Discrete"):
        ActionRewardShaper(gym.make("Pendulum-v1"), rewards=[1, 2])


class Pad(gym.Env):
    observation_space = gym.spaces.Discrete(1)
    action_space = gym.spaces.MultiBinary(3)

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        assert self.action_space.contains(action)
        return 0, 0.0, False, False, {"action": action.tolist()}


def test_sticky_buttons_are_pressed_with_their_probability_and_never_released():
    def pressed(seed, action):
        env = StickyActionsWrapper(Pad(), sticky_buttons={0: 0.25, "2": 1.0})
        env.reset(seed=seed)
        return np.array([env.step(np.array(action, dtype=np.int8))[-1]["action"] for _ in range(2000)])

    idle = pressed(0, [0, 0, 0])
    assert idle[:, 0].mean() == pytest.approx(0.25, abs=0.04)
    assert idle[:, 1].tolist() == [0] * 2000
    assert idle[:, 2].tolist() == [1] * 2000
    assert pressed(0, [1, 1, 0]).all()
    np.testing.assert_array_equal(idle, pressed(0, [0, 0, 0]))
    assert (idle != pressed(1, [0, 0, 0])).any()


@pytest.mark.parametrize("wrong", [{3: 0.5}, {-1: 0.5}, {"jump": 0.5}, {0: 1.5}])
def test_sticky_buttons_that_cannot_be(wrong):
    with pytest.raises(ConfigError, match="StickyActionsWrapper"):
        StickyActionsWrapper(Pad(), sticky_buttons=wrong)


def test_sticky_buttons_need_buttons():
    with pytest.raises(ConfigError, match="MultiBinary"):
        StickyActionsWrapper(Counting(), sticky_buttons={0: 0.5})


def test_a_video_of_skipped_frames_plays_at_the_speed_of_the_environment():
    env = Counting()
    env.metadata = {"render_fps": 60}
    assert FrameSkipWrapper(env, 4).metadata["render_fps"] == 15
    assert FrameSkipWrapper(env, [2, 4]).metadata["render_fps"] == 20
