"""Features and shaping of Atari objects, on made-up objects and by hand-computed numbers."""

import math

import gymnasium as gym
import numpy as np
import pytest

from gymlab.envs.step import LIFE_LOST
from gymlab.envs.wrappers.atari import (
    ALEActionMaskingWrapper,
    BreakoutV5_FeatureExtractor,
    ClipReward,
    LifeLoss,
    PongV5_FeatureExtractor,
    PongV5_RewardShaper,
)
from gymlab.errors import ConfigError


class Thing:
    """An object as OCAtari gives it."""

    def __init__(self, category, x, y, w, h, dx=0, dy=0):
        self.category, self.x, self.y, self.w, self.h, self.dx, self.dy = category, x, y, w, h, dx, dy


class Screen(gym.Env):
    """Shows the objects of a list of screens, one a step."""

    def __init__(self, screens, actions=6, rewards=None, lives=None):
        self.action_space = gym.spaces.Discrete(actions)
        self.observation_space = gym.spaces.Box(0, 255, (1,))
        self.screens, self.rewards, self.lives = screens, rewards or [0.0] * len(screens), lives or [0] * len(screens)
        self.objects, self.time = [], 0

    def reset(self, *, seed=None, options=None):
        self.time, self.objects = 0, self.screens[0]
        return np.zeros(1), {"lives": self.lives[0]}

    def step(self, action):
        self.time += 1
        self.objects = self.screens[self.time]
        return np.zeros(1), self.rewards[self.time], False, False, {"lives": self.lives[self.time]}


def pong(ball=None, player=100, enemy=60, player_dy=0, enemy_dy=0, ball_d=(0, 0)):
    things = [Thing("Player", 140, player, 4, 15, dy=player_dy)]
    if enemy is not None:
        things.append(Thing("Enemy", 16, enemy, 4, 15, dy=enemy_dy))
    if ball is not None:
        things.append(Thing("Ball", *ball, 2, 4, *ball_d))
    return things


def test_pong_features_by_hand():
    env = PongV5_FeatureExtractor(Screen([pong(), pong((79, 112), player_dy=-12, enemy_dy=24, ball_d=(4, -2))]))
    first, _ = env.reset()
    # A paddle's middle moves over [34 + 7.5 - 2, 194 - 7.5 + 2] = [39.5, 188.5]; its own is at 107.5.
    assert first[0] == pytest.approx(2 * (107.5 - 39.5) / 149 - 1)
    np.testing.assert_allclose(first[4:], [0, 0, 0, 0, -1, *[0] * 6], atol=1e-6)
    second = env.step(3)[0]
    assert second.shape == (15,)
    assert second[1] == pytest.approx(math.tanh(-0.5))
    assert second[2] == pytest.approx(2 * (67.5 - 39.5) / 149 - 1)
    assert second[3] == pytest.approx(math.tanh(1.0))
    # The ball's middle: x over [1, 159], here 80; y over [34 + 2 - 2, 194 - 2 + 2] = [34, 194], here 114.
    assert second[4] == pytest.approx(0.0)
    assert second[5] == pytest.approx(0.0)
    # It was not seen before, so its speed comes from the pixels.
    np.testing.assert_allclose(second[6:9], [2 * 4 / 158, 2 * -2 / 160, 1.0], rtol=1e-6)
    np.testing.assert_array_equal(second[9:], [0, 0, 0, 1, 0, 0])
    assert env.observation_space.contains(second)


def test_ball_speed_is_the_difference_of_positions_and_stays_when_the_ball_is_gone():
    env = PongV5_FeatureExtractor(
        Screen([pong((79, 112)), pong((95, 104), ball_d=(99, 99)), pong(enemy=None), pong((79, 112), ball_d=(-8, 0))]),
        action_ids=[0, 2, 3],
    )
    env.reset()
    moved = env.step(2)[0]
    assert moved.shape == (12,)
    np.testing.assert_allclose(moved[4:9], [2 * 16 / 158, -2 * 8 / 160, 2 * 16 / 158, -2 * 8 / 160, 1], rtol=1e-5)
    np.testing.assert_array_equal(moved[9:], [0, 1, 0])
    gone = env.step(5)[0]
    np.testing.assert_allclose(gone[4:8], moved[4:8])
    assert gone[8] == -1
    np.testing.assert_array_equal(gone[2:4], [0, 0])
    np.testing.assert_array_equal(gone[9:], [0, 0, 0])
    back = env.step(0)[0]
    np.testing.assert_allclose(back[4:9], [0, 0, -2 * 8 / 158, 0, 1], atol=1e-6)


