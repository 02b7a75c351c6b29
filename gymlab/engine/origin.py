"""What a run's config may name on this machine: decided by who wrote it.

What the user writes (command line, own YAML, a call) may name any file. A run's directory may be somebody else's, and a
file that is named there can start a program or be overwritten: text in it that could name a file, an argument of a
program or code is refused, unless the environment's family knows it for its own or the user names it again. Each config
that is read from a run passes here before anything is built of it.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from gymlab.buffers.offline import names_directory
from gymlab.config.dialects import canonical_name, set_dotted
from gymlab.config.load import split_override
from gymlab.config.python_values import as_json
from gymlab.config.schema import Config
from gymlab.config.yaml_reader import Located, parse_value
from gymlab.envs.families import family_of
from gymlab.envs.wrappers.registry import parse_wrapper
from gymlab.errors import ConfigError
from gymlab.metrics.redact import REDACTED

EnvKwargs = Mapping[str, Any] | Sequence[str]
"""Arguments of an environment that the user names: by name, or as texts `key=value`. `Wrapper.argument` is one of a wrapper's."""

PLAIN = re.compile(r"(\w[\w ,()-]*)?")
"""Text that names a choice, and nothing outside of the environment."""
NUMBER = re.compile(r"[-+]?\d*\.?\d+(e[-+]?\d+)?", re.ASCII | re.IGNORECASE)


def by_name(env_kwargs: EnvKwargs) -> dict[str, Any]:
    """Arguments that the user names, by dotted name."""
    pairs = [split_override(text, "--env-kwargs") for text in as_texts(env_kwargs)]
    return {key: parse_value(value) for key, value in pairs}


def as_texts(env_kwargs: EnvKwargs) -> list[str]:
    """The same as texts `key=value`."""
    if isinstance(env_kwargs, Mapping):
        return [f"{key}={as_json(f'env_kwargs.{key}', value)}" for key, value in env_kwargs.items()]
    return list(env_kwargs)


def dotted_name(override: str) -> str:
    """The key of the config that an override `key=value` sets."""
    key = override.lstrip("+").partition("=")[0].strip().removeprefix("experiment.")
    name, dot, rest = key.partition(".")
    return f"{canonical_name(name)}{dot}{rest}"


def named_again(config: Config, env_kwargs: EnvKwargs, *, named: Collection[str] = (), place: str) -> Config:
    """A run's config with the arguments that the user names laid on top; what it names by itself is refused.

    `named`: further keys of the config that the user has set, dotted. `place`: the file, for the error.
    """
    given = by_name(env_kwargs)
    tree = Located({"env_kwargs": config.env_kwargs, "env_wrappers": list(config.env_wrappers)})
    own = set(named)
    for key, value in given.items():
        paths = _paths(config, key)
        for path in paths:
            set_dotted(tree, path, value, "--env-kwargs")
        own.add(f"{paths[0].partition('.')[0]}.{key}")
    if given:
        update = {"env_kwargs": tree["env_kwargs"], "env_wrappers": tuple(tree["env_wrappers"])}
        config = config.model_copy(update=update)
    for path, text in _foreign_texts(config):
        if not any(path == one or path.startswith(f"{one}.") for one in own):
            raise _refusal(config, path, text, place)
    return config


def arguments_to_name(config: Config) -> list[str]:
    """What of a config that the user wrote he has to name again when it comes back from a run: as `--env-kwargs` takes it."""
    return [f"{path.partition('.')[2]}={text}" for path, text in _foreign_texts(config)]


def refuse_dataset(config: Config, named: Collection[str], place: str) -> None:
    """Refuse a dataset that a run's config names by its directory, unless the user has named it: one of Minari's folder is named by its id."""
    dataset = getattr(config, "dataset", None)
    if dataset is not None and "dataset" not in named and names_directory(dataset):
        raise _refusal(config, "dataset", dataset, place)


def only_moved(old: Any, new: Any) -> bool:
    """Whether two values differ in nothing but where files are that both name. A blanked secret is no file."""
    if isinstance(old, str) and isinstance(new, str):
        return old == new or not (is_plain(old) or REDACTED in old)
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return old.keys() == new.keys() and all(only_moved(old[key], new[key]) for key in old)
    if isinstance(old, list | tuple) and isinstance(new, list | tuple):
        return len(old) == len(new) and all(map(only_moved, old, new))
    return bool(old == new)


def is_plain(text: str) -> bool:
    """Whether a text names a choice: words or a number, and no file that is here."""
    return (PLAIN.fullmatch(text) is not None or NUMBER.fullmatch(text) is not None) and not os.path.exists(text)


def _paths(config: Config, key: str) -> list[str]:
    """Where an argument that the user names belongs: in wrappers of that name, else in the environment's own."""
    name, _, argument = key.partition(".")
    found = []
    for index, entry in enumerate(config.env_wrappers):
        if argument and parse_wrapper(entry)[0] == name:
            found.append(f"env_wrappers.{index}.{argument if 'id' in entry else key}")
    return found or [f"env_kwargs.{key}"]


def _foreign_texts(config: Config) -> Iterator[tuple[str, str]]:
    """Every text of the environment's and the wrappers' arguments that is no plain word and no file of the family's own, with its key."""
    for path, text in _texts("env_kwargs", config.env_kwargs):
        option = path.partition(".")[2]
        if not is_plain(text) and not (text.isprintable() and family_of(config.env_id).is_own_file(option, text)):
            yield path, text
    for entry in config.env_wrappers:
        name, arguments = parse_wrapper(entry)
        for path, text in _texts(f"env_wrappers.{name}", arguments):
            if not is_plain(text):
                yield path, text


def _texts(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        # No environment is made of a blanked secret: `take_secrets` says how to give it again.
        if REDACTED not in value:
            yield path, value
    elif isinstance(value, Mapping):
        for key, child in value.items():
            # A key is its mapping's to name: one with a dot in it could pass for what is below another.
            yield path, str(key)
            yield from _texts(f"{path}.{key}", child)
    elif isinstance(value, list | tuple):
        for child in value:
            yield from _texts(path, child)


def _refusal(config: Config, path: str, text: str, place: str) -> ConfigError:
    key = path.partition(".")[2]
    shown = text if text.isprintable() else "..."
    option = f"--env-kwargs {shlex.quote(f'{key}={shown}')}" if key else shlex.quote(f"{path}={shown}")
    call = f" (in Python: env_kwargs={{{key!r}: ...}})" if key else ""
    files = family_of(config.env_id).own_files if path.startswith("env_kwargs.") else ""
    allowed = f", except {files}" if files else ""
    return ConfigError(
        f"{place}: {path} is {text!r}. A run may be somebody else's, so its config may name no file, program or code on this "
        f"machine{allowed}. If you trust it, name it yourself: {option}{call}."
    )
