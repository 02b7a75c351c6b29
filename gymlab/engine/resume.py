"""Going on with a run: the same directory and id, bit for bit from a checkpoint."""

from __future__ import annotations

from gymlab.config import diff
from gymlab.config.schema import Config
from gymlab.engine.checkpoint import Checkpoint
from gymlab.engine.run import Run
from gymlab.errors import ConfigError, did_you_mean
from gymlab.metrics.csv_file import truncate_after

MAY_CHANGE = (
    "max_env_steps",
    "max_epochs",
    "eval_freq_epochs",
    "eval_warmup_epochs",
    "eval_episodes",
    "eval_deterministic",
    "eval_recording_freq_epochs",
    "eval_max_episode_steps",
    "eval_time_limit",
    "video",
    "video_max_seconds",
    "reward_threshold",
    "early_stop_on_eval_threshold",
    "early_stop_on_train_threshold",
    "env_step_timeout",
    "env_restarts",
    "checkpoint_minutes",
    "keep_checkpoints",
    "quiet",
    "enable_tensorboard",
    "enable_wandb",
    "description",
)
"""Settings that do not change what was learned so far; anything else would make it another run."""


def changed_settings(before: Config, after: Config) -> list[str]:
    """What the overrides change, in words; a setting that may not change on resume is refused by name."""
    told = []
    for key, old, new in diff(before, after):
        name = key.split(".")[0]
        if name not in MAY_CHANGE:
            raise ConfigError(
                f"{name} cannot change when a run goes on: it was {old!r}, asked for is {new!r}. {did_you_mean(name, MAY_CHANGE)} "
                f"May change: {', '.join(MAY_CHANGE)}. For anything else start a new run with --init-from-run."
            )
        told.append(f"{key}: {old} -> {new}")
    return told


def rewind(run: Run, checkpoint: Checkpoint) -> None:
    """Cut what came after the checkpoint: rows of metrics and later checkpoints, so that no step appears twice."""
    counters = checkpoint.read_state()["counters"]
    metrics = run.dir / "metrics.csv"
    if metrics.is_file():
        truncate_after(metrics, counters["env_steps"], counters["epoch"])
    run.checkpoints.rewind(checkpoint)
