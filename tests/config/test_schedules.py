import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gymlab.config.schedules import Schedule, join_schedule, parse_linear, split_schedule_key
from gymlab.errors import ConfigError


def test_linear_by_hand():
    schedule = Schedule(start=1e-3)
    assert schedule.value(0, 1000) == 1e-3
    assert schedule.value(250, 1000) == pytest.approx(7.5e-4)
    assert schedule.value(1000, 1000) == 0.0
    assert schedule.value(5000, 1000) == 0.0


def test_fractions_of_the_budget():
    schedule = Schedule(start=1.0, end=0.5, **{"from": 0.2, "to": 0.6})
    assert schedule.value(100, 1000) == 1.0
    assert schedule.value(200, 1000) == 1.0
    assert schedule.value(400, 1000) == pytest.approx(0.75)
    assert schedule.value(600, 1000) == pytest.approx(0.5)
    assert schedule.value(999, 1000) == pytest.approx(0.5)


def test_positions_above_one_are_env_steps_and_need_no_budget():
    schedule = Schedule(start=2.0, end=1.0, **{"from": 100, "to": 300})
    assert [schedule.value(steps, None) for steps in (0, 100, 200, 300, 400)] == [2.0, 2.0, 1.5, 1.0, 1.0]


def test_an_absolute_end_after_a_start_of_zero_needs_no_budget():
    assert Schedule(start=1.0, to=200).value(50, None) == 0.75


def test_cosine_by_hand():
    schedule = Schedule(start=1.0, end=0.2, schedule="cosine")
    assert schedule.value(0, 100) == 1.0
    assert schedule.value(25, 100) == pytest.approx(0.2 + 0.8 * 0.5 * (1 + math.cos(math.pi / 4)))
    assert schedule.value(50, 100) == pytest.approx(0.6)
    assert schedule.value(100, 100) == pytest.approx(0.2)


def test_exponential_by_hand():
    schedule = Schedule(start=1e-2, end=1e-4, schedule="exponential")
    assert schedule.value(0, 100) == pytest.approx(1e-2)
    assert schedule.value(50, 100) == pytest.approx(1e-3)
    assert schedule.value(100, 100) == pytest.approx(1e-4)


def test_warmup_rises_from_zero_then_the_change_takes_the_rest():
    schedule = Schedule(start=1.0, end=0.0, warmup=0.2)
    assert [schedule.value(steps, 100) for steps in (0, 10, 20, 60, 100)] == pytest.approx([0.0, 0.5, 1.0, 0.5, 0.0])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"start": 1, "end": 0, "schedule": "exponential"}, "never reaches or crosses"),
        ({"start": 1, "end": -1, "schedule": "exponential"}, "never reaches or crosses"),
        ({"start": 0, "end": 1, "schedule": "exponential"}, "never reaches or crosses"),
        ({"start": 1, "from": 0.5, "to": 0.2}, "not after its start"),
        ({"start": 1, "from": 500, "to": 500}, "not after its start"),
        ({"start": 1, "warmup": 1}, "less than 1"),
        ({"start": 1, "schedule": "step"}, "linear"),
    ],
)
def test_what_cannot_be_is_refused(fields, words):
    with pytest.raises(ValidationError, match=words):
        Schedule(**fields)


def test_a_fraction_without_a_budget_is_an_error():
    with pytest.raises(ConfigError, match=r"fraction of the budget.*max_env_steps"):
        Schedule(start=1.0).value(0, None)


def test_an_end_before_the_start_shows_only_with_the_budget():
    schedule = Schedule(start=1.0, **{"from": 0.5, "to": 1000})
    assert schedule.value(1000, 1500) == 0.0
    with pytest.raises(ConfigError, match="begins at step 50000 cannot end at step 1000"):
        schedule.value(0, 100_000)


@given(
    start=st.floats(-10, 10),
    end=st.floats(-10, 10),
    shape=st.sampled_from(["linear", "cosine"]),
    steps=st.integers(0, 2000),
)
def test_the_value_stays_between_its_ends(start, end, shape, steps):
    value = Schedule(start=start, end=end, schedule=shape).value(steps, 1000)
    assert min(start, end) - 1e-9 <= value <= max(start, end) + 1e-9


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("lin_0.001", {"start": 0.001}),
        ("lin_3e-4", {"start": 3e-4}),
        ("lin_.2", {"start": 0.2}),
        ("lin_", "lin_"),
        ("linear", "linear"),
        (0.1, 0.1),
    ],
)
def test_linear_shorthand(text, value):
    assert parse_linear(text) == value


def test_schedule_keys_are_split_and_joined():
    assert split_schedule_key("policy_lr_schedule_end_value") == ("policy_lr", "end")
    assert split_schedule_key("policy_lr_schedule_start") == ("policy_lr", "from")
    assert split_schedule_key("policy_lr_schedule") == ("policy_lr", "schedule")
    assert split_schedule_key("policy_lr") is None
    assert join_schedule(0.1, {"schedule": "linear", "end": 0.01, "to": None}) == {
        "start": 0.1,
        "schedule": "linear",
        "end": 0.01,
    }
    assert join_schedule(0.1, {"schedule": None, "end": 0.01}) == 0.1


def test_points_are_joined_by_straight_lines_and_must_fit_the_ends():
    schedule = Schedule(start=0.0, end=4.0, points=(0.0, 1.0, 4.0))
    assert [schedule.value(steps, 100) for steps in (0, 25, 50, 75, 100, 200)] == [0.0, 0.5, 1.0, 2.5, 4.0, 4.0]
    assert "points" not in Schedule(start=1.0).model_dump()
    with pytest.raises(ValidationError, match="begin with its `start` and end with its `end`"):
        Schedule(start=0.0, end=4.0, points=(0.0, 1.0))
