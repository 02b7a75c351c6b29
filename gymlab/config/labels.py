"""What an experiment's file says of its environment and algorithm, where a setting on top has put another in their place."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import deepcopy
from typing import Any

from gymlab.config.dotted import flat
from gymlab.config.environment_files import Section
from gymlab.config.environment_ids import current_id
from gymlab.config.names import algorithm_name
from gymlab.config.yaml_reader import Located
from gymlab.errors import ConfigError

OF_ENVIRONMENT = (
    "project_id",
    "spec",
    "reward_threshold",
    "early_stop_on_eval_threshold",
    "early_stop_on_train_threshold",
)
"""Fields that hold for one environment only: its name, and returns that mean something there."""


def declared_by(section: Section, tree: Located, algorithms: Collection[str]) -> Located:
    """What the section itself says, before anything is laid on top, of what another environment or algorithm makes untrue."""
    kept = Located()
    for key in ("env_id", "algo_id", "variant", "description", *OF_ENVIRONMENT):
        if key in tree:
            kept.put(key, deepcopy(tree[key]), tree.where.get(key))
    if "algo_id" not in kept and algorithm_name(section.variant) in algorithms:
        kept["algo_id"] = section.variant
    return kept


def check_variant(tree: Mapping[str, Any], declared: Mapping[str, Any], section: Section) -> None:
    """A variant is chosen by the experiment's name: as a setting it would be a label that nothing stands behind."""
    wanted = tree.get("variant")
    if wanted not in (None, "", section.variant, declared.get("variant")):
        name = tree.get("env_id") or declared.get("env_id") or "<env>"
        raise ConfigError(
            f"variant={wanted}: a variant is chosen by the name of the experiment: {name}:{wanted}. "
            f"This is {section.variant or 'no variant'}, with settings on top."
        )


def follow_overrides(tree: Located, declared: Located) -> dict[str, Any]:
    """Drop what the file says of another environment or algorithm; what was given on top stays, of the spec it is returned.

    Of another environment, name, spec and thresholds; of another algorithm, the variant's name.
    """
    other_algorithm = "algo_id" in declared and algorithm_name(str(declared["algo_id"])) != tree["algo_id"]
    before, now = declared.get("env_id"), tree.get("env_id")
    other_environment = isinstance(before, str) and isinstance(now, str) and current_id(before)[0] != current_id(now)[0]
    if other_algorithm:
        tree["variant"] = tree["algo_id"]
    if (other_algorithm or other_environment) and tree.get("description") == declared.get("description"):
        tree.pop("description", None)
    spec: dict[str, Any] = {}
    if not other_environment:
        return spec
    for key in OF_ENVIRONMENT:
        if key == "spec":
            own = flat(declared.get("spec") or {})
            spec = {name: value for name, value in flat(tree.get("spec") or {}).items() if own.get(name) != value}
            tree.pop("spec", None)
        elif key in tree and tree.where.get(key) == declared.where.get(key) and not isinstance(tree[key], bool):
            tree.pop(key)
    tree.setdefault("project_id", current_id(str(now))[0])
    return spec


def threshold_task(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The threshold that a file's spec has, and the settings of the environment that it holds for."""
    returns = (tree.get("spec") or {}).get("returns") or {}
    task = {key: deepcopy(tree.get(key)) for key in ("env_kwargs", "max_episode_steps")}
    return {"threshold": returns.get("threshold_solved"), **task}


def note_task(tree: Located, of_file: Mapping[str, Any]) -> None:
    """Write into the spec what its threshold holds for, where the environment has other settings on top and the threshold is the file's."""
    now = threshold_task(tree)
    if now["threshold"] is None or now["threshold"] != of_file["threshold"] or tree["spec"].get("task"):
        return
    before = {key: of_file[key] for key in ("env_kwargs", "max_episode_steps")}
    if any((now[key] or None) != (value or None) for key, value in before.items()):
        plain = {"env_kwargs": dict(before["env_kwargs"] or {}), "max_episode_steps": before["max_episode_steps"]}
        tree.put("spec", {**tree["spec"], "task": plain}, tree.where.get("spec"))
