"""An agent loaded from a run: `agent.act(observation)`. It knows its normalisation, its recurrent state and its environment."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from gymlab.engine.run import Run, find_run, runs_directory
from gymlab.engine.seeding import SeedTree
from gymlab.envs.spaces import flatten_observation, space_from_json
from gymlab.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

    from gymlab.config.schema import Config
    from gymlab.engine.checkpoint import Checkpoint
    from gymlab.engine.evaluation import EvaluationResult
    from gymlab.engine.workflow import Workflow
    from gymlab.envs.vector import VectorEnv


class Agent:
    """Acts, whatever the algorithm. One observation gives one action, a batch gives a batch."""

    def __init__(
        self, workflow: Workflow, config: Config, raw_observation_space: Any, checkpoint: Checkpoint | None = None
    ) -> None:
        self.workflow = workflow
        self.config = config
        self.checkpoint = checkpoint
        self.observation_space = raw_observation_space
        self.action_space = workflow.context.action_space
        self.reset()

    @classmethod
    def from_checkpoint(cls, run: Run, checkpoint: Checkpoint) -> Agent:
        """The agent that a checkpoint holds; no environment is made."""
        from gymlab.engine.setup import bind_workflow, make_fabric, set_threads
        from gymlab.engine.train import run_config

        config = run_config(run).model_copy(update={"accelerator": "cpu", "devices": 1, "precision": "32-true"})
        state = checkpoint.read_state()
        observation_space = space_from_json(state["observation_space"])
        set_threads(config, observation_space)
        raw_space = space_from_json(state["raw_observation_space"])
        action_space, fabric = space_from_json(state["action_space"]), make_fabric(config)
        workflow = bind_workflow(config, observation_space, action_space, fabric, raw_observation_space=raw_space)
        load_model(workflow, checkpoint.read_model(), where=str(checkpoint.path))
        # What a schedule had come to when the agent was saved: a share of random actions, for one.
        workflow.hyperparameters.set_state(state["hyperparameters"])
        return cls(workflow, config, raw_space, checkpoint)

    def reset(self) -> None:
        """Forget the episode so far; call it at the start of each one."""
        self._state: Any = None
        self._count = 0

    def seed(self, seed: int) -> None:
        """Draw stochastic actions from the beginning of this seed's stream: the same seed, the same actions."""
        generator = self.workflow.generators.get("act")
        if generator is not None:
            generator.bit_generator.state = SeedTree(seed).child("act").generator().bit_generator.state

    def act(self, observation: Any, *, deterministic: bool = True, action_mask: np.ndarray | None = None) -> Any:
        """The action for an observation as the environment gives it, or actions for a batch of them.

        A dict or tuple may also come as the vector that our environments make of it.
        """
        nested = isinstance(self.observation_space, spaces.Dict | spaces.Tuple)
        if nested and isinstance(observation, np.ndarray):
            batch = observation
        else:
            batch = flatten_observation(self.observation_space, observation)
        single = batch.shape == self.workflow.context.observation_space.shape
        if single:
            batch = batch[None]
            action_mask = None if action_mask is None else action_mask[None]
        if len(batch) != self._count:
            self._state, self._count = self.workflow.initial_state(len(batch)), len(batch)
        action, self._state, self.extras = self.workflow.act(
            batch, self._state, deterministic=deterministic, action_mask=action_mask
        )
        return action[0] if single else action

    def make_env(
        self, num_envs: int = 1, *, seed: int = 0, purpose: str = "play", render_mode: str | None = None
    ) -> VectorEnv:
        """The environment that the agent was trained on, wrappers included, on seeds of its own."""
        from gymlab.engine.setup import evaluation_environment

        return evaluation_environment(self.config, SeedTree(seed), purpose, num_envs, render_mode=render_mode)

    def evaluate(self, episodes: int = 100, *, seed: int = 0, deterministic: bool | None = None) -> EvaluationResult:
        """Returns over fresh episodes that training never saw."""
        from gymlab.engine.evaluation import evaluate

        environment = self.make_env(episodes, seed=seed, purpose="test")
        try:
            chosen = self.config.eval_deterministic if deterministic is None else deterministic
            return evaluate(self.workflow, environment, episodes, deterministic=chosen)
        finally:
            environment.close()


def load_model(
    workflow: Workflow, tensors: dict[str, Tensor], *, where: str, parts: Collection[str] | None = None
) -> None:
    """Put saved parameters into a workflow's modules, or into these `parts` of them; what does not fit is named."""
    for name, module in workflow.modules.items():
        if parts is not None and name not in parts:
            continue
        own = {key.removeprefix(f"{name}."): value for key, value in tensors.items() if key.startswith(f"{name}.")}
        expected = {key: tuple(value.shape) for key, value in module.state_dict().items()}
        found = {key: tuple(value.shape) for key, value in own.items()}
        if expected != found:
            wrong = sorted(key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key))
            first = wrong[0]
            raise CheckpointError(
                f"{where} does not fit this agent: {name}.{first} is {found.get(first, 'missing')}, expected {expected.get(first, 'nothing')} "
                f"({len(wrong)} tensors differ). The environment or the network is another one."
            )
        module.load_state_dict(own)


def load(reference: str = "@last", *, runs_dir: str | Path | None = None) -> Agent:
    """The agent of a run: `@last`, `id`, `id/@best`, `id/epoch=13` or a run's directory."""
    run, which = find_run(reference, runs_directory(runs_dir))
    return Agent.from_checkpoint(run, run.checkpoints.find(which))


def load_best(reference: str = "@last", *, runs_dir: str | Path | None = None) -> tuple[Run, Agent]:
    """The run and its best agent, or the last one of a run without a best; a checkpoint that is named wins."""
    run, which = find_run(reference, runs_directory(runs_dir))
    named = reference.rstrip("/").rpartition("/")[0] and reference.rstrip("/").endswith(which)
    if not named and (run.dir / "checkpoints" / "best.ckpt").exists():
        which = "@best"
    return run, Agent.from_checkpoint(run, run.checkpoints.find(which))
