"""Going on with a run: the same directory and id, bit for bit from a checkpoint."""

from __future__ import annotations

import stat
from collections.abc import Collection
from contextlib import suppress
from typing import Any

from gymlab.config import diff, dump
from gymlab.config.dump import diff_data
from gymlab.config.schema import Config, tunable_fields
from gymlab.engine.callbacks.alerts import ALERTS_FILE
from gymlab.engine.changes import LOG, ChangeLog, locked, read_config_file
from gymlab.engine.checkpoint import Checkpoint
from gymlab.engine.chunk_store import DIRECTORY as REPLAY
from gymlab.engine.episodes import DIRECTORY as EPISODES
from gymlab.engine.episodes import SPLITS
from gymlab.engine.faults import EVIDENCE
from gymlab.engine.files import write_json
from gymlab.engine.hyperparameters import plain
from gymlab.engine.origin import only_moved
from gymlab.engine.report import CURVE, PICTURES, REPORT
from gymlab.engine.run import CONFIG, RECORD, STARTED, Run
from gymlab.errors import ConfigError, did_you_mean
from gymlab.metrics.csv_file import truncate_after
from gymlab.metrics.redact import redact
from gymlab.plain_files import check_kind, open_to_read

MAY_CHANGE = (
    "max_env_steps",
    "max_epochs",
    "eval_freq_epochs",
    "eval_warmup_epochs",
    "eval_episodes",
    "eval_deterministic",
    "eval_recording_freq_epochs",
    "eval_max_episode_steps",
    "eval_step_limit",
    "eval_time_limit",
    "video",
    "video_max_seconds",
    "video_max_episode_steps",
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
MAY_MOVE = ("env_kwargs", "env_wrappers", "dataset")
"""Settings that name files, which may lie elsewhere now."""


WRITTEN = (CONFIG, STARTED, RECORD, LOG, "metrics.csv", "run.log", ALERTS_FILE, REPORT, CURVE)
"""Files that a run writes in its directory."""
MADE = ("checkpoints", "videos", EPISODES, *(f"{EPISODES}/{split}" for split in SPLITS), EVIDENCE, REPLAY, PICTURES)
"""Directories that a run makes in its own, the outer ones first."""
LINKS = ("last.ckpt", "best.ckpt")
"""Links that a run makes beside its checkpoints."""


def changed_settings(before: Config, after: Config) -> list[str]:
    """What the overrides change, in words; a setting that may not change on resume is refused by name."""
    told = []
    stored, asked = redact(dump(before)), redact(dump(after))
    shown = {key: (old, new) for key, old, new in diff_data(stored, asked)}
    for key, old, new in diff(before, after):
        name = key.split(".")[0]
        if key not in shown:
            # Blanked alike: a secret, which the run does not store, was given again.
            told.append(f"{key} was given again")
            continue
        moved = name in MAY_MOVE and only_moved(old, new)
        old, new = shown[key]
        if name not in MAY_CHANGE and not moved:
            raise ConfigError(
                f"{name} cannot change when a run goes on: it was {old!r}, asked for is {new!r}. {did_you_mean(name, MAY_CHANGE)} "
                f"May change: {', '.join(MAY_CHANGE)}, and what `gymlab set` changes: {', '.join(tunable_fields(type(before)))}. "
                "For anything else start a new run with --init-from-run."
            )
        told.append(f"{key}: {old} -> {new}")
    return told


def settings_before(before: Config, after: Config) -> dict[str, Any]:
    """What the settings that change were until now: a repetition begins with these."""
    old, new = dump(before), dump(after)
    return {name: old[name] for name in MAY_CHANGE if old[name] != new[name]}


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


def check_files(run: Run) -> None:
    """An error for anything else than a file, a directory or a link where the run will have one, before any of it is changed."""
    for name in MADE:
        check_kind(run.dir / name, stat.S_IFDIR)
    for name in LINKS:
        check_kind(run.dir / "checkpoints" / name, stat.S_IFLNK)
    for path in (*(run.dir / name for name in WRITTEN), *(run.dir / "videos").glob("*.mp4")):
        with suppress(FileNotFoundError):
            open_to_read(path).close()


def rewind(run: Run, checkpoint: Checkpoint) -> None:
    """Cut what came after the checkpoint: rows of metrics and later checkpoints, so that no step appears twice."""
    # A log that cannot be read is an error before anything is cut.
    ChangeLog(run.dir).read()
    counters = checkpoint.read_counters()
    metrics = run.dir / "metrics.csv"
    if metrics.is_file():
        truncate_after(metrics, counters.env_steps, counters.epoch)
    with locked(run.dir):
        ChangeLog(run.dir).rewind(counters.epoch)
    run.checkpoints.rewind(checkpoint)
