"""An agent loaded from a run: `agent.act(observation)`. It knows its normalisation, its recurrent state and its environment."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from gymlab.engine.run import Run, find_run, runs_directory
from gymlab.engine.seeding import SeedTree
from gymlab.envs.spaces import flatten_observation, same_form, space_from_json
from gymlab.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from torch import Tensor

    from gymlab.config.schema import Config
    from gymlab.engine.checkpoint import Checkpoint
    from gymlab.engine.evaluation import EvaluationResult, Limits
    from gymlab.engine.origin import EnvKwargs
    from gymlab.engine.workflow import Workflow
    from gymlab.envs.vector import VectorEnv

logger = logging.getLogger(__name__)

REPORTED = "test"
"""The stream of seeds that the episodes of a run's report come from."""
SPACES = ("observation_space", "raw_observation_space", "action_space")


class Agent:
    """Acts, whatever the algorithm. One observation gives one action, a batch gives a batch."""

    def __init__(
        self,
        workflow: Workflow,
        config: Config,
        raw_observation_space: Any,
        checkpoint: Checkpoint | None = None,
        workflow_state: Any = None,
    ) -> None:
        self.workflow = workflow
        self.config = config
        self.checkpoint = checkpoint
        """Where it was loaded from; a run that trains may have deleted it since."""
        self.workflow_state = workflow_state
        """What the workflow had saved beside its parameters, for an agent that learned on normalised rewards."""
        self.observation_space = raw_observation_space
        self.action_space = workflow.context.action_space
        self.reset()

    @classmethod
    def from_run(cls, run: Run, which: str = "@last", env_kwargs: EnvKwargs = ()) -> Agent:
        """The agent of a run's checkpoint, `@last`, `@best` or `epoch=13`; no environment is made. The run may be training meanwhile.

        `env_kwargs` lie on top of the run's: see `load`.
        """
        return SavedAgent.read(run, which, env_kwargs).build()

    def reset(self) -> None:
        """Forget the episode so far; call it at the start of each one."""
        self._state: Any = None
        self._count = 0

    def seed(self, seed: int) -> None:
        """Draw stochastic actions from the beginning of this seed's stream: the same seed, the same actions."""
        self.workflow.seed_acting(SeedTree(seed))

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

        environment = evaluation_environment(self.config, SeedTree(seed), purpose, num_envs, render_mode=render_mode)
        try:
            self.check_spaces(environment.raw_observation_space, environment.action_space)
        except BaseException:
            environment.close()
            raise
        return environment

    def check_spaces(self, observation_space: Any, action_space: Any) -> None:
        """An error where an environment is not the one that the agent was trained on: arguments may have made it another."""
        for what, found, own in (
            ("observations", observation_space, self.observation_space),
            ("actions", action_space, self.action_space),
        ):
            if not same_form(found, own):
                raise ConfigError(
                    f"{self.config.env_id} has {what} {found} with env_kwargs {self.config.env_kwargs} and the run's wrappers; "
                    f"the agent was trained on {own}. Give the arguments that it was trained with, or train another agent."
                )

    def evaluate(
        self,
        episodes: int = 100,
        *,
        seed: int = 0,
        deterministic: bool | None = None,
        limits: Limits | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> EvaluationResult:
        """Returns over fresh episodes that training never saw; where it gives up the config says, unless `limits` do.

        `progress` is told finished episodes and steps now and then.
        """
        chosen = self.config.eval_deterministic if deterministic is None else deterministic
        with self.make_env(episodes, seed=seed, purpose="test") as environment:
            return self._evaluate(environment, episodes, chosen, None, limits, progress)

    def evaluate_as_reported(
        self,
        backend: str | None,
        *,
        limits: Limits | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> EvaluationResult:
        """Play the episodes of the run's report again: its test stream, stepped by the `backend` that the run recorded."""
        from gymlab.engine.setup import evaluation_environment, run_seeds

        config, seeds = self.config, run_seeds(self.config)
        self.workflow.seed_acting(seeds.child(REPORTED))
        with evaluation_environment(config, seeds, REPORTED, config.eval_episodes, backend=backend) as environment:
            return self._evaluate(environment, config.eval_episodes, config.eval_deterministic, seeds, limits, progress)

    def _evaluate(
        self,
        environment: VectorEnv,
        episodes: int,
        deterministic: bool,
        seeds: SeedTree | None,
        limits: Limits | None,
        progress: Callable[[int, int], None] | None,
    ) -> EvaluationResult:
        from gymlab.engine.evaluation import Limits, evaluate

        return evaluate(
            self.workflow,
            environment,
            episodes,
            deterministic=deterministic,
            seeds=seeds,
            limits=limits or Limits.of(self.config),
            progress=progress,
        )


@dataclass(frozen=True)
class SavedAgent:
    """What a checkpoint holds of an agent, in memory: a network takes seconds to build, and a run that trains may delete the files meanwhile."""

    config: Config
    checkpoint: Checkpoint
    written: float
    """When the checkpoint was, in seconds since 1970."""
    state: Mapping[str, Any]
    model: Mapping[str, Tensor]
    workflow_state: Any

    @classmethod
    def read(
        cls,
        run: Run,
        which: str = "@last",
        env_kwargs: EnvKwargs = (),
        check: Callable[[Checkpoint], None] | None = None,
    ) -> SavedAgent:
        """Read a checkpoint of a run that may be training; `check` may refuse one before it is read."""
        from gymlab.engine.train import run_config

        on_cpu = {"accelerator": "cpu", "devices": 1, "precision": "32-true"}
        config = run_config(run, env_kwargs).model_copy(update=on_cpu)

        def take(checkpoint: Checkpoint) -> SavedAgent:
            if check is not None:
                check(checkpoint)
            state, model = checkpoint.read_state(*SPACES, "hyperparameters"), checkpoint.read_model()
            workflow_state = checkpoint.read_part("workflow") if config.normalize_reward else None
            return cls(config, checkpoint, checkpoint.written, state, model, workflow_state)

        return run.checkpoints.read(which, take)

    def build(self) -> Agent:
        """The agent that it is; no environment is made."""
        from gymlab.engine.checkpoint import understood
        from gymlab.engine.setup import bind_workflow, make_fabric, set_threads

        with understood(f"The spaces in {self.checkpoint.path / 'state.json'}"):
            observation, raw, action = (space_from_json(self.state[name]) for name in SPACES)
        set_threads(self.config, observation)
        fabric = make_fabric(self.config)
        workflow = bind_workflow(self.config, observation, action, fabric, raw_observation_space=raw)
        load_model(workflow, self.model, where=str(self.checkpoint.path))
        # What a schedule had come to when the agent was saved: a share of random actions, for one.
        with understood(f"hyperparameters in {self.checkpoint.path / 'state.json'}"):
            workflow.hyperparameters.set_state(self.state["hyperparameters"])
        return Agent(workflow, self.config, raw, self.checkpoint, self.workflow_state)


def load_model(
    workflow: Workflow, tensors: Mapping[str, Tensor], *, where: str, parts: Collection[str] | None = None
) -> None:
    """Put saved parameters into a workflow's modules, or into these `parts` of them; what does not fit, or is no number, is named."""
    for name, module in workflow.modules.items():
        if parts is not None and name not in parts:
            continue
        own = {key.removeprefix(f"{name}."): value for key, value in tensors.items() if key.startswith(f"{name}.")}
        present = module.state_dict()
        expected = {key: tuple(value.shape) for key, value in present.items()}
        found = {key: tuple(value.shape) for key, value in own.items()}
        if expected != found:
            wrong = sorted(key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key))
            first = wrong[0]
            raise CheckpointError(
                f"{where} does not fit this agent: {name}.{first} is {found.get(first, 'missing')}, expected {expected.get(first, 'nothing')} "
                f"({len(wrong)} tensors differ). The environment or the network is another one."
            )
        for key, value in own.items():
            _check_type(f"{name}.{key}", value, present[key], where)
        learned = {key for key, _ in module.named_parameters()}
        for key, value in own.items():
            _check_finite(f"{name}.{key}", value, where, infinity_allowed=key not in learned)
        module.load_state_dict(own)


def _check_type(name: str, found: Tensor, expected: Tensor, where: str) -> None:
    """The same type, or another precision of numbers with a fraction: a run in bfloat16 is evaluated in float32."""
    if found.dtype != expected.dtype and not (found.is_floating_point() and expected.is_floating_point()):
        raise CheckpointError(
            f"{where} does not fit this agent: {name} holds {_short(found)}, expected {_short(expected)}. "
            "It was not written by this network; use another checkpoint."
        )


def _short(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _check_finite(name: str, found: Tensor, where: str, *, infinity_allowed: bool) -> None:
    """A NaN anywhere, or an infinite parameter, is an agent that cannot act; a constant beside the parameters may be infinite."""
    wrong = found.isnan() if infinity_allowed else ~found.isfinite()
    if wrong.any():
        what = "NaN" if infinity_allowed else "NaN or infinite"
        raise CheckpointError(
            f"{where} is of no use: {int(wrong.sum()):,} of {found.numel():,} values of {name} are {what}. "
            "The training had diverged when it was written, or the file was changed. Use an earlier checkpoint of the run."
        )


def load(reference: str = "@last", *, runs_dir: str | Path | None = None, env_kwargs: EnvKwargs = ()) -> Agent:
    """The agent of a run: `@last`, `id`, `id/@best`, `id/epoch=13` or a run's directory.

    `env_kwargs` lie on top of the run's. A file that the run's config names, such as `config_path`, is refused unless it is named here.
    """
    run, which = find_run(reference, runs_directory(runs_dir))
    return Agent.from_run(run, which, env_kwargs)


def load_best(
    reference: str = "@last", *, runs_dir: str | Path | None = None, env_kwargs: EnvKwargs = ()
) -> tuple[Run, Agent]:
    """The run and its best agent, or the last one of a run without a best that is whole; a checkpoint that is named wins."""
    run, which = find_run(reference, runs_directory(runs_dir))
    named = reference.rstrip("/").rpartition("/")[0] and reference.rstrip("/").endswith(which)
    if not named and run.checkpoints.best is not None:
        try:
            return run, Agent.from_run(run, "@best", env_kwargs)
        except CheckpointError as error:
            logger.warning("%s The newest checkpoint that is whole takes its place.", error)
    return run, Agent.from_run(run, which, env_kwargs)
