"""Listening to an environment below its wrappers."""

import gymnasium as gym

from gymlab.api import resolve
from gymlab.engine.seeding import SeedTree
from gymlab.envs.build import make_env
from gymlab.envs.tap import OwnSteps


def tapped(**fields):
    taps = []

    def tap(env):
        taps.append(OwnSteps(env))
        return taps[0]

    config = resolve("CartPole-v1:ppo", **fields).config
    return make_env(config, seeds=SeedTree(0), purpose="play", tap=tap), taps[0]


def test_own_rewards_and_observations_below_the_wrappers():
    env, own = tapped(frame_skip=3, frame_stack=2, env_wrappers=[{"id": "ActionRewardShaper", "rewards": [5, 7]}])
    observation, _ = env.reset()
    assert observation.shape == (8,)
    assert own.observation.shape == (4,)
    assert own.seed == SeedTree(0).child("play", 0, 0).integer()
    observation, reward, *_ = env.step(0)
    assert reward == 8.0
    assert own.take_reward() == 3.0
    assert own.take_reward() == 0.0
    assert own.observation.tolist() == observation[-4:].tolist()


def test_an_environment_that_repeats_by_itself_still_does():
    class Repeating(gym.Env):
        observation_space = gym.spaces.Discrete(9)
        action_space = gym.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return 0, {}

        def repeat(self, action, count):
            return 7, 2.5, False, False, {}, count

    env = OwnSteps(Repeating())
    env.reset(seed=3)
    assert env.repeat(1, 4) == (7, 2.5, False, False, {}, 4)
    assert (env.observation, env.take_reward(), env.seed) == (7, 2.5, 3)
    assert not hasattr(OwnSteps(gym.make("CartPole-v1").unwrapped), "repeat")
