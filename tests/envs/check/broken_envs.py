"""A small environment that is right, and one that is wrong for every check."""

import os
import random
import time

import gymnasium as gym
import numpy as np


class Right(gym.Env):
    """A walk on a line: the reward is the place, the episode ends outside of -1 to 1."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, render_mode=None):
        self.observation_space = gym.spaces.Box(-2.0, 2.0, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.render_mode = render_mode

    def look(self):
        return np.array([self.place, self.goal], dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.goal = 0.0, float(self.np_random.uniform(-1, 1))
        return self.look(), {}

    def step(self, action):
        self.place += 0.2 * (2 * int(action) - 1) + 0.05 * float(self.np_random.uniform())
        return self.look(), -abs(self.place - self.goal), bool(abs(self.place) > 1), False, {}

    def render(self):
        return np.zeros((8, 9, 3), np.uint8)


class CannotBeMade(Right):
    def __init__(self, render_mode=None):
        raise RuntimeError("no level file")


class WithoutSpace(Right):
    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        self.action_space = None


class OldReset(Right):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0]


class ResetWithoutSeed(Right):
    def reset(self):
        return super().reset()


class OldStep(Right):
    def step(self, action):
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, info


class InfoIsNone(Right):
    def step(self, action):
        return (*super().step(action)[:4], None)


class RewardIsText(Right):
    def step(self, action):
        observation, _, terminated, truncated, info = super().step(action)
        return observation, "much", terminated, truncated, info


class RewardIsAnArray(Right):
    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, np.array([reward]), int(terminated), truncated, info


class FlagIsNone(Right):
    def step(self, action):
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, None, info


class Raises(Right):
    def step(self, action):
        raise ValueError("a wall is missing")


class Dies(Right):
    def step(self, action):
        os._exit(11)


class Freezes(Right):
    def step(self, action):
        time.sleep(600)


class WrongShape(Right):
    def look(self):
        return np.zeros(3, np.float32)


class Doubles(Right):
    def look(self):
        return super().look().astype(np.float64)


class FloatsForBytes(Right):
    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        self.observation_space = gym.spaces.Box(0, 255, (2,), np.uint8)

    def look(self):
        return np.abs(super().look())


class OutOfBounds(Right):
    def look(self):
        return super().look() + np.float32(3)


class TextObservations(Right):
    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        self.observation_space = gym.spaces.Text(5)

    def look(self):
        return "left"


class WrongKeys(Right):
    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        self.observation_space = gym.spaces.Dict({"place": gym.spaces.Box(-2, 2, (), np.float32)})

    def look(self):
        return {"plaice": np.float32(0)}


class DictActions(Right):
    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        self.action_space = gym.spaces.Dict({"move": gym.spaces.Discrete(2)})

    def step(self, action):
        return super().step(action["move"])


class UnboundedActions(Right):
    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        self.action_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)

    def step(self, action):
        return super().step(action[0] > 0)


class WideActions(UnboundedActions):
    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        self.action_space = gym.spaces.Box(-500, 500, (1,), np.float32)


class NotFinite(Right):
    def step(self, action):
        observation, _, terminated, truncated, info = super().step(action)
        return observation, float("nan"), terminated, truncated, info


class NoReward(Right):
    def step(self, action):
        observation, _, terminated, truncated, info = super().step(action)
        return observation, 0.0, terminated, truncated, info


class LargeReward(Right):
    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, 1e4 * reward, terminated, truncated, info


class Endless(Right):
    def step(self, action):
        self.place = 0.0
        observation, reward, _, _, info = super().step(action)
        return observation, reward, False, False, info


class CutsItself(Endless):
    """Right, but its time limit is its own."""

    def reset(self, *, seed=None, options=None):
        self.clock = 0
        return super().reset(seed=seed)

    def step(self, action):
        self.clock += 1
        observation, reward, _, _, info = super().step(action)
        return observation, reward, False, self.clock == 10, info


class GlobalRandomness(Right):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.goal = random.random()
        return self.look(), {}


class OutlivesReset(Right):
    resets = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.resets += 1
        self.goal = self.resets / 10
        return self.look(), {}


class WithoutChance(Right):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=0)
        self.place, self.goal = 0.0, 0.5
        return self.look(), {}


class SharedByClass(Right):
    """Copies move one body."""

    body = {"place": 0.0}

    @property
    def place(self):
        return self.body["place"]

    @place.setter
    def place(self, value):
        self.body["place"] = value


class Blind(Right):
    metadata = {"render_modes": []}

    def __init__(self):
        super().__init__()


class GrayFrames(Right):
    def render(self):
        return np.zeros((8, 9), np.uint8)


class LargeImages(Right):
    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        self.observation_space = gym.spaces.Box(0, 255, (200, 160, 3), np.uint8)

    def look(self):
        return np.zeros((200, 160, 3), np.uint8)
