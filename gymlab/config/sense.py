"""Values that are legal and that hardly anybody wants: each is told in a line, with what it does."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Any

from gymlab.config.derive import cores, epochs_of
from gymlab.config.effects import usual_value
from gymlab.config.schedules import Schedule, schedule_ends
from gymlab.config.schema import Config

MANY_REPLAYS = 8


def senseless(config: Config, given: Collection[str]) -> Iterator[str]:
    """One sentence for each such value; `given` are the settings that somebody has set."""
    for name in type(config).model_fields:
        value = getattr(config, name)
        if name == "policy_lr" or name.endswith("_lr"):
            if _largest(value) == 0:
                yield f"{name} is 0: what it is the learning rate of stays as it begins."
        elif name == "max_grad_norm":
            if _largest(value) == 0:
                yield "max_grad_norm is 0: every gradient is scaled to 0, and nothing is learned; null is no limit."
        elif name == "clip_range_vf":
            if _largest(value) == 0:
                yield "clip_range_vf is 0: a value that has come closer to its target learns no more in that update; null is no limit."
        elif name == "target_kl":
            if _largest(value) == 0:
                yield "target_kl is 0: an update ends at the first minibatch that moves the policy at all; null is no limit."
        elif name == "ent_coef":
            if _least(value) < 0:
                yield f"ent_coef is {_least(value):g}: below 0 the policy is paid for being certain."
        elif name == "replay_ratio" and value > MANY_REPLAYS:
            yield f"replay_ratio is {value}: {value} passes over old rollouts for each new one; 1 to 4 are usual."
    if config.torch_threads is not None and config.torch_threads > cores():
        yield f"torch_threads is {config.torch_threads}, and there are {cores()} cores: more threads wait for each other."
    if "plan_horizon" in given:
        yield from _cut_plan(config)
    yield from _warmup(config)


def _cut_plan(config: Any) -> Iterator[str]:
    data = config.model_dump(mode="json", by_alias=True)
    steps = max(schedule_ends(config.plan_horizon))
    if steps > config.horizon and data["plan_horizon"] != usual_value(type(config), data, "plan_horizon"):
        yield f"plan_horizon {steps:g} is cut to horizon {config.horizon}: no more steps are planned than are learned along."


def _warmup(config: Config) -> Iterator[str]:
    epochs = epochs_of(config)
    # An epoch of a curriculum with phases of its own is no fixed number of steps.
    known = config.epoch_env_steps is not None or not (config.training.phases or hasattr(config, "curriculum"))
    if config.eval_freq_epochs and epochs is not None and known and config.eval_warmup_epochs > epochs:
        yield (
            f"eval_warmup_epochs is {config.eval_warmup_epochs}, and the run ends after {math.floor(epochs)} epochs: "
            "nothing is evaluated before the end."
        )


def _largest(value: Any) -> float | None:
    return None if value is None else max(schedule_ends(value))


def _least(value: float | Schedule) -> float:
    return min(schedule_ends(value))
