"""Parts of a config that take keys of any name, `spec`, `params` and `dims`: what nobody knows or reads there is refused by name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from gymlab.config.interpolation import ENVIRONMENT_DIMENSIONS
from gymlab.config.validation import located
from gymlab.config.wording import hint, listing
from gymlab.config.yaml_reader import COMMAND_LINE, Located
from gymlab.errors import ConfigError

KNOWN = {
    "spec": (
        *("description", "source", "goal", "note", "notes", "versions", "defaults", "modes", "difficulties"),
        *("observation_space", "action_space", "rewards", "returns", "render_fps", "task"),
    ),
    "spec.returns": ("threshold_solved", "random", "range", "description", "episodic"),
    "spec.action_space": (
        *("description", "note", "discrete", "box", "multibinary", "shape", "dtype", "range"),
        *("labels", "components", "valid", "full_space"),
    ),
    "spec.observation_space": (
        *("description", "note", "discrete", "shape", "dtype", "range", "components", "default", "variants"),
    ),
}
"""Keys of an environment's description. Those of `rewards` differ from task to task."""
READ = (
    "spec.description",
    "spec.returns.threshold_solved",
    "spec.returns.random",
    "spec.action_space.labels",
    "spec.action_space.components",
    "spec.observation_space.components",
)
"""What something comes of; the rest is for people."""
REFERRED = ("params", "dims")
"""Values that are there for others to refer to."""


def check_open_keys(
    tree: Located, typed: Iterable[tuple[str, Any]], referred: Collection[str], place: str
) -> list[str]:
    """Refuse unknown keys of `spec`, and typed ones of all three that nothing reads; notices tell of those in files.

    `typed` are dotted keys of the command line with their values, `referred` the paths that references lead to.
    """
    _check_known(tree.get("spec"), "spec", located(tree, "spec", place))
    for key in (path for name, value in typed for path in _paths(name, value)):
        if key.startswith("spec.") and not _meets(key, READ):
            raise ConfigError(
                f"{COMMAND_LINE}: `{key}` describes the environment in its file, and nothing reads it. {hint(key, READ)}"
                f"What is read of a spec: {', '.join(READ)}."
            )
        if key.startswith(tuple(f"{group}." for group in REFERRED)) and _idle(key, referred):
            raise ConfigError(
                f"{COMMAND_LINE}: nothing refers to `{key}` as {_as_reference(key)}. {_near(key, referred)}"
            )
    return [
        f"{located(tree, group, place)}: nothing refers to {', '.join(idle)}."
        for group in REFERRED
        if (idle := [f"`{group}.{name}`" for name in tree.get(group) or () if _idle(f"{group}.{name}", referred)])
    ]


def _check_known(node: Any, path: str, where: str) -> None:
    if not isinstance(node, Mapping) or path not in KNOWN:
        return
    for key, value in node.items():
        if key not in KNOWN[path]:
            raise ConfigError(
                f"{where}: unknown key `{path}.{key}`. {hint(str(key), KNOWN[path])}Known under {path}: {listing(KNOWN[path])}."
            )
        _check_known(value, f"{path}.{key}", where)


def _paths(key: str, value: Any) -> Iterator[str]:
    """Dotted keys of the values in a mapping; those of labels and the like count as well."""
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _paths(f"{key}.{name}", inner)
    else:
        yield key


def _meets(key: str, others: Iterable[str]) -> bool:
    """Whether a key is one of others, is in one, or holds one."""
    return any(f"{key}.".startswith(f"{other}.") or f"{other}.".startswith(f"{key}.") for other in others)


def _idle(key: str, referred: Iterable[str]) -> bool:
    environment = [f"dims.{name}" for name in ENVIRONMENT_DIMENSIONS]
    return not _meets(key, [*referred, *environment])


def _as_reference(key: str) -> str:
    return f"${{{'_' * key.startswith('dims.')}{key}}}"


def _near(key: str, referred: Iterable[str]) -> str:
    names = sorted(name for name in referred if name.startswith(f"{key.partition('.')[0]}."))
    return f"{hint(key, names)}What is referred to: {listing(names)}."
