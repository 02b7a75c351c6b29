"""skrl: Gymnasium's SyncVectorEnv, its sequential trainer, TensorBoard writing once a rollout."""

from __future__ import annotations

import tempfile
import time
from typing import Any

import gymnasium
import torch
from skrl.agents.torch.ppo import PPO, PPO_CFG
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.models.torch import CategoricalMixin, DeterministicMixin, Model
from skrl.trainers.torch import SequentialTrainer
from skrl.utils import set_seed

from gymlab.bench.measure import Mark
from gymlab.bench.settings import Setting


def mlp(inputs: int, outputs: int) -> torch.nn.Sequential:
    """The network of the comparison."""
    return torch.nn.Sequential(
        torch.nn.Linear(inputs, 64),
        torch.nn.Tanh(),
        torch.nn.Linear(64, 64),
        torch.nn.Tanh(),
        torch.nn.Linear(64, outputs),
    )


class Policy(CategoricalMixin, Model):
    """Logits of the actions."""

    def __init__(self, **spaces: Any) -> None:
        Model.__init__(self, **spaces)
        CategoricalMixin.__init__(self)
        self.net = mlp(self.num_observations, self.num_actions)

    def compute(self, inputs: dict[str, Any], role: str) -> tuple[torch.Tensor, dict[str, Any]]:
        """Logits for a batch of observations."""
        return self.net(inputs["observations"]), {}


class Value(DeterministicMixin, Model):
    """The state's value."""

    def __init__(self, **spaces: Any) -> None:
        Model.__init__(self, **spaces)
        DeterministicMixin.__init__(self)
        self.net = mlp(self.num_observations, 1)

    def compute(self, inputs: dict[str, Any], role: str) -> tuple[torch.Tensor, dict[str, Any]]:
        """Values for a batch of observations."""
        return self.net(inputs["observations"]), {}


class MarkedPPO(PPO):
    """skrl's PPO with a mark after every update."""

    marks: list[Mark]

    def post_interaction(self, *, timestep: int, timesteps: int) -> None:
        """Update where skrl does, then mark."""
        super().post_interaction(timestep=timestep, timesteps=timesteps)
        if (timestep + 1) % self.cfg.rollouts == 0:
            self.marks.append(Mark((timestep + 1) * self.env_count, time.perf_counter(), time.process_time()))


def train(
    setting: Setting, env_steps: int, seed: int, options: dict[str, Any], max_seconds: float | None
) -> list[Mark]:
    """Train for `env_steps` and give a mark for every cycle."""
    set_seed(seed)
    env = wrap_env(gymnasium.make_vec(setting.env_id, num_envs=setting.n_envs, vectorization_mode="sync"))
    spaces = {"observation_space": env.observation_space, "action_space": env.action_space, "device": env.device}
    with tempfile.TemporaryDirectory() as log_dir:
        configuration = PPO_CFG(
            rollouts=setting.n_steps,
            learning_epochs=setting.n_epochs,
            mini_batches=setting.rollout // setting.batch_size,
            discount_factor=setting.gamma,
            gae_lambda=setting.gae_lambda,
            learning_rate=setting.learning_rate,
            ratio_clip=setting.clip_range,
            value_clip=0.0,
            value_loss_scale=0.5,
            grad_norm_clip=0.5,
            time_limit_bootstrap=True,
        )
        configuration.experiment.directory = log_dir
        configuration.experiment.write_interval = setting.n_steps
        configuration.experiment.checkpoint_interval = 0
        agent = MarkedPPO(
            models={"policy": Policy(**spaces), "value": Value(**spaces)},
            memory=RandomMemory(memory_size=setting.n_steps, num_envs=setting.n_envs, device=env.device),
            cfg=configuration,
            **spaces,
        )
        agent.env_count = setting.n_envs
        agent.marks = [Mark(0, time.perf_counter(), time.process_time())]
        timesteps = env_steps // setting.n_envs
        trainer = SequentialTrainer(
            env=env, agents=agent, cfg={"timesteps": timesteps, "headless": True, "disable_progressbar": True}
        )
        trainer.train()
    return agent.marks
