"""From a config to everything a run needs: environments, components, buffers, Fabric, and the workflow bound to them."""

from __future__ import annotations

import ctypes
import os
import random
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium.spaces import flatdim
from threadpoolctl import threadpool_limits

from gymlab.config.derive import budget_of
from gymlab.config.dimensions import bind_dimensions
from gymlab.config.effects import check_on_environments
from gymlab.config.phases import parse_phases
from gymlab.config.schema import Config
from gymlab.config.targets import instantiate
from gymlab.engine.controllers import ControllerManager
from gymlab.engine.hyperparameters import Hyperparameters
from gymlab.engine.phases import PhaseScheduler, buffer_of, collects
from gymlab.engine.secrets import take_secrets
from gymlab.engine.seeding import SeedTree
from gymlab.engine.signals import StopSignal
from gymlab.engine.workflow import Counters, Workflow, WorkflowContext, find_workflow
from gymlab.envs import make_vector
from gymlab.envs.families import family_of
from gymlab.envs.kinds import kinds_of
from gymlab.envs.restarts import Restarts
from gymlab.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from gymnasium import Space
    from lightning_fabric import Fabric

    from gymlab.envs.pace import Pace
    from gymlab.envs.vector import VectorEnv

FULL, MIXED = "32-true", "bf16-mixed"
"""Number formats that there are: gradients in 16-mixed would have to be scaled, which no algorithm here does."""
MOST_EVALUATION_ENVS = 128
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Of glibc's malloc.h."""


@dataclass
class Session:
    """What the orchestrator works with."""

    config: Config
    fabric: Fabric
    seeds: SeedTree
    counters: Counters
    hyperparameters: Hyperparameters
    environment: VectorEnv
    workflow: Workflow
    scheduler: PhaseScheduler
    buffers: dict[str, Any]
    restarts: Restarts
    """What the failures of all environments of the run, for training and for evaluation, are counted by."""
    stop_signal: StopSignal
    notices: Sequence[str] = ()
    """What is to be said about settings that do nothing on these environments."""
    watch: Callable[[VectorEnv], Any] | None = None
    """Is given every environment that evaluations play in."""

    def make_evaluation_environment(self, purpose: str, episodes: int, render_mode: str | None = None) -> VectorEnv:
        """Environments with a seed stream of their own; as many as pay off, never more than episodes."""
        environment = evaluation_environment(
            self.config,
            self.seeds,
            purpose,
            episodes,
            backend=self.environment.backend,
            render_mode=render_mode,
            restarts=self.restarts,
            pace=self.environment.pace,
        )
        if self.watch is not None and render_mode is None:
            self.watch(environment)
        return environment

    def close(self) -> None:
        """Release the environments, and the threads of buffers that have some."""
        self.environment.close()
        for buffer in self.buffers.values():
            if hasattr(buffer, "close"):
                buffer.close()


def evaluation_environment(
    config: Config,
    seeds: SeedTree,
    purpose: str,
    episodes: int,
    *,
    backend: str | None = None,
    render_mode: str | None = None,
    restarts: Restarts | None = None,
    pace: Pace | None = None,
) -> VectorEnv:
    """A vector environment to evaluate on: wide where a step costs the same for many, else as many as in training."""
    take_secrets(config)
    capped = episode_capped(config, video=render_mode is not None)
    apart = family_of(config.env_id).one_a_process
    if apart:
        # Whatever this process already holds, one more environment has a process to itself.
        backend = "async"
    if render_mode is not None:
        single = "async" if backend == "async" else "sync"
        return make_vector(
            capped, 1, seeds, purpose=purpose, backend=single, render_mode=render_mode, restarts=restarts
        )
    width = 1 if apart else MOST_EVALUATION_ENVS if backend == "native" else config.n_envs
    count = min(episodes, width)
    return make_vector(capped, count, seeds, purpose=purpose, backend=backend, restarts=restarts, pace=pace)


def episode_capped(config: Config, *, video: bool = False) -> Config:
    """The config with the time limit that episodes have outside of training."""
    own = config.video_max_episode_steps if video else None
    caps = [cap for cap in (config.max_episode_steps, own or config.eval_max_episode_steps) if cap is not None]
    return config.model_copy(update={"max_episode_steps": min(caps)}) if caps else config


def make_fabric(config: Config) -> Fabric:
    """Fabric for the device and precision asked for; launched only when there is more than one process.

    NumPy is kept to one thread from here on, workers included: its matrices are small, and two threads would only wait for each other.
    """
    if config.precision not in (FULL, MIXED):
        raise ConfigError(
            f"precision: {config.precision!r} is none of {FULL} and {MIXED}. Of 16 bits there is {MIXED} alone: it has the range of float32, "
            "and its gradients need no scaling."
        )
    threadpool_limits(1, user_api="blas")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from lightning_fabric import Fabric

    try:
        fabric = Fabric(accelerator=config.accelerator, devices=config.devices, precision=config.precision)  # type: ignore[arg-type]
    except (ValueError, RuntimeError, TypeError, ImportError) as error:
        raise ConfigError(
            f"accelerator={config.accelerator!r}, devices={config.devices!r}, precision={config.precision!r} cannot be used here: "
            f"{str(error).rstrip('.!')}.{_device_fix(config)}"
        ) from error
    if fabric.world_size > 1:
        fabric.launch()
    return fabric


