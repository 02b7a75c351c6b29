"""Secrets of a config, before an environment is made from it.

They are not stored with a run: its config has `[redacted]` in their place, which is a word for people and never a value.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from gymlab.config import dump
from gymlab.config.schema import Config
from gymlab.errors import ConfigError
from gymlab.metrics.redact import REDACTED, remember_secrets

FREE_TEXTS = ("description", "spec", "project_id", "variant", "init_from_run")
"""Settings that people read, or that count at the start of a run only: a blank in them is no harm."""
ENVIRONMENT = ("env_id", "env_kwargs", "env_wrappers")


def take_secrets(config: Config, *, training: bool = False) -> None:
    """Blank the config's secrets in all text from here on; an error where one is missing that the environment (or the training) needs.

    The error names each setting in which a secret was blanked, and how to give it again.
    """
    remember_secrets(dump(config))
    names = [name for name in type(config).model_fields if name not in FREE_TEXTS] if training else ENVIRONMENT
    keys = [key for name in names for key in _redacted_keys(getattr(config, name), name)]
    if not keys:
        return
    given = list(dict.fromkeys(map(_given_as, keys)))
    again = [f"gymlab train --resume RUN {' '.join(f'{key}=...' for key in given)}"]
    arguments = blanked_arguments(config.env_kwargs)
    if arguments:
        options = " ".join(f"--env-kwargs {name}=..." for name in arguments)
        again.append(f"gymlab eval (play, record, inspect, repeat, compare --normalise) RUN {options}")
    raise ConfigError(
        f"{', '.join(keys)}: a run does not store secrets, and {REDACTED} is no value. Give it again:\n  "
        + "\n  ".join(again)
    )


def blanked_arguments(env_kwargs: Mapping[str, Any]) -> list[str]:
    """Names of an environment's arguments in which a secret was blanked, as `--env-kwargs` takes them."""
    keys = (_given_as(key) for name, value in env_kwargs.items() for key in _redacted_keys(value, name))
    return list(dict.fromkeys(keys))


def _given_as(key: str) -> str:
    """The key that is written on the command line; what is in a list is given with the whole of it."""
    parts = key.split(".")
    return ".".join(itertools.takewhile(lambda part: not part.isdecimal(), parts))


def _redacted_keys(value: Any, key: str) -> Iterator[str]:
    if isinstance(value, str):
        if REDACTED in value:
            yield key
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _redacted_keys(item, f"{key}.{name}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _redacted_keys(item, f"{key}.{index}")
