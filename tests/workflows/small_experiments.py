"""Every algorithm made so small that a training takes a second, on environments whose episodes last five steps."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

import gymlab
from gymlab.engine.run import Run


class Brief(gym.Env):
    """The first number is a side, and it pays to choose it."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space: Any = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._look(), {}

    def step(self, action):
        right = self._is_right(action)
        self.steps += 1
        return self._look(), float(right), self.steps == 5, False, {}

    def _look(self):
        self.side = int(self.np_random.integers(2))
        return np.array([2.0 * self.side - 1, self.steps / 5], np.float32)

    def _is_right(self, action):
        return int(action) == self.side


class BriefContinuous(Brief):
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def _is_right(self, action):
        return (action[0] > 0) == bool(self.side)


class BriefPicture(Brief):
    """The same as a picture: one of its halves is bright."""

    observation_space = gym.spaces.Box(0, 255, (16, 16, 3), np.uint8)

    def _look(self):
        super()._look()
        picture = np.zeros((16, 16, 3), np.uint8)
        picture[:, 8 * self.side : 8 * self.side + 8] = 200
        return picture


for _name, _kind in (
    ("Brief-v0", Brief),
    ("BriefContinuous-v0", BriefContinuous),
    ("BriefPicture-v0", BriefPicture),
):
    if _name not in gym.registry:
        gym.register(_name, _kind)

QUIET = {
    "quiet": True,
    "video": False,
    "torch_threads": 1,
    "eval_freq_epochs": None,
    "eval_episodes": 2,
    "early_stop_on_eval_threshold": False,
    "seed": 0,
}
ON_POLICY = {"n_steps": 8, "batch_size": 1.0, "hidden_dims": [16]}
DREAMER = {"deter": 16, "hidden": 8, "units": 8, "stoch": 4, "batch_size": 2, "batch_length": 4, "horizon": 3}
DREAMER |= {"replay_size": 2000, "prefill_steps": 48, "train_ratio": 8}
TDMPC = {
    "size": "tiny",
    "latent": 16,
    "hidden": 16,
    "encoder_hidden": 16,
    "q_count": 3,
    "batch_size": 4,
    "seed_steps": 48,
}
TDMPC |= {"plan_samples": 16, "plan_policy_samples": 4, "plan_elites": 4, "plan_iterations": 2, "replay_size": 2000}
DELTA_IRIS = {
    "multiples": [1], "halves": [1], "fold": 4, "codebook_size": 8, "codebook_dim": 4, "token_features": 4, "tokenizer_channels": 8,
    "tokenizer_frame_channels": 8, "tokenizer_frame_features": 2, "action_channels": 1, "width": 16, "layers": 1, "heads": 2, "blocks": 4,
    "frame_channels": 8, "frame_features": 4, "actor_channels": 8, "actor_features": 2, "lstm": 8, "burn_in": 1, "horizon": 3,
    "tokenizer_batch": 2, "tokenizer_length": 4, "model_batch": 2, "actor_batch": 3, "collect_env_steps": 20, "first_env_steps": 40,
    "collect_steps": 5, "tokenizer_updates": 2, "model_updates": 2, "actor_updates": 2, "first_tokenizer_updates": 3, "first_model_updates": 2,
    "first_actor_updates": 2, "collect_epochs": None, "max_epochs": None, "replay_size": 1000,
}  # fmt: skip
WORLD_MODELS = {
    "hidden": 8, "mixtures": 2, "batch_size": 4, "batch_length": 8, "replay_size": 2000, "collect_env_steps": 40, "model_updates": 4,
    "population": 4, "rollouts": 2, "n_steps": 16, "elite_rollouts": 16, "predict_reward": True, "predict_end": True,
}  # fmt: skip

EXPERIMENTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ppo": ("Brief-v0", "ppo", ON_POLICY),
    "reinforce": ("Brief-v0", "reinforce", ON_POLICY),
    "q_learning": ("FrozenLake-v1", "q_learning", {"n_steps": 8}),
    "bandit": ("Bandit-v0", "ppo", ON_POLICY),
    "dreamer_v1": ("BriefContinuous-v0", "dreamer", {**DREAMER, "version": "v1", "pretrain_updates": 2}),
    "dreamer_v2": ("Brief-v0", "dreamer", {**DREAMER, "version": "v2", "classes": 4, "pretrain_updates": 2}),
    "dreamer_v3": ("Brief-v0", "dreamer", {**DREAMER, "classes": 4, "blocks": 2}),
    "tdmpc": ("BriefContinuous-v0", "tdmpc", TDMPC),
    "tdmpc2": ("Brief-v0", "tdmpc2", TDMPC),
    "delta_iris": ("BriefPicture-v0", "delta_iris", DELTA_IRIS),
    "world_models": ("Brief-v0", "world_models", WORLD_MODELS),
}
"""Environment, algorithm and settings by name."""


def train_small(name: str, runs_dir: Any, **fields: Any) -> Run:
    """A training of one of them; `fields` lie on top."""
    env_id, algorithm, settings = EXPERIMENTS[name]
    return gymlab.train(env_id, algo=algorithm, runs_dir=runs_dir, run_id=name, **{**QUIET, **settings, **fields})
