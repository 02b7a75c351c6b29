"""Values that follow from others: cores, family defaults, batch, budget, warm-up; and the rules between fields."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from gymlab.config.budgets import Filled, fill_in_budget, fill_in_evaluation, fill_in_retro, fit_budget
from gymlab.config.environment_ids import family_defaults, family_of
from gymlab.config.field_types import annotation_of, default_of, fit
from gymlab.config.schedules import Schedule
from gymlab.config.schema import Config, Phase
from gymlab.config.validation import located
from gymlab.config.yaml_reader import Located
from gymlab.errors import ConfigError


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def derive(
    tree: Located,
    schema: type[BaseModel],
    place: str,
    notices: list[str],
    phases: Sequence[Phase] = (),
    *,
    fit_batch: bool,
) -> Filled:
    """Fill in and resolve, in place; what was filled in. What has the wrong type is left for validation to name."""
    for key, value in family_defaults(str(tree.get("env_id", "")), tree.get("obs_type")).items():
        architecture = ("policy", "hidden_dims", "policy_kwargs") if key == "model_id" else ()
        if key in schema.model_fields and key not in tree and not any(tree.get(name) for name in architecture):
            tree[key] = value
    _resize_pictures(tree, notices)
    if tree.get("n_envs") in (None, "auto"):
        tree["n_envs"] = cores()
    for key in tree:
        tree[key] = fit(tree[key], annotation_of(schema, key))
    given = fill_in_budget(tree, schema, phases)
    asked, too_many = fit_budget(tree)
    if "batch_size" in schema.model_fields and "n_steps" in schema.model_fields:
        _resolve_batch(tree, schema, place, notices, fit_batch=fit_batch or too_many is not None)
    evaluates = fill_in_evaluation(tree, phases, _epochs(tree, schema))
    _resolve_warmup(tree, schema, place)
    return Filled(given, asked, too_many, evaluates, fill_in_retro(tree))


def _resize_pictures(tree: Located, notices: list[str]) -> None:
    """What a Gymnasium environment draws is for people, 400x600 or the like: a network is shown less, unless a file says how much."""
    drawn = tree.get("obs_type") == "rgb" and family_of(str(tree.get("env_id", ""))) == "gymnasium"
    if drawn and "resize_obs" not in tree and not tree.get("env_wrappers"):
        tree["resize_obs"] = [84, 84]
        notices.append("obs_type is rgb: pictures are resized to 84x84. Set resize_obs=[H,W] for another size.")


def _integer(tree: Mapping[str, Any], key: str, schema: type[BaseModel]) -> int | None:
    """A positive whole number from the tree or the schema's default, or None."""
    value = tree[key] if key in tree else default_of(schema, key) if key in schema.model_fields else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _resolve_batch(tree: Located, schema: type[BaseModel], place: str, notices: list[str], *, fit_batch: bool) -> None:
    n_envs, n_steps = _integer(tree, "n_envs", schema), _integer(tree, "n_steps", schema)
    batch = tree["batch_size"] if "batch_size" in tree else default_of(schema, "batch_size")
    if n_envs is None or n_steps is None or isinstance(batch, bool) or not isinstance(batch, int | float) or batch <= 0:
        return
    rollout = n_envs * n_steps
    if batch <= 1:
        batch = max(1, math.floor(rollout * batch))
    elif not float(batch).is_integer():
        return
    batch = int(batch)
    if rollout % batch:
        divisors = divisors_of(rollout)
        if not fit_batch and "batch_size" in tree:
            nearest = sorted(divisors, key=lambda size: abs(size - batch))[:2]
            sizes = " or ".join(str(size) for size in sorted(nearest))
            raise ConfigError(
                f"{located(tree, 'batch_size', place)}: batch_size {batch} does not divide the rollout of "
                f"{n_envs} envs x {n_steps} steps = {rollout}. Nearest that do: {sizes} (or a fraction such as 0.25)."
            )
        batch = max(size for size in divisors if size <= batch)
        notices.append(f"batch_size is {batch}, so that it divides the rollout of {rollout}.")
    tree["batch_size"] = int(batch)


def divisors_of(whole: int) -> list[int]:
    """Every size that divides `whole`, in order; of an absurdly large one, those that are quickly found."""
    low = [number for number in range(1, min(math.isqrt(whole), 100_000) + 1) if whole % number == 0]
    return sorted({*low, *(whole // number for number in low)})


def _resolve_warmup(tree: Located, schema: type[BaseModel], place: str) -> None:
    warmup = tree.get("eval_warmup_epochs")
    if not isinstance(warmup, float) or not 0 < warmup < 1:
        return
    epochs = _epochs(tree, schema)
    if epochs is None:
        raise ConfigError(
            f"{located(tree, 'eval_warmup_epochs', place)}: eval_warmup_epochs {warmup:g} is a fraction of the epochs, "
            "and their number is not known: set max_env_steps or max_epochs, or give whole epochs."
        )
    tree["eval_warmup_epochs"] = math.floor(epochs * warmup)


def _epochs(tree: Mapping[str, Any], schema: type[BaseModel]) -> float | None:
    limits: list[float] = []
    if (most := _integer(tree, "max_epochs", schema)) is not None:
        limits.append(most)
    budget, steps = _integer(tree, "max_env_steps", schema), _epoch_env_steps(tree, schema)
    if budget is not None and steps is not None:
        limits.append(budget / steps)
    return min(limits, default=None)


def _epoch_env_steps(tree: Mapping[str, Any], schema: type[BaseModel]) -> int | None:
    given = _integer(tree, "epoch_env_steps", schema)
    n_envs, n_steps = _integer(tree, "n_envs", schema), _integer(tree, "n_steps", schema)
    return given or (n_envs * n_steps if n_envs and n_steps else None)


def epochs_of(config: Config) -> float | None:
    """Epochs of the whole run as far as the config tells."""
    return _epochs({name: getattr(config, name) for name in type(config).model_fields}, type(config))


def budget_of(config: Config) -> int | None:
    """Env steps of the whole run as far as the config tells: its budget, or its epochs times the steps of one."""
    tree = {name: getattr(config, name) for name in type(config).model_fields}
    steps = _epoch_env_steps(tree, type(config))
    by_epochs = config.max_epochs * steps if config.max_epochs and steps else None
    return min((limit for limit in (config.max_env_steps, by_epochs) if limit is not None), default=None)


def check_schedules(config: Config, tree: Mapping[str, Any], place: str) -> None:
    """Every schedule must have a span that the budget gives a meaning."""
    for name in type(config).model_fields:
        value = getattr(config, name)
        if isinstance(value, Schedule):
            try:
                value.span(budget_of(config))
            except ConfigError as error:
                raise ConfigError(f"{located(tree, name, place)}: `{name}`: {error}.") from error
