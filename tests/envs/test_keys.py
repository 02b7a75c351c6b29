"""Which keys give which action."""

import gymnasium as gym
import numpy as np
import pytest

from gymlab.envs.keys import RESERVED, controls_of
from gymlab.errors import EnvironmentFailure

JOYSTICK = ["noop", "fire", "up", "right", "left", "down", "up right", "up left", "up fire", "up left fire"]


def pressed(controls, *keys, last=None):
    return controls.action(frozenset(keys), last)


def test_keys_of_a_joystick_combine():
    controls = controls_of(gym.spaces.Discrete(10), JOYSTICK, "ALE/Seaquest-v5")
    assert pressed(controls) == 0
    assert pressed(controls, "space") == 1
    assert pressed(controls, "up", "left") == 7
    assert pressed(controls, "up", "left", "space") == 9
    # Nothing is called down and fire: one of them counts.
    assert pressed(controls, "down", "space") in (1, 5)
    assert not controls.waits


def test_what_a_label_says_in_brackets_is_a_key_too():
    controls = controls_of(gym.spaces.Discrete(3), ["noop", "right (up)", "left (down)"], "ALE/Pong-v5")
    assert pressed(controls, "up") == pressed(controls, "right") == 1
    assert pressed(controls, "down") == 2
    assert ("right or up", "right (up)") in controls.table


def test_without_an_idle_action_the_last_one_goes_on():
    controls = controls_of(gym.spaces.Discrete(2), ["push left", "push right"], "CartPole-v1")
    assert pressed(controls) is None
    assert pressed(controls, "right") == 1
    assert pressed(controls, last=1) == 1


@pytest.mark.parametrize(
    ("env_id", "labels", "keys"),
    [
        ("FrozenLake-v1", ["left", "down", "right", "up"], ["left", "down", "right", "up"]),
        ("CliffWalking-v1", ["up", "right", "down", "left"], ["up", "right", "down", "left"]),
        ("Taxi-v4", ["south", "north", "east", "west", "pick up", "drop off"], ["down", "up", "right", "left", "g", "f"]),
        ("MiniGrid-X-v0", ["turn left", "turn right", "forward", "pick up", "drop", "toggle", "done"],
         ["left", "right", "up", "g", "f", "space", "return"]),
        ("Crafter-v1", ["noop", "move left", "do", "sleep", "place stone"], ["return", "left", "space", "z", "1"]),
        ("Bandit-v0", ["0", "1", "2"], ["0", "1", "2"]),
    ],
)  # fmt: skip
def test_worlds_that_wait_for_a_key(env_id, labels, keys):
    controls = controls_of(gym.spaces.Discrete(len(labels)), labels, env_id)
    assert controls.waits
    assert pressed(controls) is None
    assert [pressed(controls, key) for key in keys] == list(range(len(labels)))


def test_a_shooter_has_keys_to_turn_and_to_step_aside():
    labels = ["nothing", "attack", "move forward", "move left", "move right", "turn left", "turn right"]
    controls = controls_of(gym.spaces.Discrete(7), [*labels], "VizDoom-Deathmatch-v0")
    assert [pressed(controls, key) for key in ("space", "up", "a", "d", "left", "right")] == [1, 2, 3, 4, 5, 6]


def test_a_car_steers_and_rests_in_the_middle():
    space = gym.spaces.Box(np.array([-1, 0, 0], np.float32), np.array([1, 1, 1], np.float32))
    controls = controls_of(space, ["steering from -1 to 1", "gas from 0 to 1", "brake from 0 to 1"], "CarRacing-v3")
    assert pressed(controls).tolist() == [0, 0, 0]
    assert pressed(controls, "left", "up").tolist() == [-1, 1, 0]
    assert pressed(controls, "left", "right", "down").tolist() == [0, 0, 1]
    assert space.contains(pressed(controls, "right"))


def test_a_lander_lifts_with_the_arrow_up():
    controls = controls_of(gym.spaces.Box(-1, 1, (2,)), ["main engine", "side engines"], "LunarLanderContinuous-v3")
    assert pressed(controls, "up", "left").tolist() == [1, -1]


def test_each_button_of_a_pad():
    controls = controls_of(gym.spaces.MultiBinary(4), ["b", "a", "left", "start"], "Retro/X")
    assert pressed(controls, "z", "left").tolist() == [1, 0, 1, 0]
    assert pressed(controls, "return").tolist() == [0, 0, 0, 1]


def test_choices_side_by_side():
    space = gym.spaces.MultiDiscrete([3, 2])
    controls = controls_of(space, ["move", "fire"])
    assert pressed(controls).tolist() == [0, 0]
    assert pressed(controls, "2", "3").tolist() == [2, 1]


def test_no_action_takes_a_key_of_the_window():
    labels = [f"thing {index}" for index in range(30)]
    controls = controls_of(gym.spaces.Discrete(30), labels)
    assert not controls.keys & {*RESERVED, "q"}
    assert len(controls.keys) == 30
    with pytest.raises(EnvironmentFailure, match="more keys"):
        controls_of(gym.spaces.Discrete(40), [f"thing {index}" for index in range(40)])
