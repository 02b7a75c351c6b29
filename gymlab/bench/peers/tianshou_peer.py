"""tianshou: its in-process vector environment, on-policy trainer and TensorBoard logger."""

from __future__ import annotations

import tempfile
import time
from typing import Any

import gymnasium
import torch
from gymnasium.spaces import Discrete
from tianshou.algorithm import PPO
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OnPolicyTrainerParams
from tianshou.utils import TensorboardLogger
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic
from torch.utils.tensorboard import SummaryWriter

from gymlab.bench.measure import Mark
from gymlab.bench.settings import Setting


def build(setting: Setting, env: gymnasium.Env) -> PPO:
    """tianshou's PPO with two separate networks."""
    assert isinstance(env.action_space, Discrete)
    actor, critic = (
        Net(state_shape=env.observation_space.shape, hidden_sizes=[64, 64], activation=torch.nn.Tanh) for _ in range(2)
    )
    policy = DiscreteActorPolicy(
        actor=DiscreteActor(preprocess_net=actor, action_shape=env.action_space.n, softmax_output=False),
        dist_fn=lambda logits: torch.distributions.Categorical(logits=logits),
        action_space=env.action_space,
    )
    return PPO(
        policy=policy,
        critic=DiscreteCritic(preprocess_net=critic),
        optim=AdamOptimizerFactory(lr=setting.learning_rate, eps=1e-5),
        eps_clip=setting.clip_range,
        vf_coef=0.5,
        ent_coef=0.0,
        max_grad_norm=0.5,
        gae_lambda=setting.gae_lambda,
        gamma=setting.gamma,
        max_batchsize=setting.rollout,
    )


def train(
    setting: Setting, env_steps: int, seed: int, options: dict[str, Any], max_seconds: float | None
) -> list[Mark]:
    """Train for `env_steps` and give a mark for every cycle."""
    torch.manual_seed(seed)
    envs = DummyVectorEnv([lambda: gymnasium.make(setting.env_id) for _ in range(setting.n_envs)])
    envs.seed(seed)
    algorithm = build(setting, gymnasium.make(setting.env_id))
    marks: list[Mark] = []

    def mark(epoch: int, step: int) -> None:
        marks.append(Mark(len(marks) * setting.rollout, time.perf_counter(), time.process_time()))

    with tempfile.TemporaryDirectory() as log_dir, SummaryWriter(log_dir) as writer:
        algorithm.run_training(
            OnPolicyTrainerParams(
                training_collector=Collector(algorithm, envs, VectorReplayBuffer(setting.rollout, setting.n_envs)),
                max_epochs=1,
                epoch_num_steps=env_steps,
                collection_step_num_env_steps=setting.rollout,
                update_step_num_repetitions=setting.n_epochs,
                batch_size=setting.batch_size,
                training_fn=mark,
                logger=TensorboardLogger(writer),
                show_progress=False,
                verbose=False,
            )
        )
    mark(1, 0)
    return marks
