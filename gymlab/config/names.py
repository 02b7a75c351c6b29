"""What fields were called and are called, and what no longer means anything."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gymlab.config.schedules import is_schedule, split_schedule_key
from gymlab.config.schema import Config
from gymlab.errors import did_you_mean

SchemaOf = Callable[[str], type[Config]]
"""The config class of an algorithm, by its registered name."""

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

MEANINGS = {"lr": ("lr",), "init_modules": ("init_parts",)}
"""Keys that people write, and how the names of the fields that they mean end."""

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

GROUPS = ("workflow", "environment", "env", "controller", "buffer", "experiment")
"""Config groups whose content is lifted to the root of a config."""


def algorithm_name(name: str) -> str:
    """The registered spelling of an algorithm."""
    return ALGORITHM_ALIASES.get(name, name)


@dataclass(frozen=True)
class Algorithms:
    """The algorithms there are. To ask for their fields imports them all, so that is done only where nothing else decides."""

    names: Sequence[str] = ()
    schema_of: SchemaOf = lambda _: Config

    @cached_property
    def fields(self) -> frozenset[str]:
        """Fields that any of them has, or had in an earlier release."""
        schemas = [self.schema_of(name) for name in self.names]
        return frozenset(field for schema in schemas for field in (*schema.model_fields, *schema.retired))

    def owners(self, key: str) -> list[str]:
        """Those that have a field."""
        return [name for name in self.names if key in self.schema_of(name).model_fields]


NO_ALGORITHMS = Algorithms()


def is_field(key: str, more: Collection[str] = ()) -> bool:
    """Whether a key is a config field by any of its names; `more` are fields of algorithms."""
    if any(key in names for names in (Config.model_fields, ALIASES, TRANSLATED, RETIRED, STRUCTURE, GROUPS, more)):
        return True
    parts = split_schedule_key(key)
    return parts is not None and is_field(parts[0], more)


def is_section(key: str, value: Any, algorithms: Algorithms) -> bool:
    """Whether a key at the root of an environment file begins a section (a variant or an anchor) rather than a field.

    Both may be mappings: a field is known by its name, a section by what it says of itself. What is neither counts as a section.
    """
    if not isinstance(value, Mapping) or is_field(key) or is_schedule(value):
        return False
    return says_section(key, value, algorithms) or not is_field(key, algorithms.fields)


def says_section(key: str, value: Mapping[str, Any], algorithms: Algorithms) -> bool:
    """Whether a mapping is a section by its own name or content, whatever fields there are."""
    named = key.startswith("_") or algorithm_name(key) in algorithms.names
    return named or any(name in value for name in ("algo_id", *STRUCTURE))


def has_older_names(keys: Iterable[str]) -> bool:
    """Whether a section was written for an earlier generation of settings, to which some of its keys belong."""
    return any(key in RETIRED or key in TRANSLATED or (key in ALIASES and key != "_dims") for key in keys)


def near_field(key: str, fields: Iterable[str]) -> str:
    """A sentence with the fields that an unknown key may have meant: by meaning, by spelling, or an older name by its spelling."""
    fields = list(fields)
    endings = MEANINGS.get(key, ())
    meant = [name for name in fields if any(name == ending or name.endswith(f"_{ending}") for ending in endings)]
    if meant:
        return f"Did you mean {' or '.join(repr(name) for name in meant)}?"
    return did_you_mean(key, fields, most=2) or did_you_mean(key, [*ALIASES, *TRANSLATED], most=2)


def file_stem(name: str) -> str:
    """The name of an environment as a file is named: `/` and `:` become `-`."""
    return re.sub(r"[/:\\]", "-", name)
