"""Older and looser ways of writing fields, into the canonical names and values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from gymlab.config.field_types import accepts_none, alternatives, annotation_of, describe_type
from gymlab.config.names import ALIASES, RETIRED, algorithm_name
from gymlab.config.schedules import SCHEDULE_KEYS, Schedule, join_schedule, parse_linear, split_schedule_key
from gymlab.config.validation import located
from gymlab.config.yaml_reader import COMMAND_LINE, Located
from gymlab.errors import ConfigError

_TRANSLATIONS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "subproc": lambda on: {"vectorization_mode": "async" if on else "sync"},
    "normalize": lambda on: {"normalize_obs": "rolling" if on else "off", "normalize_reward": bool(on)},
    "use_baseline": lambda on: {"policy_targets": "advantages" if on else "returns"},
}
_VALUES: dict[str, dict[Any, Any]] = {
    "policy": {"MlpPolicy": "mlp", "CnnPolicy": "cnn", "MultiInputPolicy": "mlp"},
    "returns_type": {
        "episode": "mc:episode",
        "montecarlo:episode": "mc:episode",
        "reward_to_go": "mc:rtg",
        "montecarlo:reward_to_go": "mc:rtg",
    },
    "advantages_type": {"baseline_subtraction": "baseline"},
    "vectorization_mode": {"atari": "native"},
    "normalize_obs": {True: "rolling"},
    "normalize_advantages": {True: "batch"},
    "resize_obs": {True: [84, 84]},
    "eval_freq_epochs": {0: None},
    "eval_recording_freq_epochs": {0: None},
}
_RIVALS = {"model_id": ("hidden_dims", "activation"), "hidden_dims": ("model_id",)}
"""A setting, and others that the one laid on last takes the place of."""


def rename(layer: Mapping[str, Any], place: str, notices: list[str]) -> Located:
    """A layer under canonical names. Of two spellings of one field the one closest to the variant counts."""
    result = Located()
    notices += layer.repeated if isinstance(layer, Located) else []
    for key, value in layer.items():
        where = layer.where.get(key) if isinstance(layer, Located) else None
        if key in RETIRED:
            notices.append(f"{located(layer, key, place)}: `{key}` no longer means anything: {RETIRED[key]}.")
        elif key in _TRANSLATIONS:
            if not isinstance(value, bool):
                raise ConfigError(f"{located(layer, key, place)}: `{key}` expects true or false, got {value!r}.")
            for name, translated in _TRANSLATIONS[key](value).items():
                result.put(name, translated, where)
        elif key == "training" and isinstance(value, Mapping) and "total_timesteps" in value:
            result.put("max_env_steps", value["total_timesteps"], where)
            result.put(key, {name: part for name, part in value.items() if name != "total_timesteps"}, where)
        else:
            result.put(canonical_name(key), value, where)
            _drop_rivals(result, canonical_name(key))
    return result


def canonical_name(key: str) -> str:
    """The name of today for a field, or for one of its `_schedule...` keys."""
    parts = split_schedule_key(key)
    if parts is not None and parts[0] in ALIASES:
        return ALIASES[parts[0]] + key.removeprefix(parts[0])
    return ALIASES.get(key, key)


def _drop_rivals(layer: Located, key: str) -> None:
    """A model id and explicit layers exclude each other: the later one counts."""
    for rival in _RIVALS.get(key, ()) if layer.get(key) is not None else ():
        layer.pop(rival, None)


def refuse_two_spellings(keys: Iterable[str], place: str) -> None:
    """One layer may say a thing once: of two names of one setting only one would count."""
    spelled: dict[str, str] = {}
    for key in keys:
        for name in _settings_of(key):
            if spelled.setdefault(name, key) != key:
                raise ConfigError(
                    f"{place}: `{spelled[name]}` and `{key}` are two ways to set {name}; which counts is left to chance. Give one."
                )
    for key, rivals in _RIVALS.items():
        rival = next((rival for rival in rivals if rival in spelled and key in spelled), None)
        if rival is not None:
            raise ConfigError(f"{place}: `{spelled[key]}` and `{spelled[rival]}` exclude each other. Give one.")


def _settings_of(key: str) -> tuple[str, ...]:
    """The setting that a key sets, of whatever generation it is; none for one that sets several."""
    if key in RETIRED:
        return ()
    translated = tuple(_TRANSLATIONS[key](True)) if key in _TRANSLATIONS else (canonical_name(key),)
    # `normalize` sets two, and either may be set apart beside it.
    return translated if len(translated) == 1 else ()


def merge(lower: Located, upper: Located) -> Located:
    """One renamed layer on another; keys of the upper one replace those below as a whole."""
    result = Located(lower)
    for key, value in upper.items():
        result.put(key, value, upper.where.get(key))
        _drop_rivals(result, key)
    return result


def translate(tree: Located, schema: type[BaseModel], place: str) -> Located:
    """Values in canonical form: schedules joined, older values renamed, null for "not set" removed."""
    result = _join_schedules(tree)
    for key in list(result):
        annotation = annotation_of(schema, key)
        value = result[key]
        if isinstance(value, str | bool | int) and key in _VALUES:
            value = _renamed_value(key, value)
        if Schedule in alternatives(annotation):
            value = parse_linear(value)
        if key == "algo_id" and isinstance(value, str):
            value = algorithm_name(value)
        if key == "resize_obs" and isinstance(value, int) and not isinstance(value, bool):
            value = [value, value]
        if key == "env_wrappers":
            value = _wrappers(value, located(tree, key, place))
        if value is None and not accepts_none(annotation) and key in schema.model_fields:
            # In a file null stands for a key that is not set; on a command line somebody means something by it.
            if key != "n_envs" and key in tree.where and tree.where[key].file == COMMAND_LINE:
                field = schema.model_fields[key]
                expected = describe_type(field.annotation, field.metadata)
                raise ConfigError(f"{located(tree, key, place)}: `{key}` expects {expected}, got null. Leave it out.")
            del result[key]
            continue
        result[key] = value
    return result


def _renamed_value(key: str, value: Any) -> Any:
    """1 and True are one key for a dict; here they are not."""
    for old, new in _VALUES[key].items():
        if old == value and type(old) is type(value):
            return new
    return value


def _join_schedules(tree: Located) -> Located:
    result = Located()
    parts: dict[str, dict[str, Any]] = {}
    for key, value in tree.items():
        split = split_schedule_key(key)
        if split is None:
            result.put(key, value, tree.where.get(key))
        else:
            parts.setdefault(split[0], {})[split[1]] = value
            if key in tree.where:
                result.where.setdefault(split[0], tree.where[key])
    for key, given in parts.items():
        result[key] = join_schedule(result.get(key), given)
    return result


def _wrappers(value: Any, place: str) -> Any:
    """Wrappers as mappings with an `id`; a bare name is a wrapper without arguments."""
    if isinstance(value, str | Mapping):
        value = [value]
    if not isinstance(value, list):
        return value
    wrappers = [{"id": item} if isinstance(item, str) else item for item in value]
    for item in wrappers:
        if not isinstance(item, Mapping) or not isinstance(item.get("id"), str):
            raise ConfigError(f"{place}: a wrapper is a name or a mapping with an `id`, got {item!r}.")
    return wrappers


def set_dotted(tree: Located, key: str, value: Any, place: str) -> None:
    """Set `a.b.c` in a tree, making mappings on the way; below a number, `start`, `end`... make it a schedule."""
    names = key.split(".")
    names[0] = canonical_name(names[0])
    if not all(names):
        raise ConfigError(f"{place}: {key!r} is no key.")
    if len(names) == 1:
        tree.put(names[0], value, tree.where.get(names[0]))
        return
    node: Any = tree
    for index, name in enumerate(names[:-1]):
        below = parse_linear(_child(node, name, key, place))
        if below is None:
            below = {}
        elif isinstance(below, int | float) and not isinstance(below, bool) and names[index + 1] in SCHEDULE_KEYS:
            below = {"start": below}
        elif not isinstance(below, Mapping | list):
            raise ConfigError(
                f"{place}: `{'.'.join(names[: index + 1])}` is {below!r}, which has no `{names[index + 1]}`."
            )
        below = list(below) if isinstance(below, list) else dict(below)
        _store(node, name, below, key, place)
        node = below
    _store(node, names[-1], value, key, place)


def _child(node: Any, name: str, key: str, place: str) -> Any:
    return node[_index(node, name, key, place)] if isinstance(node, list) else node.get(name)


def _store(node: Any, name: str, value: Any, key: str, place: str) -> None:
    node[_index(node, name, key, place) if isinstance(node, list) else name] = value


def _index(node: list[Any], name: str, key: str, place: str) -> int:
    if not name.isdecimal() or int(name) >= len(node):
        raise ConfigError(f"{place}: in {key!r}, {name!r} is no position in a list of {len(node)}.")
    return int(name)
