"""A training made so small that it only shows whether it works, and random steps that show less in less time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymlab.config.effects import idle_settings

if TYPE_CHECKING:
    from gymlab.config.schema import Config

MOST_ENVIRONMENTS = 2
"""Two environments show what one does not: rows that are mixed up."""
ROLLOUTS = 2
"""Two rollouts show what one does not: that the loop goes on after an update."""
SEQUENCE = 8
"""Steps of a replayed sequence."""


def brief_settings(config: Config, timesteps: int) -> dict[str, Any]:
    """Settings that make a training of an experiment last `timesteps` environment steps.

    At most two environments, two rollouts with an update of two minibatches after each, an evaluation of one episode
    after each, cut at `timesteps`; no early stop, video or tracker. What is learned, and with which network, wrappers
    and losses, stays as it is.
    """
    n_envs = min(config.n_envs, MOST_ENVIRONMENTS)
    n_steps = max(1, timesteps // (n_envs * ROLLOUTS))
    rollout = n_envs * n_steps
    batch_size = rollout // 2 if rollout % 2 == 0 else rollout
    settings = {
        "max_env_steps": timesteps,
        "max_epochs": None,
        "epoch_env_steps": None,
        "n_envs": n_envs,
        "n_steps": n_steps,
        "batch_size": batch_size,
        "unroll_length": 1,
        "num_minibatches": rollout // batch_size,
        "num_updates_per_batch": min(getattr(config, "num_updates_per_batch", 1), 2),
        "n_epochs": min(getattr(config, "n_epochs", 1), 2),
        "eval_freq_epochs": 1,
        "eval_warmup_epochs": 0,
        "eval_episodes": 1,
        "eval_max_episode_steps": timesteps,
        "eval_recording_freq_epochs": None,
        "early_stop_on_eval_threshold": False,
        "early_stop_on_train_threshold": False,
        "init_from_run": None,
        "init_parts": (),
        "video": False,
        "alerts": False,
        "enable_wandb": False,
        "enable_tensorboard": False,
        "torch_threads": 1,
        "quiet": True,
    }
    if "train_ratio" in type(config).model_fields:
        # Replay instead of rollouts: half of the steps fill it, and four updates follow.
        half, rows = timesteps // 2, 2 * SEQUENCE
        settings |= {"batch_size": 2, "batch_length": SEQUENCE, "prefill_steps": half, "replay_size": 10 * timesteps}
        settings |= {"train_ratio": 4 * rows / half, "epoch_env_steps": half, "pretrain_updates": 0}
    if "collect_env_steps" in type(config).model_fields:
        # A pipeline: half of the steps are collected, each part learns from them a few times, and the rest is left to the last part.
        settings |= {"batch_size": 2, "batch_length": SEQUENCE, "replay_size": 10 * timesteps, "held_out": 0.0}
        settings |= {"collect_env_steps": max(1, timesteps // 2), "vae_updates": 2, "model_updates": 4}
        settings |= {"vae_batch": SEQUENCE, "population": 4, "rollouts": 1, "dream_steps": timesteps}
        settings |= {} if getattr(config, "generations", None) is None else {"generations": 2}
    known = {name: value for name, value in settings.items() if name in type(config).model_fields}
    idle = {name for name, _ in idle_settings(config.model_copy(update=known))}
    return {name: value for name, value in known.items() if name not in idle}


def train_briefly(experiment: str, timesteps: int, runs_dir: Path, config_dir: str | None = None) -> int:
    """Train an experiment for `timesteps` environment steps; how many it took."""
    from gymlab.api import resolve, train

    config = resolve(experiment, config_dir=config_dir).config
    run = train(experiment, config_dir=config_dir, runs_dir=runs_dir, **brief_settings(config, timesteps))
    return int(run.record["counters"]["env_steps"])


def step_briefly(experiment: str, timesteps: int, config_dir: str | None = None) -> int:
    """Step an experiment's environments with random actions, through the same vector backend as a training."""
    from gymnasium.vector.utils import batch_space

    from gymlab.api import resolve
    from gymlab.engine.seeding import SeedTree
    from gymlab.envs import make_vector

    config = resolve(experiment, config_dir=config_dir).config
    count, steps = min(config.n_envs, MOST_ENVIRONMENTS), 0
    with make_vector(config, count, SeedTree(config.seed)) as vector:
        actions = batch_space(vector.action_space, count)
        actions.seed(config.seed)
        vector.reset()
        while steps < timesteps:
            vector.step(actions.sample())
            steps += count
    return steps
