"""Going on with a run: the same directory and id, bit for bit from a checkpoint."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from gymlab.config import diff
from gymlab.config.schema import Config, tunable_fields
from gymlab.engine.changes import ChangeLog, locked, read_config_file
from gymlab.engine.checkpoint import Checkpoint
from gymlab.engine.files import write_json
from gymlab.engine.hyperparameters import plain
from gymlab.engine.run import CONFIG, STARTED, Run
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
    "keep_episodes",
    "reward_threshold",
    "early_stop_on_eval_threshold",
    "early_stop_on_train_threshold",
    "env_workers",
    "env_step_timeout",
    "env_restarts",
    "checkpoint_minutes",
    "keep_checkpoints",
    "alerts",
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
                f"May change: {', '.join(MAY_CHANGE)}, and what `gymlab set` changes: {', '.join(tunable_fields(type(before)))}. "
                "For anything else start a new run with --init-from-run."
            )
        told.append(f"{key}: {old} -> {new}")
    return told


def split_tunable(before: Config, after: Config, named: Collection[str]) -> tuple[Config, list[tuple[str, Any]]]:
    """`after` with the tunable fields as the run was started with, and those that were `named` or differ: they change live."""
    names = tunable_fields(type(before)) if type(before) is type(after) else []
    old = {name: getattr(before, name) for name in names}
    new = {name: getattr(after, name) for name in names}
    asked = [(name, plain(value)) for name, value in new.items() if name in named or value != old[name]]
    return after.model_copy(update=old), asked


def write_config(run: Run, data: dict[str, Any]) -> None:
    """Write the settings that a run goes on with; of config.json only what differs, as it may hold wishes or be half-written."""
    before = run.config_data
    with locked(run.dir):
        write_json(run.dir / STARTED, data)
        try:
            wanted = read_config_file(run.dir / CONFIG)
        except ConfigError:
            return  # The run itself looks at the file in its first epoch and says what is wrong with it.
        changed = {key: value for key, value in data.items() if value != before.get(key)}
        if changed:
            write_json(run.dir / CONFIG, wanted | changed)


def rewind(run: Run, checkpoint: Checkpoint) -> None:
    """Cut what came after the checkpoint: rows of metrics and later checkpoints, so that no step appears twice."""
    counters = checkpoint.read_state()["counters"]
    metrics = run.dir / "metrics.csv"
    if metrics.is_file():
        truncate_after(metrics, counters["env_steps"], counters["epoch"])
    with locked(run.dir):
        ChangeLog(run.dir).rewind(counters["epoch"])
    run.checkpoints.rewind(checkpoint)