def _device_fix(config: Config) -> str:
    """What to do where the device that was asked for is not there."""
    if config.accelerator in ("auto", "cpu"):
        return ""
    build = (
        ""
        if config.accelerator != "gpu" or torch.version.cuda or torch.version.hip
        else " This torch was built without support for GPUs: https://pytorch.org/get-started/locally has the line that installs one."
    )
    return f" Set accelerator=auto, which takes a GPU where there is one, or accelerator=cpu.{build}"


def set_threads(config: Config, observation_space: Space, chosen: int | None = None) -> None:
    """One torch thread for small networks, all cores for convolutions; a number in the config wins, and then what was `chosen` once."""
    is_image = observation_space.shape is not None and len(observation_space.shape) == 3
    torch.set_num_threads(config.torch_threads or chosen or ((os.cpu_count() or 1) if is_image else 1))


def keep_freed_memory() -> None:
    """Let glibc keep what tensors free: large activations are else given back, and paid for again page by page.

    Other C libraries do as they do.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(M_TRIM_THRESHOLD, -1)  # never
        mallopt(M_MMAP_MAX, 0)  # no piece of its own, however large


def bind_workflow(
    config: Config,
    observation_space: Space,
    action_space: Space,
    fabric: Fabric,
    *,
    raw_observation_space: Space | None = None,
    environment: VectorEnv | None = None,
    counters: Counters | None = None,
    stop_requested: Callable[[], bool] = lambda: False,
) -> Workflow:
    """The workflow of a config, initialised: with an environment to train, without one only to act."""
    workflow_class = find_workflow(config.algo_id)
    if workflow_class.one_process and fabric.world_size > 1:
        raise ConfigError(f"devices: {config.algo_id} trains in one process. Set devices: 1.")
    if config.precision != FULL and not workflow_class.mixed_precision:
        raise ConfigError(f"precision: {config.algo_id} computes in {FULL} alone. Leave precision out.")
    config = bind_dimensions(config, observation=flatdim(observation_space), action=flatdim(action_space))
    counters = counters or Counters()
    context = WorkflowContext(
        config=config,
        hyperparameters=Hyperparameters(config, budget_of(config)),
        observation_space=observation_space,
        action_space=action_space,
        device=fabric.device,
        fabric=fabric,
        seeds=run_seeds(config, fabric.global_rank),
        counters=counters,
        raw_observation_space=raw_observation_space,
        train_environment=environment,
        components=SimpleNamespace(**_build_slots(config, "components")),
        controller_manager=ControllerManager(_build_slots(config, "controllers")),
        buffers=_build_slots(config, "buffers"),
        optimizers=_build_slots(config, "optimizers"),
        stop_requested=stop_requested,
    )
    _seed_libraries(context.seeds.child("libraries"))
    workflow = workflow_class(context)
    workflow.initialize()
    return workflow


def _build_slots(config: Config, group: str) -> dict[str, Any]:
    """The parts that a config describes in one of its slot groups, by name."""
    built = {}
    for name, node in getattr(config, group).items():
        try:
            built[name] = instantiate(node)
        except ConfigError as error:
            raise ConfigError(f"{group}.{name}: {error}") from error
    return built


def run_seeds(config: Config, rank: int = 0) -> SeedTree:
    """The root of all randomness of a run, in one of its processes; evaluations are the first one's."""
    return SeedTree(config.seed).child("rank", rank)


def _seed_libraries(seeds: SeedTree) -> None:
    """Seed the global generators that network initialisation and third-party code draw from."""
    torch.manual_seed(seeds.child("torch").integer())
    random.seed(seeds.child("python").integer())
    np.random.seed(seeds.child("numpy").integer() % 2**32)


