"""An environment whose episodes end after 3 steps at +1 or never, and a run that was evaluated in it."""

import gymnasium as gym
import numpy as np

ENV_ID = "Halves-v0"
SETTINGS = [
    "max_env_steps=300",
    "n_envs=4",
    "n_steps=32",
    "batch_size=64",
    "n_epochs=1",
    "eval_freq_epochs=1",
    "eval_episodes=20",
    "eval_step_limit=50",
    "vectorization_mode=sync",
    "video=false",
]


class Halves(gym.Env):
    """The episode's seed says whether it ends; `never` makes all of them go on."""

    observation_space = gym.spaces.Box(0, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, never=False):
        self.never = never

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.ends = not self.never and bool(self.np_random.integers(2))
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        ended = self.ends and self.steps == 3
        return np.zeros(2, np.float32), float(ended), ended, False, {}


gym.register(ENV_ID, entry_point=f"{__name__}:Halves", reward_threshold=1.0)
