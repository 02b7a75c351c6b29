"""What may change during a run, and that every change by hand is kept."""

import pytest

from gymlab.config.schema import Config, Scalar
from gymlab.engine.hyperparameters import Hyperparameters, tunable_fields
from gymlab.errors import ConfigError


class Tuned(Config):
    """A config with a number, an optional number and a schedule."""

    policy_lr: Scalar = 0.1
    target_kl: Scalar | None = None
    n_steps: int = 5


def make(**fields):
    return Hyperparameters(Tuned(env_id="E", algo_id="a", **fields), budget=100)


def test_only_numbers_that_may_be_scheduled_are_tunable():
    assert tunable_fields(Tuned) == ["policy_lr", "target_kl"]


def test_a_schedule_is_read_at_the_env_step():
    hyperparameters = make(policy_lr={"start": 1.0, "end": 0.0})
    assert hyperparameters.policy_lr == 1.0
    hyperparameters.follow_schedules(25)
    assert hyperparameters.policy_lr == pytest.approx(0.75)
    assert hyperparameters.scheduled == {"policy_lr": pytest.approx(0.75)}


def test_a_change_by_hand_ends_the_schedule_and_is_replayed():
    first = make(policy_lr={"start": 1.0, "end": 0.0})
    first.set("policy_lr", 0.5, env_steps=30, reason="hot reload")
    first.follow_schedules(50)
    assert first.policy_lr == 0.5
    second = make(policy_lr={"start": 1.0, "end": 0.0})
    second.set_state(first.get_state())
    second.follow_schedules(50)
    assert second.policy_lr == 0.5
    assert second.changes == first.changes


def test_other_fields_are_refused_by_name():
    with pytest.raises(ConfigError, match=r"'n_steps' cannot change.*policy_lr"):
        make().set("n_steps", 3, env_steps=0, reason="hot reload")