def prepare(
    config: Config, backend: str | None = None, threads: int | None = None, *, resumed: bool = False
) -> Session:
    """Build everything that training needs; nothing is written to disk here. A resumed run keeps the `backend` and `threads` it had chosen.

    A setting that does nothing on these environments is refused; a resumed run, which was trained so, is told.
    """
    take_secrets(config, training=True)
    fabric = make_fabric(config)
    smallest = _smallest_collection(config, fabric.world_size)
    seeds = run_seeds(config, fabric.global_rank)
    counters, stop_signal = Counters(), StopSignal()
    restarts = Restarts(config.env_restarts, lambda: stop_signal.requested, env_id=config.env_id)
    environment = make_vector(config, config.n_envs, seeds, purpose="train", backend=backend, restarts=restarts)
    try:
        notices = check_on_environments(config, kinds_of(environment, config.env_id), resumed=resumed)
    except ConfigError:
        environment.close()
        raise
    set_threads(config, environment.observation_space, threads)
    workflow = bind_workflow(
        config,
        environment.observation_space,
        environment.action_space,
        fabric,
        raw_observation_space=environment.raw_observation_space,
        environment=environment,
        counters=counters,
        # The processes of a distributed run are asked at different moments: they finish what they collect.
        stop_requested=stop_signal.look if fabric.world_size == 1 else lambda: False,
    )
    keep_freed_memory()
    phases = config.training.phases or parse_phases(workflow.phases, type(workflow).__name__)
    scheduler = PhaseScheduler(
        phases,
        config.max_env_steps,
        fabric.world_size,
        smallest=smallest,
        stepless=workflow.stepless_hooks,
    )
    buffers = _bind_buffers(workflow)
    scheduler.lacks = lambda name: buffers[name].lacks() if hasattr(buffers.get(name), "lacks") else ""
    _check_hooks(workflow, scheduler, buffers)
    return Session(
        config,
        fabric,
        seeds,
        counters,
        workflow.hyperparameters,
        environment,
        workflow,
        scheduler,
        buffers,
        restarts,
        stop_signal,
        notices,
    )


def _smallest_collection(config: Config, processes: int) -> int:
    """Env steps of one vector step of all processes; a budget of fewer could only be exceeded."""
    smallest = config.n_envs * processes
    if config.max_env_steps is not None and config.max_env_steps < smallest:
        each = f" in each of {processes} processes" if processes > 1 else ""
        raise ConfigError(
            f"max_env_steps: {config.max_env_steps:,} env steps are fewer than one step of {config.n_envs:,} environments{each}. "
            f"Set n_envs: {max(1, config.max_env_steps // processes):,}, or a budget of {smallest:,} at least."
        )
    return smallest


def _bind_buffers(workflow: Workflow) -> dict[str, Any]:
    """The config's buffers and the workflow's own; `_partial_` ones the workflow has completed with what only it knows."""
    buffers = workflow.default_buffers()
    for name, buffer in workflow.context.buffers.items():
        if not isinstance(buffer, partial):
            if not hasattr(buffer, "get_state"):
                raise ConfigError(
                    f"buffers.{name} is no buffer but {buffer!r}: a buffer has a `_target_`. {did_you_mean(name, buffers)} "
                    f"{workflow.config.algo_id} has: {', '.join(buffers) or 'none'}."
                )
            buffers[name] = buffer
        elif name not in buffers:
            raise ConfigError(
                f"buffers.{name}: `_partial_: true` leaves open what {workflow.config.algo_id} does not fill in. "
                f"{did_you_mean(name, buffers)} It has: {', '.join(buffers) or 'none'}."
            )
    return buffers


def _check_hooks(workflow: Workflow, scheduler: PhaseScheduler, buffers: dict[str, Any]) -> None:
    """Every hook and buffer that a phase names must exist before the first step is taken."""
    for phase in scheduler.phases:
        for hook in phase.hooks:
            if hook.name != "evaluate" and not callable(getattr(workflow, hook.name, None)):
                known = [name for name in dir(workflow) if name.startswith(("collect", "update_"))]
                raise ConfigError(
                    f"Phase {phase.name!r} names the hook {hook.name!r}, which {workflow.config.algo_id} does not have. "
                    f"{did_you_mean(hook.name, known)} It has: {', '.join(known)}, evaluate."
                )
            if hook.name != "evaluate":
                _check_buffer(f"Hook {hook.name!r} of phase {phase.name!r}", buffer_of(hook, phase), buffers, hook.name)
        if phase.buffer is not None and phase.buffer not in buffers:
            raise _unknown_buffer(f"Phase {phase.name!r}", phase.buffer, buffers)


def _check_buffer(place: str, name: str | None, buffers: dict[str, Any], hook: str) -> None:
    """A hook's buffer must exist and do what the hook needs: some only take in, others only give out."""
    if name is None:
        return
    if name not in buffers:
        raise _unknown_buffer(place, name, buffers)
    method, use = ("add", "adds to") if collects(hook) else ("sample", "draws from")
    if not hasattr(buffers[name], method):
        able = [other for other, buffer in buffers.items() if hasattr(buffer, method)]
        raise ConfigError(
            f"{place} {use} the buffer {name!r}, which cannot do that. Name another with `buffer:` at the hook: {', '.join(able) or 'none'}."
        )


def _unknown_buffer(place: str, name: str, buffers: dict[str, Any]) -> ConfigError:
    return ConfigError(
        f"{place} names the buffer {name!r}. {did_you_mean(name, buffers)} Known: {', '.join(buffers) or 'none'}."
    )
