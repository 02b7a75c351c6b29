"""What fields were called and are called, and what no longer means anything."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gymlab.config.schedules import split_schedule_key
from gymlab.config.schema import Config

ALIASES = {
    "n_timesteps": "max_env_steps",
    "max_timesteps": "max_env_steps",
    "learning_rate": "policy_lr",
    "frameskip": "frame_skip",
    "grayscale": "grayscale_obs",
    "env_reward_threshold": "reward_threshold",
    "eval_freq": "eval_freq_epochs",
    "eval_rollout_interval": "eval_freq_epochs",
    "eval_rollout_episodes": "eval_episodes",
    "eval_recording_freq": "eval_recording_freq_epochs",
    "reinforce_policy_targets": "policy_targets",
    "reinforce_returns": "returns_type",
    "reinforce_use_baseline": "use_baseline",
    "num_timesteps": "max_env_steps",
    "num_envs": "n_envs",
    "episode_length": "max_episode_steps",
    "action_repeat": "frame_skip",
    "normalize_observations": "normalize_obs",
    "discounting": "gamma",
    "entropy_cost": "ent_coef",
    "clipping_epsilon": "clip_range",
    "vf_loss_coefficient": "vf_coef",
    "_dims": "dims",
}
"""Older name, or Brax's: canonical name. A renamed field keeps its value."""

TRANSLATED = ("subproc", "normalize", "use_baseline")
"""Older names whose value is translated too."""

RETIRED = {
    "seed_train": "every purpose has its own stream below `seed`",
    "seed_val": "every purpose has its own stream below `seed`",
    "seed_test": "every purpose has its own stream below `seed`",
    "eval_async": "evaluation takes place between epochs",
    "log_per_env_eval_metrics": "evaluation reports over all its episodes",
    "checkpoint_dir": "checkpoints lie in the run directory",
    "resume": "use `gymlab train --resume RUN`",
    "reward_shaping": "shaping is a wrapper: see `env_wrappers`",
}
"""Fields that no longer mean anything, and why."""

ALGORITHM_ALIASES = {"qlearning": "q_learning", "q-learning": "q_learning"}
"""Other spellings of algorithms."""

STRUCTURE = ("defaults", "inherits", "inherit_from")
"""Keys that say how a section is put together."""

_ALGORITHM_MAPPINGS = (
    "policy_lr",
    "gamma",
    "gae_lambda",
    "clip_range",
    "clip_range_vf",
    "vf_coef",
    "ent_coef",
    "policy_kwargs",
)


def algorithm_name(name: str) -> str:
    """The registered spelling of an algorithm."""
    return ALGORITHM_ALIASES.get(name, name)


def is_field(key: str, schema_fields: Iterable[str] = ()) -> bool:
    """Whether a key at the root of an environment file is a config field rather than a variant."""
    if key in schema_fields or key in Config.model_fields or key in _ALGORITHM_MAPPINGS:
        return True
    if key in ALIASES or key in TRANSLATED or key in RETIRED or key in STRUCTURE:
        return True
    parts = split_schedule_key(key)
    return parts is not None and is_field(parts[0], schema_fields)


def has_older_names(keys: Iterable[str]) -> bool:
    """Whether a section was written for an earlier generation of settings, to which some of its keys belong."""
    return any(key in RETIRED or key in TRANSLATED or (key in ALIASES and key != "_dims") for key in keys)


def known_names(schema_fields: Iterable[str]) -> list[str]:
    """Names to look for a near match in."""
    return [*schema_fields, *ALIASES, *TRANSLATED]


def file_stem(name: str) -> str:
    """The name of an environment as a file is named: `/` and `:` become `-`."""
    return re.sub(r"[/:\\]", "-", name)
