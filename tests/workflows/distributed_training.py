"""What each process of a distributed training does; importable by name, so that a spawned process finds it."""

import json
from pathlib import Path

import torch
from fake_environment import identity
from lightning_fabric import Fabric

from gymlab.engine.hyperparameters import Hyperparameters
from gymlab.engine.seeding import SeedTree
from gymlab.engine.workflow import Counters, PhaseView, WorkflowContext
from gymlab.workflows.ppo import PPO, PPOConfig

VIEW = PhaseView("ppo", "online", 0.0, 0, 0, 0, None)


def train_on_one_process(fabric: Fabric, directory: str) -> None:
    torch.set_num_threads(1)
    rank = fabric.global_rank
    config = PPOConfig(
        env_id="test", algo_id="ppo", n_envs=4, n_steps=16, batch_size=32, n_epochs=2, target_kl=0.02, policy_lr=3e-3
    )
    environment = identity(4, length=1, seed=rank)
    workflow = PPO(
        WorkflowContext(
            config=config,
            hyperparameters=Hyperparameters(config, None),
            observation_space=environment.observation_space,
            action_space=environment.action_space,
            device=fabric.device,
            fabric=fabric,
            seeds=SeedTree(0).child("rank", rank),
            counters=Counters(),
            train_environment=environment,
        )
    )
    workflow.initialize()
    buffer = workflow.default_buffers()["rollout"]
    updates = 0
    for _ in range(5):
        buffer.add(workflow.collect(VIEW).trajectory)
        updates += workflow.update_controller(buffer.sample(), VIEW).updates
    found = {
        "weights": workflow.flat.parameter.tolist(),
        "updates": updates,
        "backend": workflow.update_backend,
    }
    Path(directory, f"{rank}.json").write_text(json.dumps(found))
