"""From a config to environments: wrappers in order, and the backend that steps them."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium as gym

from gymlab.config.schema import Config
from gymlab.envs.adapter import GymnasiumVector
from gymlab.envs.contract import contained
from gymlab.envs.families import Family, family_of
from gymlab.envs.native import NATIVE
from gymlab.envs.pace import SLOW_STEP_SECONDS, UNKNOWN, Pace, cores, measure_pace, worker_count
from gymlab.envs.restarts import Restarts
from gymlab.envs.spaces import flattened_images
from gymlab.envs.subenv import EpisodeRecorder, SubEnv
from gymlab.envs.sync import SyncVector
from gymlab.envs.vector import EnvironmentSpec, Seeds, VectorEnv
from gymlab.envs.worker import Failed, call_apart
from gymlab.envs.workers import START_TIMEOUT, AsyncVector
from gymlab.envs.wrappers import FrameSkipWrapper, FrameStack, ImageObservation, PixelObservationWrapper
from gymlab.envs.wrappers.images import is_channel_last
from gymlab.envs.wrappers.registry import WrapperContext, apply_wrappers, needs_shared_state, wrapper_classes
from gymlab.errors import ConfigError, EnvironmentFailure, did_you_mean

BACKENDS = ("auto", "native", "sync", "async")


@dataclass(frozen=True)
class Blueprint:
    """Everything that making one environment of a config needs, resolved once."""

    config: Config
    family: Family
    spec: EnvironmentSpec
    env_kwargs: dict[str, Any]
    seeds: Seeds | None
    purpose: str
    render_mode: str | None
    shared: dict[str, Any] = field(default_factory=dict)
    tap: Callable[[gym.Env], gym.Env] | None = None
    """A wrapper right around the environment itself, to listen to what it says before anybody else."""

    def make(self, env_index: int) -> SubEnv:
        """Environment number `env_index` with all its wrappers."""
        with contained():
            return self._make(env_index)

    def _make(self, env_index: int) -> SubEnv:
        config = self.config
        pixels = config.obs_type == "rgb" or PixelObservationWrapper in wrapper_classes(config.env_wrappers)
        render_mode = "rgb_array" if pixels else self.render_mode
        _prepare_display(render_mode, self.spec.id)
        env = self.family.make(self.spec.id, self.env_kwargs, render_mode)
        env = env if self.tap is None else self.tap(env)
        env = recorder = EpisodeRecorder(env, self.spec.max_episode_steps)
        env = self.family.shown(env, self.env_kwargs)
        if config.frame_skip > 1 and not self.family.skips_frames:
            env = FrameSkipWrapper(env, config.frame_skip)
        if config.obs_type == "rgb" and not is_channel_last(env.observation_space):
            env = self.family.pixels(env, self.env_kwargs)
        context = WrapperContext(self.purpose, env_index, _gamma(config), self.shared)
        env = apply_wrappers(env, config.env_wrappers, context, self.spec.id)
        if config.grayscale_obs or config.resize_obs or is_channel_last(env.observation_space):
            env = ImageObservation(env, config.grayscale_obs, config.resize_obs)
        if config.frame_stack > 1:
            env = FrameStack(env, config.frame_stack)
        return SubEnv(env, recorder, registered=self.spec, seeds=self.seeds, purpose=self.purpose, env_index=env_index)


def blueprint(
    config: Config, seeds: Seeds | None = None, purpose: str = "train", render_mode: str | None = None
) -> Blueprint:
    """Family, spec (with the config's own time limit) and arguments of the config's environment."""
    family = family_of(config.env_id)
    env_id = family.resolve(config.env_id)
    env_kwargs = family.configured(env_id, config, purpose)
    spec = family.spec(env_id, env_kwargs)
    if config.max_episode_steps is not None:
        spec = replace(spec, max_episode_steps=config.max_episode_steps)
    if config.obs_type in ("ram", "objects") and family.name != "atari":
        raise ConfigError(f"obs_type: {config.obs_type} exists for Atari only; {env_id} gives vector or rgb.")
    return Blueprint(config, family, spec, env_kwargs, seeds, purpose, render_mode or config.render_mode)


def episode_steps(config: Config) -> int | None:
    """The time limit of the config's environment, in its own steps; no environment is made."""
    return blueprint(config).spec.max_episode_steps


def make_env(
    config: Config,
    *,
    seeds: Seeds | None = None,
    env_index: int = 0,
    render_mode: str | None = None,
    purpose: str = "train",
    tap: Callable[[gym.Env], gym.Env] | None = None,
) -> SubEnv:
    """One environment as the agent sees it; with `seeds`, each episode has the seed of its place in the tree."""
    return replace(blueprint(config, seeds, purpose, render_mode), tap=tap).make(env_index)


def make_vector(
    config: Config,
    num_envs: int,
    seeds: Seeds,
    *,
    purpose: str = "train",
    backend: str | None = None,
    render_mode: str | None = None,
    restarts: Restarts | None = None,
    pace: Pace | None = None,
) -> VectorEnv:
    """`num_envs` environments behind the one step format; `backend` wins over the config's `vectorization_mode`.

    `auto` takes a native implementation where one fits, else measures a step of one environment: quick ones are stepped
    in this process, slow ones by workers. The choice is `VectorEnv.backend`, to be stored and reused.
    Environments of one run share its `restarts`, and the `pace` that was measured first.
    """
    plan = blueprint(config, seeds, purpose, render_mode)
    mode = backend or config.vectorization_mode
    if mode not in BACKENDS:
        raise ConfigError(
            f"vectorization_mode is {mode!r}; expected {', '.join(BACKENDS)}. {did_you_mean(mode, BACKENDS)}"
        )
    obstacle = _obstacle_to_native(plan)
    if mode == "native" and obstacle:
        raise ConfigError(
            f"vectorization_mode: native is not possible for {plan.spec.id}: {obstacle} Use auto or sync."
        )
    if mode in ("auto", "native") and not obstacle:
        native = _make_native(plan, num_envs, seeds)
        native.notice = plan.family.notice(plan.env_kwargs, config)
        return native
    restarts = restarts or Restarts(config.env_restarts, env_id=config.env_id)
    if plan.family.one_a_process:
        mode = _apart(mode, num_envs, plan)
    if mode == "auto":
        mode, pace = _choose(plan, num_envs, pace, restarts)
    factories = [functools.partial(plan.make, index) for index in range(num_envs)]
    vector: VectorEnv
    if mode == "async":
        _refuse_shared_state(config)
        if not plan.family.can_fork:
            raise ConfigError(
                f"vectorization_mode: async is not possible for {plan.spec.id}: it does not work in a forked process. Use sync."
            )
        if pace is None and num_envs > 1 and "auto" in (config.env_workers, config.double_buffer):
            pace = _pace(plan, restarts)
        workers = _workers(plan, num_envs, pace or UNKNOWN)
        timeout = config.env_step_timeout
        vector = AsyncVector(factories, plan.spec, seeds, purpose, restarts, workers=workers, timeout=timeout)
    else:
        vector = SyncVector(factories, plan.spec, purpose, restarts)
    vector.pace = pace
    parts = (plan.family.notice(plan.env_kwargs, config), flattened_images(vector.raw_observation_space))
    vector.notice = " ".join(filter(None, parts))
    return vector


def _obstacle_to_native(plan: Blueprint) -> str:
    """Why the environment cannot be stepped natively; empty when it can."""
    config, env_id = plan.config, plan.spec.id
    own = plan.family.obstacle_to_native(config, plan.env_kwargs)
    if own is not None:
        return own or ("the vector version does not render." if plan.render_mode else "")
    for name in ("env_wrappers", "grayscale_obs", "resize_obs"):
        if getattr(config, name):
            return f"{name} works on single environments."
    for name in ("frame_stack", "frame_skip"):
        if getattr(config, name) > 1:
            return f"{name} works on single environments."
    if config.obs_type == "rgb":
        return "obs_type: rgb renders single environments."
    implementation = NATIVE.get(env_id)
    if implementation is None:
        if plan.family.has_vector(env_id) and plan.render_mode is None:
            return ""
        return "it has no vector version."
    return implementation.obstacle(plan.env_kwargs)


def _make_native(plan: Blueprint, num_envs: int, seeds: Seeds) -> VectorEnv:
    if plan.family.obstacle_to_native(plan.config, plan.env_kwargs) == "":
        return plan.family.make_native(plan.config, plan.spec, plan.env_kwargs, num_envs, seeds, plan.purpose)
    implementation = NATIVE.get(plan.spec.id)
    if implementation is None:
        kwargs = dict(plan.env_kwargs)
        if plan.config.max_episode_steps is not None:
            kwargs["max_episode_steps"] = plan.config.max_episode_steps
        vector = plan.family.make_vector(plan.spec.id, kwargs, num_envs)
        return GymnasiumVector(vector, plan.spec, seeds, plan.purpose)
    _prepare_display(plan.render_mode, plan.spec.id)
    return implementation(plan.spec, num_envs, seeds, plan.purpose, render_mode=plan.render_mode, **plan.env_kwargs)


def _apart(mode: str, num_envs: int, plan: Blueprint) -> str:
    """The backend for environments of which a process can hold one."""
    if mode == "sync" and num_envs > 1:
        raise ConfigError(
            f"vectorization_mode: sync is not possible for {num_envs} environments of {plan.spec.id}: a process can "
            "hold one. Use async, or n_envs: 1."
        )
    return "async" if mode == "auto" else mode


def _workers(plan: Blueprint, num_envs: int, pace: Pace) -> int:
    """Processes of the async backend: what the config says, else what the pace of the environments asks for."""
    if plan.family.one_a_process:
        return num_envs
    told = plan.config.env_workers
    return worker_count(num_envs, pace, cores()) if told == "auto" else min(told, num_envs)


def _refuse_shared_state(config: Config) -> None:
    sharing = _sharing_wrappers(config)
    if sharing:
        raise ConfigError(
            f"vectorization_mode: async is not possible with {sharing[0]}: its state is one for all. Use sync."
        )


def _sharing_wrappers(config: Config) -> list[str]:
    return [wrapper.__name__ for wrapper in wrapper_classes(config.env_wrappers) if needs_shared_state(wrapper)]


def _choose(plan: Blueprint, num_envs: int, pace: Pace | None, restarts: Restarts) -> tuple[str, Pace | None]:
    """Sync or async, and the pace of a step that decided it."""
    if num_envs == 1 or _sharing_wrappers(plan.config) or not plan.family.can_fork:
        return "sync", None
    pace = pace or _pace(plan, restarts)
    # One worker alone would do what this process can: a single core is shared by environments that wait.
    apart = pace.seconds > SLOW_STEP_SECONDS and worker_count(num_envs, pace, cores()) > 1
    return ("async" if apart else "sync"), pace


def measure_apart(plan: Blueprint, timeout: float) -> Pace | Failed:
    """The pace of one environment, measured in a process of its own, whatever it does there."""
    trial = replace(plan, purpose="measure", render_mode=None, shared={})
    answer: Pace | Failed = call_apart(functools.partial(measure_pace, functools.partial(trial.make, 0)), timeout)
    return answer


def _pace(plan: Blueprint, restarts: Restarts) -> Pace:
    answer = measure_apart(plan, START_TIMEOUT)
    if isinstance(answer, Pace):
        return answer
    if answer.own_error is not None:
        raise answer.own_error
    # A bug fails again in a moment, and is told in full then.
    restarts.failed_trial = (
        f"{plan.spec.id} failed while it was timed, so it counts as slow: {answer.cause.splitlines()[0]}"
    )
    return UNKNOWN


def step_rate(vector: VectorEnv, seconds: float = 1.0) -> float:
    """Environment steps a second with random actions, over all environments."""
    generator_space = gym.vector.utils.batch_space(vector.action_space, vector.num_envs)
    generator_space.seed(0)
    actions = [generator_space.sample() for _ in range(64)]
    vector.reset()
    steps = 0
    start = time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        for batch in actions:
            vector.step(batch)
        steps += len(actions) * vector.num_envs
    return steps / elapsed


def _gamma(config: Config) -> float:
    """Discount of the algorithm, at the start of its schedule if it has one."""
    gamma = getattr(config, "gamma", None)
    return 0.99 if gamma is None else float(getattr(gamma, "start", gamma))


def _prepare_display(render_mode: str | None, env_id: str) -> None:
    """Let pygame draw where there is no screen; a window without one is refused."""
    if render_mode is None:
        return
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    if not sys.platform.startswith("linux") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        return
    if render_mode == "human" and os.environ.get("SDL_VIDEODRIVER") is None:
        raise EnvironmentFailure(f"{env_id}: there is no display for a window. Use render_mode: rgb_array.")
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
