"""What may change during a run, and that every change is kept."""

import json

import pytest
from pydantic import field_validator

from gymlab.config.schedules import not_negative
from gymlab.config.schema import Config, Scalar, Schedule, tunable_fields
from gymlab.engine.hyperparameters import Hyperparameters, checked_value
from gymlab.errors import ConfigError


class Tuned(Config):
    """A config with a number, an optional number and a field that stays."""

    policy_lr: Scalar = 0.1
    target_kl: Scalar | None = None
    n_steps: int = 5

    _not_negative = field_validator("policy_lr")(not_negative)


def config(**fields):
    return Tuned(env_id="E", algo_id="a", max_env_steps=100, **fields)


def make(**fields):
    return Hyperparameters(config(**fields), budget=100)


def test_only_numbers_that_may_be_scheduled_are_tunable():
    assert tunable_fields(Tuned) == ["policy_lr", "target_kl"]


def test_a_schedule_is_read_at_the_env_step():
    hyperparameters = make(policy_lr={"start": 1.0, "end": 0.0})
    assert hyperparameters.policy_lr == 1.0
    hyperparameters.follow_schedules(25)
    assert hyperparameters.policy_lr == pytest.approx(0.75)
    assert hyperparameters.moving == {"policy_lr": pytest.approx(0.75)}


def test_a_change_ends_the_schedule_and_is_in_the_state():
    first = make(policy_lr={"start": 1.0, "end": 0.0})
    first.set("policy_lr", 0.5, env_steps=30, reason="config.json")
    first.follow_schedules(50)
    assert first.policy_lr == 0.5
    second = make(policy_lr={"start": 1.0, "end": 0.0})
    second.set_state(first.get_state())
    second.follow_schedules(60)
    assert second.policy_lr == 0.5
    assert second.changes == first.changes


def test_a_schedule_that_was_set_survives_json_at_the_step_where_it_was_read():
    first = make()
    first.set("policy_lr", Schedule(start=1.0, end=0.0), env_steps=20, reason="gymlab set")
    first.follow_schedules(20)
    assert first.policy_lr == pytest.approx(0.8)
    second = make()
    second.set_state(json.loads(json.dumps(first.get_state())))
    assert second.policy_lr == first.policy_lr
    second.follow_schedules(75)
    assert second.policy_lr == pytest.approx(0.25)


def test_a_schedule_of_the_config_stands_where_the_state_was_taken():
    first = make(policy_lr={"start": 1.0, "end": 0.0})
    first.follow_schedules(40)
    second = make(policy_lr={"start": 1.0, "end": 0.0})
    second.set_state(first.get_state())
    assert second.policy_lr == pytest.approx(0.6)


def test_nothing_is_a_value_without_a_column():
    hyperparameters = make(target_kl=0.02)
    hyperparameters.set("target_kl", None, env_steps=0, reason="config.json")
    assert hyperparameters.target_kl is None
    assert hyperparameters.moving == {}


def test_other_fields_are_refused_by_name():
    with pytest.raises(ConfigError, match=r"`n_steps` cannot change.*policy_lr, target_kl"):
        make().set("n_steps", 3, env_steps=0, reason="config.json")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("policy_lr", 0.2, 0.2),
        ("policy_lr", 1, 1.0),
        ("policy_lr", "3e-4", 3e-4),
        ("policy_lr", {"start": 1, "end": 0.5}, Schedule(start=1.0, end=0.5)),
        ("target_kl", None, None),
        ("target_kl", False, None),
    ],
)
def test_values_that_a_field_takes(name, value, expected):
    assert checked_value(config(), name, value, "here") == expected


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("policy_lr", -0.1, "here: `policy_lr`: must not be negative."),
        ("policy_lr", None, "expects a number or a schedule, got null"),
        ("policy_lr", True, "expects a number or a schedule"),
        ("policy_lr", "fast", "expects a number or a schedule"),
        ("policy_lr", float("nan"), "`policy_lr`"),
        ("policy_lr", {"start": 1, "end": -1}, "must not be negative"),
        ("policy_lr", {"start": 1, "from": 0.5, "to": 20}, "begins at step 50 cannot end at step 20"),
        ("n_steps", 7, "`n_steps` cannot change while a run trains."),
        ("polcy_lr", 7, "Did you mean 'policy_lr'?"),
    ],
)
def test_values_that_a_field_refuses(name, value, why):
    with pytest.raises(ConfigError) as error:
        checked_value(config(), name, value, "here")
    assert why in str(error.value)
