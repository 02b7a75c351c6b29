from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from gymnasium import Space

from gymlab.config.schema import Config
from gymlab.engine.hyperparameters import Hyperparameters
from gymlab.engine.seeding import SeedTree
from gymlab.engine.workflow import Counters, PhaseView, Workflow, WorkflowContext
from gymlab.workflows.ppo import PPO, PPOConfig
from gymlab.workflows.reinforce import Reinforce, ReinforceConfig


@dataclass
class Trained:
    """What a short training gave."""

    returns: list[float] = field(default_factory=list)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    env_steps: int = 0
    updates: int = 0


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def maker(kind: type[Workflow], schema: type[Config], name: str) -> Callable[..., Any]:
    def make(
        environment: Any, *, seed: int = 0, fabric: Any = None, observation_space: Space | None = None, **settings: Any
    ) -> Workflow:
        num_envs = environment.num_envs if environment is not None else 1
        config = schema(env_id="test", algo_id=name, seed=seed, n_envs=num_envs, **settings)
        context = WorkflowContext(
            config=config,
            hyperparameters=Hyperparameters(config, config.max_env_steps),
            observation_space=environment.observation_space,
            action_space=environment.action_space,
            device=torch.device("cpu"),
            fabric=fabric,
            seeds=SeedTree(seed),
            counters=Counters(),
            train_environment=environment,
        )
        workflow = kind(context)
        workflow.initialize()
        return workflow

    return make


@pytest.fixture
def make_ppo() -> Callable[..., PPO]:
    return maker(PPO, PPOConfig, "ppo")


@pytest.fixture
def make_reinforce() -> Callable[..., Reinforce]:
    return maker(Reinforce, ReinforceConfig, "reinforce")


@pytest.fixture
def train() -> Callable[..., Trained]:
    def run(workflow: Workflow, env_steps: int) -> Trained:
        """The orchestrator in ten lines."""
        buffer = workflow.default_buffers()["rollout"]
        done = Trained()
        while done.env_steps < env_steps:
            workflow.hyperparameters.follow_schedules(done.env_steps)
            view = PhaseView("ppo", "online", 0.0, done.env_steps, done.updates, 0, env_steps - done.env_steps)
            collected = workflow.collect(view)
            buffer.add(collected.trajectory)
            updated = workflow.update_controller(buffer.sample(), view)
            done.env_steps += collected.env_steps
            done.updates += updated.updates
            done.returns += [episode.env_return for episode in collected.episodes]
            done.metrics.append(dict(updated.metrics))
        return done

    return run
