"""Which settings a result depends on: runs that differ in none of them but the seed are samples of one experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymlab.config.dotted import flat

SEED = "seed"
WITHOUT_RESULT: Mapping[str, str] = {
    "variant": "a name",
    "project_id": "a name",
    "description": "for people",
    "spec": "for people, but for the threshold",
    "quiet": "what is printed",
    "alerts": "what is printed",
    "enable_tensorboard": "where metrics go",
    "enable_wandb": "where metrics go",
    "video": "what is filmed",
    "video_max_seconds": "what is filmed",
    "eval_recording_freq_epochs": "what is filmed",
    "keep_episodes": "what is kept on disk",
    "keep_checkpoints": "what is kept on disk",
    "checkpoint_minutes": "what is kept on disk",
}
"""Settings that can change neither what is learned nor how it is measured, with what they are about."""
THRESHOLD = "spec.returns.threshold_solved"


def result_settings(data: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a stored config that its result depends on, by dotted key; a schedule is one setting. Without the seed."""
    settings: dict[str, Any] = {}
    for key, value in data.items():
        settings |= {key: value} if is_schedule(value) else flat({key: value})
    return {
        key: value
        for key, value in settings.items()
        if key == THRESHOLD or key.partition(".")[0] not in {SEED, *WITHOUT_RESULT}
    }


def is_schedule(value: Any) -> bool:
    """Whether a stored value is a number that changes over the run."""
    return isinstance(value, Mapping) and {"schedule", "start", "end"} <= value.keys()