def test_pong_positions_are_clipped_unless_told():
    screens = [pong((79, 300), player=0)]
    assert PongV5_FeatureExtractor(Screen(screens)).reset()[0][0] == -1.0
    free = PongV5_FeatureExtractor(Screen(screens), clip=False).reset()[0]
    assert free[0] == pytest.approx(2 * (7.5 - 39.5) / 149 - 1)
    assert free[5] == pytest.approx(2 * (302 - 34) / 160 - 1)


def test_pong_refuses_actions_that_do_not_exist_and_environments_without_objects():
    with pytest.raises(ConfigError, match="action_ids"):
        PongV5_FeatureExtractor(Screen([pong()]), action_ids=[0, 7])
    with pytest.raises(ConfigError, match="obs_type: objects"):
        PongV5_FeatureExtractor(gym.make("CartPole-v1"))


def test_breakout_features_by_hand():
    blocks = [Thing("Block", 8, 57, 8, 6)] * 54
    paddle = Thing("Player", 72, 189, 16, 4, dx=3)
    env = BreakoutV5_FeatureExtractor(Screen([[paddle, Thing("Ball", 79, 112, 2, 4), *blocks], [paddle, *blocks[:27]]]))
    first, _ = env.reset()
    # x over [8 + size/2, 152 - size/2], y over [32 + size/2, 196 - size/2].
    paddle_y = 2 * (191 - 34) / 160 - 1
    expected = [0.0, math.tanh(0.5), 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, (0.0 - paddle_y) / 2, 0.0]
    np.testing.assert_allclose(first, expected, atol=1e-6)
    second = env.step(0)[0]
    np.testing.assert_allclose(second, [*expected[:6], -1.0, *expected[7:9], -0.5], atol=1e-6)
    assert env.observation_space.contains(second)


def shaping(screens):
    env = PongV5_RewardShaper(Screen(screens, rewards=[0.0, *[1.0] * (len(screens) - 1)]))
    env.reset()
    return [env.step(0)[1] - 1.0 for _ in screens[1:]]


def test_pong_shaping_pays_hits_proximity_and_turns():
    towards, away = (6, 0), (-6, 0)
    bonuses = shaping(
        [
            pong(),
            pong((120, 110), player=100, ball_d=towards),
            pong((130, 116), player=100, ball_d=away),
            pong((60, 116), ball_d=away),
            pong((30, 70), enemy=60, ball_d=towards),
            pong((100, 120), player=100, ball_d=away),
        ]
    )
    proximity = [0.1 * 0.9, 0.1 * 0.84, 0.0, 0.0, 0.1 * 0.8]
    hits = [0.0, 0.5 + 1.0, 0.0, 0.5 + 0.5, 0.5]
    # The last turn is 20 pixels from the paddle: nobody's hit.
    np.testing.assert_allclose(bonuses, np.add(proximity, hits), rtol=1e-6)


def test_a_new_ball_that_flies_the_other_way_is_no_hit():
    bonuses = shaping([pong(), pong((60, 80), ball_d=(6, 0)), pong(), pong((60, 80), ball_d=(-6, 0))])
    assert bonuses == [0.0, 0.0, 0.0]


def test_clipping_and_lost_lives():
    env = LifeLoss(ClipReward(Screen([[]] * 5, rewards=[0, 7, -3, 0.5, 0], lives=[3, 3, 2, 2, 0])))
    env.reset()
    rows = [env.step(0) for _ in range(4)]
    assert [row[1] for row in rows] == [1.0, -1.0, 0.5, 0.0]
    # The last life ends the game itself.
    assert [bool(row[4].get(LIFE_LOST)) for row in rows] == [False, True, False, False]
    assert not any(row[2] for row in rows)


def test_action_mask_names_the_actions_that_do_something():
    screen = Screen([[], []], actions=4)
    screen.action_numbers, screen.minimal_actions = [0, 1, 2, 5], [0, 2]
    env = ALEActionMaskingWrapper(screen)
    np.testing.assert_array_equal(env.reset()[1]["action_mask"], [True, False, True, False])
    np.testing.assert_array_equal(env.step(0)[4]["action_mask"], [True, False, True, False])
    with pytest.raises(ConfigError, match="Atari"):
        ALEActionMaskingWrapper(gym.make("CartPole-v1"))
