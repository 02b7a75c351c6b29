"""A config back into plain data: what a run stores, what `--cfg job` prints, and how two configs differ."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from gymlab.config.derive import check_schedules
from gymlab.config.dialects import canonical_name
from gymlab.config.dotted import flat
from gymlab.config.environment_ids import check_module
from gymlab.config.field_types import default_of, describe_type
from gymlab.config.names import RETIRED, SchemaOf, algorithm_name
from gymlab.config.schema import Config
from gymlab.config.targets import check_targets
from gymlab.config.validation import check_keys, validate
from gymlab.config.yaml_reader import EXPONENT, TAG
from gymlab.errors import ConfigError


def dump(config: Config) -> dict[str, Any]:
    """Every field as JSON-able data; `from_dict` gives back an equal config."""
    return config.model_dump(mode="json", by_alias=True)


def from_dict(data: Mapping[str, Any], schema_of: SchemaOf, place: str = "config") -> Config:
    """The config that `dump` was given, also under older names and by an earlier release. Nothing is derived anew, nothing can run code."""
    algo = data.get("algo_id")
    if not isinstance(algo, str) or not isinstance(data.get("env_id"), str):
        raise ConfigError(f"{place}: is no config: `env_id` and `algo_id` are missing or no text.")
    schema = schema_of(algorithm_name(algo))
    retired = {*RETIRED, *schema.retired}
    data = {canonical_name(key): value for key, value in data.items() if key not in retired}
    data = {**schema.unwritten(data), **data}
    check_keys(data, schema.model_fields, place)
    check_module(data["env_id"], "", place)
    check_targets(data, place)
    config = validate(schema, data, place)
    check_schedules(config, data, place)
    return config


class _Dumper(yaml.SafeDumper):
    """Quotes texts that our reader takes for numbers and YAML 1.1 does not, such as 0E0."""


_Dumper.add_implicit_resolver(f"{TAG}float", re.compile(rf"({EXPONENT.pattern})\Z"), list("-+.0123456789"))


def to_yaml(config: Config) -> str:
    """The resolved whole as YAML, as `--cfg job` prints it: loading this text gives an equal config."""
    data = dump(config)
    rollout = config.n_envs * getattr(config, "n_steps", 1)
    if data.get("batch_size") == 1 and rollout > 1:
        # A 1 in a file is the fraction 1, the whole rollout; as a fraction it stays a single sample.
        data["batch_size"] = 1 / rollout
    # A model id and explicit layers exclude each other in a file, so those at their default are left out.
    for key in ("model_id", "hidden_dims", "activation"):
        value = data.pop(key, None)
        if key in type(config).model_fields and value != default_of(type(config), key):
            data[key] = value
    # A reader takes some unprintable characters for line ends, so a text that holds any is escaped.
    printable = json.dumps(data, ensure_ascii=False).isprintable()
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=printable, width=120)


def diff(old: Config, new: Config) -> list[tuple[str, Any, Any]]:
    """Dotted keys whose values differ, with both values; a key that one side lacks is None there."""
    return diff_data(dump(old), dump(new))


def diff_data(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """The same for configs as plain data. `spec.task` is no difference of its own: it follows from others."""
    before, after = flat(old), flat(new)
    keys = [key for key in dict.fromkeys([*before, *after]) if not key.startswith("spec.task")]
    return [(key, before.get(key), after.get(key)) for key in keys if before.get(key) != after.get(key)]


@dataclass(frozen=True)
class FieldDescription:
    """One field for a reference page or `--help`."""

    name: str
    type: str
    default: Any
    required: bool
    description: str


def describe_fields(schema: type[Config]) -> list[FieldDescription]:
    """Every field of a config class in order, with its type in words and its docstring."""
    return [
        FieldDescription(
            name=name,
            type=describe_type(field.annotation, field.metadata),
            default=default_of(schema, name),
            required=field.is_required(),
            description=field.description or "",
        )
        for name, field in schema.model_fields.items()
    ]
