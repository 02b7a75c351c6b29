"""Settings given from Python: what numpy, functions and paths become, and what no config can hold."""

import enum
import json
from pathlib import Path

import numpy as np
import pytest

from gymlab.config.python_values import POINTS, as_json, plain
from gymlab.config.schedules import Schedule
from gymlab.errors import ConfigError


class Colour(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (np.float64(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.array([8, 16]), [8, 16]),
        ((8, 8), [8, 8]),
        ({"map": np.array(["SF", "FG"])}, {"map": ["SF", "FG"]}),
        (Path("maps") / "one.txt", "maps/one.txt"),
        (Colour.RED, "red"),
        (Schedule(start=1.0, end=0.5), {"start": 1.0, "end": 0.5}),
        (None, None),
    ],
)
def test_plain_values(given, expected):
    assert plain("key", given) == expected
    assert json.loads(as_json("key", given)) == expected
    assert type(plain("key", given)) is type(expected)


@pytest.mark.parametrize(
    "function", [lambda progress: 3e-4 * (1 - progress), lambda progress_remaining: 3e-4 * progress_remaining]
)
def test_a_straight_function_is_a_linear_schedule(function):
    schedule = plain("policy_lr", function)
    assert set(schedule) == {"start", "end"}
    assert schedule["start"] == pytest.approx(3e-4)
    assert schedule["end"] == 0.0


def test_a_curved_function_is_followed():
    def function(progress):
        return 1e-3 * (1 - progress) ** 2

    schedule = Schedule(**plain("policy_lr", function))
    assert len(schedule.points) == POINTS
    for steps in (0, 1, 250, 333, 999, 1000, 2000):
        assert schedule.value(steps, 1000) == pytest.approx(function(min(1.0, steps / 1000)), abs=1e-7)
    assert Schedule(**schedule.model_dump(mode="json", by_alias=True)) == schedule


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (object(), "policy_lr is of object, which no config can hold"),
        (dict, "policy_lr is of type, which no config can hold"),
        (lambda first, second: 1.0, "policy_lr is a function that gives no number"),
        (lambda progress: 1 / (1 - progress), "policy_lr is a function that gives no number"),
        (lambda progress: float("nan"), "policy_lr is a function whose values are not all finite"),
        ({"start": object()}, r"policy_lr\.start is of object"),
    ],
)
def test_what_no_config_can_hold_is_named(value, words):
    with pytest.raises(ConfigError, match=words):
        plain("policy_lr", value)
